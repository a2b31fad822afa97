"""Runs whose right verdict is known, as spans with start and end times; played by both completion benchmarks.

Five agents work one after another. Judging only part of a run gives a wrong verdict: the planner's lookup
fails, and the researcher's succeeds later; or everything succeeds until the calculator's tool fails at the
very end. A run that fails says so at its top, too: without the calculator's spans the planner looks guilty.
Times are milliseconds after the run's start (``tests.factories``); span numbers are unique in a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from semconv.model import Link, Span, SpanId, TraceId
from tests.factories import ORIGIN_NS, agent, chat, said, span, span_id, tool, workflow

AGENTS: Final = ("planner", "researcher", "analyst", "reviewer", "calculator")
CULPRIT: Final = "calculator"
ERROR: Final = "ConnectionError: the compute service closed the connection"
CRON_TRACE: Final = TraceId("c0" * 16)
"""Id of a scheduler's trace, which never arrives; the runs that it starts link to it."""
CRON_SPAN: Final = SpanId("c0" * 8)
NEVER: Final = 9_999
"""Span number of a parent that is never sent: an unsampled web request."""
_REMOTE_PARENT: Final = 0x301
_SCOPE: Final = "opentelemetry.instrumentation.agents"
_WORK_MS: Final = 1_000
"""Milliseconds of work of one agent."""
_TRACE_NUMBERS: Final = 100
"""First span number of the run's second trace; the third begins at twice that."""


class Kind(StrEnum):
    """Kinds of runs."""

    CLEAN = "clean"
    """Everything succeeds."""
    REPAIRED = "repaired"
    """The planner's lookup fails, the researcher's succeeds; until then the planner looks guilty."""
    LATE_FAILURE = "late failure"
    """The calculator's tool fails at the end; until then the run looks passed."""
    BOTH = "both"
    """The planner's lookup fails and is repaired, and the calculator's tool fails at the end."""


KINDS: Final = tuple(Kind)


class Shape(StrEnum):
    """Structures of a run's spans."""

    AGENTS = "agents"
    """One agent after another, each with a span of its own, under a workflow that ends last."""
    PACED = "paced"
    """The same with a pause after each agent but the last, so that the run seems over several times."""
    FLAT = "flat"
    """Model and tool calls that name their agent, directly under the workflow."""
    WEB = "web"
    """Agents under a web request, which carries no agent marker and runs on after the last agent."""
    UNSAMPLED = "unsampled"
    """A workflow under a web request whose span is never sent."""
    CHAIN = "chain"
    """Three traces; each links to the one before, starts before that has ended, and ends after it."""
    LATE_LINK = "late link"
    """The same, but only the later traces' tops have the links: so the links are unknown until they end."""
    CRON = "cron"
    """Independent runs that all link to one common trace of a scheduler, which never arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One run in time."""

    shape: Shape
    kind: Kind
    spans: tuple[Span, ...]
    """Spans in the order of their ends. Services are ``service-0``, ``service-1``, …"""

    @property
    def culprit(self) -> str | None:
        """The agent to blame; ``None`` if the run passes."""
        return CULPRIT if self.kind in (Kind.LATE_FAILURE, Kind.BOTH) else None

    @property
    def end_s(self) -> float:
        """Seconds from the run's start to the end of its last span."""
        return (max(one.end_ns for one in self.spans) - ORIGIN_NS) / 1e9

    @property
    def trace_ids(self) -> tuple[TraceId, ...]:
        """Ids of its traces, in order of start."""
        begun = sorted(self.spans, key=lambda one: one.start_ns)
        return tuple(dict.fromkeys(one.trace_id for one in begun))


