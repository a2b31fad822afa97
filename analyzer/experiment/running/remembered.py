"""The options and the command of the last experiment on the runs of each tenant's services. Not pure.

They are in the data directory. Only the command line writes them, after a valid trial. Of a trace they hold
nothing but its tenant and the name of its service, by which they are found. A command line that seems to
hold a secret is not written. The command line is shown before it runs, because another program may have
written this file.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any, Final

from analyzer.records.proof_records import Remembered, given_in
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.redaction import Redactor

_FILE: Final = "experiments.json"
_MOST: Final = 100
"""Services that are remembered, the latest ones."""
_LONGEST: Final = 8_000
"""Characters of a command line that is remembered, and of a service's name with its tenant."""
_MOST_BYTES: Final = 4 << 20
_SECRET_NAME: Final = re.compile(r"secret|passw|token|api.?key|credential|authorization", re.IGNORECASE)


def may_be_kept(asked: Remembered) -> bool:
    """Return whether a command line is short and, as far as can be told, without secrets."""
    line = asked.line("RUN")
    return len(line) <= _LONGEST and not _SECRET_NAME.search(line) and Redactor().redact(line) == line


def remember(data_dir: Path, tenant: Tenant, service: str, asked: Remembered) -> bool:
    """Keep what an experiment was given for its tenant's service.

    Returns:
        Whether it was kept: the directory exists, and nothing in it looks like a secret.

    Raises:
        OSError: the file cannot be written.
    """
    if not data_dir.is_dir() or len(tenant + service) > _LONGEST or not may_be_kept(asked):
        return False
    known = _read(data_dir / _FILE)
    key = _key(tenant, service)
    known.pop(key, None)
    known[key] = {"tenant": tenant, "options": asked.options, "command": asked.command}
    latest = dict(list(known.items())[-_MOST:])
    with tempfile.NamedTemporaryFile("w", dir=data_dir, prefix=_FILE, delete=False) as new:  # mode 0600
        json.dump(latest, new)
    Path(new.name).replace(data_dir / _FILE)
    return True


def remembered(data_dir: Path, tenant: Tenant, service: str) -> Remembered | None:
    """Return what the last experiment on this service's runs was given; ``None`` if it is not known."""
    found = _read(data_dir / _FILE).get(_key(tenant, service))
    if not isinstance(found, dict) or found.get("tenant", NO_TENANT) != tenant:
        return None
    return given_in(found)


def _key(tenant: Tenant, service: str) -> str:
    """Return the key of an entry. A service's name may look like one, so the entry names its tenant too."""
    return service if tenant == NO_TENANT else json.dumps([tenant, service])


def _read(path: Path) -> dict[str, Any]:
    """Return the file's content; nothing if it is missing or damaged: it holds a convenience only."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
