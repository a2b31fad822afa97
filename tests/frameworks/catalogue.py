"""The available runs: a TOML file beside each run script says how it runs and what it shows.

A framework's script cannot be imported here, because its framework is not installed in our environment; so
the TOML contains what the suite must know.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.frameworks.languages import LANGUAGES, PROGRAMS, PYTHON

FOLDER: Final = Path(__file__).parent
VARIANTS: Final = (
    "normal",
    "sound",
    "crash",
    "parallel",
    "streaming",
    "max_turns",
    "delegating",
    "guarded",
    "misread",
    "given_up",
    "structured",
    "reported",
)


GATE: Final = ("langgraph_genai", "openai_agents_genai", "pydantic_ai_v6", "own_instrument")
"""The runs that the gate plays live; the other live ones are played where they are installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScript:
    """A framework with one instrumentation."""

    name: str
    framework: str
    instrumentation: str
    variants: tuple[str, ...] = ("normal",)
    language: str = PYTHON
    """A folder of ``programs``, or Python."""
    packages: tuple[str, ...] = ()
    """In other languages than Python: those of the language's packages that this run uses."""
    requirements: str = ""
    """Name of the file in ``requirements/`` without its suffix, or of the set of programs; by default the
    run's own."""
    runs: int = 1
    """Number of runs that its traces make: agents called one after the other without a span around them."""
    live: bool = False
    """Whether ``test_live.py`` also runs it live, besides the test of its fixture."""
    env: dict[str, str] = field(default_factory=dict)
    needs_blamespan: bool = False
    """Whether the script imports our own packages."""
    hidden: dict[str, str] = field(default_factory=dict)
    """Steps that these spans cannot show, each with the reason: ``llm``, ``purser.llm``, ``crash.purser.llm``
    or ``crash.llm``. ``asking`` in place of ``llm`` is a model call that only requests a tool."""
    unnamed: dict[str, str] = field(default_factory=dict)
    """Keys as in ``hidden``: steps whose agent no span names; any agent is accepted."""
    named: dict[str, str] = field(default_factory=dict)
    """Names that the framework gives to agents, by the story's name: a Java interface is capitalised."""
    delegation: str = "by_name"
    """``handoff`` or ``nothing``: the step expected for a call that reaches another agent. By default
    ``transfer…`` and ``handoff…`` are handoffs, and other calls are no steps."""
    lacks: dict[str, str] = field(default_factory=dict)
    """What the spans do not contain, each with the reason: ``task``, ``answer`` (the run's), ``text`` (of the
    decisive step), ``outcome`` (of an aborted run), ``target`` (of a handoff), ``tool`` (its result),
    ``complete`` (part of the run is in no trace); for one variant only: ``crash.outcome``."""
    unread: dict[str, str] = field(default_factory=dict)
    """Variants that are not yet read correctly, each with the reason; a test fails if one is."""

    @property
    def programs(self) -> Path:
        """The set of programs that share this one's environment, in other languages than Python."""
        return PROGRAMS / self.language / (self.requirements or self.name)

    @property
    def script(self) -> Path:
        """The file to run."""
        if self.language != PYTHON:
            title = self.name.title().replace("_", "")
            return self.programs / LANGUAGES[self.language].program.format(name=self.name, title=title)
        return FOLDER / "runs" / f"{self.name}.py"

    @property
    def requirements_file(self) -> Path:
        """The complete set of pins of its environment."""
        if self.language != PYTHON:
            return self.programs / LANGUAGES[self.language].manifest
        return FOLDER / "requirements" / f"{self.requirements or self.name}.txt"

    def fixture(self, variant: str) -> Path:
        """File of a variant's recording."""
        return FOLDER / "fixtures" / f"{_stem(self.name, variant)}.json.gz"

    def truth(self, variant: str) -> Path:
        """File of the true course of that recording."""
        return FOLDER / "fixtures" / f"{_stem(self.name, variant)}.truth.json"


SUITES: Final = {
    name: RunScript(name=name, framework=framework, instrumentation=instrumentation, live=True)
    for name, framework, instrumentation in (
        ("suite_langgraph", "langgraph", "OpenTelemetry GenAI"),
        ("suite_pydantic_ai", "pydantic-ai", "its own"),
    )
}
"""Environments of the test suites in ``suites``: a framework, and what the pytest plugin needs."""
EXAMPLES: Final = RunScript(name="programs", framework="several", instrumentation="OpenInference", live=True)
"""Environment of the Python programs in ``examples/programs``: four frameworks, and auto-instrumentation."""
NODE_EXAMPLES: Final = "vercel_ai_v7"
"""The run whose environment has what the program for Node in ``examples/programs`` needs."""


def catalogue() -> dict[str, RunScript]:
    """Return every script by its name, sorted by name."""
    return {path.stem: _read(path) for path in sorted((FOLDER / "runs").glob("*.toml"))}


def single_runs() -> dict[str, RunScript]:
    """Return the scripts whose traces make one run."""
    return {name: script for name, script in catalogue().items() if script.runs == 1}


def _stem(name: str, variant: str) -> str:
    return name if variant == "normal" else f"{name}-{variant}"


def _read(path: Path) -> RunScript:
    said: dict[str, Any] = tomllib.loads(path.read_text())
    variants = tuple(said.pop("variants", ("normal",)))
    packages = tuple(said.pop("packages", ()))
    if unknown := set(variants) - set(VARIANTS):
        raise ValueError(f"{path.name}: no variants {sorted(unknown)}; there are {', '.join(VARIANTS)}")
    return RunScript(name=path.stem, variants=variants, packages=packages, **said)
