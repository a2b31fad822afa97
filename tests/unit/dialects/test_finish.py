"""A filter's stop or a refusal is read where a provider writes it, not where a model writes about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semconv.dialects.reading.action import Action, ActionKind
from semconv.dialects.reading.guardrails import with_finish
from tests.factories import span

FILTERED = "the provider's filter stopped the answer (content_filter)"
REFUSED = "the model refused to answer (refusal)"
CUT = "the answer was cut off at the model's output limit ({})"
UNSAFE = "the provider's filter stopped the answer (safety)"
EXAMPLE = {"choices": [{"index": 0, "finish_reason": "content_filter", "message": {"role": "assistant"}}]}


def why(attributes: dict[str, Any]) -> str:
    return with_finish(Action(dialect="test", kind=ActionKind.LLM), span(1, attributes=attributes)).error


def message(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **fields}


@pytest.mark.parametrize(
    ("recorded", "error"),
    [
        pytest.param(EXAMPLE, FILTERED, id="choice"),
        pytest.param({"choices": [{"message": message(refusal="I won't.")}]}, REFUSED, id="refusal"),
        pytest.param({"candidates": [{"finishReason": "SAFETY", "content": {}}]}, UNSAFE, id="candidate"),
        pytest.param(
            {"candidates": [{"finishReason": "FinishReason.SAFETY"}]}, UNSAFE, id="the name of an enumeration"
        ),
        pytest.param({"id": "m1", "model": "m", "stop_reason": "refusal"}, REFUSED, id="response"),
        pytest.param(
            {"id": "r1", "output": [message(content=[{"type": "refusal", "refusal": "No."}])]},
            REFUSED,
            id="part of an output",
        ),
        pytest.param([message(parts=[{"type": "refusal", "content": "No."}])], REFUSED, id="part"),
        pytest.param([message(parts=[], finish_reason="content-filter")], FILTERED, id="message"),
        pytest.param([{"finish_reason": "content_filter", "message": message()}], FILTERED, id="bare choice"),
    ],
)
@pytest.mark.parametrize("name", ["output.value", "gen_ai.output.messages"])
def test_a_stopped_answer_is_a_failed_call(name: str, recorded: Any, error: str) -> None:
    assert why({name: json.dumps(recorded)}) == error
    assert why({name: json.dumps(recorded, indent=1)}) == error


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(f"A ferry's text that is filtered gives:\n{json.dumps(EXAMPLE)}", id="shown in prose"),
        pytest.param(f"```json\n{json.dumps(EXAMPLE)}\n```", id="fence"),
        pytest.param('{"passenger": "Jo", "refusal": "none", "berth": 4}', id="field"),
        pytest.param('{"type": "refusal", "of": "boarding"}', id="type"),
        pytest.param('{"deck": 2, "finish_reason": "safety"}', id="reason"),
        pytest.param('{"role": "steward", "refusal": "yes"}', id="role of a person"),
        pytest.param(json.dumps({"examples": [EXAMPLE]}), id="examples"),
        pytest.param(json.dumps([message(content=json.dumps(EXAMPLE))]), id="text of a message"),
        pytest.param(json.dumps({"choices": [{"message": message(refusal="")}]}), id="empty"),
        pytest.param('[{"role": "user", "refusal": "I will not pay."}]', id="a user's"),
        pytest.param('{"choices": [{"finish_reason": "content_filter"', id="cut"),
        pytest.param('{"choices": "refusal", "message": {"role": [], "refusal": "no"}}', id="odd types"),
    ],
)
@pytest.mark.parametrize("name", ["output.value", "gen_ai.output.messages", "ai.response.text"])
def test_a_model_may_write_about_filters_and_refusals(name: str, said: str) -> None:
    assert why({name: said}) == ""


def test_a_whole_response_that_the_model_was_asked_to_show_is_its_text() -> None:
    shown = json.dumps(EXAMPLE)
    assert why({"output.value": shown, "llm.output_messages.0.message.content": shown}) == ""
    assert why({"ai.response.text": shown}) == ""


@pytest.mark.parametrize("reasons", [("content_filter",), '["content_filter"]', "content-filter"])
def test_an_attribute_that_names_finish_reasons_counts(reasons: Any) -> None:
    assert why({"gen_ai.response.finish_reasons": reasons}) == FILTERED


@pytest.mark.parametrize("reason", ["length", "MAX_TOKENS", "FinishReason.MAX_TOKENS", "model_length"])
def test_an_answer_that_the_output_limit_cut_off_is_a_failed_call(reason: str) -> None:
    cut = CUT.format(reason.rpartition(".")[2].lower())
    assert why({"gen_ai.response.finish_reasons": (reason,)}) == cut
    assert why({"gen_ai.output.messages": json.dumps([message(parts=[], finish_reason=reason)])}) == cut
    assert (
        why({"gen_ai.output.messages": json.dumps([message(content=f"The finish_reason: {reason}")])}) == ""
    )


def is_failed(written: str, **attributes: Any) -> bool:
    attributes = {"gen_ai.response.finish_reasons": ("length",)} | attributes
    action = Action(dialect="test", kind=ActionKind.LLM, output=written)
    return with_finish(action, span(1, attributes=attributes)).failed


HOURS = "The harbour is open until nine, and the last ferry to the island leaves a quarter of an hour before"


@pytest.mark.parametrize(
    ("written", "failed"),
    [
        pytest.param("harbour", False, id="a word"),
        pytest.param('{"hours": "until n', True, id="within brief JSON"),
        pytest.param(HOURS, True, id="within a sentence"),
        pytest.param(f"{HOURS} that.", False, id="behind a sentence"),
        pytest.param(f"*{HOURS} 2027.*", False, id="behind a sentence in italics"),
        pytest.param(f"{HOURS} that...", True, id="dots"),
        pytest.param(f"1. {HOURS} that.\n2.", True, id="behind the number of an entry"),
        pytest.param(f'{{"hours": "{HOURS} that."}}\n\n', False, id="behind JSON"),
        pytest.param(f'{{"hours": "{HOURS} that."', True, id="within JSON"),
        pytest.param(f"```\n{HOURS}\n```", False, id="behind a fence"),
        pytest.param(f"```\n{HOURS} that.", True, id="within a fence"),
    ],
)
def test_an_answer_that_ends_as_a_whole_one_is_not_cut_off(written: str, *, failed: bool) -> None:
    assert is_failed(written) is failed


@pytest.mark.parametrize("reasons", [("length", "stop"), ("stop", "length"), '["stop", "length"]'])
def test_a_limit_that_spared_one_of_several_answers_cuts_none_off(reasons: Any) -> None:
    named = {"gen_ai.response.finish_reasons": reasons}
    choices: list[dict[str, Any]] = [
        {"finish_reason": reason, "message": {}} for reason in ("stop", "length")
    ]
    assert why(named) == why({"output.value": json.dumps({"choices": choices})}) == ""
    assert why({"output.value": json.dumps({"choices": choices[1:]})}) == CUT.format("length")
    assert why({"gen_ai.response.finish_reasons": ("stop", "content_filter")}) == FILTERED


@pytest.mark.parametrize(("tokens", "failed"), [(5, False), (500, True)])
def test_a_limit_of_a_few_tokens_is_told_by_their_number_without_texts(tokens: int, *, failed: bool) -> None:
    assert is_failed("", **{"gen_ai.usage.output_tokens": tokens}) is failed
