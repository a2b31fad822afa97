"""Searched texts of runs, and their trigram index: a table of the store. Synchronous; one thread at a time.

A row has the first characters of a run's redacted texts, case-folded. SQLite's FTS5 finds the rows that have
all trigrams of a search, and the text itself is compared then: an index without the trigrams' places is a
third as large and takes less time to write. PostgreSQL's ``pg_trgm`` does both for ``LIKE``. The index is no
part of the schema, because a database may be unable to have one: then searches compare the texts alone.

Every call raises ``StoreError`` if the store refuses, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from unicodedata import normalize

from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.database.driver import Flush

TRIGRAM: Final = 3
"""Characters of the shortest text that the index finds."""
MOST_SOUGHT: Final = 24
"""Trigrams of a search that the index looks up; the rest of it is compared with the text itself."""
_TENANTS_RUN: Final = "tenant = ? AND run_id = ?"
_OF_RUN: Final = "{0}.tenant = run_text.tenant AND {0}.run_id = run_text.run_id"
IS_KEPT: Final = (
    f"(EXISTS (SELECT 1 FROM kept_run WHERE {_OF_RUN.format('kept_run')})"  # noqa: S608 - our own words
    f" OR EXISTS (SELECT 1 FROM kept_spans WHERE {_OF_RUN.format('kept_spans')}))"
)
"""Condition on a row of ``run_text``: its run's steps or spans have not been deleted or expired."""
_HAS_VERDICT: Final = f"EXISTS (SELECT 1 FROM run_totals WHERE {_OF_RUN.format('run_totals')})"  # noqa: S608
_IN_SQLITE: Final = (
    (
        "CREATE VIRTUAL TABLE IF NOT EXISTS run_text_index USING fts5(text, content = 'run_text',"
        " content_rowid = 'id', tokenize = 'trigram', detail = none, columnsize = 0)"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS run_text_added AFTER INSERT ON run_text BEGIN"
        " INSERT INTO run_text_index (rowid, text) VALUES (new.id, new.text); END"
    ),
    (
        "CREATE TRIGGER IF NOT EXISTS run_text_deleted AFTER DELETE ON run_text BEGIN INSERT INTO"
        " run_text_index (run_text_index, rowid, text) VALUES ('delete', old.id, old.text); END"
    ),
    "INSERT INTO run_text_index (run_text_index) VALUES ('rebuild')",
)
_CAN_IN_SQLITE: Final = "SELECT sqlite_compileoption_used('ENABLE_FTS5') AND sqlite_version() >= '3.34'"
_IN_POSTGRESQL: Final = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE INDEX IF NOT EXISTS run_text_by_trigram ON run_text USING gin (text gin_trgm_ops)",
)
_CAN_IN_POSTGRESQL: Final = """
SELECT EXISTS (SELECT FROM pg_opclass WHERE opcname = 'gin_trgm_ops' AND pg_opclass_is_visible(oid))
OR NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm') AND EXISTS (
  SELECT FROM pg_available_extension_versions WHERE name = 'pg_trgm' AND (
    trusted AND has_database_privilege(current_database(), 'CREATE')
    OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)))
"""
_HAS_IN_SQLITE: Final = "SELECT count(*) FROM sqlite_master WHERE name = 'run_text_index'"
_HAS_IN_POSTGRESQL: Final = "SELECT to_regclass('run_text_by_trigram') IS NOT NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunText:
    """The searched text of a run."""

    tenant: Tenant
    run_id: str
    text: str
    """From ``folded``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A search as conditions on rows of ``run_text``."""

    text: str
    found: str
    """Condition that the index decides; it may hold for further rows."""
    has: str
    """Condition that the row contains the text."""
    values: tuple[str, str]
    """The value of each condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Where a look for texts of expired runs ended."""

    after: int
    """Number of the row to continue after; 0 once all rows were looked at."""
    has_stopped: bool
    """Whether it stopped because it deleted as many as it may."""


def folded(text: str) -> str:
    """Return a text as rows have it, and as it is searched: without case, NUL and half characters, in NFC."""
    small = normalize("NFC", text.replace("\0", " ").casefold().replace("i\u0307", "i"))
    return small.encode("utf-8", "replace").decode()


