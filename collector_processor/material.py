"""What an examination looks at: a trace and those joined to it, read back, rebuilt and named.

A run keeps the id that it was given first, whatever joins it later; whether it is news is
told by a digest of all that an analyst would be shown of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from collector_processor.assembler import Released, TraceKey
from collector_processor.cleaning import CleanRun
from collector_processor.notes import kind_of
from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild import Run, rebuild
from collector_processor.redaction import redact
from collector_processor.runs import TRACE_KEY, run_keys, steady_ids
from collector_processor.runstore import MAX_JOINED, RunStore
from collector_processor.store_thread import StoreThread
from collector_processor.stored import AbsentParent, ToldRun
from collector_processor.writeback import SERVICE_NAME
from semconv.model import Completion, TraceId, Trajectory

logger = logging.getLogger(__name__)

MAX_JOINS: Final = 3
"""Analyses after which a run takes no further traces: those that link to it later are runs by themselves.

A conversation whose every turn links to the one before would otherwise be read again, whole, at each turn.
"""
_WAITS_FOR_NONE: Final = frozenset({Completion.IDLE_OPEN, Completion.MAX_AGE})
"""Completions that do not wait for the run's other open traces: provisional verdicts, and caps."""
MAX_KEYS: Final = 4 * MAX_JOINED
"""Most run keys of one trace that are remembered: a span may link to any number of others."""


