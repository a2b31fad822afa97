"""Messages in shapes that no dialect knows: typed blocks, and histories that hold the answer too.

Each is a run of an invented framework of another language; steps, agents and answer are the same in all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from semconv.model import AttributeValue, Span, StepKind, Trajectory
from tests.factories import openinference, ordered, span

SYSTEM, QUESTION, RESULT, ANSWER = "You are the tide clerk.", "When is high tide?", "14:20", "At 14:20."
ASKED = {"id": "c1", "type": "function", "function": {"name": "tides", "arguments": "{}"}}
CALLED = [("tide clerk", ["tides"]), ("tide clerk", [])]
Said = Mapping[str, Any]
ASKING: list[Said] = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": "", "tool_calls": [ASKED]},
]
ANSWERING: list[Said] = [
    *ASKING,
    {"role": "tool", "tool_call_id": "c1", "content": RESULT},
    {"role": "assistant", "content": ANSWER},
]


def call(number: int, attributes: Mapping[str, AttributeValue], *, tokens: bool = True) -> Span:
    counted = {"acme.usage.input_tokens": 9, "acme.usage.output_tokens": 3} if tokens else {}
    at: Any = {"start": number * 20, "end": number * 20 + 9}
    return span(number, parent=1, name="acme.generate", attributes={**attributes, **counted}, **at)


def run(*calls: Mapping[str, AttributeValue], tokens: bool = True) -> Trajectory:
    root = span(1, start=0, end=900, name="POST /ask")
    return ordered(root, *(call(number, each, tokens=tokens) for number, each in enumerate(calls, start=2)))


def blocks(**keys: str) -> Callable[[Sequence[Said]], str]:
    """Return a writer of messages whose content is blocks; keys of the kind and of the text."""
    ((kind, text),) = keys.items()

    def block(content: str) -> dict[str, str]:
        return {kind: "TEXT", text: content}

    def write(messages: Sequence[Said]) -> str:
        said = [{**each, "content": [block(each["content"])] if each["content"] else []} for each in messages]
        return json.dumps(said)

    return write


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(json.dumps, id="texts"),
        pytest.param(blocks(type="text"), id="type and text"),
        pytest.param(blocks(kind="value"), id="kind and value"),
        pytest.param(blocks(contentType="textContent"), id="contentType and textContent"),
        pytest.param(blocks(content_type="content"), id="content_type and content"),
    ],
)
def test_blocks_with_a_type_are_texts(write: Callable[[Sequence[Said]], str]) -> None:
    found = run(
        {"acme.input": write(ASKING[:2]), "acme.output": write(ASKING[2:])},
        {"acme.input": write(ANSWERING[:4]), "acme.output": write(ANSWERING[4:])},
    )
    assert (found.task, found.output) == (QUESTION, ANSWER)
    assert [(step.agent, [each.name for each in step.calls]) for step in found.steps] == CALLED
    assert "TEXT" not in "".join(step.input + step.output for step in found.steps)


@pytest.mark.parametrize(
    ("asking", "answering"),
    [
        pytest.param({"acme.output": ASKING}, {"acme.output": ANSWERING}, id="as the output"),
        pytest.param({"acme.messages": ASKING}, {"acme.messages": ANSWERING}, id="on neither side"),
        pytest.param(
            {"acme.input": ASKING[:2], "acme.output": ASKING},
            {"acme.input": ANSWERING[:4], "acme.output": ANSWERING},
            id="beside the input",
        ),
        pytest.param(
            {"acme.result": {"state": {"messages": ASKING}}},
            {"acme.result": {"state": {"messages": ANSWERING}}},
            id="in a state",
        ),
    ],
)
def test_the_answer_is_what_a_history_ends_with(asking: dict[str, Any], answering: dict[str, Any]) -> None:
    found = run(*({key: json.dumps(value) for key, value in each.items()} for each in (asking, answering)))
    assert [(step.agent, [each.name for each in step.calls]) for step in found.steps] == CALLED
    assert found.output == ANSWER
    assert [ANSWER in step.input for step in found.steps] == [False, False]
    assert QUESTION not in found.steps[-1].output


def test_a_history_that_ends_with_a_question_is_an_input() -> None:
    said = json.dumps(ANSWERING[:4])
    steps = run({"acme.output": said, "acme.completion": ANSWER}).steps
    (step,) = [each for each in steps if each.kind is StepKind.LLM]
    assert step.output == ANSWER
    assert RESULT in step.input


def test_of_a_group_chats_history_only_the_last_speakers_words_are_the_answer() -> None:
    said = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "name": "clerk", "content": "Ask the pilot."},
        {"role": "assistant", "name": "pilot", "content": ANSWER},
    ]
    (step,) = run({"acme.messages": json.dumps(said)}).steps
    assert step.output == ANSWER
    assert "Ask the pilot." in step.input


@pytest.mark.parametrize("key", ["acme.output", "acme.messages", "acme.state"])
def test_a_span_that_only_keeps_the_history_is_no_call(key: str) -> None:
    kept = {key: json.dumps(ANSWERING)}
    called = {"acme.input": json.dumps(ANSWERING[:4]), "acme.output": json.dumps(ANSWERING[4:])}
    root = span(1, start=0, end=900, name="POST /ask")
    found = ordered(root, call(2, called), call(3, kept, tokens=False))
    assert [step.output for step in found.steps] == [ANSWER]


def test_a_tools_result_with_a_kind_and_a_value_stays_a_result() -> None:
    rows = [{"kind": "TEXT", "value": "14:20", "port": "Dover"}, {"kind": "height", "value": "6 m"}]
    said = [*ANSWERING[:3], {"role": "tool", "tool_call_id": "c1", "content": json.dumps(rows)}]
    (step,) = run({"acme.input": json.dumps(said), "acme.output": json.dumps(ANSWERING[4:])}).steps
    assert '"port": "Dover"' in step.input
    assert '"height"' in step.input


ROWS = [{"port": "Dover", "high": "14:20"}, {"port": "Calais", "high": "14:50"}]


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(ROWS, id="rows"),
        pytest.param({"columns": ["port", "high"], "data": [["Dover", "14:20"]]}, id="columns apart"),
        pytest.param({"port": ["Dover", "Calais"], "high": ["14:20", "14:50"]}, id="by column"),
        pytest.param([["port", "high"], ["Dover", "14:20"]], id="lists"),
        pytest.param([{"source": "table 3", "high": "14:20"}], id="a key of messages"),
    ],
)
def test_a_table_is_an_answer(table: Any) -> None:
    answer = json.dumps(table)
    found = run({"acme.input": json.dumps(ANSWERING[:4]), "acme.output": answer})
    assert found.steps[-1].output == found.output == answer


def test_columns_stay_with_their_table() -> None:
    answer = json.dumps({"columns": ["port", "high"], "data": [["Dover", "14:20"]]})
    around = {"input.value": QUESTION, "output.value": answer, "output.mime_type": "application/json"}
    called = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": QUESTION,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
    }
    found = ordered(
        openinference(1, "CHAIN", attributes=around), openinference(2, "LLM", parent=1, attributes=called)
    )
    assert found.output == answer
