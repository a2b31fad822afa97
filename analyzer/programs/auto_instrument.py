"""OpenTelemetry's Python auto-instrumentation for a program that has none of its own. Not pure.

It is what the command ``opentelemetry-instrument`` does: a ``sitecustomize`` at the front of ``PYTHONPATH``
sets up an SDK and loads every installed instrumentation that has the entry point
``opentelemetry_instrumentor``, as OpenTelemetry's, OpenInference's and Traceloop's have (source:
opentelemetry-instrumentation 0.66, ``auto_instrumentation/__init__.py``). It would take the place of a
program's own set-up, so it stays off if a file of the program names one, and if the files cannot be found.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from semconv.record import record

_OWN: Final = re.compile(
    r"opentelemetry|openinference|traceloop|TracerProvider|instrument\w*\(|logfire|openlit|phoenix|langfuse"
    r"|langsmith|mlflow|lmnr|agentops|weave|ddtrace|sentry_sdk|semconv",
    re.IGNORECASE,
)
"""What a file of a program names that sets up telemetry by itself. A word too many only leaves ours off."""
_MOST_FILES: Final = 300
_MOST_BYTES: Final = 1 << 20
"""Bounds of what is read of a program; beyond them it counts as having telemetry of its own."""
_PROBE_S: Final = 20.0
_SDK: Final = ("opentelemetry-distro", "opentelemetry-exporter-otlp")


@record
class _Framework:
    """A framework of docs/frameworks, and what makes its spans."""

    package: str
    module: str
    """What a program imports."""
    instrumentation: str = ""
    """The package that instruments it; empty if it emits spans by itself as soon as an SDK is set up."""


_LANGCHAIN: Final = "openinference-instrumentation-langchain"
_AUTOGEN: Final = "openinference-instrumentation-autogen-agentchat"
_LLAMA_INDEX: Final = "openinference-instrumentation-llama-index"
_FRAMEWORKS: Final = tuple(
    _Framework(package=package, module=module, instrumentation=instrumentation)
    for package, module, instrumentation in (
        ("langgraph", "langgraph", _LANGCHAIN),
        ("langchain", "langchain", _LANGCHAIN),
        ("crewai", "crewai", "openinference-instrumentation-crewai"),
        ("openai-agents", "agents", "openinference-instrumentation-openai-agents"),
        ("autogen-agentchat", "autogen_agentchat", _AUTOGEN),
        ("ag2", "autogen", "openinference-instrumentation-ag2"),
        ("llama-index-core", "llama_index", _LLAMA_INDEX),
        ("smolagents", "smolagents", "openinference-instrumentation-smolagents"),
        ("agno", "agno", "openinference-instrumentation-agno"),
        ("dspy", "dspy", "openinference-instrumentation-dspy"),
        ("google-adk", "google.adk", ""),
        ("strands-agents", "strands", ""),
    )
)
_PROTOCOLS: Final = {"otlp_proto_http": "http/protobuf", "otlp_proto_grpc": "grpc"}
"""By the entry point of its exporter."""
_PROBE: Final = """
import sys
sys.path[:1] = []
import json
from importlib.metadata import distributions
from importlib.util import find_spec
names, points = set(), []
for each in distributions():
    names.add((each.metadata["Name"] or "").lower().replace("_", "-"))
    points += [(one.group, one.name) for one in each.entry_points]
try:
    spec = find_spec("opentelemetry.instrumentation.auto_instrumentation")
except ImportError:
    spec = None
named = lambda group: sorted({name for one, name in points if one == "opentelemetry_" + group})
print(json.dumps({
    "place": list(spec.submodule_search_locations or [""])[0] if spec else "",
    "can_configure": bool(named("configurator")),
    "exporters": named("traces_exporter"),
    "instrumentors": named("instrumentor"),
    "packages": sorted(names),
}))
"""


@record
class Installed:
    """What a program's Python has installed."""

    place: str
    """The folder with the ``sitecustomize``; empty if there is none."""
    can_configure: bool
    """Whether something sets up the SDK."""
    exporters: tuple[str, ...]
    instrumentors: tuple[str, ...]
    packages: frozenset[str]
    """Names in lower case, with hyphens."""

    @property
    def protocol(self) -> str:
        """The protocol of its OTLP exporter; empty if there is none."""
        return next((kind for name, kind in _PROTOCOLS.items() if name in self.exporters), "")

    @property
    def is_ready(self) -> bool:
        """Whether auto-instrumentation would send spans."""
        return bool(self.place and self.can_configure and self.protocol)


