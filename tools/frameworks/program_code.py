"""Generator of the instrumenting part of a framework's page, for programs in other languages than Python.

A program ends with the test's story, after the line ``// The story.``; the page shows what is above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.frameworks.catalogue import RunScript
from tests.frameworks.languages import LANGUAGES

STORY: Final = "// The story."
_OF_THE_TESTS: Final = "# Of the tests"
_FENCES: Final = {"javascript": "js", "go": "go", "java": "java"}
_TELEMETRY: Final = {"javascript": "../kit/telemetry.mjs", "go": "kit/telemetry.go"}
"""By language, what the programs import to set up OpenTelemetry's SDK; Spring Boot needs nothing."""
_PROPERTIES: Final = "src/main/resources/application.properties"


def program_of(run: RunScript) -> Iterator[str]:
    """Yield the Markdown of how a program is instrumented: packages, set-up and its own first lines."""
    yield f"```sh\n{_install(run)}\n```\n" if run.language != "java" else _dependencies(run)
    if (settings := run.programs / _PROPERTIES).exists():
        yield f"\n`application.properties`:\n\n```properties\n{_before(settings, _OF_THE_TESTS)}```\n"
    if name := _TELEMETRY.get(run.language):
        path = run.programs / name
        if any(word in _head(run) for word in ("kit/telemetry", "kit.Traces")):
            yield f"\n`{path.parent.name}/{path.name}`:\n\n{_fenced(run, path.read_text(encoding='utf-8'))}"
    yield f"\nYour program:\n\n{_fenced(run, _head(run))}"


def _head(run: RunScript) -> str:
    head = _before(run.script, STORY)
    return head.rstrip() + "\n"


def _before(path: Path, mark: str) -> str:
    return path.read_text(encoding="utf-8").partition(mark)[0]


def _fenced(run: RunScript, code: str) -> str:
    return f"```{_FENCES[run.language]}\n{code}```\n"


def _versions(run: RunScript) -> dict[str, str]:
    return dict(LANGUAGES[run.language].versions(run.requirements_file.read_text(encoding="utf-8")))


def _install(run: RunScript) -> str:
    versions = _versions(run)
    if run.language == "go":
        return "\n".join(f"go get {name}@v{versions[name]}" for name in run.packages)
    named = [f"{name}@{versions[name]}" for name in run.packages]
    return " \\\n    ".join(["npm install --save-exact", *named])


def _dependencies(run: RunScript) -> str:
    return f"`pom.xml`:\n\n```xml\n{run.requirements_file.read_text(encoding='utf-8')}```\n"
