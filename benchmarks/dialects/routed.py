"""Steps that are lost where a trace spans services that run agents and services that do not.

    python -m benchmarks.dialects.routed

``deploy/collector/routing.yaml`` chooses by service, not by trace: blamespan sees only the part of the
services on its list. Recorded runs come from one process each, so they are cut here as if a part ran in a
service of its own that is not on the list: the spans without a parent (the program around the agents), the
tools' spans with all below them, or one agent's (each agent in turn). The rest is rebuilt, and its steps are
compared with the whole run's: a step is there if one of its kind and agent is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.recordings.read_files import read_recording
from benchmarks.dialects.unread import Case, cases
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import Run, rebuild
from collector_processor.trajectory import order
from semconv.model import Span, SpanId, Step, StepKind
from semconv.record import replace

Cut: TypeAlias = Callable[[Run], Iterator[frozenset[SpanId]]]
"""Yields the spans that do not come; several sets are several trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One run, cut once."""

    steps: int
    elsewhere: int
    """Steps whose span is in the service that is not on the list."""
    lost: int
    """Steps of the whole run that the rest does not have, with their kind and agent."""
    beyond: int
    """Of the steps whose spans come, those that the rest does not have."""


def without_program(run: Run) -> Iterator[frozenset[SpanId]]:
    """Yield the spans without a parent, if others are left."""
    roots = frozenset(span.span_id for span in run.trace.spans if span.parent_id is None)
    if len(roots) < len(run.trace.spans):
        yield roots


def without_tools(run: Run) -> Iterator[frozenset[SpanId]]:
    """Yield the spans of tools and all below them."""
    found = [step.span_id for step in run.trajectory.steps if step.kind is StepKind.TOOL and step.span_id]
    if found:
        yield _with_all_below(run.trace.spans, found)


def without_an_agent(run: Run) -> Iterator[frozenset[SpanId]]:
    """Yield the spans of each agent's steps and all below them, if there are several agents."""
    by_agent = defaultdict(list)
    for step in run.trajectory.steps:
        if step.span_id:
            by_agent[step.agent].append(step.span_id)
    if len(by_agent) > 1:
        yield from (_with_all_below(run.trace.spans, own) for own in by_agent.values())


CUTS: Final[Mapping[str, Cut]] = {
    "the program around the agents": without_program,
    "all tools": without_tools,
    "one agent, each in turn": without_an_agent,
}


def _with_all_below(spans: Sequence[Span], tops: Iterable[SpanId]) -> frozenset[SpanId]:
    children: defaultdict[SpanId | None, list[SpanId]] = defaultdict(list)
    for span in spans:
        children[span.parent_id].append(span.span_id)
    found: set[SpanId] = set()
    waiting = list(tops)
    while waiting:
        if (one := waiting.pop()) not in found:
            found.add(one)
            waiting += children[one]
    return frozenset(found)


def whole_run(case: Case) -> Run | None:
    """Return the run of a case that has the most steps, if any has some."""
    recorded = [read_recording(file.read_bytes()) for file in case.files]
    spans = [body for each in recorded for body in each.bodies(Signal.TRACES)]
    logs = [body for each in recorded for body in each.bodies(Signal.LOGS)]
    best = max(rebuild(spans, logs), key=lambda run: len(run.trajectory.steps), default=None)
    return best if best is not None and best.trajectory.steps else None


def loss(run: Run, away: frozenset[SpanId]) -> Loss:
    """Return what is lost if these spans do not come."""
    left = tuple(span for span in run.trace.spans if span.span_id not in away)
    rest = _counted(order(replace(run.trace, spans=left), run.reader).steps) if left else Counter()
    steps = run.trajectory.steps
    come = [step for step in steps if step.span_id not in away]
    return Loss(
        steps=len(steps),
        elsewhere=len(steps) - len(come),
        lost=(_counted(steps) - rest).total(),
        beyond=(_counted(come) - rest).total(),
    )


def _counted(steps: Iterable[Step]) -> Counter[tuple[StepKind, str]]:
    return Counter((step.kind, step.agent) for step in steps)


def services(run: Run) -> int:
    """Return the number of services that sent the run as it was recorded."""
    return len({span.resource.attributes.get("service.name") for span in run.trace.spans})


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the lines of the table in Markdown."""
    several = sum(services(run) > 1 for run in runs)
    yield f"{len(runs)} runs, of which {several} were recorded from several services."
    yield ""
    yield "| not on the list | runs | cuts | steps there | steps lost | lost of listed services' |"
    yield "|---|---|---|---|---|---|"
    for name, cut in CUTS.items():
        each = [[loss(run, away) for away in cut(run)] for run in runs]
        found = [one for losses in each for one in losses]
        steps, away = sum(one.steps for one in found), sum(one.elsewhere for one in found)
        lost, beyond = sum(one.lost for one in found), sum(one.beyond for one in found)
        yield (
            f"| {name} | {sum(map(bool, each))} | {len(found)} | {away / steps:.1%} | {lost / steps:.1%}"
            f" | {beyond / (steps - away):.1%} |"
        )


def main() -> None:
    """Print the table over all recordings."""
    runs = [run for case in cases() if (run := whole_run(case)) is not None]
    for line in table(runs):
        print(line)


if __name__ == "__main__":
    main()
