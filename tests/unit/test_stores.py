"""How every store of ours is opened and brought up to date."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from collector_processor.otlp import CollectorError
from collector_processor.stores import open_store

FIRST = "CREATE TABLE word (text TEXT); INSERT INTO word VALUES ('kept');"
SECOND = "ALTER TABLE word ADD COLUMN count INTEGER NOT NULL DEFAULT 7;"


def schema(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    return db.execute("SELECT name, type FROM pragma_table_info('word')").fetchall()


def test_an_older_store_becomes_what_a_new_one_is_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    open_store(tmp_path / "old", [FIRST]).close()
    with (
        closing(open_store(tmp_path / "old", [FIRST, SECOND])) as old,
        closing(open_store(tmp_path / "new", [FIRST, SECOND])) as new,
    ):
        assert schema(old) == schema(new) == [("text", "TEXT"), ("count", "INTEGER")]
        assert old.execute("SELECT * FROM word").fetchall() == [("kept", 7)]


def test_a_store_that_is_up_to_date_goes_through_no_step_again(tmp_path: Path) -> None:
    for _ in range(2):
        with closing(open_store(tmp_path / "store", [FIRST, SECOND])) as db:
            assert db.execute("SELECT count(*) FROM word").fetchone() == (1,)


def test_of_steps_that_fail_nothing_is_kept_and_the_store_is_as_it_was(tmp_path: Path) -> None:
    open_store(tmp_path / "store", [FIRST]).close()
    with pytest.raises(CollectorError, match="cannot be made a store: no such table: nowhere"):
        open_store(tmp_path / "store", [FIRST, SECOND, "INSERT INTO nowhere VALUES (1);"])
    with closing(open_store(tmp_path / "store", [FIRST])) as db:
        assert schema(db) == [("text", "TEXT")]


def test_a_place_where_no_file_can_be_is_refused_with_words(tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match=r"nowhere.*cannot be used as a store"):
        open_store(tmp_path / "nowhere" / "store", [FIRST])


def test_what_is_written_is_on_the_disk_and_readers_do_not_wait(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "store", [FIRST])) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_new_store_is_for_its_owner_alone_and_an_older_one_keeps_its_mode(tmp_path: Path) -> None:
    for expected in (0o600, 0o640):
        with closing(open_store(tmp_path / "store", [FIRST])):
            modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert modes == {expected}
        (tmp_path / "store").chmod(0o640)
