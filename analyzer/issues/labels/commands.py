"""Commands of other processes to the one that commits verdicts: a table. Synchronous; one thread at a time.

``blamespan experiment`` and the pages are other processes. They cannot commit verdicts or delete runs
themselves: they would race with analyses.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from collector_processor.core.disk import StoreError
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection, insert
from collector_processor.store.database.driver import Flush

MOST: Final = 1_000
"""Commands that may wait, and answers that are kept until their giver reads them."""
MOST_OF_TENANT: Final = 100
"""Commands of one tenant that may wait: it must not keep others from giving theirs."""
_COLUMNS: Final = "id, kind, tenant, run_id, given_ns, document"


class CommandKind(StrEnum):
    """What a command asks for."""

    EXPERIMENT = "experiment"
    """Commit the result of an experiment; the document is the attribution, as ``analyses/codec.py`` writes
    it."""
    OPINION = "opinion"
    """Commit a second opinion; the document has the choice, the analysed run and the attribution."""
    DELETE = "delete"
    """Delete a run, or all of the tenant's runs if the run's id is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that has not been carried out."""

    id: str
    kind: CommandKind
    tenant: Tenant
    run_id: str
    given_ns: int
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a command."""

    outcome: str | None
    """``None`` if the command was deleted together with its run."""


class Commands:
    """Rows of ``command``: written by other processes, answered by the one that commits verdicts."""

    def __init__(self, db: StoreConnection) -> None:
        """Use the tables of an open store."""
        self._db: Final = db

    def add(
        self,
        kind: CommandKind,
        tenant: Tenant,
        run_id: str,
        given_ns: int,
        document: str = "{}",
        *,
        flush: Flush = Flush.AT_ONCE,
    ) -> str:
        """Give a command; return its id.

        With ``Flush.LATER``, a giver that waits for the answer keeps no verdict waiting for the disk.

        Raises:
            StoreError: the store refuses, or too many commands wait.
        """
        id_ = secrets.token_hex(12)
        with self._db.transaction(flush):
            self._refuse_too_many(tenant)
            self._db.write_rows(
                insert("command", _COLUMNS), [(id_, kind.value, tenant, run_id, given_ns, document)]
            )
            self._db.execute(
                "DELETE FROM command WHERE id IN (SELECT id FROM command WHERE outcome IS NOT NULL"
                " ORDER BY given_ns DESC, id LIMIT ? OFFSET ?)",
                (MOST, MOST),
            )
        return id_

    def _refuse_too_many(self, tenant: Tenant) -> None:
        everyone, own = self._db.execute(
            "SELECT count(*), coalesce(sum(CASE WHEN tenant = ? THEN 1 ELSE 0 END), 0)"
            " FROM command WHERE outcome IS NULL",
            (tenant,),
        ).fetchone()
        if own >= MOST_OF_TENANT or everyone >= MOST:
            raise StoreError(
                "too many deletions, second opinions and experiments wait for blamespan serve: start it, or"
                " try again later"
            )

    def waiting(self) -> list[Command]:
        """Return the commands without an answer, in the order in which they were given."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM command WHERE outcome IS NULL ORDER BY given_ns, id"  # noqa: S608 - as above
        )
        return [
            Command(
                id=row[0],
                kind=CommandKind(row[1]),
                tenant=Tenant(row[2]),
                run_id=row[3],
                given_ns=row[4],
                document=row[5],
            )
            for row in rows
        ]

    def answer(self, command: Command, outcome: str) -> None:
        """Answer a command; its giver reads the answer with ``taken``.

        The deletion of runs deletes the row of its own command, too, so the row is written anew, without the
        names of what was deleted.

        Raises:
            StoreError: the store refuses.
        """
        with self._db.transaction():
            self._db.execute(
                f"INSERT INTO command ({_COLUMNS}, outcome) VALUES (?, ?, '', '', ?, '', ?)"  # noqa: S608 - as above
                " ON CONFLICT (id) DO UPDATE SET outcome = excluded.outcome, document = ''",
                (command.id, command.kind.value, command.given_ns, outcome),
            )

    def done(self, command: Command) -> None:
        """Delete a command whose giver waits for no answer.

        Raises:
            StoreError: the store refuses.
        """
        with self._db.transaction():
            self._db.execute("DELETE FROM command WHERE id = ?", (command.id,))

    def taken(self, id_: str) -> Answer | None:
        """Return the answer to a command and delete it; ``None`` if there is none yet.

        Raises:
            StoreError: the store refuses.
        """
        row = self._db.execute("SELECT outcome FROM command WHERE id = ?", (id_,)).fetchone()
        if row is None:
            return Answer(outcome=None)
        if row[0] is None:
            return None
        with self._db.transaction(Flush.LATER):
            self._db.execute("DELETE FROM command WHERE id = ?", (id_,))
        return Answer(outcome=str(row[0]))
