"""Connections to the store: an SQLite file or a PostgreSQL server, as a place is opened.

Each connection is for one thread. The statements are SQL that SQLite and PostgreSQL both understand, with
``?`` for values. They run on the driver's own connection, which SQLAlchemy's engine opened: a verdict takes
about twenty statements, and each costs four times as much through SQLAlchemy's ``Connection``.

``StoreThread`` runs a store on its own thread, and notes for the event loop whether the store takes work.
SQLite allows one user at a time, and the calls are short. Every run makes a dozen calls here, so each thread
switch must be cheap: this uses one queue and one future per call; an executor makes two futures and chains
them.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from collector_processor.core.disk import Condition, in_our_words, is_refusal, patiently
from collector_processor.otlp import CollectorError
from collector_processor.store.database.driver import Driver, Flush

T = TypeVar("T")


_MOST_ROWS: Final = 64
"""Rows of values in one statement; both databases accept 32,000 values."""
_MOST_KEYS: Final = 512
"""Keys in one statement that reads: each statement is a round trip to a server."""


def insert(table: str, columns: str) -> str:
    """Return a statement for ``write_rows`` that adds rows."""
    return f"INSERT INTO {table} ({columns}) VALUES {{rows}}"  # noqa: S608 - our own words


def upsert(table: str, columns: str, keys: int) -> str:
    """Return a statement for ``write_rows`` that replaces rows with equal first ``keys`` columns."""
    names = columns.split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in names[keys:])
    return f"{insert(table, columns)} ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {changes}"


class StoreConnection:
    """Runs statements and transactions. One thread at a time."""

    def __init__(self, driver: Driver) -> None:
        self._driver: Final = driver
        self._is_writing = False
        self._after_commit: Final[list[Callable[[], None]]] = []
        self.is_postgresql: Final = driver.is_postgresql
        self.execute: Final = driver.execute
        """Run one statement; outside a transaction, it is a transaction of its own."""
        self.executemany: Final = driver.executemany
        self.give_back: Final = driver.give_back
        self.leads: Final = driver.leads
        """Return whether this process sends for all processes that share the database."""
        self.close: Final = driver.close

    @contextmanager
    def transaction(self, flush: Flush = Flush.AT_ONCE) -> Iterator[None]:
        """Write all changes made inside, or none; joins the open transaction, if there is one.

        Args:
            flush: when the changes are sure to survive a power cut; the outermost transaction decides.

        Raises:
            StoreError: the database refuses, and nothing is written.
        """
        if self._is_writing:
            yield
            return
        self._is_writing = True
        try:
            self._driver.begin(flush)
            yield
            self._driver.commit()
        except BaseException as error:
            self._after_commit.clear()
            # A full disk shows at COMMIT too, and SQLite may have rolled back by itself: a transaction left
            # open would make every later one fail until a restart.
            self._driver.rollback()
            refusal = self._driver.refusal(error)
            if refusal is not None:
                raise refusal from error
            raise
        finally:
            self._is_writing = False
        done, self._after_commit[:] = tuple(self._after_commit), ()
        for call in done:
            call()

    def write_rows(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run ``INSERT … VALUES {rows} …`` on many rows at once.

        A statement for each row would release the interpreter's lock each time and wait behind the event loop
        to get it back: under load that takes far longer than the statement.
        """
        for count, values in _slices(rows):
            self.execute(_with_marks(sql, count, len(rows[0])), values)

    def write_each(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """As ``write_rows``, one row after another: two of them may have the same key."""
        if rows:
            self.executemany(_with_marks(sql, 1, len(rows[0])), rows)

    def keep_newest(self, table: str, column: str, most: int) -> None:
        """Delete the rows beyond the ``most`` with the largest values of a column."""
        self.execute(
            f"DELETE FROM {table} WHERE {column} <="  # noqa: S608 - our own words
            f" (SELECT {column} FROM {table} ORDER BY {column} DESC LIMIT 1 OFFSET ?)",
            (most,),
        )

    def keep_bytes(
        self, table: str, order: str, most_bytes: int, where: str = "true", *values: object
    ) -> None:
        """Delete the last rows of an order, of those for which a condition holds, beyond a sum of sizes."""
        self.execute(
            f"DELETE FROM {table} WHERE id IN (SELECT id FROM (SELECT id, sum(size) OVER (ORDER BY {order})"  # noqa: S608
            f" AS taken FROM {table} WHERE {where}) AS sized WHERE taken > ?)",
            (*values, most_bytes),
        )

    def read_rows(
        self, columns: str, table: str, keys: str, rows: Sequence[Sequence[Any]], rest: str = "", *values: Any
    ) -> list[Any]:
        """Return, with one statement, the rows of a table that have one of several keys.

        Args:
            columns: the columns to read.
            table: its name.
            keys: the first columns of an index, with commas between; with their table if several have them.
            rows: values of ``keys``.
            rest: further conditions, beginning with ``AND``, and the rest of the statement.
            values: the values for ``rest``.
        """
        sql = _keyed(columns, table, keys, rest)
        found: list[Any] = []
        for count, keyed in _slices(rows, _MOST_KEYS):
            found += self.execute(_with_marks(sql, count, len(rows[0])), (*keyed, *values)).fetchall()
        return found

    def damage(self) -> str | None:
        """Read the whole file; return SQLite's report of damage, ``None`` if intact or PostgreSQL."""
        if self.is_postgresql:
            return None
        try:
            (said,) = self.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            return str(error)
        return None if said == "ok" else str(said)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Schedule a call for when the open transaction is durable; it is dropped on rollback."""
        self._after_commit.append(call)


def _slices(rows: Sequence[Sequence[Any]], most: int = _MOST_ROWS) -> Iterator[tuple[int, list[Any]]]:
    """Yield slices of at most ``most`` rows: how many they are, and their values one after the other."""
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        yield len(some), [value for row in some for value in row]


@lru_cache(maxsize=1024)
def _with_marks(sql: str, rows: int, columns: int) -> str:
    """Return a statement with a mark for each value in place of ``{rows}``."""
    return sql.replace("{rows}", ", ".join([f"({', '.join('?' * columns)})"] * rows))


@lru_cache(maxsize=256)
def _keyed(columns: str, table: str, keys: str, rest: str) -> str:
    names = keys.split(", ")
    sought = [f"asked_{name.rpartition('.')[2]}" for name in names]
    alike = " AND ".join(f"{name} = {one}" for name, one in zip(names, sought, strict=True))
    # With a cross join, SQLite looks up each key; for ``(…) IN (VALUES …)`` it reads the whole table.
    return (
        f"WITH asked ({', '.join(sought)}) AS (VALUES {{rows}})"  # noqa: S608 - our own words
        f" SELECT {columns} FROM asked CROSS JOIN {table} WHERE {alike} {rest}"
    )


class Database:
    """Location of the store; opens connections, from any thread."""

    def __init__(self, open_driver: Callable[[], Driver], close: Callable[[], object]) -> None:
        """Store how to open it.

        Args:
            open_driver: brings the schema up to date and returns a connection's driver.
            close: closes everything that connections have left open.
        """
        self._open: Final = open_driver
        self.close: Final = close

    def connect(self) -> StoreConnection:
        """Bring the schema up to date and return a connection.

        Raises:
            CollectorError: the database cannot be used, or this version cannot read it; the message says so.
        """
        return StoreConnection(self._open())

    def own(self) -> StoreConnection:
        """Return a connection that keeps other services out: two would send the same verdicts.

        Raises:
            CollectorError: as for ``connect``; or another service uses the database.
        """
        driver = self._open()
        driver.own()
        return StoreConnection(driver)

    def share(self) -> StoreConnection:
        """Return a connection that keeps out services that need the database for themselves alone.

        Raises:
            CollectorError: as for ``connect``; or another service uses the database alone.
        """
        driver = self._open()
        driver.share()
        return StoreConnection(driver)


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
        from collector_processor.store.database.sqlite_driver import open_file  # noqa: PLC0415

        return Database(partial(open_file, place), lambda: None)
    try:
        from collector_processor.store.database.postgresql_driver import (  # noqa: PLC0415
            open_engine,
            open_server,
        )
    except ImportError as error:
        message = "BLAMESPAN_STORE_URL needs psycopg: pip install '.[server,postgres]' in a checkout"
        raise CollectorError(message) from error
    engine = open_engine(place)
    return Database(partial(open_server, engine), engine.dispose)


logger = logging.getLogger(__name__)

P = ParamSpec("P")

_Asked: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]


class StoreThread:
    """Makes calls on a store, one at a time."""

    def __init__(
        self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep, *, name: str = "runstore"
    ) -> None:
        self.pause: Final = pause
        """Sleeps for the given seconds, before a call that the disk refused is repeated."""
        self._asked: Final[SimpleQueue[_Asked | None]] = SimpleQueue()
        self._thread: Final = Thread(target=self._work, name=name, daemon=True)
        self._is_closed = False
        self.condition: Final = Condition()
        """Whether the store takes these calls."""
        self._thread.start()

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one call; skip it if its caller has stopped waiting.

        Raises:
            StoreError: the disk refuses.
        """
        if self._is_closed:
            raise RuntimeError("the store's thread has ended")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._asked.put((loop, future, partial(call, *args, **kwargs)))
        return await future

    async def insist(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call; repeat it while the disk refuses."""
        return await self.patiently(lambda: self.run(call, *args, **kwargs))

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run other work that needs the disk; repeat it while the disk refuses."""
        return await patiently(work, self.pause)

    def close(self) -> None:
        """End the thread after all requested calls; the owner closes the store."""
        if not self._is_closed:
            self._is_closed = True
            self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            loop, future, call = asked
            if future.cancelled():
                continue
            told: BaseException | None = None
            self.condition.asked()
            try:
                answer = partial(_answer, future, call())
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                told = in_our_words(error)
                if is_refusal(told):
                    self.condition.refused()
                answer = partial(_fail, future, told)
            self.condition.answered()
            try:
                loop.call_soon_threadsafe(answer)
            except RuntimeError:  # the loop has ended, and with it the caller
                logger.debug("the caller of the store has ended")
            del asked, future, call, answer, told  # drop references before waiting for the next call


def _answer(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.cancelled():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)
