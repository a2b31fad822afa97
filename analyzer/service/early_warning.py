"""Early warnings: compares the arrived part of a run with earlier runs of its workflow. Not pure.

Which workflow a run belongs to is known at its end, when its root arrives. So a part is compared with each
workflow of its service with which it shares agents, and a warning needs all of them to agree. Parts are kept
in this process alone: after a restart, warnings begin again when enough passing runs have been seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.history.early import EarlyAlarm, KnownPart, Part, Warned, early_alarm, part_of
from analyzer.history.elements import Element, unpack
from analyzer.history.known_runs import from_text, has_shared_agents
from analyzer.history.spectrum import Said
from analyzer.issues.recurrence.issue import Notice, NoticeKind
from analyzer.service.lifetime import Lifetime
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.pipeline.analyst_protocol import Analysis
from collector_processor.pipeline.early_looks import EarlyLooks
from collector_processor.pipeline.examine import Compare, Examiner, Finding, ReadRuns
from collector_processor.pipeline.load import Others
from collector_processor.pipeline.prepare import PreparedRun
from collector_processor.pipeline.scheduler import Pipeline
from collector_processor.settings import Settings
from collector_processor.store.database.connection import StoreError
from collector_processor.wire.facts import TraceArrival
from semconv.model import agent_in_prose
from semconv.record import record

logger = logging.getLogger(__name__)

FRESH_S: Final = 10.0
"""Seconds for which a workflow's counts are used; newer runs wait for the next count."""
MOST_RUNS: Final = 200
"""Newest runs of a service that were seen before their end."""
MOST_SERVICES: Final = 16
"""Services of tenants; those that ended no run for longest are forgotten."""
MOST_OPEN: Final = 2_000
"""Parts of runs that have not ended, and warnings that were given."""
_READ: Final = 2_000

RunKey: TypeAlias = tuple[Tenant, str]
Announce: TypeAlias = Callable[[Notice], Awaitable[None]]


@record
class _Ended:
    workflow: str
    part: Part


