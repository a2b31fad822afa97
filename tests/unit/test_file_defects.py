"""A file that cannot be read is refused with the place and the reason, in words about the file."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_text import split_text
from analyzer.recordings.formats import FORMATS
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild

EXAMPLES = Path(__file__).parents[2] / "examples" / "files"
HEADER = "TraceId,SpanId,ParentSpanId,SpanName,Timestamp,Duration,StatusCode,SpanAttributes"
ROWS = [
    ["5b8efff798038103d269b633813fc60c", f"{number:016x}", "", "invoke_agent desk", f"2026-01-0{number}", "9"]
    for number in (1, 2, 3)
]


def refusal(data: str) -> str:
    with pytest.raises(UnreadableInput) as refused:
        read_recording(data.encode())
    return str(refused.value)


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        (5, "soon", "row 2, column Duration: not a number: 'soon'"),
        (4, "2026-05-01 25:00:00", "row 2, column Timestamp: not a time: '2026-05-01 25:00:00'"),
        (4, "-5", "row 2, column Timestamp: not a time: '-5'"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(column: int, cell: str, said: str) -> None:
    rows = copy.deepcopy(ROWS)
    rows[1][column] = cell
    data = "\n".join([HEADER, *(",".join([*row, "Unset", "{}"]) for row in rows)]) + "\n"
    assert refusal(data) == f"cannot be read as rows of spans: {said}"


def test_a_bad_cell_of_a_parquet_file_is_named_by_row_and_column(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [dict(zip(HEADER.split(","), row, strict=False)) for row in ROWS]
    rows[2]["Duration"] = "soon"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "spans.parquet")
    with pytest.raises(UnreadableInput, match="row 3, column Duration: not a number: 'soon'"):
        read_recording((tmp_path / "spans.parquet").read_bytes())


def test_a_wrong_value_of_a_document_is_named_by_its_way() -> None:
    document = json.loads((EXAMPLES / "jaeger.json").read_text(encoding="utf-8"))
    document["data"][0]["spans"][1]["startTime"] = {"s": 7}
    said = "record 1, key data[0].spans[1].startTime: an object where a number is expected"
    assert refusal(json.dumps(document)) == f"cannot be read as Jaeger JSON: {said}"


def test_a_document_of_several_is_named_by_its_number() -> None:
    session = json.loads((EXAMPLES / "adk-session.json").read_text(encoding="utf-8"))
    log = (EXAMPLES / "gemini-cli.json").read_text(encoding="utf-8")
    session["events"][0]["timestamp"] = "noon"
    said = "document 2, record 1, key events[0].timestamp: not a time: 'noon'"
    assert refusal(json.dumps([json.loads(log), session])).endswith(said)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from paths(inner, (*at, key))


OTHERS: tuple[Any, ...] = (7, [], {"it": 7}, None, "it", [7])
PYTHONS = re.compile(
    r"Error\(|object has no|object is not|indices must|NoneType|isoformat|argument|'(?:int|str|dict|list)'"
)


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.example)
def test_a_value_of_another_type_is_refused_with_its_place_and_no_words_of_python(one: Any) -> None:
    text = split_text((EXAMPLES / one.example).read_bytes())
    assert text is not None
    for number, path in enumerate(paths(list(text.records))):
        records = copy.deepcopy(list(text.records))
        holder = records
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = OTHERS[number % len(OTHERS)]
        try:
            found = read_recording(json.dumps(records).encode())
            rebuild(found.traces, found.bodies(Signal.LOGS))
        except UnreadableInput as error:
            said = str(error)
            if said.startswith("cannot be read as"):
                assert re.search(r": (?:document \d+, )?record \d+", said), (path, said)
                assert not PYTHONS.search(said), (path, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tool.agent]\nname = "desk"\n', "settings in TOML or INI, not a record of a run"),
        ('# a comment\ntitle = "desk"\n', "settings in TOML or INI, not a record of a run"),
        ("[[runs]]\nid = 1\n", "settings in TOML or INI, not a record of a run"),
        ("[agents]\nname=desk\n", "settings in TOML or INI, not a record of a run"),
        ('<?xml version="1.0"?><trace/>', "XML or HTML, not JSON"),
        ("<testsuite><testcase/></testsuite>", "XML or HTML, not JSON"),
        ("[01/02/26, 10:00] Ann: Hello\n", "the lines of a chat or log, not JSON"),
        ("[2026-05-01 10:00:01] INFO begun\n", "the lines of an application's log, not JSON"),
        ('{\n  // a comment\n  "a": 1\n}', "JSON with comments, the first in line 2: remove them"),
        ("a: 1\nb: [1\n", "YAML that cannot be read: line 3: did not find expected ',' or ']'"),
        ('{"a": 1,}', "broken JSON: "),
        ("[1, 2", "broken JSON: "),
    ],
)
def test_a_file_of_another_form_is_called_by_its_name(text: str, said: str) -> None:
    assert refusal(text).startswith(said)


@pytest.mark.parametrize(
    "text", ["[{role: user, content: High tide?}, {role: assistant, content: At noon.}]"]
)
def test_yaml_that_begins_like_json_is_read(text: str) -> None:
    (found,) = read_recording(text.encode()).requests
    assert "At noon." in str(found)
