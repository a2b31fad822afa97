"""Loads a trace and the traces joined to it: reads them from the journal and prepares them. Not pure.

Traces are read, and looked up in the store, in batches.
"""

from __future__ import annotations

import logging
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeAlias

from analyzer.analyses.prepared import (
    MAX_KEYS,
    Analysed,
    Changed,
    Open,
    Prepared,
    PreparedRun,
    ToAsk,
    TraceBytes,
    Trial,
)
from collector_processor.assembly.assembler import Released
from collector_processor.core.fair import Batcher
from collector_processor.core.records import AbsentParent, RunIdentity
from collector_processor.core.runs import TRACE_KEY
from collector_processor.otlp import TraceKey
from collector_processor.store.database.connection import StoreThread
from collector_processor.store.verdicts import MAX_JOINED, RunStore
from semconv.model import Completion, TraceId

logger = logging.getLogger(__name__)

MAX_ANALYSES: Final = 32
"""Maximum number of analyses of a run that keeps changing.

The wait doubles each time, up to ``max_silence_s``: at its default of 75 min, late spans count for a day.
"""
MAX_JOINS: Final = 3
"""Number of analyses after which a run takes no further traces: those that link to it are separate.

Otherwise a conversation in which every turn links to the one before would be read again as a whole at each
turn.
"""
_WAITS_FOR_NONE: Final = frozenset({Completion.IDLE_OPEN, Completion.MAX_AGE, Completion.EVICTED})
"""Completions that do not wait for other open traces of the run: provisional verdicts, and caps."""
_GLANCE: Final = Completion.IDLE_OPEN
_MOST_READ: Final = 16
_MOST_JOINED: Final = 32

Rows: TypeAlias = tuple[tuple[int, bytes], ...]
"""Journal rows, each with only one trace's items."""

Prepare: TypeAlias = Callable[[TraceBytes], Awaitable[Prepared]]
"""Runs step 1; raises ``AnalysisLostError`` if the trace crashes worker processes."""


class HeldTraces(Protocol):
    """The bytes of agent traces, some of them held back until their verdict: the journal."""

    async def read_whole(self, keys: Sequence[TraceKey]) -> Sequence[tuple[Rows, Rows]]:
        """Return each trace's rows of spans and rows of log records; empty once they are reclaimed."""
        ...

    async def held_rows(self, key: TraceKey) -> Rows:
        """Return the trace's held rows."""
        ...

    async def release_held(self, key: TraceKey) -> None:
        """Release the trace's held rows unchanged."""
        ...

    async def rewrite_held(self, seq: int, body: bytes) -> None:
        """Release one held row as ``body``; no effect if the row is gone already."""
        ...


