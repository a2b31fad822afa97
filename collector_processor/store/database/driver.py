"""The port to a database, which SQLite's driver and PostgreSQL's implement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Protocol

from collector_processor.core.disk import StoreError


class Flush(StrEnum):
    """Time at which a transaction reaches the disk."""

    AT_ONCE = "FULL"
    LATER = "NORMAL"
    """With the next transaction that uses ``AT_ONCE``: a power cut may lose it, a crash of ours does not."""


class Rows(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any:
        """Return the next row; ``None`` after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Driver(Protocol):
    """A database's own way to run statements; raises ``StoreError`` if it refuses temporarily."""

    @property
    def is_postgresql(self) -> bool:
        """Whether the database is PostgreSQL, for the few statements that differ."""
        ...

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Rows:
        """Run one statement."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run one statement for each row of values."""
        ...

    def begin(self, flush: Flush) -> None:
        """Begin a transaction; no other connection writes until it ends."""
        ...

    def commit(self) -> None:
        """Commit the transaction durably."""
        ...

    def rollback(self) -> None:
        """Roll the transaction back, if that has not happened already; never raises."""
        ...

    def refusal(self, error: BaseException) -> StoreError | None:
        """Return the exception to raise for a temporary error; ``None`` for any other error."""
        ...

    def give_back(self) -> int:
        """Return some of the file's free space to the disk; return the number of bytes."""
        ...

    def own(self) -> None:
        """Keep other services out; raises ``CollectorError`` if another one uses the database."""
        ...

    def share(self) -> None:
        """Keep out services that need the database for themselves alone; raises as ``own``."""
        ...

    def leads(self) -> bool:
        """Return whether this process sends for all processes that share the database."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
