"""All formats of messages: right runs accuse nobody, wrong types are refused in a line, work is linear."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_text import split_text
from analyzer.recordings.read_files import read_recording
from analyzer.recordings.recording import Recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from semconv.model import Status
from tests.operations import operations

EXAMPLES = Path(__file__).parents[2] / "examples" / "files"
ERROR = "ConnectionError: the tide service cannot be reached"
NAMES = (
    *("openai-chat", "openai-responses", "anthropic-messages", "bedrock-messages", "gemini-contents"),
    *("adk-session", "langchain-messages", "pydantic-ai-messages", "autogen-messages"),
    *("ag2-chat-messages", "ai-sdk-messages", "agent-framework-messages", "smolagents-steps"),
    *("llama-index-messages", "haystack-messages"),
)
each_format = pytest.mark.parametrize("name", NAMES)
MENDED = (
    ("Error: " + ERROR, ERROR),
    ("Encountered error: " + ERROR, ERROR),
    ('"error": true', '"error": false'),
    ('"is_error": true', '"is_error": false'),
    ('"status": "error"', '"status": "success"'),
    (f'"error": "{ERROR}"', f'"result": "{ERROR}"'),
    ("retry-prompt", "tool-return"),
    ("output-error", "output-available"),
    ("errorText", "output"),
    ('"exception": "ConnectionError"', '"exception": null'),
    (ERROR, "Dover, tomorrow: low 08:05, high 14:20"),
)
"""What makes a tool that works of the tool that fails in each example."""


def example(name: str) -> Any:
    return json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))


def mended(name: str) -> Any:
    text = json.dumps(example(name))
    for failed, works in MENDED:
        text = text.replace(failed, works)
    found = json.loads(text)
    for step in found if name == "smolagents-steps" else []:
        if step.get("error"):
            step |= {"error": None, "observations": MENDED[-1][1]}
    return found


@each_format
def test_a_run_whose_tool_works_accuses_nobody(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(mended(name)), encoding="utf-8")
    verdict = attribute(path)
    assert (verdict.status, verdict.agent) == (Status.NO_FAILURE, None)


WRONG: tuple[Any, ...] = (None, 5, True, "text", [], [5], {}, {"a": [None]}, -1e300, "")


def damaged(found: Any, wrong: Any) -> Iterator[Any]:
    """Yield copies of a document, each with another of its values replaced."""
    plain = json.dumps(found)
    paths: list[tuple[Any, ...]] = [()]
    for path in paths:  # grows while it is walked
        at = found
        for key in path:
            at = at[key]
        if isinstance(at, dict | list):
            paths += [(*path, key) for key in (at if isinstance(at, dict) else range(len(at)))]
    for path in paths[1:]:
        copy = json.loads(plain)
        holder = copy
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = wrong
        yield copy


def read_or_refuse(text: str) -> Recording:
    """Read a file, or check that its refusal is one line; nothing else may be raised."""
    try:
        return read_recording(text.encode())
    except UnreadableInput as error:
        refusal = str(error)
    assert "\n" not in refusal
    return Recording()


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@each_format
def test_a_value_of_another_type_is_read_or_refused_in_one_line(name: str, wrong: Any) -> None:
    for document in damaged(example(name), wrong):
        found = read_or_refuse(json.dumps(document))
        assert all(decode(body).rejected == 0 for body in found.bodies(Signal.TRACES))


def longer(name: str, times: int) -> bytes:
    """Return an example whose longest list has its entries so many times."""
    found = example(name)
    lists = [found, *(found.values() if isinstance(found, dict) else ())]
    longest = max((one for one in lists if isinstance(one, list)), key=len)
    longest[:] = longest * times
    return json.dumps(found).encode()


@each_format
def test_ten_times_the_messages_are_ten_times_the_work(name: str) -> None:
    once, ten_times = longer(name, 20), longer(name, 200)
    work = operations(lambda: read_recording(once))
    assert work > 1_000
    assert operations(lambda: read_recording(ten_times)) < 12 * work


@each_format
def test_deep_contents_are_read_or_refused(name: str) -> None:
    deep = "[" * 900 + "]" * 900
    text = json.dumps(example(name)).replace('"When is high tide at Dover tomorrow?"', deep)
    assert deep in text
    read_or_refuse(text)


@each_format
def test_an_example_may_be_written_one_record_a_line(name: str, tmp_path: Path) -> None:
    found = example(name)
    records = found if isinstance(found, list) else [found]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    assert attribute(path).run_id == attribute(EXAMPLES / f"{name}.json").run_id
    text = split_text(path.read_bytes())
    assert text is not None
    assert len(text.records) == len(records)
