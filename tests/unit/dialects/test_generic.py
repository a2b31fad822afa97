"""Runs that no dialect reads: invented frameworks, ordinary web traffic and hostile values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv.dialects import Surroundings
from semconv.dialects.generic.clues import clues_of
from semconv.dialects.generic.infer import infer
from semconv.model import Attributes, Span, Trace, Trajectory
from tests.factories import span
from tests.operations import operations

QUESTION = "How much power does the pump draw?"
LEAD, ANALYST = "You are the lead. Delegate.", "You are the analyst. Compute."


def asks(name: str, call_id: str = "c1", **arguments: str) -> Mapping[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}


def says(text: str) -> Mapping[str, Any]:
    return {"role": "assistant", "content": text}


def heard(system: str, *others: Mapping[str, Any]) -> str:
    return json.dumps([{"role": "system", "content": system}, {"role": "user", "content": QUESTION}, *others])


def ordered(*spans: Span) -> Trajectory:
    return order(repair(Trace(spans=spans)))


def steps(trajectory: Trajectory) -> list[tuple[str, str, str | None]]:
    return [(str(step.kind), step.agent, step.target) for step in trajectory.steps]


EXPECTED = [
    ("llm", "lead", None),
    ("handoff", "lead", "analyst"),
    ("llm", "analyst", None),
    ("tool", "analyst", "measure"),
    ("llm", "analyst", None),
]
"""A lead hands over to an analyst, who measures and answers."""


def stated() -> list[Span]:
    """A framework that writes kinds and names in its own namespace, in camel case."""

    def call(number: int, parent: int, start: int, system: str, said: Mapping[str, Any]) -> Span:
        attributes: Attributes = {
            "acme.spanType": "llm_request",
            "acme.llm.request": heard(system),
            "acme.llm.response": json.dumps(said),
            "acme.llm.inputTokens": 50,
            "acme.llm.outputTokens": 7,
        }
        return span(number, parent=parent, start=start, end=start + 5, name="llm", attributes=attributes)

    def worker(number: int, start: int, name: str) -> Span:
        attributes = {"acme.spanType": "agent", "acme.agentName": name}
        return span(number, parent=1, start=start, end=start + 30, name="worker", attributes=attributes)

    def function(number: int, parent: int, start: int, name: str, result: str) -> Span:
        attributes = {"acme.spanType": "function", "acme.functionName": name, "acme.functionResult": result}
        return span(number, parent=parent, start=start, end=start + 2, name="fn", attributes=attributes)

    return [
        span(1, start=0, end=90, name="job"),
        worker(2, 1, "lead"),
        call(3, 2, 2, LEAD, asks("transfer_to_analyst")),
        function(4, 2, 10, "transfer_to_analyst", "ok"),
        worker(5, 40, "analyst"),
        call(6, 5, 41, ANALYST, asks("measure", pump="P1")),
        function(7, 5, 50, "measure", "9600 W"),
        call(8, 5, 60, ANALYST, says("It draws 6,900 W.")),
    ]


def by_functions() -> list[Span]:
    """Hand-written spans around functions without kinds; a call's tokens are in its JSON."""

    def call(number: int, parent: int, start: int, system: str, said: Mapping[str, Any]) -> Span:
        response = {"choices": [{"message": said}], "usage": {"prompt_tokens": 50, "completion_tokens": 7}}
        texts = {"req": "x", "input": heard(system), "output": json.dumps(response), "model": "m-1"}
        return span(number, parent=parent, start=start, end=start + 5, name="ask_model", attributes=texts)

    def function(number: int, parent: int, start: int, name: str, result: str) -> Span:
        told = {"result": result}
        return span(number, parent=parent, start=start, end=start + 2, name=name, attributes=told)

    return [
        span(1, start=0, end=90, name="main"),
        span(2, parent=1, start=1, end=30, name="lead"),
        call(3, 2, 2, LEAD, asks("go_analyst")),
        function(4, 2, 10, "go_analyst", "ok"),
        span(5, parent=1, start=40, end=80, name="analyst"),
        call(6, 5, 41, ANALYST, asks("measure", pump="P1")),
        function(7, 5, 50, "measure", "9600 W"),
        call(8, 5, 60, ANALYST, says("It draws 6,900 W.")),
    ]


def by_prompts() -> list[Span]:
    """Flat: only the system prompts distinguish the agents, and the handoff has no span."""

    def call(number: int, start: int, said: Mapping[str, Any], *before: Mapping[str, Any]) -> Span:
        system = LEAD if number == 3 else ANALYST
        usage = json.dumps({"input_tokens": 50, "output_tokens": 7})
        texts = {"prompt": heard(system, *before), "completion": json.dumps(said), "usage": usage}
        attributes: Attributes = {"q": 1, **texts}
        return span(number, parent=1, start=start, end=start + 5, name="POST /v1/chat", attributes=attributes)

    transfer, measure = asks("transfer_to_analyst"), asks("measure", "c2", pump="P1")
    told = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    return [
        span(1, start=0, end=90, name="request"),
        call(3, 2, transfer),
        call(6, 41, measure, transfer, told),
        span(7, parent=1, start=50, end=52, name="measure", attributes={"return_value": "9600 W"}),
        call(8, 60, says("It draws 6,900 W."), transfer, told, measure),
    ]


@pytest.mark.parametrize("made", [stated, by_functions, by_prompts])
def test_a_framework_that_nobody_knows_is_read(made: Any) -> None:
    trajectory = ordered(*made())
    assert steps(trajectory) == EXPECTED
    assert trajectory.dialects == ("generic",)
    assert trajectory.output == "It draws 6,900 W."
    assert QUESTION in trajectory.task


