"""Cost of the analysis of complete traces, by stage, on one core.

Each stage is run over all runs of a workload; its time is the thread's own CPU time, the minimum of several
rounds, so that other load counts as little as possible. Rounds of the stages alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from analyzer.methods.attribution import Attributor
from analyzer.recordings.read_files import read_recording
from analyzer.signals.triage import triage
from benchmarks.hostile.big_trace import team, wide
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redact_run import Cleaner
from collector_processor.rebuild.redaction import Redactor
from collector_processor.rebuild.repair import repair
from collector_processor.rebuild.runs import group_runs
from collector_processor.trajectory import order
from semconv.model import Completion, Trace, Trajectory
from tests.e2e.traffic import play_demo

FIXTURES: Final = Path(__file__).parents[2] / "tests" / "frameworks" / "fixtures"
_SPANS: Final = 1_000
Bodies: TypeAlias = Sequence[bytes]
"""The export requests of one recording."""


def _recorded() -> Iterable[Bodies]:
    for path in sorted(FIXTURES.glob("*.json.gz")):
        yield read_recording(path.read_bytes()).bodies(Signal.TRACES)


WORKLOADS: Final[Mapping[str, Callable[[], Iterable[Bodies]]]] = {
    "demo": lambda: [[play_demo().body]],
    "frameworks": _recorded,
    "team": lambda: [[encode(team(_SPANS))]],
    "wide": lambda: [[encode(wide(_SPANS))]],
}
"""The demo's run of 17 spans; the recorded runs of all frameworks; two long generated runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Cost of one workload."""

    workload: str
    spans: int
    bytes: int
    stages: Mapping[str, float]
    """CPU seconds of each stage, over the whole workload."""

    @property
    def spans_per_s(self) -> float:
        """Number of spans that one core analyses per second."""
        return self.spans / sum(self.stages.values())

    def share(self, stage: str) -> float:
        """Return a stage's share of the time."""
        return self.stages[stage] / sum(self.stages.values())


def measure(workload: str, rounds: int) -> Costs:
    """Run the stages of a workload, each ``rounds`` times."""
    recordings = list(WORKLOADS[workload]())
    line = _Line(recordings)
    least: dict[str, float] = {}
    for _ in range(rounds):
        for stage, work in line.stages():
            took = _timed(work)
            least[stage] = min(took, least.get(stage, took))
    spans = sum(len(decode(body).spans) for bodies in recordings for body in bodies)
    size = sum(len(body) for bodies in recordings for body in bodies)
    return Costs(workload=workload, spans=spans, bytes=size, stages=least)


class _Line:
    """The stages in order; each passes its results to the next."""

    def __init__(self, recordings: Sequence[Bodies]) -> None:
        self._recordings = recordings
        self._attributor = Attributor(method="signals")
        self._clean = Cleaner(Redactor())
        self._traces: list[list[Trace]] = []
        self._runs: list[Trace] = []
        self._sound: list[Trace] = []
        self._ordered: list[Trajectory] = []
        self._cleaned: list[Trajectory] = []

    def stages(self) -> Iterable[tuple[str, Callable[[], None]]]:
        """Return the stages by name, in order."""
        yield "decode", self._decode
        yield "group", self._group
        yield "repair", self._repair
        yield "order", self._order
        yield "redact", self._redact
        yield "blame", self._blame

    def _decode(self) -> None:
        self._traces = [_traces_in(bodies) for bodies in self._recordings]

    def _group(self) -> None:
        self._runs = [run for traces in self._traces for run in group_runs(traces)]

    def _repair(self) -> None:
        self._sound = [repair(run) for run in self._runs]

    def _order(self) -> None:
        self._ordered = [order(run) for run in self._sound]

    def _redact(self) -> None:
        self._cleaned = [self._clean(run) for run in self._ordered]

    def _blame(self) -> None:
        for run in self._cleaned:
            triage(run)
            self._attributor.at_once(run)  # as for a failed run, whether it failed or not


def _traces_in(bodies: Bodies) -> list[Trace]:
    spans: dict[str, list[Any]] = {}
    for body in bodies:
        for span in decode(body).spans:
            spans.setdefault(span.trace_id, []).append(span)
    return [Trace(spans=tuple(found), completion=Completion.ROOT_ENDED) for found in spans.values()]


def _timed(work: Callable[[], None]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
