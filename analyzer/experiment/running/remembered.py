"""The options and the command of the last experiment on each service's runs, in the data directory. Not pure.

Only the command line writes them, after a valid trial. Of a trace they hold nothing but the name of its
service, by which they are found. A command line that seems to hold a secret is not written. The command line
is shown before it runs, because another program may have written this file.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any, Final

from collector_processor.rebuild.redaction import Redactor
from semconv.record import record

_FILE: Final = "experiments.json"
_MOST: Final = 100
"""Services that are remembered, the latest ones."""
_LONGEST: Final = 8_000
"""Characters of a command line that is remembered, and of a service's name."""
_MOST_BYTES: Final = 4 << 20
_SECRET_NAME: Final = re.compile(r"secret|passw|token|api.?key|credential|authorization", re.IGNORECASE)


@record
class Remembered:
    """What an experiment was given."""

    options: tuple[str, ...]
    """Options with their values, as on the command line: check, tools, upstream."""
    command: tuple[str, ...]
    """The command that runs the workflow once."""

    def line(self, run: str) -> str:
        """Return the whole command line for a run."""
        return shlex.join(["blamespan", "experiment", run, *self.options, "--", *self.command])

    def values(self, option: str) -> list[str]:
        """Return the values of an option, in their order."""
        pairs = zip(self.options[::2], self.options[1::2], strict=True)
        return [value for name, value in pairs if name == option]

    def value(self, option: str) -> str | None:
        """Return the value of an option that is given at most once."""
        return next(iter(self.values(option)), None)


def may_be_kept(asked: Remembered) -> bool:
    """Return whether a command line is short and, as far as can be told, without secrets."""
    line = asked.line("RUN")
    return len(line) <= _LONGEST and not _SECRET_NAME.search(line) and Redactor().redact(line) == line


def remember(data_dir: Path, service: str, asked: Remembered) -> bool:
    """Keep what an experiment was given for its service.

    Returns:
        Whether it was kept: the directory exists, and nothing in it looks like a secret.

    Raises:
        OSError: the file cannot be written.
    """
    if not data_dir.is_dir() or len(service) > _LONGEST or not may_be_kept(asked):
        return False
    known = _read(data_dir / _FILE)
    known.pop(service, None)
    known[service] = {"options": asked.options, "command": asked.command}
    latest = dict(list(known.items())[-_MOST:])
    with tempfile.NamedTemporaryFile("w", dir=data_dir, prefix=_FILE, delete=False) as new:  # mode 0600
        json.dump(latest, new)
    Path(new.name).replace(data_dir / _FILE)
    return True


def remembered(data_dir: Path, service: str) -> Remembered | None:
    """Return what the last experiment on this service's runs was given; ``None`` if it is not known."""
    found = _read(data_dir / _FILE).get(service)
    if not isinstance(found, dict):
        return None
    options, command = _texts(found.get("options")), _texts(found.get("command"))
    if not command or len(options) % 2:
        return None
    return Remembered(options=options, command=command)


def _read(path: Path) -> dict[str, Any]:
    """Return the file's content; nothing if it is missing or damaged: it holds a convenience only."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _texts(found: object) -> tuple[str, ...]:
    is_list = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return tuple(found) if is_list and isinstance(found, list) else ()
