"""How every store of ours is opened and brought up to date."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from collector_processor.otlp import CollectorError
from collector_processor.stores import Flush, StoreError, all_or_nothing, give_back, is_refusal, open_store

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


MEBIBYTE = 1 << 20
WORDS = "CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT);"


def fill(db: sqlite3.Connection, mebibytes: int) -> None:
    with all_or_nothing(db, "words", Flush.LATER):
        db.executemany("INSERT INTO word (text) VALUES (?)", [("x" * MEBIBYTE,)] * mebibytes)


def older(path: Path, mebibytes: int) -> None:
    """Make a file as it was before files could give anything back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        for statement in (WORDS, "PRAGMA user_version=1"):
            db.execute(statement)
        fill(db, mebibytes)


def on_disk(path: Path) -> int:
    return path.stat().st_size


def test_what_was_deleted_comes_back_to_the_disk_a_little_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with closing(open_store(path, [WORDS])) as db:
        fill(db, 32)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sizes = [on_disk(path)]
        assert sizes[0] > 32 * MEBIBYTE
        db.execute("DELETE FROM word WHERE id > 4")
        while give_back(db, "words", 8 * MEBIBYTE):
            sizes.append(on_disk(path))
        given = [before - after for before, after in pairwise(sizes)]
        assert given[0] >= 8 * MEBIBYTE
        assert max(given) < 8.1 * MEBIBYTE  # SQLite's own notes of where pages are go along
        assert sizes[-1] < 10 * MEBIBYTE
        assert db.execute("SELECT count(*), sum(length(text)) FROM word").fetchone() == (4, 4 * MEBIBYTE)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_room_for_what_is_written_next_stays(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with closing(open_store(path, [WORDS])) as db:
        fill(db, 3)
        db.execute("DELETE FROM word")
        assert give_back(db, "words") == 0


def test_a_file_of_an_older_version_that_is_mostly_room_shrinks_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "store"
    older(path, 32)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DELETE FROM word WHERE id > 4")
    assert on_disk(path) > 32 * MEBIBYTE
    with closing(open_store(path, [WORDS])) as db:
        assert db.execute("SELECT count(*) FROM word").fetchone() == (4,)
    assert on_disk(path) < 5 * MEBIBYTE


def test_a_file_of_an_older_version_that_is_full_is_served_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store"
    older(path, 16)
    with closing(open_store(path, [WORDS])) as db:
        assert db.execute("PRAGMA auto_vacuum").fetchone() == (0,)
        db.execute("DELETE FROM word WHERE id > 12")
        assert give_back(db, "words") == 0


def test_a_file_that_another_process_writes_to_is_served_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    older(path, 1)
    impatient = partial(sqlite3.connect, timeout=0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        monkeypatch.setattr(sqlite3, "connect", impatient)
        other.execute("BEGIN IMMEDIATE")
        with closing(open_store(path, [WORDS])) as db:
            assert db.execute("SELECT count(*) FROM word").fetchone() == (1,)
        other.execute("ROLLBACK")
    assert caplog.messages == ["store keeps its size"]


def test_what_is_to_survive_a_power_cut_is_flushed_whatever_was_left_for_later_before(tmp_path: Path) -> None:
    at_once, later = (2,), (1,)
    with closing(open_store(tmp_path / "store", [WORDS])) as db:
        with all_or_nothing(db, "words", Flush.LATER):
            assert db.execute("PRAGMA synchronous").fetchone() == later
        with all_or_nothing(db, "words"):
            assert db.execute("PRAGMA synchronous").fetchone() == at_once
        fill(db, 16)
        db.execute("DELETE FROM word WHERE id > 1")
        assert give_back(db, "words")
        with all_or_nothing(db, "words"):
            assert db.execute("PRAGMA synchronous").fetchone() == at_once


def test_where_the_disk_refuses_to_give_back_nothing_is_lost(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "store", [WORDS])) as db:
        fill(db, 16)
        db.execute("DELETE FROM word WHERE id > 1")
        db.execute("PRAGMA query_only=ON")
        with pytest.raises(StoreError, match="words cannot write"):
            give_back(db, "words")
        assert db.execute("SELECT count(*) FROM word").fetchone() == (1,)


def refused_by_sqlite(path: Path) -> sqlite3.OperationalError:
    """Return what SQLite says where a file cannot be opened."""
    with pytest.raises(sqlite3.OperationalError) as refused:
        sqlite3.connect(path / "nowhere" / "store")
    return refused.value


def misspelt() -> sqlite3.OperationalError:
    with closing(sqlite3.connect(":memory:")) as db, pytest.raises(sqlite3.OperationalError) as refused:
        db.execute("SELEKT 1")
    return refused.value


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO])
def test_what_a_disk_or_a_system_refuses_may_be_done_later(number: int) -> None:
    assert is_refusal(OSError(number, os.strerror(number)))


def test_what_sqlite_cannot_open_it_may_open_later_and_what_is_our_fault_stays_one(tmp_path: Path) -> None:
    assert is_refusal(refused_by_sqlite(tmp_path))
    assert is_refusal(StoreError("the disk is full"))
    assert not is_refusal(misspelt())
    assert not is_refusal(sqlite3.OperationalError("no code"))


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "gone"), TimeoutError(), ConnectionResetError(), ValueError()]
)
def test_what_no_time_mends_is_not_waited_for(error: Exception) -> None:
    assert not is_refusal(error)
