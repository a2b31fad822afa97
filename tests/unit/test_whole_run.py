"""Whole steps: everything that the spans hold, each token once, and no secret."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from analyzer.inquiry.whole_run import WholeRun, whole_run, whole_steps
from collector_processor.core.runs import Run
from collector_processor.rebuild.redaction import ALL_KINDS, Cleaner, make_redactor
from collector_processor.rebuild.repair import repair
from collector_processor.trajectory import order
from semconv.dialects.reading.usage import ModelCall, model_call
from semconv.model import Attributes, AttributeValue, Span, Trajectory
from tests.factories import span, trace
from tests.runs import failed_tool, run, step, tool

LONG = "all of it " * 100_000
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


def keep(trajectory: Trajectory) -> Trajectory:
    return trajectory


def messages(*texts: tuple[str, str]) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in texts])


def chat(number: int, heard: str, said: str, **attributes: AttributeValue) -> Span:
    told: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "clerk",
        "gen_ai.input.messages": messages(("system", "Be brief."), ("user", heard)),
        "gen_ai.output.messages": messages(("assistant", said)),
        **attributes,
    }
    return span(number, name="chat m", attributes=told)


def whole(*spans: Span, clean: Any = keep) -> WholeRun:
    sound = repair(trace(*spans))
    return whole_run(Run(trace=sound, trajectory=order(sound)), clean)


def test_a_step_has_all_that_its_span_holds() -> None:
    usage: dict[str, AttributeValue] = {
        "gen_ai.request.model": "small", "gen_ai.response.model": "small-2", "gen_ai.provider.name": "openai",
        "gen_ai.request.temperature": 0.5, "gen_ai.usage.input_tokens": 1200, "gen_ai.usage.output_tokens": 9,
        "gen_ai.usage.cost": 0.002,
    }  # fmt: skip
    (found,) = whole(chat(1, LONG, "42", **usage)).steps
    assert (found.provider, found.model, found.parameters) == ("openai", "small-2", {"temperature": 0.5})
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (1200, 9, 0.002)
    assert found.duration_s == pytest.approx(0.005)
    assert len(found.input) < len(LONG), "shortened for methods"
    assert [(one.role, one.text) for one in found.messages] == [("system", "Be brief."), ("user", LONG)]
    assert [one.text for one in found.answers] == ["42"]


def test_history_that_a_step_hears_again_is_in_its_messages() -> None:
    first = chat(1, "one", "two")
    history = messages(("user", "one"), ("assistant", "two"), ("user", "three"))
    second = chat(2, "", "four", **{"gen_ai.input.messages": history})
    found = whole(first, second).steps[1]
    assert "one" not in found.input.split()
    assert [one.text for one in found.messages] == ["one", "two", "three"]


def test_secrets_in_messages_are_removed_and_named_alike() -> None:
    clean = Cleaner(make_redactor(ALL_KINDS, ()))
    found = whole(chat(1, f"my key is {KEY}", f"so it is {KEY}"), clean=clean)
    assert KEY not in json.dumps([asdict(one) for one in found.steps])
    heard, said = found.steps[0].messages[1].text, found.steps[0].answers[0].text
    assert heard.removeprefix("my key is ") == said.removeprefix("so it is ")


def test_the_steps_are_those_of_the_run() -> None:
    spans = [chat(number, f"question {number}", f"answer {number}") for number in range(1, 6)]
    found = whole(*spans)
    assert [(one.index, one.agent, one.output) for one in found.steps] == [
        (index, "clerk", f"answer {index + 1}") for index in range(5)
    ]


def test_a_step_that_repeats_a_failed_one_is_its_retry() -> None:
    failed = failed_tool("clerk", "gone")
    found = whole_steps(run(failed, step("clerk", "again"), failed, tool("clerk", "look_up", "x")), keep)
    assert [one.retry_of for one in found.steps] == [None, None, 0, None]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        pytest.param({}, ModelCall(), id="nothing"),
        pytest.param({"gen_ai.usage.input_tokens": "many"}, ModelCall(), id="no number"),
        pytest.param({"gen_ai.usage.input_tokens": True}, ModelCall(), id="a truth"),
        pytest.param({"gen_ai.usage.input_tokens": -5}, ModelCall(), id="negative"),
        pytest.param({"gen_ai.usage.cost": float("nan")}, ModelCall(), id="not a number"),
        pytest.param({"gen_ai.usage.cost": float("inf")}, ModelCall(), id="infinite"),
        pytest.param({"llm.invocation_parameters": "[" * 100_000}, ModelCall(), id="nested"),
        pytest.param({"llm.invocation_parameters": '{"tools": "x", "a": {}}'}, ModelCall(), id="content"),
        pytest.param({"gen_ai.request.user": "x" * 5_000}, ModelCall(), id="long"),
        pytest.param(
            {"langfuse.observation.usage_details": '{"input": 3, "output": 4}', "mlflow.llm.model": '"m"'},
            ModelCall(model="m", input_tokens=3, output_tokens=4),
            id="in JSON",
        ),
    ],
)  # fmt: skip
def test_usage_is_read_in_any_convention_and_never_guessed(
    attributes: Attributes, expected: ModelCall
) -> None:
    assert model_call(span(1, attributes=attributes)) == expected


DEFINITIONS: list[dict[str, Any]] = [
    {"function": {"name": "look_up", "description": f"Use {KEY}.", "parameters": {"a": [1]}}},
    {"name": "bare"},
    {"name": ""},
    {"name": "deep", "parameters": {"x": {"y": {"z": ["<script>"]}}}},
]


@pytest.mark.parametrize("is_text", [True, False])
def test_the_tools_offered_keep_their_schemas_and_no_secret(*, is_text: bool) -> None:
    listed: Any = json.dumps(DEFINITIONS) if is_text else tuple(DEFINITIONS)
    calls = [chat(number, "a", "b", **{"gen_ai.tool.definitions": listed}) for number in (1, 2)]
    found = whole(*calls, clean=Cleaner(make_redactor(ALL_KINDS))).steps
    for step_ in found:
        assert [tool.name for tool in step_.offered] == ["look_up", "bare", "deep"]
        assert KEY not in step_.offered[0].description
        assert json.loads(step_.offered[0].parameters) == {"a": [1]}
        assert step_.offered[1].parameters == ""
        assert json.loads(step_.offered[2].parameters) == DEFINITIONS[3]["parameters"]


@pytest.mark.parametrize(
    ("names", "total"),
    [
        ({"gen_ai.usage.cache_read.input_tokens": 900, "gen_ai.usage.cache_write.input_tokens": 200}, 1110),
        ({"gen_ai.usage.cache_creation.input_tokens": 50}, 60),
        ({"gen_ai.usage.cache_read.input_tokens": 8}, 10),
        ({}, 10),
    ],
    ids=["present names", "former name", "counted in", "none"],
)
def test_cached_tokens_are_counted_once(names: dict[str, int], total: int) -> None:
    """Ten tokens cannot hold nine hundred cached ones: the instrumentation did not count these in."""
    read = model_call(span(1, attributes={"gen_ai.usage.input_tokens": 10, **names}))
    assert read.input_tokens == total
