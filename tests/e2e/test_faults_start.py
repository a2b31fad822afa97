"""A start that finds damage, newer files, another process or no permission keeps the data, or refuses with a
reason."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from collector_processor.core.disk import RUNS
from collector_processor.journal.log_format import HEAD_BYTES, MAGIC
from collector_processor.rebuild.encode import encode
from tests.backends.forked import ran
from tests.e2e.backend import grpc_backend
from tests.e2e.line import Line, StartLine, environment
from tests.e2e.traffic import send
from tests.factories import span

NOWHERE = "http://127.0.0.1:9"
SPANS_A_REQUEST = 3
COMMAND = (sys.executable, "-m", "analyzer", "serve", "--format", "json", "--data-dir")


def marked(number: int) -> bytes:
    """A request whose text is in the journal verbatim, because it does not compress."""
    chance = random.Random(number)
    spans = [
        span(number * 10 + place, attributes={"text": chance.randbytes(2000).hex() + f"mark{number}"})
        for place in range(SPANS_A_REQUEST)
    ]
    return encode(spans)


def fill(line: Line, numbers: range) -> None:
    for number in numbers:
        send(line, marked(number))
    line.await_items("held", len(numbers) * SPANS_A_REQUEST)
    assert line.terminate() == 0


def segment_in(folder: Path) -> Path:
    (segment,) = (folder / "data" / "ingest").glob("*.log")
    return segment


def refused(folder: Path, **settings: str) -> str:
    """Start a service that must refuse to, before it listens; return its last line."""
    done = ran([*COMMAND, str(folder)], environ=environment(**settings))
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == "", "the addresses of a service that listens"
    return done.stderr.strip().splitlines()[-1]


def test_of_a_journal_with_flipped_bits_the_sound_part_arrives_and_the_loss_is_counted_and_said(
    start_line: StartLine, tmp_path: Path
) -> None:
    fill(start_line(forward_endpoint=NOWHERE, shutdown_s=0.5), range(1, 9))
    segment = segment_in(tmp_path)
    content = bytearray(segment.read_bytes())
    for number in (3, 6):
        content[content.index(f"mark{number}".encode()) - 40] ^= 4
    segment.write_bytes(content)
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        line.await_items("forwarded", 6 * SPANS_A_REQUEST)
        assert line.balance() == {"received": 24, "acknowledged": 24, "forwarded": 18, "lost": 6}
        assert len(line.said("journal row is damaged: its items are lost")) == 2
        sent = {request.body for request in backend.requests}
        assert sum(any(marked(number) in body for body in sent) for number in range(1, 9)) == 6


def test_files_of_another_version_are_refused_in_words_and_left_alone(
    start_line: StartLine, tmp_path: Path
) -> None:
    fill(start_line(forward_endpoint=NOWHERE, shutdown_s=0.5), range(1, 2))
    data = tmp_path / "data"
    for path, change, version in (
        (segment_in(tmp_path), set_version, "99"),
        (data / RUNS, set_schema, "99"),
        (data / RUNS, set_schema, "0012"),  # made before version 0.1.0
    ):
        before = change(path, version)
        said = refused(data)
        assert path.name in said
        assert "newer" in said
        assert "another data directory" in said
        assert change(path, before) == version
    with grpc_backend() as backend:
        start_line(forward_endpoint=backend.url).await_items("forwarded", SPANS_A_REQUEST)


def set_version(path: Path, version: str) -> str:
    """Set the version of a journal's file; return the previous one."""
    content = path.read_bytes()
    before, place = str(content[len(MAGIC)]), len(MAGIC)
    head = content[:place] + bytes([int(version)]) + content[place + 1 : HEAD_BYTES - 4]
    path.write_bytes(head + crc32(head).to_bytes(4, "little") + content[HEAD_BYTES:])
    return before


def set_schema(path: Path, version: str) -> str:
    """Set the schema version of the store; return the previous one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        before = str(db.execute("SELECT version_num FROM alembic_version").fetchone()[0])
        db.execute("UPDATE alembic_version SET version_num = ?", (version,))
    return before


def test_a_second_process_on_one_data_directory_refuses_in_words_and_the_first_works_on(
    start_line: StartLine, tmp_path: Path
) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        said = refused(tmp_path / "data")
        assert "another" in said
        assert str(tmp_path / "data") in said
        send(line, marked(1))
        line.await_items("forwarded", SPANS_A_REQUEST)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that is not writable, even for root."""
    path = tmp_path / "fixed"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(path)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a read-only folder can be mounted by root only: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_data_directory_that_cannot_be_written_is_refused_in_words(read_only: Path) -> None:
    for folder in (read_only, read_only / "data"):
        said = refused(folder)
        assert str(read_only) in said
        assert "ead-only" in said


def test_other_users_cannot_read_a_services_files(start_line: StartLine, tmp_path: Path) -> None:
    fill(start_line(forward_endpoint=NOWHERE, shutdown_s=0.5), range(1, 3))
    kept = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert len(kept) > 4
    assert [path for path in kept if path.stat().st_mode & 0o077] == []


def test_the_first_start_begins_with_its_addresses_one_a_line(tmp_path: Path) -> None:
    folder = tmp_path / ("a long name " * 8)
    command = [sys.executable, "-m", "analyzer", "serve", "--data-dir", str(folder)]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as service:
        assert service.stdout is not None
        lines = [service.stdout.readline().rstrip("\n") for _ in range(5)]
        service.terminate()
    assert [line[:12].strip() for line in lines] == [
        *("page", "OTLP/gRPC", "OTLP/HTTP", "goes on to", "analysed by"),
    ]
    assert lines[0].endswith("/metrics)")
    assert lines[4].endswith(str(folder))
