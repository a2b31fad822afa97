"""The command line as scripts use it: formats, exit codes, and damaged files."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli.main import run
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_json
from collector_processor.rebuild.encode import encode, encode_logs
from semconv.model import Event, LogRecord, TraceId
from tests.contract_keys import BENCH_KEYS, VERDICT_KEYS
from tests.e2e.hostile import ESCAPES, failing_run, odd_traces
from tests.e2e.line import environment
from tests.factories import TRACE, chat, span_id

STEPS_KEYS = [
    "run_id",
    "task",
    "output",
    "outcome",
    "complete",
    "agents",
    "dialects",
    "warnings",
    "steps",
    "file",
]
STEP_KEYS = [
    "index",
    "agent",
    "agent_source",
    "kind",
    "trace_id",
    "span_id",
    "name",
    "start_ns",
    "end_ns",
    "status",
    "input",
    "output",
    "target",
    "group",
]
CONVERSATION = {
    "question": "How many?",
    "ground_truth": "12",
    "history": [
        {"role": "user", "name": "user", "content": "How many?"},
        {"role": "assistant", "name": "planner", "content": "Ask the counter."},
        {"role": "assistant", "name": "counter", "content": "There are 11."},
    ],
    "mistake_agent": "counter",
    "mistake_step": "2",
}
BODY = encode(failing_run(TRACE))
OTLP = json.loads(to_json(Signal.TRACES, BODY))
FILES = Path(__file__).parents[2] / "examples" / "files"
Write = Callable[[str, bytes], Path]
Cli = Callable[..., "Statement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Output and exit code of one command."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Standard output, parsed: one object per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def complaint(self) -> str:
        """The only line on standard error."""
        (line,) = self.err.splitlines()
        assert line.startswith("blamespan: "), line
        return line


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return to_file


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Statement:
        code = run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Statement(code=code, out=said.out, err=said.err)

    return call


def in_a_process(*arguments: object, data: bytes = b"") -> Statement:
    command = [sys.executable, "-m", "analyzer", *map(str, arguments)]
    ended = subprocess.run(
        command, input=data, capture_output=True, timeout=300, check=False, env=environment()
    )
    return Statement(code=ended.returncode, out=ended.stdout.decode(), err=ended.stderr.decode())


def as_bytes(document: object) -> bytes:
    return json.dumps(document).encode()


def names(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["agent"], step["kind"]) for step in found["steps"]]


class TestShapes:
    def test_steps_prints_one_object_a_run(self, cli: Cli, write: Write) -> None:
        said = cli("steps", write("a", BODY), "--format", "json")
        (found,) = said.objects
        assert (said.code, said.err, list(found)) == (0, "", STEPS_KEYS)
        assert [list(step) for step in found["steps"]] == [STEP_KEYS] * 2
        assert names(found) == [("planner", "llm"), ("planner", "tool")]
        assert [step["index"] for step in found["steps"]] == [0, 1]

    def test_attribute_names_the_command_that_proves_a_verdict(self, cli: Cli, write: Write) -> None:
        path = write("a run", BODY)
        assert f"blamespan experiment '{path}' --check CHECK -- COMMAND\n" in cli("attribute", path).out
        assert "experiment" not in cli("attribute", write("said", as_bytes(CONVERSATION))).out, "no tape"

    def test_attribute_prints_a_line_a_run_and_the_steps_of_the_first_failure(
        self, cli: Cli, write: Write
    ) -> None:
        files = [write(name, BODY) for name in "abcd"]
        told = cli("attribute", *files).out
        assert f"4 of 4: {files[-1]}: attributed: planner, step 1: " in told
        assert told.count("Who broke it") == 1
        assert "of 4 runs: 4 failed" in told
        assert "1, 2, 3, 4" in told
        assert cli("attribute", "--all", *files).out.count("Who broke it") == 4

    def test_attribute_prints_one_object_a_run(self, cli: Cli, write: Write) -> None:
        said = cli("attribute", write("a", BODY), "--format", "json")
        (found,) = said.objects
        assert (said.code, said.err, list(found)) == (0, "", [*VERDICT_KEYS, "file"])
        assert (found["status"], found["agent"], found["step"]) == ("attributed", "planner", 1)
        assert (found["span_id"], found["trace_id"]) == (span_id(4), TRACE)
        assert found["ranking"]
        assert all(list(one) == ["step", "agent", "probability"] for one in found["ranking"])
        assert all(list(one) == ["step", "quote"] for one in found["evidence"])

    def test_bench_prints_one_object_a_subset(self, cli: Cli, write: Write) -> None:
        said = cli(
            "bench", write("runs.json", as_bytes([CONVERSATION])), "--format", "json", "--method", "signals"
        )
        assert said.code == 0, said.err
        # What is measured beyond the contract may follow.
        assert [list(one)[: len(BENCH_KEYS)] for one in said.objects] == [BENCH_KEYS] * len(said.objects)
        assert {one["n"] for one in said.objects} == {1}
        assert list(said.objects[0]["within"]) == ["1", "3", "5"]

    def test_a_verdict_is_explained_in_one_document(self, cli: Cli, write: Write) -> None:
        path = write("a", BODY)
        (verdict,) = cli("attribute", path, "--format", "json").objects
        said = cli("explain", path)
        assert said.code == 0, said.err
        assert said.out.startswith(f"# Run `{verdict['run_id']}`: {verdict['status']}\n")
        assert f"step {verdict['step']}" in said.out
        assert cli("explain", write("b", as_bytes(CONVERSATION)), "--for-agent").code == 0
        assert "no such file" in cli("explain", "no-such-run").err

    def test_a_conversation_is_numbered_like_its_history(self, cli: Cli, write: Write) -> None:
        (found,) = cli("steps", write("a", as_bytes(CONVERSATION)), "--format", "json").objects
        assert [step["agent"] for step in found["steps"]] == ["user", "planner", "counter"]
        (verdict,) = cli("attribute", write("a", as_bytes(CONVERSATION)), "--format", "json").objects
        assert (list(verdict), verdict["span_id"]) == ([*VERDICT_KEYS, "file"], None)
        assert verdict["status"] in {"attributed", "undetermined"}

    def test_several_files_are_several_lines_and_a_bad_one_costs_no_other(
        self, cli: Cli, write: Write
    ) -> None:
        files = [write("a", BODY), write("b", b"{"), write("c", as_bytes(CONVERSATION))]
        for command in ("steps", "attribute"):
            said = cli(command, *files, "--format", "json")
            assert (said.code, len(said.objects)) == (1, 2)
            assert str(files[1]) in said.complaint
        assert [one["file"] for one in said.objects] == [str(files[0]), str(files[2])]

    def test_a_run_that_did_its_task_has_not_failed_unless_stated(self, cli: Cli, write: Write) -> None:
        path = write("a", encode([chat(1, parent=None, answer="12", agent_name="counter")]))
        (found,) = cli("attribute", path, "--format", "json").objects
        assert (found["status"], found["agent"]) == ("no_failure", None)
        (found,) = cli("attribute", path, "--failed", "--format", "json").objects
        assert found["status"] in {"attributed", "undetermined"}
        hint = "Wrong all the same? blamespan attribute --failed"
        assert hint in cli("attribute", path).out
        assert hint not in cli("attribute", path, "--failed").out


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def in_lines() -> bytes:
    halves = encode(failing_run(TRACE)[:2]), encode(failing_run(TRACE)[2:])
    return b"\n".join(to_json(Signal.TRACES, half) for half in halves) + b"\n"


FORMATS = {
    "OTLP protobuf": BODY,
    "OTLP protobuf with lengths": framed(encode(failing_run(TRACE)[:2]), encode(failing_run(TRACE)[2:])),
    "OTLP JSON": as_bytes(OTLP),
    "OTLP JSON with a byte order mark": b"\xef\xbb\xbf" + as_bytes(OTLP),
    "OTLP JSON, one document a line": in_lines(),
    "OTLP JSON, a list": as_bytes([OTLP]),
    "Jaeger's v3 API": as_bytes({"result": OTLP}),
}
JAEGER, TEMPO = ((FILES / f"{name}.json").read_bytes() for name in ("jaeger", "tempo"))
OTHERS = {
    "Jaeger JSON, a bare trace": (as_bytes(json.loads(JAEGER)["data"][0]), JAEGER),
    "Tempo JSON, version 2": (
        as_bytes({"trace": {"resourceSpans": json.loads(TEMPO)["batches"]}}),
        TEMPO,
    ),
}
"""Forms of the examples that ``test_file_formats.py`` reads, with the example."""


@pytest.mark.parametrize("packing", ["plain", "gzip"])
@pytest.mark.parametrize("name", [*FORMATS, *OTHERS])
def test_every_format_is_recognised_by_its_content(cli: Cli, write: Write, name: str, packing: str) -> None:
    data, usual = OTHERS.get(name) or (FORMATS[name], BODY)
    path = write("no-telling-name", gzip.compress(data) if packing == "gzip" else data)
    (steps,) = cli("steps", path, "--format", "json").objects
    (expected,) = cli("steps", write("usual", usual), "--format", "json").objects
    assert {**steps, "file": ""} == {**expected, "file": ""}


def test_the_content_may_stand_in_logs(cli: Cli, write: Write) -> None:
    bare = chat(3, parent=2, agent_name="planner")
    message = {"gen_ai.system": "x", "content": "I will look it up"}
    record = LogRecord(
        trace_id=TRACE,
        span_id=bare.span_id,
        event=Event(name="gen_ai.assistant.message", time_ns=1, body=message),
    )
    trace = write(
        "trace", encode([one for one in failing_run(TRACE) if one.span_id != bare.span_id] + [bare])
    )
    logs = write("logs", encode_logs([record]))
    as_json = write("logs.json", to_json(Signal.LOGS, logs.read_bytes()))
    (without,) = cli("steps", trace, "--format", "json").objects
    assert "I will look it up" not in json.dumps(without)
    (with_logs,) = cli("steps", trace, "--logs", as_json, "--format", "json").objects
    assert "I will look it up" in json.dumps(with_logs)
    assert names(with_logs) == names(without)


@pytest.mark.parametrize("command", ["steps", "attribute"])
def test_a_dash_reads_standard_input(command: str) -> None:
    said = in_a_process(command, "-", "--format", "json", data=gzip.compress(BODY))
    assert (said.code, said.err, len(said.objects)) == (0, "", 1)


def test_a_closed_pipe_gives_no_traceback(write: Write) -> None:
    path = write("a", as_bytes([CONVERSATION] * 3000))
    command = f"{sys.executable} -m analyzer steps {path} --format json | head -1"
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, timeout=300, check=False, env=environment()
    )
    assert ended.stdout.count(b"\n") == 1
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_characters_gets_plainer_ones(write: Write, encoding: str) -> None:
    path = write("a", as_bytes({"history": [{"role": "clerk", "content": "It is 5 \u20ac."}]}))
    ended = subprocess.run(
        [sys.executable, "-m", "analyzer", "attribute", str(path)],
        capture_output=True,
        timeout=300,
        check=False,
        env={**environment(), "PYTHONIOENCODING": encoding},
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "clerk" in (said := ended.stdout.decode(encoding))
    assert "It is 5 ?." in said
    assert re.search(r"^> ", said, re.MULTILINE)


UNREADABLE = {
    "empty": b"",
    "text": b"hello there",
    "gzip of nothing": gzip.compress(b""),
    "JSON cut short": as_bytes(OTLP)[:-50],
    "protobuf cut short": BODY[:-7],
    "frames cut short": framed(BODY)[:-7],
}
"""Each is refused in one line; ``test_hostile_files.py`` has worse files, and more commands."""


@pytest.mark.parametrize("command", ["steps", "attribute", "replay", "bench"])
@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_one_line_and_exit_1(cli: Cli, write: Write, command: str, name: str) -> None:
    path = write("file", UNREADABLE[name])
    more = ["--endpoint", "http://127.0.0.1:1"] if command == "replay" else []
    said = cli(command, path, *more, "--format", "json")
    assert (said.code, said.out) == (1, ""), said.err
    assert len(said.complaint) < 600
    assert "Traceback" not in said.err


@pytest.mark.parametrize("command", ["steps", "attribute", "replay", "bench"])
@pytest.mark.parametrize("target", ["missing", "."])
def test_a_path_that_is_not_a_file_is_wrong_usage(cli: Cli, command: str, target: str) -> None:
    more = ["--endpoint", "http://127.0.0.1:1"] if command == "replay" else []
    said = cli(command, target, *more)
    # A folder without anything in it is a data set without runs.
    assert (said.code, said.out) == (1 if (command, target) == ("bench", ".") else 2, "")
    assert said.complaint


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["steps"], id="no file"),
        pytest.param(["nonsense"], id="no such command"),
        pytest.param(["steps", "x", "--format", "xml"], id="no such format"),
        pytest.param(["attribute", "x", "--method", "astrology"], id="no such method"),
        pytest.param(["attribute", "x", "--method", "judge"], id="a method that needs a model"),
        pytest.param(["attribute", "x", "--budget-usd", "-1"], id="a budget below nothing"),
        pytest.param(["replay", "x", "--endpoint", "ftp://x"], id="no endpoint"),
        pytest.param(["replay", "x", "--rate", "0"], id="no rate"),
        pytest.param(["--nonsense"], id="no such option"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(cli: Cli, write: Write, arguments: list[str]) -> None:
    write("x", BODY)
    said = cli(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.complaint


ODD = odd_traces()


@pytest.mark.parametrize("name", ODD)
def test_an_odd_trace_has_steps_a_verdict_and_a_warning(cli: Cli, write: Write, name: str) -> None:
    odd = ODD[name]
    path = write("odd", framed(*odd.bodies))
    (steps,) = cli("steps", path, "--format", "json").objects
    assert bool(odd.warning) == any(odd.warning in one for one in steps["warnings"] if odd.warning)
    assert [step["index"] for step in steps["steps"]] == list(range(len(steps["steps"])))
    (verdict,) = cli("attribute", path, "--format", "json").objects
    assert verdict["status"] in {"attributed", "undetermined", "no_failure"}
    for command in ("steps", "attribute"):
        said = cli(command, path)
        assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize("command", ["steps", "attribute"])
def test_no_name_moves_the_cursor_or_changes_a_colour(cli: Cli, write: Write, command: str) -> None:
    said = cli(command, write("odd", encode(failing_run(TRACE, name=ESCAPES))))
    assert said.code == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(said.out + said.err)
    assert "[bold]planner" in said.out.replace("\n", "")  # not taken for rich's markup


@pytest.mark.parametrize("command", ["steps", "attribute"])
@pytest.mark.parametrize("output", ["json", "table"])
def test_half_a_character_is_printed_somehow(write: Write, command: str, output: str) -> None:
    conversation = {**CONVERSATION, "question": "what \ud83d is it"}
    conversation["history"] = [{"role": "assistant", "name": "a\udc00", "content": "it is \ud83d"}] * 2
    path = write("a", as_bytes(conversation))
    said = in_a_process(command, path, "--format", output)
    assert (said.code, said.err) == (0, "")
    assert output == "table" or len(said.objects) == 1


def test_odd_entries_of_a_history_are_steps_all_the_same(cli: Cli, write: Write) -> None:
    (found,) = cli(
        "steps", write("a", b'{"history": [1, null, {"content": [2], "role": "A"}]}'), "--format", "json"
    ).objects
    assert [(step["index"], step["agent"]) for step in found["steps"]] == [
        (0, "unknown"),
        (1, "unknown"),
        (2, "A"),
    ]


def test_a_conversation_without_a_step_cannot_be_attributed(cli: Cli, write: Write) -> None:
    said = cli("attribute", write("a", b'{"history": []}'), "--format", "json")
    assert (said.code, said.objects[0]["status"]) == (1, "unreadable")


def test_ids_in_a_file_are_never_paths(cli: Cli, write: Write, tmp_path: Path) -> None:
    evil = as_bytes({**CONVERSATION, "id": "../../../../tmp/evil", "question_ID": "/etc/passwd"})
    said = cli("attribute", write("a", evil), "--format", "json")
    assert said.code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_trace_of_another_id_is_another_run(cli: Cli, write: Write) -> None:
    both = encode([*failing_run(TRACE), *failing_run(TraceId("b" * 32))])
    assert [one["run_id"] for one in cli("steps", write("a", both), "--format", "json").objects] == [
        TRACE,
        "b" * 32,
    ]
