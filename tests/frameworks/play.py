"""Runs a script in its own environment against the scripted server, and captures what it sends."""

from __future__ import annotations

import gzip
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_json
from tests.e2e.backend import Request, http_backend
from tests.frameworks.catalogue import FOLDER, RunScript
from tests.frameworks.kit.story import told
from tests.frameworks.languages import LANGUAGES, PYTHON
from tests.frameworks.scrub import PORT, scrub
from tests.frameworks.server import NO_HEADERS, Office, serving
from tests.frameworks.truth import Truth

PATIENCE_S: Final = 600.0
ROOT: Final = FOLDER.parents[1]
_ENDS_IN_ERROR: Final = ("crash", "max_turns", "guarded")
"""Variants whose script may exit with a code other than 0."""
_QUIET: Final = {
    "ANONYMIZED_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OPENAI_AGENTS_DONT_LOG_MODEL_DATA": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Turns off the frameworks' own usage reporting."""


class RunFailed(Exception):  # noqa: N818 (a script's failure, told to a person)
    """A run script did not end as its variant should; the message has its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A finished run."""

    truth: Truth
    requests: tuple[dict[str, object], ...]
    """The framework's requests to the model, unchanged."""
    said: str
    """The script's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A finished run and its telemetry."""

    played: Played
    lines: tuple[str, ...]
    """OTLP/JSON, one export request per line, without data of this machine."""
    sent: tuple[str, ...] = ()
    """The same unchanged, for reruns on this machine."""

    @property
    def data(self) -> bytes:
        """The fixture's bytes; the same for the same lines."""
        return gzip.compress("\n".join(self.lines).encode() + b"\n", mtime=0)


def play(
    run: RunScript,
    variant: str,
    *,
    python: Path,
    endpoint: str,
    script: Path | None = None,
    model: Mapping[str, str] = NO_HEADERS,
) -> Played:
    """Run the script to its end.

    Args:
        run: what to run.
        variant: of the story.
        python: the interpreter of its environment.
        endpoint: where its OTLP/HTTP goes.
        script: another program to run in its place.
        model: environment that leads the model calls elsewhere; tools and checks still ask the office.

    Raises:
        RunFailed: it ended in error, or not in time.
    """
    with serving(variant) as office, TemporaryDirectory(prefix="frameworks-") as home:
        said = _run(run, office, python=python, endpoint=endpoint, home=home, script=script, model=model)
        return _played(run, office, said)


def record(run: RunScript, variant: str, *, python: Path) -> Recorded:
    """Run the script to its end and keep everything that it sends."""
    with (
        http_backend() as backend,
        serving(variant) as office,
        TemporaryDirectory(prefix="frameworks-") as home,
    ):
        said = _run(run, office, python=python, endpoint=backend.url, home=home)
        # Longest first, so that no path is cut by one that it begins with.
        names = {str(python.parents[1]): "/venv", str(python.parents[1].resolve()): "/venv"}
        names |= {str(ROOT): "/app", home: "/tmp/home", str(Path(sys.base_prefix)): "/usr"}
        names |= {platform.release(): "0.0", backend.url.removeprefix("http://"): f"127.0.0.1:{PORT}"}
        port = int(office.url.removesuffix("/v1").rpartition(":")[2])
        documents = [
            _document(request)
            for request in backend.requests
            if request.signal in {Signal.TRACES, Signal.LOGS}
        ]
        sent = tuple(json.dumps(document) for document in documents)
        lines = tuple(scrub(document, port=port, names=names) for document in documents)
        return Recorded(played=_played(run, office, said), lines=lines, sent=sent)


def _document(request: Request) -> dict[str, Any]:
    """The request as OTLP/JSON; some frameworks send it so."""
    is_json = request.headers.get("content-type", "").startswith("application/json")
    found: dict[str, Any] = json.loads(request.body if is_json else to_json(request.signal, request.body))
    return found


def _played(run: RunScript, office: Office, said: str) -> Played:
    truth = Truth(
        variant=office.variant,
        recorded=datetime.now(UTC).date().isoformat(),
        versions=_versions(run),
        log=tuple(office.log),
    )
    return Played(truth=truth, requests=tuple(office.requests), said=said)


def _run(
    run: RunScript,
    office: Office,
    *,
    python: Path,
    endpoint: str,
    home: str,
    script: Path | None = None,
    model: Mapping[str, str] = NO_HEADERS,
) -> str:
    environ = _environment(run, home) | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OPENAI_BASE_URL": office.url,
        "OPENAI_API_KEY": "dummy",
        "ANTHROPIC_BASE_URL": office.url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "dummy",
        "SCENARIO_VARIANT": office.variant,
        "OFFICE_URL": office.url,
        "SCENARIO_STORY": json.dumps(told(office.variant)),
        **model,
    }
    try:
        done = subprocess.run(
            [str(python), str(script or run.script)],
            env=environ,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace")
        raise RunFailed(f"{run.name}: not done in {PATIENCE_S:g} s; it wrote:\n{_tail(said)}") from None
    said = done.stdout.decode(errors="replace")
    if done.returncode and office.variant not in _ENDS_IN_ERROR:
        raise RunFailed(f"{run.name} ended with {done.returncode}; it wrote:\n{_tail(said)}")
    return said


def _environment(run: RunScript, home: str) -> dict[str, str]:
    """Nothing of the developer's environment except the paths of programs."""
    ours = [str(FOLDER / "kit"), *([str(ROOT)] if run.needs_blamespan else [])]
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": home,
        "TMPDIR": home,
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONPATH": os.pathsep.join(ours),
        "OTEL_SERVICE_NAME": "ferry-office",
        **_QUIET,
        **run.env,
    }


def _versions(run: RunScript) -> dict[str, str]:
    """The pins of what the run's requirements name, without what these need in turn."""
    if run.language != PYTHON:
        pins = dict(LANGUAGES[run.language].versions(run.requirements_file.read_text()))
        return {name: pins[name] for name in run.packages}
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", run.requirements_file.read_text(), re.MULTILINE))
    wanted = run.requirements_file.with_suffix(".in").read_text().split()
    names = [re.split(r"[\[=<>~!]", each)[0] for each in wanted]
    return {name: pins[name] for name in names if name in pins}


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-40:])