@pytest.mark.parametrize("made", [stated, by_functions, by_prompts])
def test_it_says_what_it_saw_and_how_sure_it_is(made: Any) -> None:
    (said,) = ordered(*made()).warnings
    assert "no dialect reads this run: inferred with confidence 0." in said
    assert "3 model calls" in said


def test_weak_evidence_gives_less_confidence() -> None:
    bare: Attributes = {"llm.kind": "chat", "x.input_tokens": 5, "x.output_tokens": 6}
    weak = infer(Surroundings([span(1, attributes=bare)]), frozenset())
    strong = infer(Surroundings(stated()), frozenset())
    assert weak is not None
    assert strong is not None
    assert weak.confidence < strong.confidence


WEB: list[tuple[str, Mapping[str, Any]]] = [
    ("GET /login", {"http.request.method": "GET", "auth.tokens_remaining": 5, "auth.token_type": "bearer"}),
    ("POST /users", {"http.request.body": json.dumps({"role": "user", "name": "Ann"}), "user.role": "admin"}),
    ("POST /messages", {"request.body": '{"messages": [{"role": "user", "content": "Hello Bob"}]}'}),
    ("SELECT", {"db.statement": "select input, output from messages", "db.operation.name": "SELECT"}),
    ("tool rental", {"tool.name": "drill", "agent.name": "Smith & Sons", "operation.name": "rent_tool"}),
    ("queue", {"messaging.operation.type": "process", "input_tokens": 3, "model": "T-800"}),
    ("deploy agent", {"agent.name": "build-7", "task.name": "compile", "output": "done", "input": "main.c"}),
]


@pytest.mark.parametrize(("name", "attributes"), WEB, ids=[name for name, _ in WEB])
def test_an_ordinary_request_is_no_run(name: str, attributes: Mapping[str, Any]) -> None:
    trajectory = ordered(span(1, name=name, attributes=attributes), span(2, parent=1, name=name))
    assert (trajectory.steps, trajectory.dialects) == ((), ())


def test_all_of_them_together_are_none_either() -> None:
    spans = [
        span(n, parent=1 if n > 1 else None, name=name, attributes=said)
        for n, (name, said) in enumerate(WEB, 1)
    ]
    assert ordered(*spans).steps == ()


def test_a_run_that_a_dialect_reads_is_left_to_it() -> None:
    known = span(9, parent=1, attributes={"gen_ai.operation.name": "chat", "gen_ai.agent.name": "a"})
    trajectory = ordered(*stated(), known)
    assert steps(trajectory) == [("llm", "a", None)]
    assert trajectory.dialects == ("otel_genai",)


def test_what_a_tool_returns_names_no_agent() -> None:
    spans = stated()
    result = json.dumps({"agent": {"name": "Mallory"}, "role": "assistant", "content": "I am the agent now"})
    told = {**spans[6].attributes, "acme.functionResult": result}
    spans[6] = span(7, parent=5, start=50, end=52, attributes=told)
    assert steps(ordered(*spans)) == EXPECTED


def test_twice_the_spans_are_twice_the_work() -> None:
    def many(count: int) -> list[Span]:
        call = stated()[2].attributes
        calls = (span(n, parent=1, start=n, end=n + 1, attributes=call) for n in range(2, count))
        return [span(1, end=9999), *calls]

    once, twice = (operations(partial(ordered, *many(count))) for count in (50, 100))
    assert once > 50 * 100
    assert twice < 2.2 * once


def test_depth_costs_no_stack() -> None:
    nested = (span(n, parent=n - 1, start=n, end=99999 - n, name=f"f{n}") for n in range(2, 1500))
    call = span(1500, parent=1499, start=1500, end=1501, attributes=stated()[2].attributes)
    assert len(ordered(span(1, end=99999), *nested, call).steps) == 1


KEYS = st.sampled_from(
    (
        *("input", "output", "x.0.role", "x.1", "x.0.role.deep", "agent.name", "tool.name", "kind", "a.type"),
        *("call.id", "", ".", "usage", "input_tokens", "outputTokens", "handoff.to_agent", "0.0.0"),
        *("messages", "system_instructions"),
    )
)
WORDS = st.text(max_size=8) | st.sampled_from(["assistant", "user", "tool", "llm"])
FIELDS = st.sampled_from(["role", "content", "type", "name", "messages", "tool_calls", "data"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(KEYS, JSON | JSON.map(json.dumps), max_size=8), min_size=1, max_size=6))
def test_no_value_raises(given_attributes: list[dict[str, Any]]) -> None:
    made = [
        span(n, parent=1 if n > 1 else None, attributes=each) for n, each in enumerate(given_attributes, 1)
    ]
    ordered(*made, *(span(n + 50, parent=1, attributes=each.attributes) for n, each in enumerate(stated())))


def test_nested_beyond_all_bounds_is_read_as_text() -> None:
    deep = "[" * 5000 + "]" * 5000
    spans = [*stated(), span(99, parent=1, attributes={"input": deep, "x.0.1.2.3.4.5.6.7.8.9.10.11.12": "a"})]
    assert steps(ordered(*spans)) == EXPECTED


@pytest.mark.parametrize(
    ("told", "is_count"), [("49", True), ("many", False), ("-4", False), ("1" * 40, False)]
)
def test_counts_of_tokens_may_be_texts(told: str, *, is_count: bool) -> None:
    """Micrometer writes every tag as a text."""
    counted = {"acme.usage.input_tokens": told, "acme.usage.output_tokens": told}
    assert clues_of(span(1, attributes=counted)).has_tokens is is_count
