"""Location of the store: an SQLite file or a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeAlias

from collector_processor.otlp import CollectorError
from collector_processor.store.database.connection import StoreConnection


class Database(Protocol):
    """Location of the store; opens connections, from any thread."""

    def connect(self) -> StoreConnection:
        """Bring the schema up to date and return a connection.

        Raises:
            CollectorError: the database cannot be used, or this version cannot read it; the message says so.
        """
        ...

    def own(self) -> StoreConnection:
        """Return a connection that keeps other services out.

        Raises:
            CollectorError: as for ``connect``; or another service uses the database.
        """
        ...

    def share(self) -> StoreConnection:
        """Return a connection that keeps out services that need the database for themselves alone.

        Raises:
            CollectorError: as for ``connect``; or another service uses the database alone.
        """
        ...

    def close(self) -> None:
        """Close everything that connections have left open."""
        ...


StorePlace: TypeAlias = "Path | StoreConnection"
"""An SQLite file, or a shared connection."""


def connected(place: StorePlace) -> StoreConnection:
    """Return the shared connection, or open the file.

    Raises:
        CollectorError: as ``Database.connect``.
    """
    return place if isinstance(place, StoreConnection) else open_database(place).connect()


def open_database(place: Path | str) -> Database:
    """Return the database in a file, or at a URL ``postgresql://…``.

    Raises:
        CollectorError: the URL cannot be used.
    """
    # Importing SQLAlchemy takes 0.2 s, which commands without a store should not pay; psycopg is an extra.
    if isinstance(place, Path):
        from collector_processor.store.database.sqlite_driver import SqliteDatabase  # noqa: PLC0415

        return SqliteDatabase(place)
    try:
        from collector_processor.store.database.postgresql_driver import PostgresDatabase  # noqa: PLC0415
    except ImportError as error:
        message = "BLAMESPAN_STORE_URL needs psycopg: pip install '.[server,postgres]' in a checkout"
        raise CollectorError(message) from error
    return PostgresDatabase(place)
