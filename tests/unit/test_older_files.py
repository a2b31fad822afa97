"""Three files of an older version become one store, even if the copying process is killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from collector_processor.otlp import CollectorError, Signal
from collector_processor.store.database.places import RUNS, connected
from collector_processor.store.older_files import BACKUP, bring_up_to_date, older_files
from collector_processor.store.verdicts import RunStore
from tests.issues import START, Bench
from tests.older_store import RUNS_OF_A_FILE, write_older_files

FILES = ("runs.sqlite", "labels.sqlite", "issues.sqlite")
COUNTS = {
    "verdict": RUNS_OF_A_FILE,
    "rewrite": 2,
    "kept_run": 9,
    "counted_run": 2,
    **dict.fromkeys(
        ("analysed", "run_key", "outbox", "run_part", "spending", "label", "issue", "pending"), 1
    ),
    **dict.fromkeys(("agent_day", "watch", "notice", "target", "told", "cursor"), 1),
    **dict.fromkeys(("place", "heeded", "absent_parent"), 0),
}


def counts(folder: Path) -> dict[str, int]:
    with closing(connected(folder / RUNS)) as db:
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in COUNTS}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def moved(folder: Path) -> None:
    bring_up_to_date(folder, folder / RUNS)


def test_every_row_is_in_the_store_and_the_files_stay_as_a_backup(tmp_path: Path) -> None:
    write_older_files(tmp_path)
    before = {
        name: sqlite3.connect(tmp_path / name).execute("PRAGMA user_version").fetchone() for name in FILES
    }
    moved(tmp_path)
    assert counts(tmp_path) == COUNTS
    assert names(tmp_path) == {RUNS, "runs.sqlite", *(f"{name}{BACKUP}" for name in FILES)}
    for name, version in before.items():
        with closing(sqlite3.connect(tmp_path / f"{name}{BACKUP}")) as db:
            assert db.execute("PRAGMA user_version").fetchone() == version


def test_what_was_judged_labelled_and_counted_goes_on(tmp_path: Path) -> None:
    write_older_files(tmp_path)
    moved(tmp_path)
    bench = Bench(folder=tmp_path)
    assert bench.counting.count_left(bench.verdicts, START) == 1
    run = bench.issues.run("", "run-9")  # type: ignore[arg-type]
    assert run is not None
    assert (run.status, run.settled_ns) == ("attributed", START)
    assert [issue.count for issue in bench.all()] == [1, 1]
    assert bench.counting.apply_labels() == 1, "the label after the cursor"
    assert [entry.id for entry in bench.verdicts.outbox(Signal.TRACES)] == [5]
    assert bench.verdicts.rewrites() == [(9, b"new"), (10, b"new")]
    assert bench.verdicts.spending.spent(0, START) == [(START, 0.25)]
    bench.db.execute("INSERT INTO notice (target, issue, noted_ns, document) VALUES ('hook', '', 0, '{}')")
    numbers = [row[0] for row in bench.db.execute("SELECT id FROM notice ORDER BY id")]
    assert numbers[0] == 40
    assert numbers[-1] > 41, "a number that a receiver has seen comes again"
    bench.close()


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    write_older_files(tmp_path)
    for _ in range(2):
        moved(tmp_path)
        assert (older_files(tmp_path), counts(tmp_path)) == ([], COUNTS)


def test_a_new_directory_is_kept_from_older_versions_too(tmp_path: Path) -> None:
    moved(tmp_path)
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1_000,)


KILLED = """
import os, signal, sys
from pathlib import Path
from collector_processor.store import older_files
left = int(sys.argv[3])
def dying(call):
    def called(*args):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return called
if sys.argv[2] == "rows":
    older_files._typed = dying(older_files._typed)
else:
    Path.replace = dying(Path.replace)
folder = Path(sys.argv[1])
older_files.bring_up_to_date(folder, folder / "store.sqlite")
"""
MOMENTS = [("rows", 1), ("rows", 2), ("rows", 9), *(("names", number) for number in range(1, 6))]


@pytest.mark.parametrize(("what", "number"), MOMENTS)
def test_a_process_killed_in_the_middle_loses_nothing(tmp_path: Path, what: str, number: int) -> None:
    write_older_files(tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path), what, str(number)]
    killed = subprocess.run(command, check=False, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL
    moved(tmp_path)
    assert counts(tmp_path) == COUNTS
    assert older_files(tmp_path) == []
    assert names(tmp_path) == {RUNS, "runs.sqlite", *(f"{name}{BACKUP}" for name in FILES)}


def test_a_file_that_cannot_be_read_is_said_and_nothing_is_changed(tmp_path: Path) -> None:
    write_older_files(tmp_path)
    (tmp_path / "labels.sqlite").write_bytes(b"no database" * 1_000)
    with pytest.raises(CollectorError, match="cannot be brought up to date, and stays as it is"):
        moved(tmp_path)
    assert names(tmp_path) >= set(FILES)
    assert RUNS not in names(tmp_path)


def test_older_files_beside_a_store_and_a_backup_are_never_written_over(tmp_path: Path) -> None:
    write_older_files(tmp_path)
    moved(tmp_path)
    again = tmp_path / "again"
    write_older_files(again)
    (again / "labels.sqlite").replace(tmp_path / "labels.sqlite")
    with pytest.raises(CollectorError, match="is left from an older version"):
        moved(tmp_path)
    assert (tmp_path / "labels.sqlite").exists()


def test_an_analyzers_spending_is_moved_too(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "spending.sqlite")) as db:
        db.execute(
            "CREATE TABLE spending (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, usd REAL NOT NULL)"
        )
        db.execute("INSERT INTO spending VALUES (1, ?, 0.5)", (START,))
        db.execute("PRAGMA user_version=1")
        db.commit()
    bring_up_to_date(tmp_path, tmp_path / RUNS, stub="spending.sqlite")
    store = RunStore(tmp_path / RUNS)
    assert store.spending.spent(0, START) == [(START, 0.5)]
    store.close()
