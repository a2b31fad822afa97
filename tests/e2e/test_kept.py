"""Kept runs can be opened, checked and read by commands, even after a kill, and contain no secrets."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import zstandard

from collector_processor.rebuild.encode import encode
from semconv.model import Span, TraceId
from tests.backends.supervise import free_ports, wait_until
from tests.e2e.line import StartLine
from tests.e2e.test_labels import cli
from tests.e2e.traffic import send
from tests.factories import agent, chat, said, tool, workflow

SECRET: Final = "sk-proj-" + "Ab1" * 24 + "T3BlbkFJ" + "Cd2" * 24
PROMPT: Final = "You are the clerk of a lighthouse."
TENANT: Final = {"x-scope-orgid": "acme"}
NO_HEADERS: Final[Mapping[str, str]] = {}
RUNS: Final = 12


def trace_id(number: int) -> TraceId:
    return TraceId(f"{number + 0xA0:02x}" * 16)


def run(number: int, *, fails: bool) -> list[Span]:
    """Return a run whose agent gets a secret in its prompt and repeats it to a tool."""
    heard = [said("system", PROMPT), said("user", f"the key is {SECRET}")]
    spans = [
        chat(3, parent=2, heard=heard, answer=f"I use {SECRET} for lamp {number}."),
        tool(4, "light", parent=2, arguments=json.dumps({"key": SECRET}), error="no oil" if fails else None),
        agent(2, "clerk", end=60),
        workflow(1, task="Light it.", answer="Lit.", error="it stayed dark" if fails else None),
    ]
    return [replace(span, trace_id=trace_id(number)) for span in spans]


def in_store(data: Path) -> tuple[list[str], list[str], bytes]:
    """Return the runs with a final verdict, those with kept spans, and the whole content of the store's
    files."""
    with closing(sqlite3.connect(data / "store.sqlite")) as db:
        judged = db.execute("SELECT DISTINCT run_id FROM verdict WHERE NOT is_provisional").fetchall()
        kept = db.execute("SELECT run_id, packed FROM kept_spans").fetchall()
    raw = b"".join(path.read_bytes() for path in data.glob("store.sqlite*"))
    unpacked = b"".join(zstandard.ZstdDecompressor().decompress(packed) for _, packed in kept)
    return sorted(one for (one,) in judged), sorted(one for one, _ in kept), raw + unpacked


def test_runs_are_opened_after_a_kill_without_their_secrets_and_deleted_by_their_tenant(
    start_line: StartLine, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    line = start_line()
    for number in range(RUNS):
        send(line, encode(run(number, fails=number % 2 == 0)), headers=TENANT)
    line.verdict(trace_id(0))
    line.server.process.kill()
    line.server.process.wait(timeout=300)

    judged, kept, _ = in_store(data)
    assert judged == kept  # in one transaction: no verdict without its spans

    line = start_line()
    for number in range(RUNS):
        line.verdict(trace_id(number))
    judged, kept, held = in_store(data)
    assert judged == kept == sorted(trace_id(number) for number in range(RUNS))
    assert PROMPT.encode() in held
    assert SECRET.encode() not in held

    for number, status in ((0, "attributed"), (1, "no_failure")):
        verdict = line.run(trace_id(number))
        assert verdict is not None
        assert verdict["status"] == status
        code, page = line.ask(f"/runs/{trace_id(number)}")
        assert (code, f"for lamp {number}" in page, PROMPT in page) == (200, True, True)
        assert "1 secret redacted" in page
        code, otlp = line.ask(f"/api/runs/{trace_id(number)}/otlp", headers=TENANT)
        (group,) = json.loads(otlp)["resourceSpans"]
        assert (code, sum(len(scope["spans"]) for scope in group["scopeSpans"])) == (200, 4)

    shown = cli(data, "steps", trace_id(1)[:6], "--format", "json").json
    assert (shown["run_id"], [step["agent"] for step in shown["steps"]]) == (trace_id(1), ["clerk", "clerk"])
    assert cli(data, "attribute", trace_id(0), "--format", "json").json["status"] == "attributed"
    explained = cli(data, "explain", trace_id(0)[:6], "--for-agent")
    assert (explained.code, f"blamespan label {trace_id(0)} wrong" in explained.out) == (0, True)
    exported = tmp_path / "run.json"
    assert cli(data, "runs", "export", trace_id(0), "--out", exported).code == 0
    assert cli(data, "steps", exported, "--format", "json").json["run_id"] == trace_id(0)

    stranger = {"x-scope-orgid": "other"}
    for verb, path in (("GET", f"/api/runs/{trace_id(0)}/otlp"), ("DELETE", f"/api/runs/{trace_id(0)}")):
        assert line.ask(path, verb, stranger)[0] == 404
    assert line.ask("/api/runs?all=yes", "DELETE", stranger) == (200, '{"deleted": 0}')
    assert line.ask(f"/api/runs/{trace_id(0)}", "DELETE", TENANT) == (200, '{"deleted": 1}')
    assert line.run(trace_id(0)) is None
    assert cli(data, "runs", "delete", trace_id(1), "--format", "json").json == {"deleted": 1}
    assert line.ask("/api/runs", "DELETE", TENANT)[0] == 400
    assert line.ask("/api/runs?all=yes", "DELETE", TENANT) == (200, f'{{"deleted": {RUNS - 2}}}')
    assert line.runs() == []
    assert line.terminate() == 0
    judged, kept, held = in_store(data)
    assert (judged, kept, PROMPT.encode() in held) == ([], [], False)


MARK: Final = "ZQX-770041"


def traces_of(mark: str, folder: Path) -> list[str]:
    """Return where a text still is: in the store's files or the log as it is, or in a packed column.

    The journal is left out: it buffers spans as they came, and deletes whole segments.
    """
    files = [*(folder / "data").glob("store.sqlite*"), *folder.glob("*.log")]
    found = [path.name for path in files if mark.encode() in path.read_bytes()]
    with closing(sqlite3.connect(folder / "data" / "store.sqlite")) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = db.execute(f"SELECT * FROM {table}")
            found += [table for row in rows for value in row if mark in unpacked(value)]
    return found


def unpacked(value: object) -> str:
    if not isinstance(value, bytes):
        return str(value)
    for reader in (zlib.decompress, gzip.decompress, zstandard.ZstdDecompressor().decompress):
        with suppress(Exception):
            return reader(value).decode(errors="replace")
    return value.decode(errors="replace")


def test_the_values_of_a_deleted_run_are_left_nowhere(start_line: StartLine, tmp_path: Path) -> None:
    """Its lineage and the facts that its workflow's runs are compared by go with it."""
    line = start_line(notify_url=f"http://127.0.0.1:{free_ports(1)[0]}/", notify_text="full")
    spans = [
        chat(3, parent=2, answer="", calls=[("lamp", "{}", "c1")]),
        tool(4, "lamp", parent=2, arguments="{}", result=json.dumps({"id": MARK, "oil": 71.25})),
        chat(5, parent=2, answer=f"Lamp {MARK} has 17.52 l of oil."),
        agent(2, "clerk", end=60),
        workflow(1, task="Which lamp?", answer=f"Lamp {MARK} has 17.52 l of oil.", error="wrong lamp"),
    ]
    send(line, encode([replace(span, trace_id=trace_id(0)) for span in spans]), headers=TENANT)
    verdict = line.verdict(trace_id(0))
    assert verdict["lineage"][0]["value"] == MARK
    assert traces_of(MARK, tmp_path)
    assert line.ask(f"/api/runs/{trace_id(0)}", "DELETE", TENANT) == (200, '{"deleted": 1}')
    assert line.terminate() == 0
    assert traces_of(MARK, tmp_path) == []


def test_a_passed_runs_text_is_found_and_no_secret_of_it_whoever_writes_the_index(
    start_line: StartLine, tmp_path: Path
) -> None:
    line = start_line()
    send(line, encode(run(1, fails=False)), headers=TENANT)
    line.verdict(trace_id(1))

    def found(text: str) -> list[str]:
        _, answer = line.ask(f"/api/runs?q={quote(text)}", headers=TENANT)
        return [one["run_id"] for one in json.loads(answer)["runs"]]

    wait_until(lambda: found("for LAMP 1."), what="the text of the run's step")
    for _ in range(2):
        assert found("for LAMP 1.") == [trace_id(1)]
        assert found(SECRET) == found(SECRET[10:40]) == found(SECRET[-20:]) == []
        told = cli(tmp_path / "data", "runs", "index", "--afresh", "--format", "json")
        assert told.json == {"indexed": 1}
