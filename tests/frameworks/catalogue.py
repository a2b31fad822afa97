"""Which runs there are: one TOML file beside each run script says how it runs and what it shows.

A framework's script cannot be imported here (its framework is not installed in
our environment), so what the suite must know of it stands in the TOML.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
VARIANTS: Final = ("normal", "sound", "crash", "parallel", "streaming", "max_turns", "delegating", "guarded")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScript:
    """A framework with one instrumentation."""

    name: str
    framework: str
    instrumentation: str
    variants: tuple[str, ...] = ("normal",)
    requirements: str = ""
    """Name of the file in ``requirements/`` without its suffix; by default the run's own."""
    live: bool = False
    """Played live in CI, not only from its fixture."""
    env: dict[str, str] = field(default_factory=dict)
    needs_blamespan: bool = False
    """The script imports our own packages."""
    hidden: dict[str, str] = field(default_factory=dict)
    """Steps that these spans cannot show, each with the reason: ``llm``, ``purser.llm``, ``crash.purser.llm``
    or ``crash.llm``; ``asking`` in place of ``llm`` is a model call that only asks for a tool."""
    unnamed: dict[str, str] = field(default_factory=dict)
    """As ``hidden``: steps whose agent no span names; any honest answer is right."""
    delegation: str = "by_name"
    """``handoff`` or ``nothing``: what a call that reaches another agent counts as. By default
    ``transfer…`` and ``handoff…`` are handoffs, and every other is only the way to the agent's steps."""
    lacks: dict[str, str] = field(default_factory=dict)
    """What the spans do not hold, each with the reason: ``task``, ``answer`` (the run's), ``text`` (of the
    decisive step), ``outcome`` (of a run cut short), ``target`` (whom a handoff reaches),
    ``tool`` (what it returned), ``complete`` (some of the run is in no trace); of one variant only:
    ``crash.outcome``."""
    unread: dict[str, str] = field(default_factory=dict)
    """Variants that are not read right yet, each with the reason; a test fails when one is."""

    @property
    def script(self) -> Path:
        """The file to run."""
        return FOLDER / "runs" / f"{self.name}.py"

    @property
    def requirements_file(self) -> Path:
        """The complete set of pins of its environment."""
        return FOLDER / "requirements" / f"{self.requirements or self.name}.txt"

    def fixture(self, variant: str) -> Path:
        """Where the recording of a variant is kept."""
        return FOLDER / "fixtures" / f"{_stem(self.name, variant)}.json.gz"

    def truth(self, variant: str) -> Path:
        """Where what really happened in that recording is kept."""
        return FOLDER / "fixtures" / f"{_stem(self.name, variant)}.truth.json"


def catalogue() -> dict[str, RunScript]:
    """Return every run by its name, in order of names."""
    return {path.stem: _read(path) for path in sorted((FOLDER / "runs").glob("*.toml"))}


def _stem(name: str, variant: str) -> str:
    return name if variant == "normal" else f"{name}-{variant}"


def _read(path: Path) -> RunScript:
    said: dict[str, Any] = tomllib.loads(path.read_text())
    variants = tuple(said.pop("variants", ("normal",)))
    if unknown := set(variants) - set(VARIANTS):
        raise ValueError(f"{path.name}: no variants {sorted(unknown)}; there are {', '.join(VARIANTS)}")
    return RunScript(name=path.stem, variants=variants, **said)
