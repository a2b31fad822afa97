"""New SQLite stores of tests begin as copies of one.

Making the tables takes tens of milliseconds, and the tests open thousands of stores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import pytest

from collector_processor.store.database import sqlite_driver
from collector_processor.store.database.sqlite_driver import SqliteDriver, open_file

_open_file: Final = open_file


@pytest.fixture(scope="session", autouse=True)
def quick_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lay a copy where a new store is opened."""
    made: list[bytes] = []

    def open_copy(path: Path) -> SqliteDriver:
        if not path.exists() and path.parent.is_dir():
            if not made:
                template = tmp_path_factory.mktemp("store") / "new.sqlite"
                _open_file(template).close()
                made.append(template.read_bytes())
            with NamedTemporaryFile(dir=path.parent) as beside, suppress(FileExistsError):
                beside.write(made[0])
                beside.flush()
                os.link(beside.name, path)  # whole or not at all, and only one of two threads
        return _open_file(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_driver, "open_file", open_copy)
        yield


@pytest.fixture
def migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a test's new stores made, not copied."""
    monkeypatch.setattr(sqlite_driver, "open_file", _open_file)
