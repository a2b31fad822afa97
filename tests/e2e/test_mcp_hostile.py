"""Hostile lines on standard input of ``blamespan mcp``: it answers what can be answered, and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from collector_processor.settings import load_settings
from collector_processor.store.verdicts import RunStore

pytest.importorskip("mcp", reason="an extra")


def request(number: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


def call(number: int, name: str, **arguments: Any) -> bytes:
    return request(number, "tools/call", name=name, arguments=arguments)


HELLO = request(
    1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x", "version": "1"}
)
READY = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
UNREADABLE = (
    b"no JSON",
    b"{}",
    b"null",
    b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":{"a":1},"method":3}',
    b'{"jsonrpc":"2.0","id":1e400,"method":"tools/list"}',
    call(2, "get_verdict", run_id="\ud800"),
    b"\xff\xfe",
)
REFUSED = {
    10: call(10, "get_verdict", run_id="x" * 2_000_000),
    11: call(11, "get_steps", run_id="a", first=10**30, limit=-(10**30)),
    12: call(12, "get_steps", run_id=["a"]),
    13: call(13, "list_failed_runs", since="9" * 400 + "d"),
    14: call(14, "list_failed_runs", bounds={"evil": 1}),
    15: call(15, "list_failed_runs", bounds={"min_steps": 10**30}),
    16: call(16, "list_failed_runs", after="'; DROP TABLE verdict"),
    17: call(17, "list_failed_runs", search="\0(*)["),
    18: call(18, "label_run", run_id="a", agent="b"),
    19: call(19, "no_such_tool"),
    20: call(20, "get_workflow", service="x" * 100_000, workflow="\0"),
    21: call(21, "get_workflow", service=["a"], workflow=None),
    22: call(22, "compare_runs", run_id="\0", other_run_id="'; DROP TABLE verdict", limit=-(10**30)),
    23: call(23, "get_lineage", run_id="../../etc/passwd", value="x" * 100_000),
    24: call(24, "explain_run", run_id={"a": 1}),
    25: call(25, "analyse_text", content="[" * 99_999),
    26: call(26, "analyse_text", content="x" * 100_001),
    27: call(27, "pin_run", run_id="a", command=["x" * 100_000]),
    28: call(28, "pin_run", run_id="a", command="rm -rf /", allow_tools=[[]]),
    29: call(29, "list_passing_runs", since="yesterday", limit=10**30),
}


def test_hostile_lines_are_refused_briefly_and_the_next_ones_are_answered(tmp_path: Path) -> None:
    """``label_run`` is unknown too: without ``--allow-writes`` there is no tool that changes anything."""
    place = load_settings({}, directory=tmp_path, data_dir=tmp_path).store_place
    assert isinstance(place, Path)
    with closing(RunStore(place)):
        pass
    command = [sys.executable, "-m", "analyzer", "mcp", "--data-dir", str(tmp_path)]
    lines = [HELLO, READY, *UNREADABLE, *REFUSED.values(), call(30, "list_issues", limit=10**18)]
    answers: dict[Any, dict[str, Any]] = {}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ, cwd=tmp_path
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"".join(line + b"\n" for line in lines))
        server.stdin.flush()
        while not {30, *REFUSED} <= answers.keys():
            line = server.stdout.readline()
            assert line, "it ended"
            assert len(line) < 10_000
            answer = json.loads(line)
            answers[answer.get("id")] = answer
        server.stdin.close()
        assert server.wait(timeout=60) == 0
    assert all(answers[number]["result"]["isError"] for number in REFUSED)
    assert not answers[30]["result"].get("isError")
