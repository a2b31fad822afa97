"""A journal in the format of version 0.1.0 is refused in words, with what it has not sent, and left as it is.

It is written here with literal SQL: no current code knows the format.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from struct import pack
from zlib import crc32

import lz4.block

from collector_processor.rebuild.encode import encode
from semconv.model import Span, TraceId
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.test_faults_start import refused
from tests.factories import agent, chat, span, workflow

SEGMENT = """
PRAGMA auto_vacuum=INCREMENTAL;
PRAGMA journal_mode=WAL;
CREATE TABLE chunk (
  seq INTEGER PRIMARY KEY, signal TEXT NOT NULL, tenant TEXT NOT NULL, hops TEXT NOT NULL,
  received_ns INTEGER NOT NULL, items INTEGER NOT NULL, size INTEGER NOT NULL, state INTEGER NOT NULL
);
CREATE TABLE body (seq INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, packed BLOB NOT NULL);
CREATE TABLE trace (
  seq INTEGER NOT NULL, trace_id TEXT NOT NULL, spans INTEGER NOT NULL, bytes INTEGER NOT NULL,
  carriers INTEGER NOT NULL, notes BLOB NOT NULL,
  PRIMARY KEY (seq, trace_id)
) WITHOUT ROWID;
PRAGMA application_id=1651273061;
PRAGMA user_version=1;
"""
FIRST = (1 << 32) + 1
PENDING, DONE = 1, 2
TOP, AGENT, MARKED = 1, 2, 4
RUN, SENT = TraceId("a" * 32), TraceId("b" * 32)


def run(trace_id: TraceId) -> list[Span]:
    return [
        chat(3, parent=2, answer="4", trace_id=trace_id),
        agent(2, "planner", trace_id=trace_id),
        workflow(1, task="add", error="wrong sum", trace_id=trace_id),
    ]


def notes(spans: list[Span]) -> bytes:
    """Pack the number of spans, then of each: id, parent's id, kind, end, two checksums, number of links."""
    kinds = (MARKED, AGENT | MARKED, TOP | MARKED)
    return pack(">I", len(spans)) + b"".join(
        pack(
            ">8s8sBQIIB",
            bytes.fromhex(one.span_id),
            bytes.fromhex(one.parent_id or "0" * 16),
            bits,
            one.end_ns,
            crc32(b"resource"),
            crc32(one.name.encode()),
            0,
        )
        for one, bits in zip(spans, kinds, strict=True)
    )


def write(path: Path) -> None:
    """Write a journal with a plain span and a run to be forwarded, and a run that was already forwarded."""
    rows = [([span(9)], PENDING, None), (run(RUN), PENDING, RUN), (run(SENT), DONE, SENT)]
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(SEGMENT)
        for number, (spans, state, trace_id) in enumerate(rows):
            body, seq = encode(spans), FIRST + number
            packed = lz4.block.compress(body)
            chunk = (seq, "traces", "", "", time.time_ns(), len(spans), len(body), state)
            db.execute("INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?)", chunk)
            db.execute("INSERT INTO body VALUES (?, ?, ?)", (seq, crc32(packed), packed))
            if trace_id is not None:
                trace = (seq, trace_id, len(spans), len(body), 0, notes(spans))
                db.execute("INSERT INTO trace VALUES (?, ?, ?, ?, ?, ?)", trace)
        db.commit()


def test_what_version_0_1_0_left_is_refused_with_its_unsent_spans_before_anything_listens(
    tmp_path: Path,
) -> None:
    segment = tmp_path / "data" / "ingest" / "00000001.sqlite"
    write(segment)
    before = segment.read_bytes()
    said = refused(tmp_path / "data")
    assert segment.name in said
    assert "4 spans and 0 log records" in said
    assert "run the earlier version until blamespan_items_held is 0" in said
    assert segment.read_bytes() == before


def test_once_the_old_files_are_moved_away_the_service_starts(start_line: StartLine, tmp_path: Path) -> None:
    segment = tmp_path / "data" / "ingest" / "00000001.sqlite"
    write(segment)
    for path in segment.parent.glob("*.sqlite*"):
        path.rename(tmp_path / path.name)
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        assert line.terminate() == 0