def tell(shape: Shape, kind: Kind, *, services: int, pause_s: float, ids: Sequence[TraceId]) -> Story:
    """Return one run.

    Args:
        shape: the structure of its spans.
        kind: the kind of run.
        services: number of services of its agents; the top of the run is in the first.
        pause_s: length of the pause after the planner's work (``PACED``: after each agent's); in a
            chain before the end of each later trace, and under a web request again after the last agent.
        ids: trace ids to use, one for each trace.
    """
    writer = _Writer(kind=kind, services=services, pause_ms=pause_s * 1_000)
    if shape in (Shape.CHAIN, Shape.LATE_LINK):
        spans = writer.chain(ids, links_early=shape is Shape.CHAIN)
    else:
        spans = writer.single(shape, ids[0])
    return Story(shape=shape, kind=kind, spans=tuple(sorted(spans, key=lambda one: one.end_ns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    kind: Kind
    services: int
    pause_ms: float

    @property
    def breaks(self) -> bool:
        """Return whether the run fails."""
        return self.kind in (Kind.LATE_FAILURE, Kind.BOTH)

    def service(self, place: int) -> str:
        """Return an agent's service: the culprit works in the last one, away from the top's."""
        is_culprit = AGENTS[place] == CULPRIT
        return f"service-{self.services - 1 if is_culprit else place % self.services}"

    def single(self, shape: Shape, trace_id: TraceId) -> Iterator[Span]:
        """Yield a run of one trace."""
        most_pauses = len(AGENTS) if shape is Shape.PACED else 1
        end = 100.0
        for place in range(len(AGENTS)):
            begin = 100.0 + _WORK_MS * place + self.pause_ms * min(place, most_pauses)
            yield from self.work(place, begin, trace_id, is_flat=shape is Shape.FLAT)
            end = begin + _WORK_MS
        if shape is Shape.WEB:
            yield _web_request(trace_id, end + self.pause_ms, error=ERROR if self.breaks else None)
            return
        top = self.top(trace_id, 1, 0, end)
        if shape is Shape.UNSAMPLED:
            top = replace(top, parent_id=span_id(NEVER), flags=_REMOTE_PARENT)
        if shape is Shape.CRON:
            top = replace(top, links=(Link(trace_id=CRON_TRACE, span_id=CRON_SPAN),))
        yield top

    def chain(self, ids: Sequence[TraceId], *, links_early: bool) -> Iterator[Span]:
        """Yield a run of three linked traces.

        A later trace's top links to the earlier trace, and with ``links_early`` so does its first agent,
        which ends while the earlier trace is still open: the link can be known in time.
        """
        first, second, third = ids
        end = 2.0 * _WORK_MS
        yield from self.work(0, 100, first)
        yield self.top(first, 1, 0, end, is_last=False)
        starts: list[float] = []
        for trace_id, before, members in ((second, first, (2, 1)), (third, second, (3, 4))):
            base = _TRACE_NUMBERS * (len(starts) + 1)
            start = end - 0.9 * _WORK_MS
            starts.append(start)
            link = (Link(trace_id=before, span_id=span_id(base - _TRACE_NUMBERS + 1)),)
            early, late = members
            yield from self.work(
                early, start + 10, trace_id, base=base, links=link if links_early else (), hurry=2
            )
            end = start + _WORK_MS + self.pause_ms
            yield from self.work(late, end, trace_id, base=base)
            end += _WORK_MS
            top = self.top(trace_id, base + 1, start, end, is_last=trace_id is third)
            yield replace(top, links=link)

    def top(self, trace_id: TraceId, number: int, start: float, end: float, *, is_last: bool = True) -> Span:
        """Return the workflow that encloses a trace; the last of a run ends in the run's error."""
        return workflow(
            number,
            task="How much did the shop earn?",
            answer="" if self.breaks else "The shop earned a good deal.",
            error=ERROR if self.breaks and is_last else None,
            start=start,
            end=end,
            trace_id=trace_id,
            service="service-0",
            scope=_SCOPE,
        )

    def work(
        self,
        place: int,
        begin: float,
        trace_id: TraceId,
        *,
        base: int = 0,
        links: Sequence[Link] = (),
        is_flat: bool = False,
        hurry: float = 1,
    ) -> Iterator[Span]:
        """Yield the spans of one agent: it thinks, calls its tool, and sums up."""
        name, own = AGENTS[place], base + 10 * (place + 1)
        parent = base + 1 if is_flat else own
        unit = _WORK_MS / 10 / hurry
        target = "compute" if name == CULPRIT else "lookup" if place < 2 else f"{name}_tool"
        error = ERROR if self._fails(name) else None
        known: dict[str, Any] = {
            "trace_id": trace_id,
            "service": self.service(place),
            "scope": _SCOPE,
        }
        yield chat(
            own + 1,
            parent=parent,
            heard=(said("user", f"Do your part, {name}."),),
            calls=((target, "{}", f"call-{own}"),),
            agent_name=name,
            start=begin + unit,
            end=begin + 3 * unit,
            **known,
        )
        called = tool(
            own + 2,
            target,
            parent=parent,
            arguments="{}",
            result="" if error else "The ledger is there.",
            call_id=f"call-{own}",
            error=error,
            start=begin + 4 * unit,
            end=begin + 6 * unit,
            **known,
        )
        yield replace(called, attributes={**called.attributes, "gen_ai.agent.name": name})
        if error is None:
            yield chat(
                own + 3,
                parent=parent,
                answer=f"My part is done, says the {name}.",
                agent_name=name,
                start=begin + 7 * unit,
                end=begin + 8 * unit,
                **known,
            )
        if not is_flat:
            yield agent(own, name, parent=base + 1, start=begin, end=begin + 9 * unit, links=links, **known)

    def _fails(self, name: str) -> bool:
        if name == CULPRIT:
            return self.breaks
        return name == AGENTS[0] and self.kind in (Kind.REPAIRED, Kind.BOTH)


def _web_request(trace_id: TraceId, end: float, error: str | None) -> Span:
    return span(
        1,
        name="POST /chat",
        kind=2,
        error=error,
        start=0,
        end=end,
        trace_id=trace_id,
        service="service-0",
        scope="opentelemetry.instrumentation.asgi",
        attributes={"http.request.method": "POST", "url.path": "/chat"},
    )
