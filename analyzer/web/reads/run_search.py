"""Search of runs' texts. Remembers the texts of the newest runs it has read. Not pure; for one thread.

Reading and unpacking the texts of 2,000 runs takes 50 ms, searching them 10: people search more than once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any, Final

from analyzer.issues.labels.kept_run import TextSearch, searchable
from analyzer.web.reads.page_records import RunKey, RunName
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection

MOST_UNPACKED: Final = 64 << 20
"""Bytes of kept runs that a search goes through for a page, in about 0.3 s; the last is searched whole."""
LONGEST_SEARCH_S: Final = 2.0
"""Seconds after which a search ends its page too, on a busy machine."""
MOST_REMEMBERED: Final = 32 << 20
"""Bytes of texts in memory."""
_AT_ONCE: Final = 50
"""Runs whose texts are read together: kept runs of at most 13 MB packed."""
LISTED: Final = (
    "run_totals.tenant, run_totals.run_id, run_totals.version, run_totals.decided_ns,"
    " kept_run.kept_ns, kept_run.size"
)
WITH_KEPT: Final = (
    "LEFT JOIN kept_run ON kept_run.tenant = run_totals.tenant AND kept_run.run_id = run_totals.run_id"
)
"""Tables of a search's list, which tells by ``LISTED`` whether a run's texts have changed."""
_TEXTS: Final = (
    "run_totals.tenant, run_totals.run_id, verdict.document, verdict.service, verdict.agent, kept_run.packed"
)
_ALL_TABLES: Final = (
    "run_totals CROSS JOIN verdict LEFT JOIN kept_run"
    " ON kept_run.tenant = verdict.tenant AND kept_run.run_id = verdict.run_id"
)
ITS_VERDICT: Final = (
    "verdict.tenant = run_totals.tenant AND verdict.run_id = run_totals.run_id"
    " AND verdict.version = run_totals.version"
)
_Stamp = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The places of the runs that contain a text, at most as many as asked for."""

    keys: Sequence[RunKey]
    looked_at: int = 0
    """Number of runs after which the search stopped; 0 if it did not stop early."""
    last: RunKey | None = None
    """The last of these runs."""


@dataclass(slots=True, kw_only=True)
class _Texts:
    """The texts of a run, in lower case."""

    stamp: _Stamp
    """Versions of the verdict and of the kept run that they were read from."""
    names: str
    """The verdict, and the run's names."""
    steps: bytes | None
    """The kept run; ``None`` if it is so long that it is unpacked in parts, each time."""
    turn: int = 0
    """The last search that used them."""

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return len(self.names) + len(self.steps or b"")


class RunSearch:
    """Searches runs on one connection."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db
        self._known: Final[OrderedDict[RunName, _Texts]] = OrderedDict()
        """Texts, the least recently used first."""
        self._size = 0
        self._turn = 0

    def find(self, text: str, listed: Iterable[tuple[Any, ...]], most: int) -> Found:
        """Return the first runs of a list that contain a text; reads no further than it searches.

        Args:
            text: the text; the case of ASCII letters is ignored.
            listed: rows of the columns ``LISTED`` and the run's place in the list.
            most: number of runs after which it stops.
        """
        self._turn += 1
        search, names, ends = TextSearch(text), text.lower(), monotonic() + LONGEST_SEARCH_S
        keys: list[RunKey] = []
        last, looked_at, rows = None, 0, iter(listed)
        while part := tuple(islice(rows, _AT_ONCE)):
            for row, texts, packed in self._with_texts(part):
                if search.unpacked_bytes >= MOST_UNPACKED or (search.unpacked_bytes and monotonic() > ends):
                    return Found(keys=keys, looked_at=looked_at, last=last)
                last, looked_at = RunKey(at=row[-1], tenant=Tenant(row[0]), run_id=row[1]), looked_at + 1
                if names in texts.names or _is_in_steps(search, texts, packed):
                    keys.append(last)
                if len(keys) >= most:
                    return Found(keys=keys)
        return Found(keys=keys)

    def clear(self) -> None:
        """Drop all texts in memory."""
        self._known.clear()
        self._size = 0

    def _with_texts(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], _Texts, bytes]]:
        """Yield rows with their texts, and the packed run if its texts are not in memory."""
        found = {(row[0], row[1]): self._remembered(row) for row in rows}
        unread = [name for name, texts in found.items() if texts is None]
        read = self._db.read_rows(
            _TEXTS, _ALL_TABLES, "run_totals.tenant, run_totals.run_id", unread, f"AND {ITS_VERDICT}"
        )
        fresh = {(row[0], row[1]): row[2:] for row in read}
        for row in rows:
            name = (row[0], row[1])
            texts = found[name]
            if texts is not None:
                yield row, texts, b""
            elif name in fresh:
                document, service, agent, packed = fresh[name]
                yield row, self._remember(name, row[2:-1], (document, row[1], service, agent), packed), packed

    def _remembered(self, row: tuple[Any, ...]) -> _Texts | None:
        texts = self._known.get((row[0], row[1]))
        if texts is None or texts.stamp != row[2:-1]:
            return None
        texts.turn = self._turn
        self._known.move_to_end((row[0], row[1]))
        return texts

    def _remember(
        self, name: RunName, stamp: _Stamp, names: Sequence[str | None], packed: bytes | None
    ) -> _Texts:
        """Return a run's texts; keep them unless texts that this search used would have to go."""
        texts = _Texts(
            stamp=stamp,
            names="\0".join(one or "" for one in names).lower(),
            steps=searchable(packed) if packed else b"",
            turn=self._turn,
        )
        before = self._known.pop(name, None)
        self._size -= 0 if before is None else before.size
        while self._size + texts.size > MOST_REMEMBERED and self._known:
            oldest = next(iter(self._known))
            if self._known[oldest].turn == self._turn:
                return texts
            self._size -= self._known.pop(oldest).size
        if texts.steps is not None and texts.size <= MOST_REMEMBERED:
            self._known[name] = texts
            self._size += texts.size
        return texts


def _is_in_steps(search: TextSearch, texts: _Texts, packed: bytes) -> bool:
    return search.finds_in(packed) if texts.steps is None else search.finds_in_text(texts.steps)