class RunTextRows:
    """Rows of ``run_text``."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def create_index(self) -> bool:
        """Create the index unless there is one; return whether there is one now."""
        if self.is_indexed():
            return True
        is_server = self._db.is_postgresql
        if not self._db.execute(_CAN_IN_POSTGRESQL if is_server else _CAN_IN_SQLITE).fetchone()[0]:
            return False
        with self._db.transaction():
            for statement in _IN_POSTGRESQL if is_server else _IN_SQLITE:
                self._db.execute(statement)
        return True

    def is_indexed(self) -> bool:
        """Return whether the texts can be searched by the index."""
        has = _HAS_IN_POSTGRESQL if self._db.is_postgresql else _HAS_IN_SQLITE
        return bool(self._db.execute(has).fetchone()[0])

    def write(self, texts: Sequence[RunText]) -> None:
        """Write the texts of runs that still have a verdict, each in place of an earlier one."""
        with self._db.transaction(Flush.LATER):
            for text in texts:
                name = (text.tenant, text.run_id)
                self._db.execute(f"DELETE FROM run_text WHERE {_TENANTS_RUN}", name)  # noqa: S608 - our own words
                self._db.execute(
                    "INSERT INTO run_text (tenant, run_id, text)"  # noqa: S608 - as above
                    " SELECT tenant, run_id, CAST(? AS TEXT) FROM run_totals"
                    f" WHERE {_TENANTS_RUN}",
                    (text.text, *name),
                )

    def missing(self, after: tuple[Tenant, str], limit: int = 200) -> list[tuple[Tenant, str]]:
        """Return the next kept runs without a text, by tenant and id, after one of them."""
        rows = self._db.execute(
            "SELECT tenant, run_id FROM run_totals AS run_text"  # noqa: S608 - our own words
            f" WHERE (tenant, run_id) > (?, ?) AND {IS_KEPT} AND NOT EXISTS (SELECT 1 FROM run_text AS has"
            f" WHERE {_OF_RUN.format('has')}) ORDER BY tenant, run_id LIMIT ?",
            (*after, limit),
        )
        return [(Tenant(row[0]), row[1]) for row in rows]

    def sweep(self, after: int, most_read: int, most_deleted: int) -> Swept:
        """Delete texts whose runs were deleted or have expired, among the next rows.

        Args:
            after: number of the last row of the call before; 0 to begin.
            most_read: rows to look at.
            most_deleted: rows to delete; each takes about a millisecond.
        """
        gone = self._db.execute(
            f"SELECT id, {_HAS_VERDICT} AND {IS_KEPT} FROM run_text WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608
            (after, most_read),
        ).fetchall()
        ids = list(islice((row[0] for row in gone if not row[1]), most_deleted))
        if ids:
            with self._db.transaction(Flush.LATER):
                self._db.executemany("DELETE FROM run_text WHERE id = ?", [(one,) for one in ids])
        if len(ids) == most_deleted:
            return Swept(after=ids[-1], has_stopped=True)
        return Swept(after=gone[-1][0] if len(gone) == most_read else 0, has_stopped=False)

    def clear(self) -> None:
        """Delete all texts, to write them anew."""
        with self._db.transaction():
            if not self._db.is_postgresql:  # at once, instead of row by row
                for name in ("TRIGGER IF EXISTS run_text_added", "TRIGGER IF EXISTS run_text_deleted"):
                    self._db.execute(f"DROP {name}")
                self._db.execute("DROP TABLE IF EXISTS run_text_index")
            self._db.execute("DELETE FROM run_text")

    def match(self, text: str) -> Match:
        """Return the search for a text, from ``folded``."""
        if self._db.is_postgresql:
            literal = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            like, values = "run_text.text LIKE ? ESCAPE '\\'", (f"%{literal}%",) * 2
            return Match(text=text, found=like, has=like, values=values)
        return Match(
            text=text,
            found="run_text.id IN (SELECT rowid FROM run_text_index WHERE run_text_index MATCH ?)",
            has="instr(run_text.text, ?) > 0",
            values=(" AND ".join(map(_quoted, _trigrams(text))), text),
        )

    def is_rare(self, match: Match, most: int) -> bool:
        """Return whether the index finds at most ``most`` rows; false if it cannot tell, or is missing."""
        if len(match.text) < TRIGRAM or not self.is_indexed():
            return False
        if self._db.is_postgresql:  # an expression without letters or digits has no trigrams there
            known = self._db.execute("SELECT cardinality(show_trgm(?))", match.values[:1]).fetchone()[0]
            if not known:
                return False
        found: int = self._db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM run_text WHERE {match.found} LIMIT ?) AS hits",  # noqa: S608
            (match.values[0], most + 1),
        ).fetchone()[0]
        return found <= most


def _trigrams(text: str) -> list[str]:
    """Return trigrams that cover the beginning of a text; a shorter text is its own."""
    starts = [*range(0, len(text) - TRIGRAM + 1, TRIGRAM), max(0, len(text) - TRIGRAM)][:MOST_SOUGHT]
    return list(dict.fromkeys(text[start : start + TRIGRAM] for start in starts))


def _quoted(trigram: str) -> str:
    """Return a trigram as a string of FTS5, in which nothing but a quote has a meaning."""
    return '"' + trigram.replace('"', '""') + '"'
