"""The last step of an examination: what it found is committed, and only then does anything leave.

One examination commits at a time, and none of which more is known by now. Held originals are rewritten
behind the commit, so that it can be done again after a crash with the same bytes. A shell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from collector_processor.analyst import Analysis
from collector_processor.annotate import CarrierPolicy
from collector_processor.assembler import TraceKey
from collector_processor.material import Material
from collector_processor.otlp import RefusedError, Tenant
from collector_processor.rebuild import Run
from collector_processor.runstore import RunStore
from collector_processor.store_thread import STORE_RETRY_S, StoreThread
from collector_processor.stored import Commit, Outgoing, StoredVerdict
from collector_processor.stores import StoreError
from collector_processor.writeback import Decision, Gist, WriteBack, gist_of, write_back
from semconv.model import Trajectory

logger = logging.getLogger(__name__)

Analyses: TypeAlias = dict[Trajectory, Analysis]
"""By what was analysed: a trajectory is a value."""

Tell: TypeAlias = Callable[[Gist, StoredVerdict], None]
"""Hears of each verdict once it is durable, provisional ones left out; quick, and never raises."""


def tell_nobody(_gist: Gist, _verdict: StoredVerdict) -> None:
    """Tell nobody."""


class HeldRows(Protocol):
    """Where rows wait for a verdict: the journal."""

    async def held_rows(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows that are held back."""
        ...

    async def release_held(self, key: TraceKey) -> None:
        """Let the trace's held rows go on as they are."""
        ...

    async def rewrite_held(self, seq: int, body: bytes) -> None:
        """Let one held row go on as ``body``; nothing if it is gone already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """How what was decided leaves."""

    policy: CarrierPolicy
    wall_ns: Callable[[], int]
    wake_outbox: Callable[[], None]
    tell: Tell = tell_nobody

    def committed(self, verdicts: Iterable[tuple[Gist, StoredVerdict]]) -> None:
        """Tell of verdicts that are durable; what they send may go."""
        for gist, verdict in verdicts:
            self.tell(gist, verdict)
        self.wake_outbox()


class Committing:
    """Commits what examinations found; one at a time has the word."""

    def __init__(
        self,
        *,
        held: HeldRows,
        store: RunStore,
        thread: StoreThread,
        leaving: Leaving,
        pause: Callable[[float], Awaitable[None]],
    ) -> None:
        self._held: Final = held
        self._store: Final = store
        self._thread: Final = thread
        self._leaving: Final = leaving
        self._pause: Final = pause
        self.turn: Final = asyncio.Lock()
        """Held by whoever looks at what is known and commits: traces of one run may be examined at once."""

    async def finish_rewrites(self) -> None:
        """Apply the replacements that were committed and perhaps not carried out."""
        refused = await self._rewrite(await self._thread.run(self._store.rewrites))
        await self._thread.insist(self._store.rewrites_refused, refused)

    async def commit_if_current(
        self, tenant: Tenant, material: Material, analyses: Analyses, claim: Callable[[TraceKey], bool]
    ) -> bool:
        """Commit; ``False``, after a while, where the disk refuses, or at once where more is known by now."""
        async with self.turn:
            run_ids = [run.trajectory.run_id for run in material.news]
            standing = await self._thread.run(self._store.standing, tuple(material.seen), tenant, run_ids)
            if standing.seen != material.seen:
                return False
            claimed = [key for key in material.upto if claim(key)]
            try:
                await self._commit(tenant, material, analyses, claimed, standing.verdicts)
            except StoreError as error:
                logger.warning("verdict waits for the store", extra={"reason": str(error)})
                for key in claimed:  # telemetry waits for no disk of ours; the blame follows late
                    await self._held.release_held(key)
            else:
                return True
        await self._pause(STORE_RETRY_S)
        return False

    def decision(
        self, tenant: Tenant, run: Run, analysis: Analysis, previous: StoredVerdict | None
    ) -> Decision:
        """Return what is decided of a run, now."""
        return Decision(
            run=run,
            attribution=analysis.attribution,
            document=analysis.document,
            previous=previous,
            tenant=tenant,
            now_ns=self._leaving.wall_ns(),
        )

    async def _commit(
        self,
        tenant: Tenant,
        material: Material,
        analyses: Analyses,
        claimed: Iterable[TraceKey],
        before: Mapping[str, StoredVerdict],
    ) -> None:
        held: dict[int, bytes] = {}
        for key in claimed:
            held |= dict(await self._held.held_rows(key))
        decisions: list[Decision] = []
        written: list[WriteBack] = []
        for run in material.news:
            previous = before.get(run.trajectory.run_id)
            decisions.append(self.decision(tenant, run, analyses[run.trajectory], previous))
            written.append(write_back(decisions[-1], self._leaving.policy, held))
            held |= dict(written[-1].rewrites)  # two runs may share a row
        rewrites = tuple({seq: body for back in written for seq, body in back.rewrites}.items())
        commit = Commit(
            analysed=tuple(material.upto.items()),
            times=material.analyses + bool(material.news),
            told=material.told,
            verdicts=tuple(back.verdict for back in written),
            outgoing=tuple(out for back in written for out in back.outgoing),
            rewrites=rewrites,
            late=_late(written),
            places=tuple(back.place for back in written if back.place),
        )
        await self._thread.run(self._store.commit, commit)
        for decision, back in zip(decisions, written, strict=True):
            self._leaving.tell(gist_of(decision, back), back.verdict)
        refused = await self._rewrite(rewrites)
        if refused:
            await self._follow_late(refused, claimed)
        self._leaving.wake_outbox()

    async def _rewrite(self, rewrites: Iterable[tuple[int, bytes]]) -> list[int]:
        """Let held rows go on as what was committed; return those whose replacement the disk refuses."""
        done: list[int] = []
        refused: list[int] = []
        for seq, body in rewrites:
            try:
                await self._held.rewrite_held(seq, body)
            except RefusedError as error:
                logger.warning("blame follows its original", extra={"reason": str(error)})
                refused.append(seq)
            else:
                done.append(seq)
        if done:
            await self._thread.insist(self._store.rewritten, done)
        return refused

    async def _follow_late(self, refused: list[int], claimed: Iterable[TraceKey]) -> None:
        """Send what the replacements say after the originals, which go on as they are."""
        try:
            await self._thread.run(self._store.rewrites_refused, refused)
        except StoreError:  # no disk takes anything: the originals do not wait for that
            for key in claimed:
                await self._held.release_held(key)
            await self._thread.insist(self._store.rewrites_refused, refused)


def _late(written: Iterable[WriteBack]) -> tuple[tuple[int, Outgoing], ...]:
    """Return for each row what follows it in the worst case; two runs may share a row."""
    found: dict[int, Outgoing] = {}
    for seq, out in (pair for back in written for pair in back.late):
        before = found.get(seq)
        found[seq] = replace(out, body=before.body + out.body) if before else out
    return tuple(found.items())