@record
class _Workflow:
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
            share: highest share of passing runs that may be warned of.
            announce: queues a notice for receivers.
            clock: returns seconds of a monotonic clock.
            now_ns: returns Unix ns.
        """
        self._share: Final = share
        self._announce: Final = announce
        self._clock: Final = clock
        self._now_ns: Final = now_ns
        self._open: Final[OrderedDict[RunKey, tuple[str, Part]]] = OrderedDict()
        self._ended: Final[OrderedDict[tuple[Tenant, str], OrderedDict[str, _Ended]]] = OrderedDict()
        self._counted: Final[dict[tuple[Tenant, str], _Counted]] = {}
        self._given: Final[OrderedDict[RunKey, _Given]] = OrderedDict()
        self.warnings = 0
        """Runs warned of so far."""

    def noting(self, compare: Compare) -> Compare:
        """Return a comparison of ended runs that also notes their workflows."""

        async def noted(tenant: Tenant, run: PreparedRun, finding: Finding, read: ReadRuns) -> Finding:
            self._end(tenant, run)
            return await compare(tenant, run, finding, read)

        return noted

    def _end(self, tenant: Tenant, run: PreparedRun) -> None:
        key = (tenant, run.identity.run_id)
        self._given.pop(key, None)
        found = self._open.pop(key, None)
        if found is None or run.totals is None:
            return
        service, part = found
        runs = self._ended.setdefault((tenant, service), OrderedDict())
        runs[run.identity.run_id] = _Ended(workflow=run.totals.workflow, part=part)
        self._ended.move_to_end((tenant, service))
        if len(runs) > MOST_RUNS:
            runs.popitem(last=False)
        if len(self._ended) > MOST_SERVICES:
            gone, _ = self._ended.popitem(last=False)
            self._counted.pop(gone, None)

    async def warn(self, tenant: Tenant, run: PreparedRun, read: ReadRuns) -> Analysis | None:
        """Return the analysis of an open run with a warning in its notes; ``None`` without a warning."""
        key = (tenant, run.identity.run_id)
        if run.analysis is None or not run.compared:
            return None
        service, elements, part = await asyncio.to_thread(_read, run.compared)
        self._keep(key, service, part)
        given = self._given.get(key)
        if given is None:
            warned = await self._warned(tenant, service, part, elements, read)
            if warned is None:
                return None
            agent = next((one.agent for one in run.trajectory.steps if one.index == warned.step), "")
            given = self._given[key] = _Given(warned=warned, agent=agent)
            if len(self._given) > MOST_OPEN:
                self._given.popitem(last=False)
            await self._tell(key, service, agent, given.note)
        return run.analysis.with_warning(given.document, given.note)

    def _keep(self, key: RunKey, service: str, part: Part) -> None:
        before = self._open.pop(key, None)
        self._open[key] = (service, part if before is None else part.joined(before[1]))
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)

    async def _warned(
        self, tenant: Tenant, service: str, part: Part, elements: Sequence[Element], read: ReadRuns
    ) -> Warned | None:
        known = await self._workflows((tenant, service), read)
        kin = [one for one in known if has_shared_agents(part.agents, one.agents)]
        found = [one.alarm.warned(elements) for one in kin]
        agreed = [one for one in found if one is not None]
        return min(agreed, key=lambda one: one.score) if agreed and len(agreed) == len(found) else None

    async def _workflows(self, place: tuple[Tenant, str], read: ReadRuns) -> Sequence[_Workflow]:
        now, counted = self._clock(), self._counted.get(place)
        runs = self._ended.get(place)
        if runs is None:
            return ()
        if counted is None or now - counted.at_s >= FRESH_S:
            counted = self._counted[place] = _Counted(await self._count(place, dict(runs), read), now)
        return counted.workflows

    async def _count(
        self, place: tuple[Tenant, str], runs: dict[str, _Ended], read: ReadRuns
    ) -> Sequence[_Workflow]:
        tenant, service = place
        known: list[list[KnownPart]] = []
        for workflow in {one.workflow for one in runs.values()}:
            rows = await read(tenant, service, workflow, _READ)
            known.append(
                [
                    KnownPart(said=Said(row.said), part=runs[row.run_id].part, whole=unpack(row.elements))
                    for row in rows
                    if row.run_id in runs
                ]
            )
        return await asyncio.to_thread(_workflows_of, known, self._share)

    async def _tell(self, key: RunKey, service: str, agent: str, note: str) -> None:
        self.warnings += 1
        tenant, run_id = key
        notice = Notice(
            kind=NoticeKind.EARLY,
            tenant=tenant,
            at_ns=self._now_ns(),
            service=service,
            agent=agent,
            title=f"{agent_in_prose(agent)}: {note.partition(';')[0]}",
            run_id=run_id,
        )
        try:
            await self._announce(notice)
        except StoreError as error:
            logger.warning("early warning not announced", extra={"reason": str(error)})


def _read(text: str) -> tuple[str, Sequence[Element], Part]:
    run = from_text(text)
    return run.service, run.elements, part_of(run.elements)


def _workflows_of(known: Sequence[Sequence[KnownPart]], share: float) -> Sequence[_Workflow]:
    return [
        _Workflow(
            alarm=early_alarm(runs, share), agents=frozenset().union(*(one.part.agents for one in runs))
        )
        for runs in known
        if runs
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
        """Runs warned of so far."""
        return self.warning.warnings

    def feed(self, arrival: TraceArrival) -> None:
        """Record spans that are durable now, for verdicts first."""
        self.pipeline.feed(arrival)
        self.looks.feed(arrival)


def open_early_warning(settings: Settings, announce: Announce) -> EarlyWarning | None:
    """Return what warns of runs; ``None`` if the settings do not ask for it."""
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