def instrumenting(environ: Mapping[str, str], installed: Installed) -> dict[str, str]:
    """Return the variables that switch auto-instrumentation on, as ``opentelemetry-instrument`` sets them.

    Metrics are off, as they are without it. What the user set stays.
    """
    former = [each for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    path = [installed.place, *(each for each in former if each != installed.place)]
    usual = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": installed.protocol,
    }
    return {
        "PYTHONPATH": os.pathsep.join(path),
        **{name: value for name, value in usual.items() if not environ.get(name)},
    }


def advice(installed: Installed, source: str) -> str:
    """Return what to install so that more is seen of a program's frameworks; empty if nothing is missing.

    Args:
        installed: what its Python has.
        source: the text of its own files (``own_source``), of which the imports count.
    """
    frameworks = [
        one for one in _FRAMEWORKS if one.package in installed.packages and _imports(source, one.module)
    ]
    if not frameworks:
        return ""
    wanted = (*(() if installed.is_ready else _SDK), *(framework.instrumentation for framework in frameworks))
    missing = [each for each in dict.fromkeys(wanted) if each and each not in installed.packages]
    if not missing:
        return ""
    return (
        f"more can be seen of {', '.join(one.package for one in frameworks)}: pip install {' '.join(missing)}"
        " in the program's environment, and run it again"
    )


def _imports(source: str, module: str) -> bool:
    return re.search(rf"^\s*(?:from|import)\s+{re.escape(module)}\b", source, re.MULTILINE) is not None


async def look_up(python: str, environ: Mapping[str, str]) -> Installed | None:
    """Ask a program's Python what it has; ``None`` if it does not answer as a Python of today does."""
    try:
        process = await asyncio.create_subprocess_exec(
            python,
            "-c",
            _PROBE,
            env=dict(environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(_PROBE_S):
            said, _ = await process.communicate()
        return _read(json.loads(said))
    except (TimeoutError, ValueError, KeyError, TypeError, AttributeError):
        return None
    finally:
        with suppress(ProcessLookupError):
            process.kill()


def _read(said: Any) -> Installed:
    return Installed(
        place=str(said["place"]),
        can_configure=bool(said["can_configure"]),
        exporters=tuple(said["exporters"]),
        instrumentors=tuple(said["instrumentors"]),
        packages=frozenset(said["packages"]),
    )


_PYTHON: Final = re.compile(r"python(\d+(\.\d+)?)?(\.exe)?")
_VALUED: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})
"""Options of Python with a value of their own."""


def python_of(command: Sequence[str]) -> str | None:
    """Return the Python that a command starts; ``None`` if it starts something else, such as ``uv``."""
    return command[0] if _PYTHON.fullmatch(Path(command[0]).name) else None


def own_source(command: Sequence[str], folder: Path) -> str | None:
    """Return the text of a Python program's own files, if they set up no telemetry.

    Args:
        command: Python and its arguments.
        folder: the working directory.

    Returns:
        ``None`` too if the files are not found, not readable, or too many.
    """
    root, waiting = _beginning(command, folder)
    if not any(path.is_file() for path in waiting):
        return None
    seen: dict[Path, str] = {}
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        source = _source(path)
        if source is None or _OWN.search(source) or len(seen) >= _MOST_FILES:
            return None
        seen[path] = source
        imported = _imported(source, path, root)
        if imported is None:
            return None
        waiting += imported
    return "\n".join(seen.values())


def _beginning(command: Sequence[str], folder: Path) -> tuple[Path, list[Path]]:
    """Return where a command of Python finds modules, and the files that it may begin with."""
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            module = next(words, "")
            return folder, [*_files(folder, module), folder.joinpath(*module.split("."), "__main__.py")]
        if word in _VALUED:
            next(words, None)
        elif not word.startswith("-"):
            script = folder / word
            return script.parent, [script]
    return folder, []


def _source(path: Path) -> str | None:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _imported(source: str, path: Path, root: Path) -> list[Path] | None:
    """Return the files that a module's imports may mean; ``None`` if it cannot be parsed."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found: list[Path] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [file for name in node.names for file in _files(root, name.name)]
        elif isinstance(node, ast.ImportFrom):
            base = root if not node.level else path.parents[min(node.level, len(path.parents)) - 1]
            module = f"{node.module}." if node.module else ""
            found += [file for name in node.names for file in _files(base, f"{module}{name.name}")]
    return found


def _files(root: Path, dotted: str) -> Iterator[Path]:
    """Yield the files that the import of a dotted name would run, if it is a module below ``root``."""
    place = root
    for part in filter(None, dotted.split(".")):
        place /= part
        yield place.with_name(f"{part}.py")
        yield place / "__init__.py"
