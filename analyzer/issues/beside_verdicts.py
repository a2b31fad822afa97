"""Runs stored with their verdicts: kept for labels and counted at the commit, searched texts soon after it.

An analysis hands its run over first; the store calls ``write`` in the transaction of the verdict. So there is
never a verdict without its count, nor a count without its verdict, even after a crash.

The searched texts follow in transactions of their own, and a verdict never waits for more than ``_AT_ONCE``
of them. After a crash, the texts of the last seconds are missing, until ``blamespan runs index`` writes them.
The same task deletes the texts of expired runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

from analyzer.history.spectrum import Said
from analyzer.inquiry.verdict import NOTHING_SAYS_SO, TRIAGE
from analyzer.issues.counting import IssueCounting
from analyzer.issues.issue_store import NotedRun, as_noted
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from analyzer.issues.notifier import InDb
from collector_processor.core.analysis import Keep, KeptRun
from collector_processor.core.disk import StoreError
from collector_processor.core.records import Commit, RunFacts, StoredVerdict
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.run_history import RunHistoryRows, RunTotalsRows
from collector_processor.store.run_text import RunText, RunTextRows, folded
from collector_processor.store.small_tables import KeptSpansRows, PackedSpans
from semconv.model import Status

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 64 << 20
"""Bound on packed runs that wait for their verdicts: more than the analyses in progress can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedRun:
    """The stored and the counted parts of a run."""

    noted: NotedRun
    packed: PackedRun | None
    """The packed run; ``None`` if it is too large to be kept."""
    spans: PackedSpans | None = None
    """Its packed spans; ``None`` if they are not kept."""
    text: str | None = None
    """The text that searches look through; ``None`` if it is known already."""
    totals: RunTotals | None = None
    """``None`` if they are not known, or known already."""
    facts: RunFacts | None = None
    """Facts by which it is compared with other runs; ``None`` if unknown."""

    @property
    def size(self) -> int:
        """Size in bytes, for the bound."""
        return sum(len(part.packed) for part in (self.packed, self.spans) if part) + len(self.text or "")


