"""A data directory's stores as commit 364b1c5 wrote them: three files, with its SQL."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from analyzer.issues.counting import noted_run
from analyzer.issues.issue_rows import noted_document
from analyzer.issues.labels.kept_run import pack
from collector_processor.otlp import NO_TENANT
from tests.issues import START, judged

RUNS_SQL: Final = """
CREATE TABLE verdict (
  tenant TEXT NOT NULL, run_id TEXT NOT NULL, version INTEGER NOT NULL,
  failure_id TEXT NOT NULL, status TEXT NOT NULL, agent TEXT, step INTEGER, span_id TEXT, trace_id TEXT,
  service TEXT NOT NULL, is_provisional INTEGER NOT NULL, decided_ns INTEGER NOT NULL, document TEXT NOT NULL,
  PRIMARY KEY (tenant, run_id, version)
) WITHOUT ROWID;
CREATE INDEX verdict_by_time ON verdict (decided_ns);
CREATE TABLE analysed (
  tenant TEXT NOT NULL, trace_id TEXT NOT NULL, analyses INTEGER NOT NULL, upto_seq INTEGER NOT NULL,
  PRIMARY KEY (tenant, trace_id)
) WITHOUT ROWID;
CREATE TABLE run_key (
  tenant TEXT NOT NULL, key TEXT NOT NULL, trace_id TEXT NOT NULL, PRIMARY KEY (tenant, key, trace_id)
) WITHOUT ROWID;
CREATE TABLE outbox (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, signal TEXT NOT NULL, body BLOB NOT NULL
);
CREATE TABLE rewrite (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);
ALTER TABLE rewrite ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
ALTER TABLE rewrite ADD COLUMN late BLOB;
CREATE TABLE run_part (
  tenant TEXT NOT NULL, trace_id TEXT NOT NULL, run_id TEXT NOT NULL, digest BLOB NOT NULL,
  PRIMARY KEY (tenant, trace_id, run_id)
) WITHOUT ROWID;
CREATE INDEX verdict_by_run ON verdict (run_id);
CREATE TABLE spending (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, usd REAL NOT NULL);
PRAGMA user_version=4;
"""
LABELS_SQL: Final = """
CREATE TABLE run (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, run_id TEXT NOT NULL, is_failure INTEGER NOT NULL,
  is_labelled INTEGER NOT NULL DEFAULT 0, kept_ns INTEGER NOT NULL, size INTEGER NOT NULL,
  packed BLOB NOT NULL
);
CREATE UNIQUE INDEX run_by_id ON run (tenant, run_id);
CREATE TABLE label (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, run_id TEXT NOT NULL, kind TEXT NOT NULL,
  version INTEGER NOT NULL, service TEXT NOT NULL, labelled_ns INTEGER NOT NULL,
  agent TEXT, step INTEGER, span_id TEXT
);
PRAGMA user_version=1;
"""
ISSUES_SQL: Final = """
CREATE TABLE issue (
  tenant TEXT NOT NULL, id TEXT NOT NULL, mark TEXT NOT NULL, state TEXT NOT NULL, since_ns INTEGER NOT NULL,
  first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, count INTEGER NOT NULL, runs TEXT NOT NULL,
  muted_until_ns INTEGER NOT NULL, PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE TABLE pending (
  tenant TEXT NOT NULL, run_id TEXT NOT NULL, noted_ns INTEGER NOT NULL, document TEXT NOT NULL,
  PRIMARY KEY (tenant, run_id)
) WITHOUT ROWID;
CREATE TABLE run (
  tenant TEXT NOT NULL, run_id TEXT NOT NULL, service TEXT NOT NULL, agents TEXT NOT NULL, blamed TEXT,
  step INTEGER, mark TEXT, issue TEXT, decided_ns INTEGER NOT NULL, label TEXT, label_agent TEXT,
  label_step INTEGER,
  PRIMARY KEY (tenant, run_id)
) WITHOUT ROWID;
CREATE TABLE agent_day (
  tenant TEXT NOT NULL, service TEXT NOT NULL, agent TEXT NOT NULL, day INTEGER NOT NULL,
  took_part INTEGER NOT NULL, blamed INTEGER NOT NULL, PRIMARY KEY (tenant, service, agent, day)
) WITHOUT ROWID;
CREATE TABLE watch (
  tenant TEXT NOT NULL, service TEXT NOT NULL, agent TEXT NOT NULL, begun_day INTEGER NOT NULL,
  last_day INTEGER NOT NULL, hits INTEGER NOT NULL, n INTEGER NOT NULL, sums TEXT NOT NULL,
  is_alarm INTEGER NOT NULL, calm_runs INTEGER NOT NULL, alarm_ns INTEGER NOT NULL, run_id TEXT NOT NULL,
  PRIMARY KEY (tenant, service, agent)
) WITHOUT ROWID;
CREATE TABLE outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT, target TEXT NOT NULL, issue TEXT NOT NULL, noted_ns INTEGER NOT NULL,
  document TEXT NOT NULL
);
CREATE TABLE target (name TEXT PRIMARY KEY, attempts INTEGER NOT NULL, next_ns INTEGER NOT NULL);
CREATE TABLE told (target TEXT NOT NULL, at_ns INTEGER NOT NULL);
CREATE TABLE cursor (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
PRAGMA user_version=1;
"""
"""The first version of this file; the second added two columns to ``run``."""
RUNS_OF_A_FILE: Final = 2_500
"""More rows than are copied at once."""


def write_older_files(folder: Path) -> None:
    """Write three files with data in every table; runs 1 and 2 are judged, 2 is not counted yet."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"run-{number}" for number in range(1, RUNS_OF_A_FILE + 1)]
    trajectory, _ = judged(1, "clerk")
    noted = noted_run(NO_TENANT, *judged(2, "clerk"), lambda text: text)
    mark = {"service": "shop", "agent": "clerk", "mode": "", "kind": "tool", "tool": "add", "error": "E"}
    packed = pack(trajectory, lambda text: text) or b""
    verdict = ("attributed", "clerk", 0, "b" * 16, "a" * 32, "shop", 0, START, json.dumps({"reason": "é\0"}))
    _write(
        folder / "runs.sqlite",
        RUNS_SQL,
        verdict=[("", name, 1, f"f-{name}", *verdict) for name in names],
        analysed=[("", "a" * 32, 2, 7)],
        run_key=[("", "team", "a" * 32)],
        outbox=[(5, "x=y", "traces", b"\1\0\2")],
        rewrite=[(9, b"new", "", None), (10, b"new", "x=y", b"late")],
        run_part=[("", "a" * 32, "run-1", b"d")],
        spending=[(3, START, 0.25)],
    )
    _write(
        folder / "labels.sqlite",
        LABELS_SQL,
        run=[
            (number, "", name, 1, number == 1, 1, len(packed), packed)
            for number, name in enumerate(names[:9], 1)
        ],
        label=[(4, "", "run-1", "rejected", 1, "shop", START, None, None, None)],
    )
    _write(
        folder / "issues.sqlite",
        ISSUES_SQL,
        issue=[("", "f" * 16, json.dumps(mark), "new", START, START, START, 1, json.dumps(["run-9"]), 0)],
        pending=[("", "run-2", START, noted_document(noted))],
        run=[
            (
                "",
                "run-9",
                "shop",
                '["clerk"]',
                "clerk",
                0,
                json.dumps(mark),
                "f" * 16,
                START,
                None,
                None,
                None,
            ),
            ("", "run-8", "shop", '["clerk"]', None, None, None, None, START, None, None, None),
        ],
        agent_day=[("", "shop", "clerk", START // (86_400 * 10**9), 2, 1)],
        watch=[("", "shop", "clerk", 0, 0, 1, 2, "[0.0]", 1, 0, START, "run-9")],
        outbox=[(40, "hook", "/x", START, "{}"), (41, "hook", "/x", START, "{}")],
        target=[("hook", 2, START)],
        told=[("hook", START)],
        cursor=[("labels", 3)],
    )
    with closing(sqlite3.connect(folder / "issues.sqlite")) as db:
        db.execute("DELETE FROM outbox WHERE id = 41")  # told: its number is used up
        db.commit()


def _write(path: Path, schema: str, **tables: list[tuple[Any, ...]]) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"PRAGMA journal_mode=WAL; {schema}")
        for name, rows in tables.items():
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        db.commit()
