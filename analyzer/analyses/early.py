"""Early warnings: when open traces are looked at, and which of their runs look likely to fail. Not pure.

The arrived part of a run is compared with earlier runs of its workflow. Which workflow a run belongs to is
known at its end, when its root arrives. So a part is compared with each workflow of its service and release
with which it shares agents, and a warning needs all of them to agree. Releases stay apart: all runs of a new
one may be unlike those of the one before. Parts are kept in this process alone: after a restart, warnings
begin again when enough passing runs have been seen.

A look is due at each of a trace's first eight spans, and then whenever the trace has grown by a quarter, so
all looks at a trace together read at most about five times its bytes. Looks wait while complete traces wait
for a place, and a look is followed by a pause as long as it took: a storm of open traces delays no verdict.
It delays no other tenant's looks either: tenants take turns, and a storm's own traces are forgotten first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.analyses.prepared import Changed, Open
from analyzer.history.early import EarlyAlarm, KnownPart, Part, Warned, early_alarm, part_of
from analyzer.history.elements import Element, unpack
from analyzer.history.known_runs import from_text, has_shared_agents
from analyzer.history.spectrum import Said
from analyzer.issues.recurrence import Notice, NoticeKind
from collector_processor.core.analysis import Analysis, AnalysisLostError
from collector_processor.core.disk import StoreError
from collector_processor.core.fair import FairQueue, FairTable
from collector_processor.core.records import RunOutcome
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.wire.facts import TraceArrival
from semconv.model import agent_in_prose
from semconv.record import record

logger = logging.getLogger(__name__)

FRESH_S: Final = 10.0
"""Seconds for which a workflow's counts are used; newer runs wait for the next count."""
MOST_RUNS: Final = 200
"""Newest runs of a service that were seen before their end."""
MOST_SERVICES: Final = 100
"""Services; a tenant with more than its share forgets the service whose last run ended longest ago."""
MOST_COUNTED: Final = 16
"""Services whose counts are kept: at most 4 MB each, if no two elements are alike."""
MOST_OPEN: Final = 10_000
"""Parts of runs that have not ended, and warnings that were given; a tenant with more than its share forgets
its oldest."""

ReadOutcomes: TypeAlias = Callable[[Tenant, Sequence[str]], Awaitable[Sequence[RunOutcome]]]
"""Returns how runs ended, by their ids."""
Announce: TypeAlias = Callable[[Notice], Awaitable[None]]


@record
class _Seen:
    """What was seen of a run before its end."""

    service: str
    release: str
    packed: bytes


@record
class _Read:
    """What has arrived of a run."""

    elements: Sequence[Element]
    agents: frozenset[bytes]
    seen: _Seen
    """What has arrived, joined with what was seen of the run before."""


@record
class _Ended:
    workflow: str
    release: str
    packed: bytes


@record
class _Workflow:
    release: str
    alarm: EarlyAlarm
    agents: frozenset[bytes]


@record
class _Given:
    warned: Warned
    agent: str

    @property
    def note(self) -> str:
        return _note(self.warned, self.agent)

    @property
    def document(self) -> Mapping[str, object]:
        one = self.warned
        return {
            "step": one.step,
            "agent": self.agent,
            "text": one.text,
            "as_high": one.as_high,
            "passing": one.passing,
        }


@dataclass(frozen=True, slots=True)
class _Counted:
    workflows: Sequence[_Workflow]
    at_s: float


