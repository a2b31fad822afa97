"""The connection to the store: how SQLite is opened, written to, and shrunk."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from threading import Timer

import pytest

from collector_processor.core.disk import StoreError, in_our_words, is_refusal
from collector_processor.otlp import CollectorError
from collector_processor.store.database.connection import StoreConnection, connected
from collector_processor.store.database.driver import Flush
from collector_processor.store.database.sqlite_driver import SqliteDriver

MEBIBYTE = 1 << 20


def test_a_place_where_no_file_can_be_is_refused_with_words(tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match=r"nowhere.*cannot be used as a store"):
        connected(tmp_path / "nowhere" / "store")


def test_a_file_whose_damage_sqlite_cannot_spell_is_refused_with_words(tmp_path: Path) -> None:
    """SQLite quotes the damaged statement in its message, which Python cannot decode."""
    path = tmp_path / "store"
    connected(path).close()
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"CREATE TABLE spending", b"CREATE TABL\xff spending"))
    with pytest.raises(CollectorError, match=r"store: cannot be used as a store: .*; move it away"):
        connected(path)
    error = UnicodeDecodeError("utf-8", b"near \xff", 5, 6, "invalid start byte")
    assert isinstance(in_our_words(error), StoreError)


def test_what_is_written_is_on_the_disk_and_readers_do_not_wait(tmp_path: Path) -> None:
    with closing(connected(tmp_path / "store")) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.usefixtures("migrations")
def test_a_new_store_is_for_its_owner_alone_and_an_older_one_keeps_its_mode(tmp_path: Path) -> None:
    for expected in (0o600, 0o640):
        with closing(connected(tmp_path / "store")):
            modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert modes == {expected}
        (tmp_path / "store").chmod(0o640)


def test_a_transaction_within_another_is_part_of_it(tmp_path: Path) -> None:
    done: list[str] = []
    with closing(connected(tmp_path / "store")) as db:
        write = "INSERT INTO cursor (name, value) VALUES (?, ?)"
        with pytest.raises(ValueError, match="power cut"), db.transaction():  # noqa: PT012 - of a transaction
            with db.transaction():
                db.execute(write, ("inner", 1))
                db.after_commit(lambda: done.append("never"))
            raise ValueError("power cut")
        assert db.execute("SELECT count(*) FROM cursor").fetchone() == (0,)
        with db.transaction():
            with db.transaction():
                db.execute(write, ("inner", 1))
                db.after_commit(lambda: done.append("once"))
            assert done == []
        assert (done, db.execute("SELECT count(*) FROM cursor").fetchone()) == (["once"], (1,))


def fill(db: StoreConnection, mebibytes: int) -> None:
    write = "INSERT INTO outbox (tenant, signal, body) VALUES ('', '', ?)"
    with db.transaction(Flush.LATER):
        db.executemany(write, [(b"x" * MEBIBYTE,)] * mebibytes)


def test_what_was_deleted_comes_back_to_the_disk_a_little_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with closing(connected(path)) as db:
        fill(db, 32)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sizes = [path.stat().st_size]
        assert sizes[0] > 32 * MEBIBYTE
        db.execute("DELETE FROM outbox WHERE id > 4")
        while db.give_back():
            sizes.append(path.stat().st_size)
        given = [before - after for before, after in pairwise(sizes)]
        assert given[0] >= 4 * MEBIBYTE
        assert max(given) < 4.1 * MEBIBYTE  # SQLite's own notes of where pages are go along
        assert sizes[-1] < 10 * MEBIBYTE
        total = "SELECT count(*), sum(length(body)) FROM outbox"
        assert db.execute(total).fetchone() == (4, 4 * MEBIBYTE)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_room_for_what_is_written_next_stays(tmp_path: Path) -> None:
    with closing(connected(tmp_path / "store")) as db:
        fill(db, 3)
        db.execute("DELETE FROM outbox")
        assert db.give_back() == 0


def test_what_is_to_survive_a_power_cut_is_flushed_whatever_was_left_for_later_before(tmp_path: Path) -> None:
    at_once, later = (2,), (1,)
    with closing(connected(tmp_path / "store")) as db:
        with db.transaction(Flush.LATER):
            assert db.execute("PRAGMA synchronous").fetchone() == later
        with db.transaction():
            assert db.execute("PRAGMA synchronous").fetchone() == at_once
        fill(db, 16)
        db.execute("DELETE FROM outbox WHERE id > 1")
        assert db.give_back()
        with db.transaction():
            assert db.execute("PRAGMA synchronous").fetchone() == at_once


def test_where_the_disk_refuses_to_give_back_nothing_is_lost(tmp_path: Path) -> None:
    with closing(connected(tmp_path / "store")) as db:
        fill(db, 16)
        db.execute("DELETE FROM outbox WHERE id > 1")
        db.execute("PRAGMA query_only=ON")
        with pytest.raises(StoreError, match="the store cannot write"):
            db.give_back()
        assert db.execute("SELECT count(*) FROM outbox").fetchone() == (1,)


def refused_by_sqlite(path: Path) -> sqlite3.OperationalError:
    """Return SQLite's message for a file that cannot be opened."""
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


@pytest.mark.usefixtures("migrations")
def test_a_store_that_another_process_is_just_creating_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("CREATE TABLE first (id)")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"), closing(sqlite3.connect(path)) as third:
            third.execute("PRAGMA journal_mode=WAL")  # SQLite itself does not wait
        ends = Timer(0.1, other.commit)
        ends.start()
        SqliteDriver(path).close()
        ends.join()
