"""The service's slow lane in virtual time: SDKs that batch, the real intake, journal, pipeline and store.

Nothing sleeps: one simulated clock, moved from event to event, serves as wall clock and monotonic clock.
A request leaves an SDK at the first flush of its service after the spans in it ended.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.analyses.commit import Committer, Leaving
from analyzer.analyses.composition import carrier_policy, open_analyst, open_cleaner
from analyzer.analyses.examine import Examiner
from analyzer.analyses.executor import open_executor
from analyzer.analyses.pool import Pool
from analyzer.analyses.prepared import keeping
from analyzer.analyses.scheduler import Pipeline, PipelineLimits
from benchmarks.completion.counting import Said, Seen, Truth
from benchmarks.completion.stories import Story
from collector_processor.core.analysis import Analyst
from collector_processor.core.records import StoredVerdict
from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal import Journal, open_journal
from collector_processor.journal.chunks import Chunk
from collector_processor.otlp import NO_TENANT, Arrival, Signal, TraceKey
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.receivers.intake import Intake, IntakeRules
from collector_processor.settings import Settings
from collector_processor.store.database.connection import StoreThread
from collector_processor.store.verdicts import RunStore
from semconv.model import Span, TraceId

NETWORK_S: Final = 0.01
"""Seconds from an SDK's flush to its arrival."""
COMPANY_S: Final = 0.02
"""Smallest interval between turns of the pipeline."""
DOWN_S: Final = 1.0
"""Duration of a restart; SDKs resend requests that fail meanwhile."""
PATIENCE_S: Final = 4 * 3600.0
"""Virtual seconds after the last run's end at which runs without a verdict are given up."""
_MOST_VERDICTS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A story and its start time."""

    story: Story
    begin_s: float

    @property
    def end_s(self) -> float:
        """End of its last span."""
        return self.begin_s + self.story.end_s

    @property
    def truth(self) -> Truth:
        """The truth to compare verdicts with."""
        traces = frozenset(self.story.trace_ids)
        return Truth(culprit=self.story.culprit, traces=traces, end_s=self.end_s)


@dataclass(slots=True)
class _Clock:
    now: float

    def wall_ns(self) -> int:
        return round(self.now * 1e9)


def requests(runs: Iterable[Begun], delay_s: float, chance: random.Random) -> Iterator[tuple[float, bytes]]:
    """Yield the arrival time and bytes of each export request of the runs' services, unordered.

    Args:
        runs: with start times in seconds since 1970.
        delay_s: the SDKs' interval between flushes; each starts at a random phase.
        chance: random generator for the phases.
    """
    phases = defaultdict[str, float](lambda: chance.uniform(0, delay_s))
    flushed: defaultdict[tuple[str, int], list[Span]] = defaultdict(list)
    for run in runs:
        for span in _moved(run):
            service = str(span.resource.attributes["service.name"])
            number = math.ceil((span.end_ns / 1e9 - phases[service]) / delay_s)
            flushed[service, number].append(span)
    for (service, number), spans in flushed.items():
        yield phases[service] + number * delay_s + NETWORK_S, encode(spans)


def _moved(run: Begun) -> Iterator[Span]:
    shift = round(run.begin_s * 1e9) - min(one.start_ns for one in run.story.spans)
    for span in run.story.spans:
        yield replace(span, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift)


class _Forwarded:
    """A backend that accepts everything at once."""

    def __init__(self, journal: Journal) -> None:
        self._journal: Final = journal

    def offer(self, chunk: Chunk) -> None:
        self._journal.mark_done((chunk,))


class Process:
    """One process of the service on a data directory, without listeners."""

    def __init__(self, journal: Journal, store: RunStore, settings: Settings, parts: _Parts) -> None:
        self._journal: Final = journal
        self._store: Final = store
        self._clock: Final = parts.clock
        self._origin: Final = parts.origin_s
        self._thread: Final = StoreThread()
        leaving = Leaving(
            policy=carrier_policy(settings), wall_ns=parts.clock.wall_ns, wake_outbox=lambda: None
        )
        self._examiner: Final = Examiner(
            committer=Committer(source=journal, store=store, thread=self._thread, leaving=leaving),
            prepare=open_executor(settings, parts.analyst, open_cleaner(settings), Pool()),
            analyst=parts.analyst,
            kept=keeping(settings),
        )
        limits = PipelineLimits(assembler=settings.assembler_limits, concurrency=settings.concurrency)
        self.pipeline: Final = Pipeline(self._examiner, limits, lambda: parts.clock.now - parts.origin_s)
        journal.on_evicted = self.pipeline.evicted
        ledger = Ledger(journal.held_items, journal.lost)
        rules = IntakeRules(
            instance_id="bench",
            now_ns=parts.clock.wall_ns,
            holds=self.pipeline.holds,
            feed=self.pipeline.feed,
        )
        self._intake: Final = Intake(journal, ledger, _Forwarded(journal), rules)

    @classmethod
    async def started(cls, settings: Settings, parts: _Parts) -> Process:
        """Start on an earlier process's data, as ``blamespan serve`` does."""
        journal = await open_journal(settings.data_dir / "ingest")
        process = cls(journal, RunStore(settings.data_dir / "runs.sqlite"), settings, parts)
        await process.pipeline.recover(journal.agent_traces())
        return process

    async def accept(self, body: bytes) -> None:
        await self._intake.accept(Arrival(signal=Signal.TRACES, body=body))

    async def turn(self) -> None:
        """Do and finish all work that is due now."""
        await self.pipeline.turn()
        await self.pipeline.settle()

    def next_due(self) -> float:
        """Return the time of the next due work, on the simulated clock; infinite if there is none."""
        due = self.pipeline._assembler.next_deadline()
        return math.inf if due is None else due + self._origin

    def verdicts(self) -> list[StoredVerdict]:
        """Return the current final verdicts."""
        return [one for one in self._store.starting_with("", None, _MOST_VERDICTS) if not one.is_provisional]

    def carriers(self) -> tuple[Span, ...]:
        """Return the carrier spans to send, in order."""
        bodies: list[bytes] = []
        while rows := self._store.outbox(Signal.TRACES):
            bodies += [row.body for row in rows]
            self._store.delivered([row.id for row in rows])
        return tuple(span for body in bodies for span in decode(body).spans)

    def parts(self, traces: Iterable[TraceId]) -> dict[str, frozenset[TraceId]]:
        """Return the runs of these traces, each with all of its traces."""
        parts: dict[str, frozenset[TraceId]] = {}
        found = self._store.identities([TraceKey(NO_TENANT, trace_id) for trace_id in traces])
        for told in (run for runs in found.values() for run in runs):
            parts[told.run_id] = parts.get(told.run_id, frozenset()) | told.trace_ids
        return parts

    async def die(self) -> None:
        """Die without finishing anything: data that is not in the files is lost."""
        for task in tuple(self.pipeline._tasks):
            task.cancel()
        await self.pipeline.settle()
        self._thread.close()
        self._store.close()
        await self._journal.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Parameters of a process."""

    analyst: Analyst
    clock: _Clock
    origin_s: float
    """Zero point of its monotonic clock, different for each process."""


async def play(
    settings: Settings,
    runs: Sequence[Begun],
    arrivals: Iterable[tuple[float, bytes]],
    restarts: Iterable[float],
) -> Seen:
    """Play runs against the service, and return its verdicts.

    Args:
        settings: the service's settings, with an empty data directory.
        runs: whose traces are looked up at the end.
        arrivals: requests with their times.
        restarts: times at which the service is killed and restarted.
    """
    analyst = open_analyst(settings)
    events: list[tuple[float, bytes | None]] = [*arrivals, *((at, None) for at in restarts)]
    events.sort(key=lambda event: event[0], reverse=True)
    clock = _Clock(min(run.begin_s for run in runs))
    end_s = max(run.end_s for run in runs) + PATIENCE_S
    lives = 1
    process = await Process.started(settings, _Parts(analyst=analyst, clock=clock, origin_s=clock.now))
    seen = Seen()
    known: set[tuple[str, int]] = set()
    while True:
        due = max(process.next_due(), clock.now + COMPANY_S)
        at = min(due, events[-1][0] if events else math.inf)
        if at > end_s:
            break
        clock.now = max(clock.now, at)
        if events and events[-1][0] <= clock.now:
            _, body = events.pop()
            if body is None:
                await process.die()
                clock.now += DOWN_S
                lives += 1
                parts = _Parts(analyst=analyst, clock=clock, origin_s=clock.now - 1_000 * lives)
                process = await Process.started(settings, parts)
            else:
                await process.accept(body)
        await process.turn()
        for verdict in process.verdicts():
            if (verdict.run_id, verdict.version) not in known:
                known.add((verdict.run_id, verdict.version))
                seen.said.append(
                    Said(
                        at_s=clock.now,
                        run_id=verdict.run_id,
                        version=verdict.version,
                        status=verdict.status,
                        agent=verdict.agent,
                    )
                )
    seen.parts = process.parts(trace_id for run in runs for trace_id in run.story.trace_ids)
    seen.carriers = process.carriers()
    await process.die()
    return seen
