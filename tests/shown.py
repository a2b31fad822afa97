"""Measures which aspects that dialects declare occur in recorded runs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analyzer.recordings.read_files import read_recording
from collector_processor.core.runs import Run
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from semconv.dialects.support import Support, support_table
from semconv.model import UNKNOWN_AGENT, ContentState, SpanStatus, Step, StepKind
from tests.contract.recorded import SHARED

FIXTURES: Final = Path(__file__).parent / "frameworks" / "fixtures"
CAPTURES: Final = SHARED / "captures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A recording, and for each aspect the share of events that show it."""

    name: str
    run: Run
    shares: Mapping[str, float | None]
    """0..1 by aspect; ``None`` if the run had no such event."""

    def written_by(self, dialect: str, support: Support) -> bool:
        """Return whether the recording is of this framework and instrumentation."""
        if self.name in support.recordings:
            return True
        scopes = {span.scope.name for span in self.run.trace.spans}
        return dialect in self.run.trajectory.dialects and any(
            scope.startswith(support.scopes) for scope in scopes if support.scopes
        )


def fixtures() -> Iterator[Path]:
    """Yield the recorded runs in the project."""
    yield from sorted(FIXTURES.glob("*.json.gz"))


def captures() -> Iterator[Path]:
    """Yield the recorded runs beside the project, if there are any."""
    yield from sorted(path for path in CAPTURES.glob("*.json") if _is_trace(path))


def _is_trace(path: Path) -> bool:
    return not path.name.endswith(".logs.json") and path.name != "INDEX.json"


@functools.cache
def shown(path: Path) -> tuple[Shown, ...]:
    """Return the runs of a recording that have steps, measured."""
    name = path.name.partition(".")[0]
    recording = read_recording(path.read_bytes())
    logs = list(recording.bodies(Signal.LOGS))
    for beside in path.parent.glob(f"{name}.logs.json*"):
        logs += read_recording(beside.read_bytes()).bodies(Signal.LOGS)
    runs = rebuild(recording.traces, logs)
    return tuple(Shown(name=name, run=run, shares=_shares(run)) for run in runs if run.trajectory.steps)


def _shares(run: Run) -> dict[str, float | None]:
    steps = run.trajectory.steps
    calls = [step for step in steps if step.kind is StepKind.LLM]
    tools = [step for step in steps if step.kind is StepKind.TOOL]
    handoffs = [step for step in steps if step.kind is StepKind.HANDOFF]
    failed = [step for step in steps if step.status is SpanStatus.ERROR]
    return {
        "agent": _share(step.agent != UNKNOWN_AGENT for step in steps),
        "text": _share(step.content is not ContentState.ABSENT for step in calls),
        "tools": _share(_is_told(step) for step in tools),
        "handoff": _share(bool(step.target) for step in handoffs),
        "task": 1.0 if run.trajectory.task else 0.0,
        "errors": _share(bool(step.error) for step in failed),
    }


def _is_told(step: Step) -> bool:
    return bool(step.input) and bool(step.output or step.error)


def _share(each: Iterable[bool]) -> float | None:
    values = list(each)
    return sum(values) / len(values) if values else None


def declared() -> Iterator[tuple[str, Support]]:
    """Yield every declaration with its dialect's name."""
    for dialect, supports in support_table().items():
        for support in supports:
            yield dialect, support