class TraceSource(Protocol):
    """Where the bytes of agent traces are read back from: the journal."""

    async def read_trace(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the trace's rows, each with only that trace's spans; empty once reclaimed."""
        ...

    async def read_logs(self, key: TraceKey) -> tuple[tuple[int, bytes], ...]:
        """Return the rows with log records of this trace, each with only those."""
        ...


@dataclass(slots=True)
class Material:
    """The traces of a run, or of several, as read back."""

    seen: dict[TraceKey, tuple[int, int]] = field(default_factory=dict)
    """How often each trace was analysed when it was read, and up to which row."""
    upto: dict[TraceKey, int] = field(default_factory=dict)
    """Each trace's highest journal row."""
    bodies: list[bytes] = field(default_factory=list)
    logs: list[bytes] = field(default_factory=list)
    runs: tuple[Run, ...] = ()
    digests: tuple[bytes, ...] = ()
    """Of the runs, under the ids that they have by themselves."""
    before: tuple[ToldRun, ...] = ()
    """The runs that the traces were when they were last analysed."""
    told: tuple[ToldRun, ...] = ()
    """The runs as they are now."""
    news: tuple[Run, ...] = ()
    """The runs that are not what they were when they were last analysed."""
    awaited: frozenset[TraceKey] = frozenset()
    fault: str = ""
    """Why nothing can be made of the bytes."""

    @property
    def is_covered(self) -> bool:
        """Whether all of it was analysed before."""
        return all(upto <= self.seen[key][1] for key, upto in self.upto.items())

    @property
    def analyses(self) -> int:
        """How often the run was analysed: as often as any trace of it."""
        return max((analyses for analyses, _ in self.seen.values()), default=0)


class Gathering:
    """Reads material; keeps nothing of it."""

    def __init__(self, *, source: TraceSource, store: RunStore, thread: StoreThread, clean: CleanRun) -> None:
        self._source: Final = source
        self._store: Final = store
        self._thread: Final = thread
        self._clean: Final = clean

    async def gather(self, released: Released, is_open: Callable[[TraceKey], bool]) -> Material:
        """Read the trace and those joined to it; nothing of it where its earlier spans are reclaimed."""
        wanted = [released.key]
        material, asked = Material(), set(wanted)
        while wanted:
            for key in wanted:
                await self._thread.patiently(partial(self._read, key, material))
            if released.key not in material.upto:
                return material
            await self._rebuild(released, material)
            wanted = await self._joined(released, material, asked)
            asked.update(wanted)
            if released.completion not in _WAITS_FOR_NONE:
                material.awaited = frozenset(key for key in wanted if is_open(key))
                if material.awaited:
                    return material
        await self._name(material)
        return material

    async def _name(self, material: Material) -> None:
        """Give each run the id that it had before, and find those that are news."""
        given = {told.run_id: told.trace_ids for told in material.before}
        own = material.runs
        run_ids = steady_ids([run.trace for run in own], given)
        material.runs = tuple(_named(run, run_id) for run, run_id in zip(own, run_ids, strict=True))
        digests = material.digests
        if material.runs != own:  # a long run is long to read through: beside the event loop
            digests = await asyncio.to_thread(digests_of, material.runs)
        known = {(told.run_id, told.digest) for told in material.before}
        material.told = told_runs(material.runs, digests)
        material.news = tuple(
            run
            for run, told in zip(material.runs, material.told, strict=True)
            if (told.run_id, told.digest) not in known
        )

    async def _read(self, key: TraceKey, material: Material) -> None:
        if len(material.upto) >= MAX_JOINED:
            return
        analyses, upto = await self._thread.run(self._store.analyses, key)
        rows = await self._source.read_trace(key)
        if not rows or (analyses and rows[0][0] > upto):
            return  # its first spans are reclaimed: half a run would only look like another failure
        logs = await self._source.read_logs(key)
        material.seen[key] = (analyses, upto)
        material.upto[key] = max(seq for seq, _ in (*rows, *logs))
        material.bodies += (body for _, body in rows)
        material.logs += (body for _, body in logs)

    async def _joined(
        self, released: Released, material: Material, asked: Container[TraceKey]
    ) -> list[TraceKey]:
        """Return the traces of the same run that were not asked for yet; note what all were before."""
        names = key_names(released.key.trace_id, material.runs)
        siblings, material.before = await self._thread.insist(
            self._meet, released, names, tuple(material.upto)
        )
        return [other for other in siblings if other not in asked]

    def _meet(
        self, released: Released, names: Sequence[str], read: Sequence[TraceKey]
    ) -> tuple[list[TraceKey], tuple[ToldRun, ...]]:
        """Join a trace to its run, and return what those read were before: one way to the thread for both."""
        key, told = released.key, self._store.told(read)
        found = self._store.join(key, names, [one.trace_id for one in read if one != key])
        siblings = sorted({*released.along, *(TraceKey(key.tenant, trace_id) for trace_id in found)})
        return self._joinable(key, siblings, told), told

    def _joinable(
        self, key: TraceKey, siblings: Iterable[TraceKey], told: Iterable[ToldRun]
    ) -> list[TraceKey]:
        """Return the siblings that are part of the trace's run, or may become part of it.

        A run that has its verdict is never merged into another: both were counted, and stand in traces.
        So a new trace that links to several such runs joins one of them.
        """
        runs = {one: {run.run_id for run in self._store.told((one,))} for one in siblings}
        own = {run.run_id for run in told}
        if not own:
            open_runs = (found for one, found in runs.items() if found and not self._is_full(one))
            own = next(open_runs, set())
        is_full = self._is_full(key)
        return [one for one, found in runs.items() if (found & own if found else not is_full)]

    def _is_full(self, key: TraceKey) -> bool:
        return self._store.analyses(key)[0] >= MAX_JOINS

    async def _rebuild(self, released: Released, material: Material) -> None:
        try:
            # Decoding a large trace takes a while: off the event loop, so that acknowledgements go on.
            material.runs, material.digests = await asyncio.to_thread(self._runs, material, released)
        except MalformedRequestError as error:
            logger.warning(
                "trace cannot be decoded", extra={"trace_id": released.key.trace_id, "error": str(error)}
            )
            material.fault = f"the spans cannot be read: {error}"

    def _runs(self, material: Material, released: Released) -> tuple[tuple[Run, ...], tuple[bytes, ...]]:
        """Return the runs in order, and their digests; nothing behind this line sees the secrets in them."""
        runs = rebuild(
            tuple(material.bodies),
            tuple(material.logs),
            completion=released.completion,
            tenant=released.key.tenant,
        )
        clean = clean_runs(runs, self._clean)
        return clean, digests_of(clean)


def absent_parents(material: Material, released: Released, now_ns: int) -> tuple[AbsentParent, ...]:
    """Return the kinds of spans, with names, whose parents were given up with this trace.

    Names appear in logs and in ``doctor``, so secrets in them (a request's query) are redacted.
    """
    found: dict[int, AbsentParent] = {}
    for run in material.runs if released.given_up else ():  # most traces give up none: read no span
        for span in run.trace.spans:
            service = str(span.resource.attributes.get(SERVICE_NAME, ""))
            kind = kind_of(service.encode(), span.scope.name.encode(), span.name.encode())
            if kind in released.given_up:
                found[kind] = AbsentParent(
                    tenant=released.key.tenant,
                    kind=kind,
                    service=service,
                    scope=span.scope.name,
                    name=redact(span.name),
                    since_ns=now_ns,
                )
    return tuple(found.values())


def clean_runs(runs: Iterable[Run], clean: CleanRun) -> tuple[Run, ...]:
    """Return the runs without the secrets in them."""
    return tuple(replace(run, trajectory=clean(run.trajectory)) for run in runs)


def key_names(trace_id: TraceId, runs: Iterable[Run]) -> list[str]:
    """Return the run keys of a trace's runs, its own first, as many as are remembered."""
    found = {name for run in runs for name in run_keys(run.trace)}
    return sorted(found, key=lambda name: (name != f"{TRACE_KEY}{trace_id}", name))[:MAX_KEYS]


def named_traces(names: Iterable[str]) -> frozenset[TraceId]:
    """Return the traces that run keys name: those that the spans link to, and their own."""
    return frozenset(TraceId(name.removeprefix(TRACE_KEY)) for name in names if name.startswith(TRACE_KEY))


def told_runs(runs: Iterable[Run], digests: Iterable[bytes]) -> tuple[ToldRun, ...]:
    """Return what is remembered of runs, so that it can be told whether they changed."""
    return tuple(
        ToldRun(
            run_id=run.trajectory.run_id,
            trace_ids=frozenset(span.trace_id for span in run.trace.spans),
            digest=digest,
        )
        for run, digest in zip(runs, digests, strict=True)
    )


def _named(run: Run, run_id: str) -> Run:
    if run.trajectory.run_id == run_id:
        return run
    return Run(trace=replace(run.trace, run_id=run_id), trajectory=replace(run.trajectory, run_id=run_id))


def digests_of(runs: Iterable[Run]) -> tuple[bytes, ...]:
    """Return of each run what tells it from any other that an analyst would be shown."""
    return tuple(_digest(run.trajectory) for run in runs)


def _digest(trajectory: Trajectory) -> bytes:
    """Return what two runs share only if an analyst would be shown the same; warnings are for people."""
    return hashlib.blake2b(repr(replace(trajectory, warnings=())).encode(), digest_size=16).digest()
