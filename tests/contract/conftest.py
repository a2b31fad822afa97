"""The store on SQLite and on PostgreSQL, for every contract of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from collector_processor.core.disk import RUNS
from collector_processor.otlp.tls import TlsFiles
from collector_processor.store.database.connection import Database, StoreConnection, open_database
from tests.backends.postgresql import PostgresServer, postgresql
from tests.contract.doors import make_tls

_NUMBERS: Final = count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL of the module's own, which its tests may stop."""
    with postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A new, empty store."""
    if request.param == "sqlite":
        return tmp_path / RUNS
    running: PostgresServer = request.getfixturevalue("server")
    return running.create(f"store{next(_NUMBERS)}")


@pytest.fixture
def database(place: Path | str) -> Iterator[Database]:
    """The store, opened and migrated."""
    with closing(open_database(place)) as opened:
        yield opened


@pytest.fixture
def db(database: Database) -> Iterator[StoreConnection]:
    """The connection of the store's own thread."""
    with closing(database.own()) as opened:
        yield opened


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    """Files of a server's TLS, made with openssl."""
    try:
        return make_tls(tmp_path)
    except FileNotFoundError:
        pytest.skip("openssl, which makes the certificate, is not installed")
