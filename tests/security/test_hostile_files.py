"""Hostile files as input of every command that reads one: each is read, or refused in a few words.

Bombs and endless files are given up at a limit, nothing is run, no name in a file becomes a path, and no
command writes a traceback.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.cli.commands import replay
from analyzer.cli.main import run
from semconv.attributes import GEN_AI_AGENT_NAME as AGENT_NAME
from semconv.attributes import GEN_AI_OPERATION_NAME as OPERATION

_MIB: Final = 1 << 20
MOST_TOLD: Final = 1_500
"""Characters of a refusal."""
HERE: Final = "FILE"


def bomb(mebibytes: int) -> bytes:
    """Return gzip that unpacks to many zeros, a thousandth of them in size: members of 100 MiB and a rest."""
    members, rest = divmod(mebibytes, 100)
    return gzip.compress(bytes(100 * _MIB)) * members + gzip.compress(bytes(rest * _MIB))


def span(number: int, parent: int, name: str, **attributes: str) -> dict[str, Any]:
    told = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    return {
        "traceId": "a" * 32,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}",
        "name": name,
        "attributes": told,
    }


def otlp(*spans: Mapping[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def said(name: Any, content: Any) -> dict[str, Any]:
    return {"role": "assistant", "name": name, "content": content}


HOSTILE: Final[Mapping[str, bytes]] = {
    "nested lists": b"[" * 1_000_000,
    "nested objects": b'{"a":' * 200_000,
    "a number of a million digits": b'{"resourceSpans":[' + b"9" * _MIB + b"]}",
    "no number": b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":NaN}]}]}]}',
    "lone surrogates": otlp(span(1, 0, "\ud800", **{OPERATION: "chat", AGENT_NAME: "\udfff"})),
    "spans in a circle": otlp(span(1, 2, "a", **{OPERATION: "chat"}), span(2, 1, "b", **{OPERATION: "chat"})),
    "names that are paths": json.dumps([said("../../../tmp/x", "a"), said("/etc/passwd\0", "b")]).encode(),
    "terminal escapes": json.dumps([said("a\x1b]0;x\x07", "\x1b[2J\u202e"), said("b\n#x", "\0")]).encode(),
    "aliases in YAML": b"a: &a [x,x]\nb: &b [*a,*a]\nhistory: *b\n",
    "nested YAML": b"- " * 100_000,
    "nothing": b"",
    "zeros": bytes(10_000),
    "gzip without an end": gzip.compress(b'{"resourceSpans":[]}')[:-9],
    "gzip in gzip": gzip.compress(bomb(2)),
    "lists for objects": b'{"resourceSpans":{"a":1}}',
    "a nested resource": b'{"resourceSpans": ' + b"[" * 300_000,
    "spans that are numbers": b'{"resourceSpans": [{"scopeSpans": [{"spans": [1, 2]}]}]}',
    "no UTF-8": b'{"resourceSpans": "\xff\xfe"}',
    "only spaces": b"  \n\n ",
    "objects for texts": b'{"history":[{"role":1,"content":{"a":[]}},{"role":"x","content":null}]}',
    "Jaeger's, wrong": b'{"data":[{"traceID":5,"spans":[{"spanID":[],"tags":{"a":1}}],"processes":[]}]}',
    "Tempo's, wrong": b'{"batches":[{"scopeSpans":3}]}',
    "Langfuse's, wrong": b'{"id":"x","observations":[{"id":null,"startTime":"never"}]}',
    "a label that is none": b'{"run_id":"../x","label":{"step":1e400},"history":[{"role":"a"}]}',
    "Parquet": b"PAR1" + b"\xff" * 1_000 + b"PAR1",
    "zip": b"PK\x03\x04" + bytes(100),
    "lines of nothing": b'{"a":1}\n' * 10_000,
}
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "steps": ["steps", HERE],
    "attribute": ["attribute", HERE, "--method", "signals"],
    "diff": ["diff", HERE, HERE],
    "lint": ["lint", HERE],
    "map": ["map", HERE, "--out", "-"],
    "replay": ["replay", HERE, "--endpoint", "http://127.0.0.1:9"],
    "gateway": ["gateway", "--tape", HERE, "--trial", "refused"],  # after the file is read
    "experiment": ["experiment", HERE, "--dry-run", "--", "blamespan-must-not-run"],
    "retry": ["experiment", HERE, "--retry", "--dry-run", "--", "blamespan-must-not-run"],
    "inject": ["inject", HERE, "--dry-run", "--", "blamespan-must-not-run"],
    "bench": ["bench", HERE, "--method", "signals"],
    "train": ["train", HERE, "--out", "new.json"],
    "promote": ["train", "--promote", HERE],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_read_or_refused_in_a_few_words(
    name: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(replay, "_PAUSE_S", 0.0)  # nothing listens on the port: it waits 30 times
    (tmp_path / "hostile").write_bytes(HOSTILE[name])
    code = run([str(tmp_path / "hostile") if word == HERE else word for word in COMMANDS[command]])
    printed = capfd.readouterr()
    assert code in {0, 1, 2}
    assert "Traceback" not in printed.err
    assert len(printed.err) < MOST_TOLD, printed.err[:3_000]
    assert not {"\x1b", "\x07", "\u202e", "\0"} & set(printed.out + printed.err)
    assert {path.name for path in tmp_path.iterdir()} <= {"hostile", "new.json"}