class EarlyWarning:
    """Keeps parts of runs, and warns of those that look unlike passing runs; used on one event loop."""

    def __init__(
        self,
        *,
        read: ReadOutcomes,
        share: float,
        announce: Announce,
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Create it without any runs.

        Args:
            read: reads how runs ended.
            share: highest share of passing runs that may get a warning.
            announce: queues a notice for receivers.
            clock: returns seconds of a monotonic clock.
            now_ns: returns Unix ns.
        """
        self._read_outcomes: Final = read
        self._share: Final = share
        self._announce: Final = announce
        self._clock: Final = clock
        self._now_ns: Final = now_ns
        self._open: Final[FairTable[Tenant, str, _Seen]] = FairTable(MOST_OPEN)
        self._ended: Final[FairTable[Tenant, str, OrderedDict[str, _Ended]]] = FairTable(MOST_SERVICES)
        self._counted: Final[FairTable[Tenant, str, _Counted]] = FairTable(MOST_COUNTED)
        self._given: Final[FairTable[Tenant, str, _Given]] = FairTable(MOST_OPEN)
        self.warnings = 0
        """Runs with a warning so far."""

    def end(self, tenant: Tenant, one: Changed) -> None:
        """Note the workflow of a run that has ended."""
        run_id, workflow = one.run.identity.run_id, one.news.totals.workflow
        self._given.pop(tenant, run_id)
        seen = self._open.pop(tenant, run_id)
        if seen is None:
            return
        runs = self._ended.get(tenant, seen.service)
        runs = OrderedDict() if runs is None else runs
        runs[run_id] = _Ended(workflow=workflow, release=seen.release, packed=seen.packed)
        if len(runs) > MOST_RUNS:
            runs.popitem(last=False)
        self._ended.put(tenant, seen.service, runs)

    async def warn(self, tenant: Tenant, one: Open) -> Analysis | None:
        """Return the analysis of an open run with a warning in its notes; ``None`` without a warning."""
        run_id = one.run.identity.run_id
        if not one.so_far:
            return None
        part = await asyncio.to_thread(_read, one.so_far, self._open.get(tenant, run_id))
        self._open.put(tenant, run_id, part.seen)
        if self._given.get(tenant, run_id) is None:
            warned = await self._warned(tenant, part)
            if warned is not None and self._given.get(tenant, run_id) is None:  # another look may have warned
                steps = one.run.trajectory.steps
                agent = next((step.agent for step in steps if step.index == warned.step), "")
                self._given.put(tenant, run_id, _Given(warned=warned, agent=agent))
                await self._tell(tenant, run_id, part.seen.service, agent, warned)
        given = self._given.get(tenant, run_id)
        return None if given is None else one.analysis.with_warning(given.document, given.note)

    async def _warned(self, tenant: Tenant, part: _Read) -> Warned | None:
        workflows = await self._workflows(tenant, part.seen.service)
        kin = [
            workflow
            for workflow in workflows
            if workflow.release == part.seen.release and has_shared_agents(part.agents, workflow.agents)
        ]
        found = [workflow.alarm.warned(part.elements) for workflow in kin]
        agreed = [one for one in found if one is not None]
        return min(agreed, key=lambda one: one.score) if agreed and len(agreed) == len(found) else None

    async def _workflows(self, tenant: Tenant, service: str) -> Sequence[_Workflow]:
        runs = dict(self._ended.get(tenant, service) or {})
        if not runs:
            return ()
        now, counted = self._clock(), self._counted.get(tenant, service)
        if counted is None or now - counted.at_s >= FRESH_S:
            outcomes = await self._read_outcomes(tenant, list(runs))
            counted = _Counted(await asyncio.to_thread(_workflows_of, runs, outcomes, self._share), now)
            self._counted.put(tenant, service, counted)
        return counted.workflows

    async def _tell(self, tenant: Tenant, run_id: str, service: str, agent: str, warned: Warned) -> None:
        self.warnings += 1
        notice = Notice(
            kind=NoticeKind.EARLY,
            tenant=tenant,
            at_ns=self._now_ns(),
            service=service,
            agent=agent,
            title=f"{agent_in_prose(agent)} {warned.text} (step {warned.step})",
            run_id=run_id,
        )
        try:
            await self._announce(notice)
        except StoreError as error:
            logger.warning("early warning cannot be sent as a notification", extra={"reason": str(error)})


def _read(text: str, before: _Seen | None) -> _Read:
    """Read what has arrived of a run, and join it with what was seen of the run before."""
    run = from_text(text)
    part = part_of(run.elements)
    whole = part if before is None else part.joined(Part.unpacked(before.packed))
    seen = _Seen(service=run.service, release=run.release, packed=whole.packed())
    return _Read(elements=run.elements, agents=part.agents, seen=seen)


def _workflows_of(
    runs: Mapping[str, _Ended], outcomes: Sequence[RunOutcome], share: float
) -> Sequence[_Workflow]:
    known: defaultdict[tuple[str, str], list[KnownPart]] = defaultdict(list)
    for outcome in outcomes:
        run = runs[outcome.run_id]
        known[run.workflow, run.release].append(
            KnownPart(said=Said(outcome.said), part=Part.unpacked(run.packed), whole=unpack(outcome.elements))
        )
    return [
        _Workflow(
            release=release,
            alarm=early_alarm(parts, share),
            agents=frozenset[bytes]().union(*(part.part.agents for part in parts)),
        )
        for (_, release), parts in known.items()
    ]


def _note(warned: Warned, agent: str) -> str:
    return (
        f"Early warning at step {warned.step}, before the run's end: {agent_in_prose(agent)} {warned.text};"
        f" {warned.as_high} of {warned.passing} runs that passed looked as unusual before their end."
    )


MOST_TRACES: Final = 10_000
"""Bound on open traces whose spans are counted, and on traces no longer looked at; beyond it, a tenant with
more than its share loses the ones longest without new spans."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a trace and the traces joined to it, above which it is no longer looked at."""
_EACH: Final = 8
_GROWTH: Final = 1.25
_BUSY_S: Final = 0.2
"""Seconds until the next check whether complete traces still wait."""


@dataclass(slots=True)
class _Growing:
    spans: int = 0
    bytes: int = 0
    due: int = 1
    """Number of spans at which it is looked at next."""


class EarlyLooks:
    """Looks at open traces; used on one event loop."""

    def __init__(
        self,
        look: Callable[[TraceKey], Awaitable[None]],
        *,
        is_busy: Callable[[], bool],
        monotonic: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create it without any traces.

        Args:
            look: looks at one open trace.
            is_busy: returns whether complete traces wait for a place.
            monotonic: returns seconds of a monotonic clock.
            pause: sleeps for the given seconds.
        """
        self._look: Final = look
        self._is_busy: Final = is_busy
        self._monotonic: Final = monotonic
        self._pause: Final = pause
        self._traces: Final[FairTable[Tenant, TraceKey, _Growing]] = FairTable(MOST_TRACES)
        self._over: Final[FairTable[Tenant, TraceKey, bool]] = FairTable(MOST_TRACES)
        """Traces that are not looked at again: their root has ended, or they crash worker processes."""
        self._waiting: Final[FairQueue[Tenant, TraceKey, None]] = FairQueue()
        self._queued: Final[set[TraceKey]] = set()
        self._wake: Final = asyncio.Event()
        self.done = 0
        """Looks so far."""
        self.skipped = 0
        """Looks left out because the trace was forgotten while it waited."""

    def feed(self, arrival: TraceArrival) -> None:
        """Count durable spans of an agent's trace. Called on the event loop; never blocks."""
        key = arrival.key
        if any(not parent_id for _, parent_id, *_ in arrival.notes):
            self._end(key)
        if not arrival.notes or self._over.get(key.tenant, key):
            return
        counted = self._traces.get(key.tenant, key) or _Growing()
        counted.spans += len(arrival.notes)
        counted.bytes += arrival.byte_count
        if gone := self._traces.put(key.tenant, key, counted):
            self.skipped += self._unqueue(gone[1])
        if counted.spans >= counted.due and counted.bytes <= MOST_BYTES:
            self._queue(key)

    def _queue(self, key: TraceKey) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._waiting.put(key.tenant, key, None)
            self._wake.set()

    def _unqueue(self, key: TraceKey) -> bool:
        """Stop waiting for a look; return whether the trace waited."""
        is_waiting = key in self._queued
        if is_waiting:
            self._queued.discard(key)
            self._waiting.discard(key.tenant, key)
        return is_waiting

    def _end(self, key: TraceKey) -> None:
        self._over.put(key.tenant, key, item=True)
        self._traces.pop(key.tenant, key)
        self._unqueue(key)

    async def run(self) -> None:
        """Look at traces until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (taken := self._waiting.take()) is not None:
                _, key, _ = taken
                self._queued.discard(key)
                await self.look_at(key)

    async def look_at(self, key: TraceKey) -> None:
        """Look at one trace as soon as no complete trace waits, then rest for as long as it took."""
        while self._is_busy():
            await self._pause(_BUSY_S)
        counted = self._traces.get(key.tenant, key)
        if counted is None:
            return
        counted.due = counted.spans + max(
            1, int((_GROWTH - 1) * counted.spans) if counted.spans >= _EACH else 1
        )
        begun = self._monotonic()
        try:
            await self._look(key)
        except StoreError as error:
            logger.warning("early look skipped", extra={"reason": str(error)})
        except AnalysisLostError:
            self._end(key)
            return
        self.done += 1
        await self._pause(self._monotonic() - begun)