@dataclass(slots=True)
class Loaded:
    """The loaded traces, of one run or of several."""

    seen: dict[TraceKey, tuple[int, int]] = field(default_factory=dict)
    """For each trace when it was read: its number of analyses, and the last row they covered."""
    upto: dict[TraceKey, int] = field(default_factory=dict)
    """The highest journal row of each trace."""
    bodies: list[bytes] = field(default_factory=list)
    logs: list[bytes] = field(default_factory=list)
    before: tuple[RunIdentity, ...] = ()
    """The runs that the traces formed when last analysed."""
    prepared: Prepared = field(default_factory=Prepared)
    awaited: frozenset[TraceKey] = frozenset()
    """Other traces of the same run, open or under examination; the analysis waits for them."""
    too_early: int = 0
    """Analyses of the run so far, if the trace must wait longer because of them; else 0."""

    @property
    def news(self) -> tuple[Changed, ...]:
        """The runs that have ended and changed since they were last analysed."""
        return tuple(one for one in self.prepared.runs if isinstance(one, Analysed | ToAsk))

    @property
    def unfinished(self) -> tuple[Open, ...]:
        """The runs that have not ended."""
        return tuple(one for one in self.prepared.runs if isinstance(one, Open))

    @property
    def is_experiment(self) -> bool:
        """Whether every run in it is a trial of an experiment; trials are never joined to other runs."""
        return bool(self.prepared.runs) and all(isinstance(one, Trial) for one in self.prepared.runs)

    @property
    def is_covered(self) -> bool:
        """Whether every trace in it was analysed before."""
        return all(upto <= self.seen[key][1] for key, upto in self.upto.items())

    @property
    def is_full(self) -> bool:
        """Whether it has as many traces as a run may have, so that none is added."""
        return len(self.upto) >= MAX_JOINED

    @property
    def analyses(self) -> int:
        """Number of analyses of the run: the highest of its traces."""
        return max((analyses for analyses, _ in self.seen.values()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    seen: tuple[int, int]
    """The number of analyses, and the last row that they covered."""
    identities: tuple[RunIdentity, ...]
    rows: Rows
    logs: Rows

    @property
    def is_whole(self) -> bool:
        """False once its first spans are reclaimed: half a run would look like a different failure."""
        analyses, upto = self.seen
        return bool(self.rows) and not (analyses and self.rows[0][0] > upto)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joining:
    """A prepared trace, to be joined with the others of its run."""

    key: TraceKey
    names: tuple[str, ...]
    along: tuple[TraceKey, ...]
    own: tuple[TraceId, ...]
    """The other traces known to belong to its run."""
    run_ids: frozenset[str]
    """Runs that it was part of before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Company:
    """The other traces of a trace's run."""

    traces: Sequence[TraceKey]
    analyses: int
    """Highest number of analyses of these traces; traces that were given up do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The state of traces other than the one that is examined."""

    is_open: Callable[[TraceKey], bool]
    """Whether a trace is not complete yet: a run is examined when the last of its traces is complete."""
    is_ahead: Callable[[TraceKey], bool] = lambda _: False
    """Whether a trace's examination began earlier and has not ended.

    Of the traces of a run that are examined at once, only the first reads the others: otherwise a hundred
    traces would cause ten thousand reads.
    """

    def is_pending(self, key: TraceKey) -> bool:
        """Return whether the trace is open, or its examination is ahead."""
        return self.is_open(key) or self.is_ahead(key)


class _Names:
    """The run keys of a run's traces, at most ``MAX_KEYS``."""

    def __init__(self) -> None:
        self._seen: Final[set[tuple[str, bool]]] = set()
        """Keys and whether each is a trace's own: a linked one is looked up again once its trace is read."""
        self._has_links = False

    def new(self, part: Loaded) -> tuple[str, ...]:
        """Return the keys that traces add; frameworks' ids join only runs without links."""
        own = {f"{TRACE_KEY}{key.trace_id}" for key in part.upto}
        found = [name for name in part.prepared.names if (name, name in own) not in self._seen]
        self._has_links |= any(name.startswith(TRACE_KEY) and name not in own for name in found)
        if self._has_links:
            found = [name for name in found if name.startswith(TRACE_KEY)]
        found = found[: MAX_KEYS - len(self._seen)]
        self._seen.update((name, name in own) for name in found)
        return tuple(found)


class Loader:
    """Loads traces; keeps no state between calls."""

    def __init__(
        self,
        *,
        source: HeldTraces,
        store: RunStore,
        thread: StoreThread,
        prepare: Prepare,
        wall_ns: Callable[[], int],
    ) -> None:
        self._source: Final = source
        self._store: Final = store
        self._thread: Final = thread
        self._prepare: Final = prepare
        self._wall_ns: Final = wall_ns
        self._read: Final = Batcher(self._read_all, most=_MOST_READ)
        self._join: Final = Batcher(self._join_all, most=_MOST_JOINED)

    async def load(self, released: Released, others: Others, most_bytes: int = sys.maxsize) -> Loaded:
        """Load the trace and the traces joined to it; empty if its first spans are reclaimed.

        Without prepared runs if they have more than ``most_bytes``.

        Raises:
            AnalysisLostError: the trace crashes worker processes.
        """
        wanted = [released.key]
        loaded, asked, names = Loaded(), set(wanted), _Names()
        whole, is_whole = 0, True  # number of traces when all were last prepared together
        while wanted and not loaded.is_full:
            part = Loaded(before=loaded.before)
            for key in wanted:
                read = await self._thread.patiently(partial(self._read, key))
                _add(part, key, read)
                _add(loaded, key, read)
            if released.key not in loaded.upto:
                return loaded
            if sum(map(len, (*loaded.bodies, *loaded.logs))) > most_bytes:
                loaded.prepared = Prepared()
                return loaded
            if not part.upto or _is_known(released, loaded):
                break
            # Prepare all together only once their number has doubled: otherwise a chain is prepared again for
            # each trace.
            if is_whole := len(loaded.upto) >= 2 * whole:
                part, whole = loaded, len(loaded.upto)
            part.prepared = await self._prepared(released, part)
            company = await self._joined(released, loaded, names.new(part))
            joined = [key for key in company.traces if key not in asked]
            wanted = joined[: MAX_JOINED - len(loaded.upto)]  # the rest does not fit, so it is not waited for
            asked.update(wanted)
            loaded.awaited = _awaited(released, wanted, others)
            loaded.too_early = _too_early(released, loaded, company)
            if loaded.awaited or loaded.too_early:
                return loaded
        if not is_whole:
            loaded.prepared = await self._prepared(released, loaded)
        if loaded.prepared.fault:
            context = {"trace_id": released.key.trace_id, "error": loaded.prepared.fault}
            logger.warning("trace cannot be decoded", extra=context)
        return loaded

    async def _prepared(self, released: Released, part: Loaded) -> Prepared:
        """Prepare the traces, and mark runs that are trials issued by this store."""
        prepared = await self._prepare(_bytes_of(released, part))
        claimed = {trial for one in prepared.runs for trial in one.run.trials}
        if not claimed:  # the usual case: no need to ask the store
            return prepared
        issued = await self._thread.run(
            self._store.trials.issued, released.key.tenant, claimed, self._wall_ns()
        )
        runs: tuple[PreparedRun, ...] = tuple(
            Trial(run=one.run) if one.run.trials and one.run.trials <= issued else one
            for one in prepared.runs
        )
        # Trials are killed: missing parents in them say nothing about production.
        absent = () if any(isinstance(one, Trial) for one in runs) else prepared.absent
        return replace(prepared, runs=runs, absent=absent)

    async def _read_all(self, keys: Sequence[TraceKey]) -> Sequence[_Read]:
        # The store first: if an analysis commits in between, ``decide`` sees that the traces were analysed
        # further.
        seen, identities = await self._thread.run(
            lambda: (self._store.seen(keys), self._store.identities(keys))
        )
        return [
            _Read(seen=seen[key], identities=identities[key], rows=rows, logs=logs)
            for key, (rows, logs) in zip(keys, await self._source.read_whole(keys), strict=True)
        ]

    async def _joined(self, released: Released, loaded: Loaded, names: tuple[str, ...]) -> _Company:
        """Return the other traces of the run, found by ``names``: run keys of the traces read last."""
        if loaded.is_experiment:
            return _Company(traces=(), analyses=0)
        joining = _Joining(
            key=released.key,
            names=names,
            along=tuple(sorted(released.along)),
            own=tuple(key.trace_id for key in loaded.upto if key != released.key),
            run_ids=frozenset(run.run_id for run in loaded.before),
        )
        return await self._join(joining)

    async def _join_all(self, several: Sequence[_Joining]) -> Sequence[_Company]:
        return await self._thread.insist(self._siblings, several)

    def _siblings(self, several: Sequence[_Joining]) -> Sequence[_Company]:
        """Store the run keys of each trace; return other traces that are, or may become, part of its run."""
        noted = self._store.join_all([(one.key, one.names, one.own) for one in several])
        siblings = [
            [*one.along, *sorted({TraceKey(one.key.tenant, trace_id) for trace_id in found} - {*one.along})]
            for one, found in zip(several, noted, strict=True)
        ]
        everyone = {
            key for one, others in zip(several, siblings, strict=True) if others for key in (one.key, *others)
        }
        runs, seen = self._store.identities(everyone), self._store.seen(everyone)
        full = {key for key, (analyses, _) in seen.items() if analyses >= MAX_JOINS}
        joinable = [_joinable(one, others, runs, full) for one, others in zip(several, siblings, strict=True)]
        return [
            _Company(traces=traces, analyses=max((seen[key][0] for key in traces if runs[key]), default=0))
            for traces in joinable
        ]


def _joinable(
    one: _Joining,
    siblings: Sequence[TraceKey],
    identities: Mapping[TraceKey, Iterable[RunIdentity]],
    full: Container[TraceKey],
) -> list[TraceKey]:
    """Return the siblings that are, or may become, part of the trace's run.

    Runs that have verdicts are never merged: both were counted and written into traces.
    So a new trace that links to several such runs joins one of them.
    """
    runs = {other: {run.run_id for run in identities[other]} for other in siblings}
    own = one.run_ids
    if not own:
        open_runs = (ids for other, ids in runs.items() if ids and other not in full)
        own = frozenset(next(open_runs, ()))
    return [other for other, ids in runs.items() if (ids & own if ids else one.key not in full)]


def _awaited(released: Released, wanted: Sequence[TraceKey], others: Others) -> frozenset[TraceKey]:
    """Return the traces of the run that must be complete, or examined, first."""
    if first := next(filter(others.is_ahead, wanted), None):
        return frozenset((first,))
    is_patient = released.completion not in _WAITS_FOR_NONE
    return frozenset(filter(others.is_open, wanted) if is_patient else ())


def _too_early(released: Released, loaded: Loaded, company: _Company) -> int:
    """Return the run's analyses if they exceed the trace's: known before all of the run is read again."""
    is_early = released.analyses < company.analyses < MAX_ANALYSES and len(loaded.upto) == 1
    return company.analyses if is_early and released.completion is not _GLANCE else 0


def absent_parents(loaded: Loaded, now_ns: int) -> tuple[AbsentParent, ...]:
    """Return the kinds of spans whose parents are no longer expected after this trace."""
    return tuple(replace(parent, since_ns=now_ns) for parent in loaded.prepared.absent)


def _is_known(released: Released, loaded: Loaded) -> bool:
    """Return whether the first trace was analysed as part of a run meanwhile, and need not be read."""
    is_first = len(loaded.upto) == 1
    return is_first and loaded.is_covered and not released.given_up and released.completion is not _GLANCE


def _add(loaded: Loaded, key: TraceKey, read: _Read) -> None:
    if not read.is_whole:
        return
    loaded.seen[key] = read.seen
    loaded.upto[key] = max(seq for seq, _ in (*read.rows, *read.logs))
    loaded.bodies += (body for _, body in read.rows)
    loaded.logs += (body for _, body in read.logs)
    loaded.before = _merged((*loaded.before, *read.identities))


def _merged(identities: Iterable[RunIdentity]) -> tuple[RunIdentity, ...]:
    """Return each run once, with all its traces."""
    parts: defaultdict[tuple[str, bytes], set[TraceId]] = defaultdict(set)
    for identity in identities:
        parts[identity.run_id, identity.digest].update(identity.trace_ids)
    return tuple(
        RunIdentity(run_id=run_id, digest=digest, trace_ids=frozenset(trace_ids))
        for (run_id, digest), trace_ids in parts.items()
    )


def _bytes_of(released: Released, loaded: Loaded) -> TraceBytes:
    return TraceBytes(
        key=released.key,
        completion=released.completion,
        bodies=tuple(loaded.bodies),
        logs=tuple(loaded.logs),
        before=loaded.before,
        given_up=frozenset(released.given_up),
    )
