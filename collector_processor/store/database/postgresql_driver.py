"""PostgreSQL driver of the store, through psycopg 3.

As with SQLite, one process writes at a time: a transaction begins by taking a lock of the database, so that
what it reads stays true until it has written. A connection that breaks is replaced at the next statement;
while the server is down, each statement is refused with ``StoreError``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import psycopg
from psycopg.types.string import StrDumper
from sqlalchemy import URL, Connection, Engine, PoolProxiedConnection, create_engine, event, make_url
from sqlalchemy.exc import SQLAlchemyError

from collector_processor.core.disk import StoreError
from collector_processor.otlp import CollectorError
from collector_processor.store.database.driver import Flush, Rows
from collector_processor.store.database.upgrade import SCHEMA, reason_of, schema_of, upgrade

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")

_WRITERS: Final = 0x626C616D65
"""Number of the advisory lock that a transaction holds while it writes."""
_OWNER: Final = _WRITERS + 1
"""Number of the advisory lock that the service holds: a database belongs to one journal, or to the processors
of one Kafka group, which share the lock."""
_LEADER: Final = _WRITERS + 2
"""Number of the advisory lock of the processor that sends for all of them."""
_STATEMENT_MS: Final = 30_000
"""Time limit of a statement; pruning the largest table takes a few seconds."""
_SERVER_KEEPALIVES: Final = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
"""A connection lost by the network holds its service's lock until the server notices: 25 s."""
_CONNECT_S: Final = 5
_SILENCE_S: Final = 40.0
"""Time limit of a statement on our side: a server that is stopped or frozen does not apply its own."""
_POOL: Final = 8
"""Connections: verdicts, issues, pages and totals each use one."""
_IDLE: Final = psycopg.pq.TransactionStatus.IDLE
_AT_ONCE_S: Final = 1.0
"""A broken connection fails at once; a server that hangs must not be waited for twice."""
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 2.0
"""Seconds between attempts to connect; doubled after each."""
_DIALECT: Final = "postgresql+psycopg://"
"""As which SQLAlchemy opens each URL, whichever scheme it has."""
_URL: Final = re.compile(r"(?s)\A([^@]*@)?([^/?]*)(.*)")
"""User and password, servers, and the rest of a URL after its scheme."""
_BEGIN: Final = f"BEGIN; SELECT pg_advisory_xact_lock({_WRITERS})"
_MAY_PASS: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.DataCorrupted,  # a bad disk: someone must repair it, as with a damaged SQLite file
    psycopg.errors.IndexCorrupted,
)
"""Errors after which the same statement may succeed later."""
_LATER: Final = "; SET LOCAL synchronous_commit TO off"


