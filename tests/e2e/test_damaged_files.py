"""Any file of a data directory may be damaged while the service is down: it starts, or names the file.

The message is one sentence with the file and the remedy, never a traceback. A service that starts forwards
spans, and counts every acknowledged span that is lost.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import grpc
import pytest

from tests.backends.supervise import BackendError, wait_until
from tests.deploy.shifts import work
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, starting

NOWHERE: Final = "http://127.0.0.1:9"
_PAGE: Final = 4096
SPANS: Final = 7
"""Number of spans in one run of ``work`` with two agents."""


def flipped(content: bytes) -> bytes:
    """Flip some bits in every second page, also in its head: elsewhere they may change a text alone."""
    chance, changed = random.Random(5), bytearray(content)
    for start in range(2 * _PAGE, len(content), 2 * _PAGE):
        for place in (start + 1, chance.randrange(start, min(start + 2 * _PAGE, len(content)))):
            changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)


def inside(content: bytes) -> bytes:
    """Overwrite the second half, so that the file's head is still valid."""
    return content[: len(content) // 2] + random.Random(6).randbytes(len(content) - len(content) // 2)


def without_a_page(content: bytes) -> bytes:
    """Zero the second page: a disk that lost a write. A file of one page loses its end."""
    start = min(_PAGE, len(content) // 2)
    return content[:start] + bytes(min(_PAGE, len(content) - start)) + content[start + _PAGE :]


DAMAGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "flipped": flipped,
    "inside": inside,
    "truncated": lambda content: content[: len(content) // 2 + 1],
    "zeroed": lambda content: bytes(len(content)),
    "a page zeroed": without_a_page,
    "emptied": lambda _content: b"",
}
CASES: Final = (
    ("stopped", "store.sqlite", "flipped"),
    ("stopped", "store.sqlite", "inside"),
    ("stopped", "store.sqlite", "zeroed"),
    ("stopped", "store.sqlite", "a page zeroed"),
    ("stopped", "store.sqlite", "emptied"),
    ("stopped", "ingest/*.log", "a page zeroed"),
    ("stopped", "ingest/*.log", "emptied"),
    ("killed", "store.sqlite-wal", "flipped"),
    ("killed", "store.sqlite-wal", "truncated"),
    ("killed", "store.sqlite-wal", "a page zeroed"),
    ("killed", "ingest/*.log", "zeroed"),
    ("killed", "ingest/*.marks", "zeroed"),
)
"""How the service ended, files, damage; ``tests/e2e/test_faults_start.py`` has more for the journal."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Data directories with verdicts, labels, carriers and pending spans, by how the service ended."""
    found = {}
    for end in ("killed", "stopped"):
        folder = tmp_path_factory.mktemp(end)
        with starting(folder) as start:
            line = start(forward_endpoint=NOWHERE, root_grace=100, shutdown_s=0.5)
            runs = [work(line, "planner", "clerk", failing="clerk") for _ in range(6)]
            for run_id in runs:
                assert line.verdict(run_id)["agent"] == "clerk"
            assert label(line, runs[0]) == 200
            if end == "killed":
                os.kill(line.pages_pid(), signal.SIGKILL)  # it would close the store and remove the WAL
                line.server.kill()
            else:
                assert line.terminate() == 0
        found[end] = folder / "data"
    return found


def label(line: Line, run_id: str) -> int:
    is_json = {"Content-Type": "application/json"}
    status, _ = line.ask(f"/api/runs/{run_id}/label", "POST", is_json, b'{"agent": "planner"}')
    return status


def looked_at(line: Line) -> dict[str, int]:
    """Return the status of each page and API answer that reads the store."""
    found = {}
    for path in (
        "/api/runs",
        "/runs",
        "/api/issues",
        "/issues",
        "/api/workflows",
        "/workflows",
        "/queue",
        "/api/queue",
        "/health",
        "/metrics",
        "/readyz",
    ):
        found[path], _ = line.ask(path)
    return found


@pytest.mark.parametrize(("end", "pattern", "damage"), CASES)
def test_a_damaged_file_is_survived_or_named(
    filled: dict[str, Path], tmp_path: Path, end: str, pattern: str, damage: str
) -> None:
    shutil.copytree(filled[end], tmp_path / "data")
    paths = [path for path in (tmp_path / "data").glob(pattern) if path.is_file()]
    assert paths, sorted((tmp_path / "data").rglob("*"))
    for path in paths:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with grpc_backend() as backend, starting(tmp_path) as start:
        try:
            line = start(forward_endpoint=backend.url, root_grace=100)
        except BackendError:
            said = (tmp_path / "serve-1.log").read_text(errors="replace")
            assert "Traceback" not in said, said[-3000:]
            last = said.strip().splitlines()[-1]
            assert last.startswith("blamespan: "), last
            assert any(path.name in last for path in paths), last
            assert any(word in last for word in ("move", "backup", "restore")), last
            return
        before = line.items("forwarded")
        run_id = work(line, "planner", "clerk", failing="clerk")
        wait_until(lambda: line.items("held") == 0 and line.items("forwarded") > before, what="forwarding")
        line.verdict(run_id)
        statuses = looked_at(line)
        statuses["label"] = label(line, run_id)
        balance = line.balance()
        said = line.server.log.read_text(errors="replace")
        assert "Traceback" not in said, said[said.index("Traceback") - 300 :][:4000]
        assert line.server.process.poll() is None
        assert set(statuses.values()) <= {200, 503}, statuses
        counts = {name: balance.get(name, 0) for name in ("forwarded", "rejected", "lost", "held")}
        assert balance["acknowledged"] == sum(counts.values()), balance
        assert not counts["lost"] or "missing" in said or "damaged" in said
        if (pattern, damage) == ("store.sqlite", "emptied"):
            assert line.said("the store's file is empty: its contents are lost")
        if (pattern, damage) == ("store.sqlite", "flipped"):
            told = ("the store is damaged", "a stored verdict is damaged")  # by a check in the background
            wait_until(lambda: any(map(line.said, told)), what="the damage to be told")


RUNNING: Final = (
    ("store.sqlite", "inside"),
    ("store.sqlite*", "truncated"),
    ("store.sqlite-wal", "emptied"),
    ("ingest/*.log", "inside"),
    ("ingest/0*", "emptied"),
)
"""Files and damage; not the ``-shm`` files, which SQLite maps into memory: see docs/threat-model.md."""


@pytest.mark.parametrize(("pattern", "damage"), RUNNING)
def test_a_file_damaged_while_the_service_runs_is_survived(tmp_path: Path, pattern: str, damage: str) -> None:
    with grpc_backend() as backend, starting(tmp_path) as start:
        line = start(forward_endpoint=backend.url, root_grace=100)
        line.verdict(work(line, "planner", "clerk", failing="clerk"))
        paths = [path for path in (tmp_path / "data").glob(pattern) if not path.name.endswith("-shm")]
        assert paths
        for path in paths:
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
        statuses = looked_at(line)
        taken = is_taken(line)
        assert set((statuses | looked_at(line)).values()) <= {200, 503}, statuses
        assert line.server.process.poll() is None, line.server.tail()
        said = line.server.log.read_text(errors="replace")
        assert "Traceback" not in said, said[said.index("Traceback") - 300 :][:4000]
        if pattern.startswith("store"):
            assert taken
            wait_until(lambda: line.items("forwarded") >= SPANS * 2, what="forwarding")


def test_a_restart_after_sigbus_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """SQLite maps ``-shm`` files into memory, so that cutting one short ends the process."""
    with grpc_backend() as backend, starting(tmp_path) as start:
        line = start(forward_endpoint=NOWHERE, root_grace=100)
        runs = [work(line, "planner", "clerk", failing="clerk") for _ in range(3)]
        before = [line.verdict(run_id) for run_id in runs]
        for path in (tmp_path / "data").rglob("*-shm"):
            os.truncate(path, 0)
        with suppress(OSError):
            looked_at(line)
        wait_until(lambda: line.server.process.poll() is not None, what="the end of the process")
        assert line.server.process.returncode == -signal.SIGBUS
        again = start(forward_endpoint=backend.url, root_grace=100)
        wait_until(lambda: again.items("forwarded") == len(runs) * SPANS, what="forwarding")
        assert again.items("lost") == 0
        for run_id, verdict in zip(runs, before, strict=True):
            assert again.run(run_id) == verdict


def is_taken(line: Line) -> bool:
    """Send a run; return whether it was acknowledged, and not refused for a while."""
    refused = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}
    try:
        work(line, "planner", "clerk", failing="clerk")
    except grpc.RpcError as error:
        if error.code() not in refused:
            raise
        return False
    return True


def test_damaged_labels_are_survived(filled: dict[str, Path], tmp_path: Path) -> None:
    """Whatever a label's row contains, runs are shown, labelled and analysed; no page fails."""
    shutil.copytree(filled["stopped"], tmp_path / "data")
    with closing(sqlite3.connect(tmp_path / "data" / "store.sqlite")) as db, db:
        assert db.execute("SELECT count(*) FROM label").fetchone() == (1,)
        db.execute("UPDATE label SET kind = x'ff', agent = x'fffe', step = 'many', labelled_ns = 'then'")
    with starting(tmp_path) as start:
        line = start(forward_endpoint=NOWHERE, root_grace=100)
        run_id = work(line, "planner", "clerk", failing="clerk")
        line.verdict(run_id)
        statuses = looked_at(line)
        statuses["label"] = label(line, run_id)
        assert set(statuses.values()) <= {200, 503}, statuses
        assert line.server.process.poll() is None
        assert line.said("a stored label is damaged and does not count: label the run again")
        said = line.server.log.read_text(errors="replace")
        assert "Traceback" not in said, said[said.index("Traceback") - 300 :][:4000]