class BesideVerdicts:
    """Analysed runs that wait for their verdicts to be committed."""

    def __init__(
        self,
        db: StoreConnection,
        labels: LabelStore,
        counting: IssueCounting,
        now_ns: Callable[[], int],
        *,
        spans: KeptSpansRows | None = None,
        texts: TextsBehind | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Create it without waiting runs.

        Args:
            db: the connection on which verdicts are committed.
            labels: keeps the runs, on the same connection.
            counting: counts them, on the same connection.
            now_ns: returns the wall-clock time.
            spans: keeps their spans, on the same connection; ``None`` if they are not kept.
            texts: writes their searched texts after the commit; ``None`` if they are not searched.
            most_bytes: bound on waiting packed runs. Beyond it the oldest first lose their spans, then are
            dropped, neither kept nor counted.
        """
        self._db: Final = db
        self._totals: Final = RunTotalsRows(db)
        self._history: Final = RunHistoryRows(db)
        self._labels: Final = labels
        self._counting: Final = counting
        self._now_ns: Final = now_ns
        self._spans: Final = spans
        self._texts: Final = texts
        self._most_bytes: Final = most_bytes
        self._bytes = 0
        self._waiting: Final[dict[tuple[Tenant, str], AnalysedRun]] = {}
        self._lock: Final = Lock()

    def add(self, run: AnalysedRun) -> None:
        """Hand over a run whose verdict is about to be committed; callable from any thread."""
        key = (run.noted.tenant, run.noted.run_id)
        with self._lock:
            self._forget(key)
            self._waiting[key] = run
            self._bytes += run.size
            self._make_room()

    def _make_room(self) -> None:
        with_spans = [key for key, run in self._waiting.items() if run.spans is not None]
        for key in with_spans if self._bytes > self._most_bytes else ():
            if self._bytes > self._most_bytes:
                logger.warning("spans of a run are not kept", extra={"run_id": key[1]})
                run = self._waiting[key]
                self._waiting[key] = replace(run, spans=None)
                self._bytes -= run.size - self._waiting[key].size
        while self._bytes > self._most_bytes:
            oldest = next(iter(self._waiting))
            logger.warning("run is neither kept nor counted", extra={"run_id": oldest[1]})
            self._forget(oldest)

    def write(self, commits: Sequence[Commit]) -> None:
        """Keep and count the runs whose verdicts are committed; runs in the transaction of the verdicts.

        Raises:
            StoreError: the store refuses; the runs keep waiting.
        """
        verdicts = [one for commit in commits for one in commit.verdicts if not one.is_provisional]
        found = [(self._waiting.get((verdict.tenant, verdict.run_id)), verdict) for verdict in verdicts]
        packed = [run.packed for run, _ in found if run is not None and run.packed is not None]
        if packed:
            self._labels.keep(packed, self._now_ns())
        spans = [run.spans for run, _ in found if run is not None and run.spans is not None]
        if spans and self._spans is not None:
            self._spans.keep_all(spans, self._now_ns())
        self._totals.total(
            [(one.tenant, one.run_id, run.totals) for run, one in found if run is not None and run.totals]
        )
        self._history.note(
            [
                (verdict.tenant, verdict.run_id, said_by(verdict), run.facts)
                for run, verdict in found
                if run is not None and run.facts
            ]
        )
        self._history.say([(one.tenant, one.run_id, said_by(one)) for run, one in found if run is None])
        self._counting.count(list(_counted(found)))
        texts = (
            [text_row(one, run.text) for run, one in found if run is not None and run.text is not None]
            if self._texts
            else []
        )
        self._db.after_commit(lambda: self._written(verdicts, texts))

    def _written(self, verdicts: Sequence[StoredVerdict], texts: Sequence[RunText]) -> None:
        if self._texts is not None:
            self._texts.add(texts)
        with self._lock:
            for verdict in verdicts:
                self._forget((verdict.tenant, verdict.run_id))

    def _forget(self, key: tuple[Tenant, str]) -> None:
        run = self._waiting.pop(key, None)
        self._bytes -= run.size if run else 0


def keeper(beside: BesideVerdicts) -> Keep:
    """Return a function that hands over analysed runs, to be stored with their verdicts."""

    async def keep(runs: Sequence[tuple[Tenant, KeptRun]]) -> None:
        for tenant, run in runs:
            packed = packed_run(tenant, run.run_id, run.packed, is_failure=run.is_failure)
            spans = None
            if run.spans is not None:
                spans = PackedSpans(
                    tenant=tenant, run_id=run.run_id, is_failure=run.is_failure, packed=run.spans
                )
            noted = as_noted(tenant, run.run_id, run.noted)
            beside.add(
                AnalysedRun(
                    noted=noted,
                    packed=packed,
                    spans=spans,
                    text=run.text,
                    totals=run.totals,
                    facts=run.facts,
                )
            )

    return keep


def packed_run(tenant: Tenant, run_id: str, packed: bytes | None, *, is_failure: bool) -> PackedRun | None:
    """Return the packed run; ``None`` if it is too large, which is logged."""
    if packed is None:
        logger.warning("run is too large to be kept", extra={"run_id": run_id})
        return None
    return PackedRun(tenant=tenant, run_id=run_id, is_failure=is_failure, packed=packed)


def text_row(verdict: StoredVerdict, text: str) -> RunText:
    """Return the searched text of a run, with its names and why its verdict says what it says."""
    told = (verdict.run_id, verdict.service, verdict.agent, verdict.fields.get("reason"), text)
    words = "\n".join(str(one) for one in told if one)
    return RunText(tenant=verdict.tenant, run_id=verdict.run_id, text=folded(words))


def said_by(verdict: StoredVerdict) -> Said:
    """Return how a run ended, by its verdict: silence is not success, and a suspicion is not a failure."""
    fields = verdict.fields
    match verdict.status:
        case Status.ATTRIBUTED | Status.UNDETERMINED:
            return Said.FAILED
        case Status.NO_FAILURE if verdict.is_by_person:
            return Said.PASSED
        case Status.NO_FAILURE if fields.get("method") == TRIAGE and fields.get("reason") != NOTHING_SAYS_SO:
            return Said.PASSED
        case _:
            return Said.UNSAID


def _counted(
    found: Sequence[tuple[AnalysedRun | None, StoredVerdict]],
) -> Iterator[tuple[NotedRun, StoredVerdict]]:
    """Yield the counted runs; a run that could not be read has an ``error`` verdict and no analysis."""
    for run, verdict in found:
        if run is not None and verdict.status != Status.ERROR:
            yield run.noted, verdict
        elif verdict.status == Status.ERROR:
            unread = NotedRun(tenant=verdict.tenant, run_id=verdict.run_id, status=verdict.status, agents=())
            yield unread, verdict


_EVERY_S: Final = 5.0
"""Seconds between rounds. The next verdict's flush writes their pages too: more rounds delay more of them."""
_AT_ONCE: Final = 4
"""Texts deleted in one transaction: some 8 ms, for which the store's other calls wait."""
_CHARS_AT_ONCE: Final = 16_000
"""Characters written in one transaction, for the same reason; those of the last text may be more.

Each transaction adds a segment to the index: with twice as many texts in it, each writes a quarter fewer
pages.
"""
_MOST_WAITING: Final = 4_000
"""Texts in memory, 16 MB; the oldest are dropped."""
_LAST: Final = 50
"""Transactions at the end of the service: 0.4 s."""
_SWEPT: Final = 1_000
"""Rows looked at in one call, in about 2 ms."""
_SLICES: Final = 4
"""Such calls in a round: 100,000 rows are looked at in two minutes."""
NO_INDEX: Final = (
    "the store cannot have an index of trigrams: searches compare 3,000 runs a page"
    " (PostgreSQL: install the extension pg_trgm, then run `blamespan runs index`)"
)


class TextsBehind:
    """Texts of committed runs that wait to be written."""

    def __init__(self, rows: RunTextRows) -> None:
        """Create it; ``rows`` are those of the connection on which verdicts are committed."""
        self._rows: Final = rows
        self._waiting: Final[OrderedDict[tuple[Tenant, str], RunText]] = OrderedDict()
        self._lock: Final = Lock()
        self._after = 0

    def add(self, texts: Sequence[RunText]) -> None:
        """Hand over the texts of runs whose verdicts are committed; callable from any thread."""
        with self._lock:
            for text in texts:
                self._waiting.pop((text.tenant, text.run_id), None)
                self._waiting[text.tenant, text.run_id] = text
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popitem(last=False)

    async def run(self, in_db: InDb) -> None:
        """Write and delete texts until cancelled; ``in_db`` makes a call on the store's thread."""
        is_told = False
        while True:
            try:
                if not await in_db(self._rows.create_index) and not is_told:
                    is_told = True
                    logger.warning(NO_INDEX)
            except StoreError as error:  # without it searches compare the texts, so these are written
                logger.warning("searched texts cannot be indexed", extra={"reason": str(error)})
            try:
                while await in_db(self.write):
                    pass
                for _ in range(_SLICES):
                    while await in_db(self.sweep):
                        pass
            except StoreError as error:
                logger.warning("searched texts cannot be written", extra={"reason": str(error)})
            await asyncio.sleep(_EVERY_S)

    def close(self) -> None:
        """Write what still waits, a few seconds' texts, after the store's thread has ended."""
        try:
            for _ in range(_LAST):
                if not self.write():
                    return
        except StoreError as error:
            logger.warning("searched texts cannot be written", extra={"reason": str(error)})

    def write(self) -> bool:
        """Write some texts; return whether more wait.

        Raises:
            StoreError: the store refuses, and they keep waiting.
        """
        with self._lock:
            some = list(_first(self._waiting.values()))
        if some:
            self._rows.write(some)
        with self._lock:
            for one in some:
                if self._waiting.get((one.tenant, one.run_id)) is one:
                    del self._waiting[one.tenant, one.run_id]
            return bool(self._waiting)

    def sweep(self) -> bool:
        """Delete some texts of runs that were deleted or have expired; return whether more are to go.

        Raises:
            StoreError: the store refuses.
        """
        swept = self._rows.sweep(self._after, _SWEPT, _AT_ONCE)
        self._after = swept.after
        return swept.has_stopped


def _first(waiting: Iterable[RunText]) -> Iterator[RunText]:
    """Yield the texts of one transaction."""
    chars = 0
    for one in waiting:
        yield one
        chars += len(one.text)
        if chars >= _CHARS_AT_ONCE:
            return