class _TextDumper(StrDumper):
    """Replaces NUL, which span names may contain and PostgreSQL's text may not."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\ufffd"))


class _Connection(psycopg.Connection[Any]):
    """A connection that breaks if the server does not answer: the host's kernel still answers keepalives."""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for the server's answer.

        Raises:
            psycopg.OperationalError: there is none, and the connection is closed.
        """
        try:
            return super().wait(gen, interval, _SILENCE_S if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if timeout is None and self.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                self.pgconn.finish()
                raise psycopg.OperationalError(
                    f"the server does not answer for {_SILENCE_S:.0f} s"
                ) from error
            raise


def open_engine(url: str) -> Engine:
    """Return an engine for the connections of one process; it does not connect yet.

    Parameters of the URL, such as ``?connect_timeout=30``, replace ours; its ``options`` are added to ours.

    Raises:
        CollectorError: the URL cannot be used.
    """
    ours: dict[str, Any] = {
        "connect_timeout": _CONNECT_S,
        "application_name": "blamespan",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    try:
        place = _read_url(url)
        own = {name: value for name, value in ours.items() if name not in place.query}
        asked = place.query.get("options", "")
        options = f"-c statement_timeout={_STATEMENT_MS} {_SERVER_KEEPALIVES} {asked}".rstrip()
        engine = create_engine(
            place,
            connect_args={"autocommit": True, "options": options, **own},
            pool_size=_POOL,
            pool_pre_ping=True,
            pool_reset_on_return=None,
        )
        event.listen(engine, "do_connect", _connect)
        return engine  # noqa: TRY300 - listening can fail too
    except (SQLAlchemyError, ImportError) as error:
        raise CollectorError(f"BLAMESPAN_STORE_URL cannot be used: {error}") from error
    except ValueError as error:
        raise CollectorError("BLAMESPAN_STORE_URL cannot be used: expected a number as port") from error


def _read_url(url: str) -> URL:
    """Return a URL of PostgreSQL; as in libpq, it may name several servers, ``host:port,host:port``."""
    ((user, hosts, rest),) = _URL.findall(url.partition("://")[2])
    if "," not in hosts:
        return make_url(f"{_DIALECT}{user}{hosts}{rest}")
    servers = [("host", host) for host in hosts.split(",")]
    return make_url(f"{_DIALECT}{user}{rest}").update_query_pairs(servers, append=True)


def _connect(_dialect: object, _record: object, values: Any, named: Any) -> _Connection:
    return _Connection.connect(*values, **named)


class PostgresDriver:
    """One connection, opened at the first statement and again after it breaks."""

    is_postgresql: Final = True

    def __init__(self, engine: Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._engine: Final = engine
        self._monotonic: Final = monotonic
        self._pooled: PoolProxiedConnection | None = None
        self._db: psycopg.Connection[Any] | None = None
        self._lock = ""
        """Statement that reserves the database; none for readers."""
        self._leads = False
        self._wait_s = 0.0
        self._not_before = 0.0

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement; read once more, if the server was restarted since the last one."""
        may_repeat = sql.startswith("SELECT") and self._connected().info.transaction_status == _IDLE
        began_s = self._monotonic()
        try:
            return self._execute(sql, values)
        except (StoreError, psycopg.Error):
            is_broken = self._db is None
            if not (may_repeat and is_broken and self._monotonic() - began_s <= _AT_ONCE_S):
                raise
        return self._execute(sql, values)

    def _execute(self, sql: str, values: Sequence[Any]) -> Rows:
        try:
            return cast("Rows", self._connected().execute(_translated(sql), values or None))
        except psycopg.Error as error:
            raise self._failed(error) from error

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        several = tuple(rows)
        if not several:
            return
        db = self._connected()
        try:
            with db.cursor() as cursor:
                cursor.executemany(_translated(sql), several)
        except psycopg.Error as error:
            raise self._failed(error) from error

    def begin(self, flush: Flush) -> None:
        """Begin to write, once all other writers have finished."""
        db = self._connected()
        try:  # several statements in one call cannot be prepared
            db.execute(_BEGIN + _LATER * (flush is Flush.LATER), prepare=False)
        except psycopg.Error as error:
            raise self._failed(error) from error

    def commit(self) -> None:
        """Commit; if the connection breaks meanwhile, the transaction may be committed despite the error."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back, unless the connection is broken."""
        if self._db is not None and self._db.info.transaction_status != _IDLE:
            try:
                self._db.execute("ROLLBACK")
            except psycopg.Error:
                self._drop()

    def refusal(self, error: BaseException) -> None:
        """Return ``None``: statements already raise ``StoreError``."""
        del error

    def give_back(self) -> int:
        """Do nothing: the server's autovacuum does it."""
        return 0

    def own(self) -> None:
        """Reserve the database for this process while it is connected.

        Raises: CollectorError: another process has it. StoreError: the server cannot be reached.
        """
        self._lock = f"SELECT pg_try_advisory_lock({_OWNER})"
        self._take()

    def share(self) -> None:
        """Reserve the database for this process and others that share it.

        Raises: CollectorError: another process has it alone. StoreError: the server cannot be reached.
        """
        self._lock = f"SELECT pg_try_advisory_lock_shared({_OWNER})"
        self._take()

    def leads(self) -> bool:
        """Try to become the process that sends for all that share the database; return whether this is it."""
        if not self._leads and "shared" in self._lock:
            taken = self.execute(f"SELECT pg_try_advisory_lock({_LEADER})").fetchone()
            self._leads = bool(taken[0])
        return self._leads or "shared" not in self._lock

    def close(self) -> None:
        """Close the connection."""
        self._drop()

    def _take(self) -> None:
        taken = self.execute(self._lock).fetchone()
        if not taken[0]:
            self._drop()
            raise StoreError("another blamespan uses the store: each needs a database of its own")

    def _connected(self) -> psycopg.Connection[Any]:
        if self._db is not None:
            return self._db
        if self._monotonic() < self._not_before:
            raise StoreError("the store cannot be reached: waiting to connect again")
        try:
            self._pooled = self._engine.raw_connection()
        except (SQLAlchemyError, psycopg.Error) as error:
            self._wait_s = min(max(2 * self._wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
            self._not_before = self._monotonic() + self._wait_s
            raise StoreError(f"the store cannot be reached: {reason_of(error)}") from error
        self._wait_s = 0.0
        self._db = cast("psycopg.Connection[Any]", self._pooled.driver_connection)
        self._db.adapters.register_dumper(str, _TextDumper)
        if self._lock:
            self._take()
        return self._db

    def _failed(self, error: psycopg.Error) -> Exception:
        """Return the error to raise; a connection that is no longer usable is dropped."""
        if self._db is None or self._db.broken or self._db.closed:
            self._drop()
        return StoreError(f"the store refuses: {reason_of(error)}") if isinstance(error, _MAY_PASS) else error

    def _drop(self) -> None:
        pooled, self._pooled, self._db = self._pooled, None, None
        self._leads = False
        if pooled is not None:
            pooled.invalidate()
            pooled.close()


def schema_connection(engine: Engine) -> Connection:
    """Return an SQLAlchemy connection in a transaction, for schema migrations."""
    connection = engine.connect()
    connection.exec_driver_sql("BEGIN")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")
    return connection


def open_server(engine: Engine) -> PostgresDriver:
    """Bring a server's schema up to date, and return a connection.

    Raises:
        CollectorError: the server cannot be reached, or this version cannot read the database.
    """
    driver = PostgresDriver(engine)
    try:
        schema = schema_of(driver)
        if schema != SCHEMA:
            upgrade(lambda: schema_connection(engine), schema, "the store", "use another database")
    except BaseException:
        driver.close()
        raise
    return driver


@cache
def _translated(sql: str) -> str:
    """Return a statement with psycopg's marks for values; there are few statements, all our own."""
    return sql.replace("%", "%%").replace("?", "%s") if "?" in sql else sql
