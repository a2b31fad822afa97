"""The quick way to a verdict: drafted in one go, committed along with those that come with it. A shell.

Four steps, each for all the traces that are there: read, draft, keep, commit. The order is the
same promise as on the long way (``examine.py``), which takes whatever does not fit here: nothing
leaves before it is committed, and nothing is committed of a trace of which more is known by now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from collector_processor.assembler import Released, TraceKey
from collector_processor.draft import AnalysisLostError, Draft, Drafted, Drafts, LoneTrace
from collector_processor.runstore import RunStore
from collector_processor.store_thread import StoreThread
from collector_processor.stored import Commit, StoredVerdict
from collector_processor.stores import StoreError
from collector_processor.together import Together
from collector_processor.writeback import Gist
from semconv.model import Completion

logger = logging.getLogger(__name__)

_NEVER: Final = (0, -1)
"""How often a trace was analysed that was not, and up to which row."""
_MOST_READ: Final = 16
_MOST_DRAFTED: Final = 8
_MOST_COMMITTED: Final = 32
_LARGE: Final = 1 << 20
"""Bytes of a trace that takes a while: others do not wait behind it."""

Rows: TypeAlias = tuple[tuple[int, bytes], ...]


class WholeTraces(Protocol):
    """Where the bytes of agent traces are read back from, many at once: the journal."""

    async def read_whole(self, keys: Sequence[TraceKey]) -> Sequence[tuple[Rows, Rows]]:
        """Return each trace's rows and its rows of log records, as ``TraceSource`` does one by one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A trace read back."""

    trace: LoneTrace
    upto: int
    """Its highest journal row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposed:
    """A draft that waits to be committed."""

    key: TraceKey
    upto: int
    draft: Draft

    @property
    def commit(self) -> Commit:
        return Commit(
            analysed=((self.key, self.upto),),
            times=int(bool(self.draft.runs)),
            told=self.draft.told,
            verdicts=tuple(run.verdict for run in self.draft.runs),
            outgoing=tuple(out for run in self.draft.runs for out in run.outgoing),
            places=tuple(run.place for run in self.draft.runs if run.place),
        )


class Outright:
    """Gives traces their verdicts outright, where that can be done."""

    def __init__(
        self,
        *,
        source: WholeTraces,
        store: RunStore,
        thread: StoreThread,
        committing: asyncio.Lock,
        drafts: Drafts,
        wall_ns: Callable[[], int],
        committed: Callable[[Sequence[tuple[Gist, StoredVerdict]]], None],
    ) -> None:
        """Make it.

        Args:
            source: where traces are read.
            store: where verdicts are committed, on ``thread``.
            thread: the store's.
            committing: held by whoever commits.
            drafts: who drafts.
            wall_ns: when.
            committed: told of verdicts once they are durable; their carriers may leave.
        """
        self._source: Final = source
        self._store: Final = store
        self._thread: Final = thread
        self._committing: Final = committing
        self._drafts: Final = drafts
        self._wall_ns: Final = wall_ns
        self._committed: Final = committed
        self._read: Final = Together(self._read_all, most=_MOST_READ)
        self._draft: Final = Together(self._draft_all, most=_MOST_DRAFTED)
        self._settle: Final = Together(self._settle_all, most=_MOST_COMMITTED)

    async def __call__(self, released: Released) -> bool:
        """Give a trace its verdict; ``False`` where it must go the long way, and nothing is done.

        Raises:
            AnalysisLostError: as it says.
        """
        is_alone = not released.along and not released.given_up
        if released.completion is Completion.IDLE_OPEN or released.analyses or not is_alone:
            return False
        found = await self._read(released)
        if found is None:
            return False
        draft = await self._draft(found.trace)
        if isinstance(draft, AnalysisLostError):
            raise draft
        if draft is None:
            return False
        return await self._settle(_Proposed(key=released.key, upto=found.upto, draft=draft))

    async def _read_all(self, several: Sequence[Released]) -> Sequence[_Found | None]:
        read = await self._source.read_whole([released.key for released in several])
        return [self._found(released, *rows) for released, rows in zip(several, read, strict=True)]

    def _found(self, released: Released, rows: Rows, logs: Rows) -> _Found | None:
        trace = LoneTrace(
            key=released.key,
            completion=released.completion,
            bodies=tuple(body for _, body in rows),
            logs=tuple(body for _, body in logs),
            now_ns=self._wall_ns(),
        )
        if not rows or trace.byte_count > _LARGE:
            return None
        return _Found(trace=trace, upto=max(seq for seq, _ in (*rows, *logs)))

    async def _draft_all(self, traces: Sequence[LoneTrace]) -> Sequence[Drafted]:
        return await self._drafts.write(traces)

    async def _settle_all(self, several: Sequence[_Proposed]) -> Sequence[bool]:
        try:
            return await self._settled(several)
        except StoreError as error:  # the long way waits for the disk
            logger.warning("verdicts wait for the store", extra={"reason": str(error)})
            return [False] * len(several)

    async def _settled(self, several: Sequence[_Proposed]) -> Sequence[bool]:
        lone = await self._thread.run(self._lone, several)
        if lone:
            # Before the verdicts: one that is there to be labelled has its run kept beside it.
            await self._drafts.keep([(one.key.tenant, one.draft) for one in lone])
            async with self._committing:
                lone = await self._thread.run(self._commit, lone)
            self._committed([(run.gist, run.verdict) for one in lone for run in one.draft.runs])
        settled = {one.key for one in lone}
        return [one.key in settled for one in several]

    def _lone(self, several: Sequence[_Proposed]) -> Sequence[_Proposed]:
        """Join each trace to its run, and return those that are one by themselves, and new."""
        joined = self._store.join_all([(one.key, one.draft.names) for one in several])
        alone = [one for one, others in zip(several, joined, strict=True) if not others]
        return [one for one in alone if self._is_new(one)]

    def _commit(self, several: Sequence[_Proposed]) -> Sequence[_Proposed]:
        """Commit, and return, those of which no more is known by now."""
        current = [one for one in several if self._is_new(one)]
        if current:
            self._store.commit_all([one.commit for one in current])
        return current

    def _is_new(self, one: _Proposed) -> bool:
        if self._store.analyses(one.key) != _NEVER or self._store.told((one.key,)):
            return False
        before = (self._store.current(one.key.tenant, run.verdict.run_id) for run in one.draft.runs)
        return all(verdict is None or verdict.is_provisional for verdict in before)
