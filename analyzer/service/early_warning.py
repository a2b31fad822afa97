"""Early warnings: compares the arrived part of a run with earlier runs of its workflow. Not pure.

Which workflow a run belongs to is known at its end, when its root arrives. So a part is compared with each
workflow of its service and release with which it shares agents, and a warning needs all of them to agree.
Releases stay apart: all runs of a new one may be unlike those of the one before. Parts are kept in this
process alone: after a restart, warnings begin again when enough passing runs have been seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.analyses.early_looks import EarlyLooks
from analyzer.analyses.examine import Compare, Examiner, Finding, ReadOutcomes, ReadRuns
from analyzer.analyses.load import Others
from analyzer.analyses.prepare import Changed, Open
from analyzer.analyses.scheduler import Pipeline
from analyzer.history.early import EarlyAlarm, KnownPart, Part, Warned, early_alarm, part_of
from analyzer.history.elements import Element, unpack
from analyzer.history.known_runs import from_text, has_shared_agents
from analyzer.history.spectrum import Said
from analyzer.issues.recurrence import Notice, NoticeKind
from analyzer.service.lifetime import Lifetime
from collector_processor.core.analysis import Analysis
from collector_processor.core.disk import StoreError
from collector_processor.core.fair import FairTable
from collector_processor.core.records import RunOutcome
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.settings import Settings
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
        share: float,
        announce: Announce,
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Create it without any runs.

        Args:
            share: highest share of passing runs that may get a warning.
            announce: queues a notice for receivers.
            clock: returns seconds of a monotonic clock.
            now_ns: returns Unix ns.
        """
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

    def noting(self, compare: Compare) -> Compare:
        """Return a comparison of ended runs that also notes their workflows."""

        async def noted(tenant: Tenant, one: Changed, finding: Finding, read: ReadRuns) -> Finding:
            self._end(tenant, one.run.identity.run_id, one.news.totals.workflow)
            return await compare(tenant, one, finding, read)

        return noted

    def _end(self, tenant: Tenant, run_id: str, workflow: str) -> None:
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

    async def warn(self, tenant: Tenant, one: Open, read: ReadOutcomes) -> Analysis | None:
        """Return the analysis of an open run with a warning in its notes; ``None`` without a warning."""
        run_id = one.run.identity.run_id
        if not one.so_far:
            return None
        part = await asyncio.to_thread(_read, one.so_far, self._open.get(tenant, run_id))
        self._open.put(tenant, run_id, part.seen)
        if self._given.get(tenant, run_id) is None:
            warned = await self._warned(tenant, part, read)
            if warned is not None and self._given.get(tenant, run_id) is None:  # another look may have warned
                steps = one.run.trajectory.steps
                agent = next((step.agent for step in steps if step.index == warned.step), "")
                self._given.put(tenant, run_id, _Given(warned=warned, agent=agent))
                await self._tell(tenant, run_id, part.seen.service, agent, warned)
        given = self._given.get(tenant, run_id)
        return None if given is None else one.analysis.with_warning(given.document, given.note)

    async def _warned(self, tenant: Tenant, part: _Read, read: ReadOutcomes) -> Warned | None:
        known = await self._workflows(tenant, part.seen.service, read)
        kin = [
            one
            for one in known
            if one.release == part.seen.release and has_shared_agents(part.agents, one.agents)
        ]
        found = [one.alarm.warned(part.elements) for one in kin]
        agreed = [one for one in found if one is not None]
        return min(agreed, key=lambda one: one.score) if agreed and len(agreed) == len(found) else None

    async def _workflows(self, tenant: Tenant, service: str, read: ReadOutcomes) -> Sequence[_Workflow]:
        runs = dict(self._ended.get(tenant, service) or {})
        if not runs:
            return ()
        now, counted = self._clock(), self._counted.get(tenant, service)
        if counted is None or now - counted.at_s >= FRESH_S:
            outcomes = await read(tenant, list(runs))
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
    for one in outcomes:
        run = runs[one.run_id]
        known[run.workflow, run.release].append(
            KnownPart(said=Said(one.said), part=Part.unpacked(run.packed), whole=unpack(one.elements))
        )
    return [
        _Workflow(
            release=release,
            alarm=early_alarm(parts, share),
            agents=frozenset[bytes]().union(*(one.part.agents for one in parts)),
        )
        for (_, release), parts in known.items()
    ]


def _note(warned: Warned, agent: str) -> str:
    return (
        f"Early warning at step {warned.step}, before the run's end: {agent_in_prose(agent)} {warned.text};"
        f" {warned.as_high} of {warned.passing} runs that passed looked as unusual before their end."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyLane:
    """Early warnings of a running service."""

    looks: EarlyLooks
    warning: EarlyWarning
    pipeline: Pipeline

    @property
    def warnings(self) -> int:
        """Runs with a warning so far."""
        return self.warning.warnings

    def feed(self, arrival: TraceArrival) -> None:
        """Pass on spans that are durable now: first to the verdicts, then to the warnings."""
        self.pipeline.feed(arrival)
        self.looks.feed(arrival)


def open_early_warning(settings: Settings, announce: Announce) -> EarlyWarning | None:
    """Return the early warning of runs; ``None`` if the settings turn it off."""
    share = settings.early_false_alarms
    return EarlyWarning(share=share, announce=announce) if share else None


def start_early_looks(
    lifetime: Lifetime, warning: EarlyWarning | None, examiner: Examiner, pipeline: Pipeline
) -> EarlyLane | None:
    """Start looking at open traces; ``None`` if early warnings are off."""
    if warning is None:
        return None

    async def look(key: TraceKey) -> None:
        if examiner.owns(key) and pipeline.is_unsettled(key):
            await examiner.look_early(key, Others(is_open=pipeline.is_unsettled))

    looks = EarlyLooks(look, is_busy=lambda: pipeline.oldest_actionable_s > 0, monotonic=time.monotonic)
    lifetime.background(looks.run())
    return EarlyLane(looks=looks, warning=warning, pipeline=pipeline)


__all__ = ["EarlyLane", "EarlyWarning", "open_early_warning", "start_early_looks"]
