"""The text of a verdict without a model: one sentence of cause, one of evidence, one of advice."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from analyzer.methods.without_model import judge_by_signals
from analyzer.signals.triage import triage
from semconv.model import UNKNOWN_AGENT, Blame, SpanStatus, Step, StepKind, Trajectory
from tests.runs import calling, failed_tool, run, step, tool

DICTIONARY = "Error code: 500 - {'error': {'message': 'out of order', 'type': 'server_error'}}"
LIMIT = (
    "GraphRecursionError: Recursion limit of 10 reached without hitting a stop condition. You can increase"
    " the limit by setting the `recursion_limit` config key. For troubleshooting, visit the documentation."
)


def blame(*steps: Step, **fields: Any) -> Blame:
    verdict = judge_by_signals(run(*steps, **fields))
    assert isinstance(verdict, Blame)
    return verdict


def failed_call(agent: str, error: str, **fields: Any) -> Step:
    return step(agent, status=SpanStatus.ERROR, error=error, **fields)


def test_a_failed_model_call_is_told_with_the_providers_message_once() -> None:
    verdict = blame(calling("a", ("ask", "")), failed_call("purser", DICTIONARY, name="chat"))
    assert verdict.reason == (
        "purser made a model call that failed, and the run ended without a successful retry."
        " The error: Error code: 500 - out of order."
    )
    assert verdict.fix.startswith("Retry purser's model call")


def test_a_check_that_stopped_an_agent_is_not_a_call_that_failed() -> None:
    check = step("b", '{"triggered": true}', StepKind.OTHER, target="amount_check", status=SpanStatus.ERROR)
    tripped = replace(check, error="guardrail amount_check tripped")
    told = blame(step("a", "Hm."), step("b", "So 7 + 8 = 16."), tripped, output="16").reason
    wrong = "b calculated “7 + 8 = 16”; the result is 15."
    assert told == f"{wrong} It also was stopped by the check amount_check."


def test_the_class_of_an_error_is_said_once() -> None:
    error = "InternalServerError: litellm.InternalServerError: InternalServerError: OpenAIException - down"
    told = blame(failed_call("a", error)).reason
    assert told.endswith("The error: InternalServerError: OpenAIException - down.")


def test_of_a_long_error_the_first_sentence_is_told() -> None:
    calls = [calling("a", ("look_up", '{"name": "Marianne"}')) for _ in range(4)]
    verdict = blame(*calls, root_status=SpanStatus.ERROR, root_error=LIMIT)
    assert verdict.reason == (
        "a made the same call 4 times, in steps 0 to 3 (step 1 is the first repetition),"
        " until the run reached its limit of turns."
        " The error: GraphRecursionError: Recursion limit of 10 reached without hitting a stop condition."
    )


@pytest.mark.parametrize(
    ("name", "subject"), [("", "An unnamed agent made"), ("purser", "An unnamed agent (span “purser”) made")]
)
def test_an_agent_without_a_name_is_not_called_unknown(name: str, subject: str) -> None:
    verdict = blame(failed_call(UNKNOWN_AGENT, "boom", name=name))
    assert verdict.agent == UNKNOWN_AGENT
    assert verdict.reason.startswith(subject)
    assert "unknown" not in verdict.reason + verdict.fix
    assert verdict.fix.startswith("Retry this agent's model call")
    assert "unknown" not in triage(run(failed_call(UNKNOWN_AGENT, "boom"))).reason


def test_a_common_noun_is_not_taken_for_a_name() -> None:
    assert blame(failed_call("assistant", "boom")).reason.startswith("The assistant made a model call")


def test_of_several_wrong_calculations_the_one_that_the_answer_uses_is_told() -> None:
    said = "First, 42.195 / 1.994 = 21.17. Then 363300 / 21.17 = 17183.41, about 17,000."
    verdict = blame(step("a", "Hm."), step("b", said), step("c", "17183.41"), output="17183.41")
    assert verdict.reason.startswith("b calculated “363300 / 21.17 = 17183.41”; the result is 17,161.08.")


@pytest.mark.parametrize(
    ("returned", "told", "advice"),
    [
        (
            "The product is 9,662.14.",
            "multiply gave the right result at step 0",
            "copy the result of multiply",
        ),
        ("The product is 9,266.14.", "the result is 9,662.14.", "Give calculator a calculator tool"),
    ],
)
def test_a_tool_that_calculated_right_is_named_and_no_second_one_asked_for(
    returned: str, told: str, advice: str
) -> None:
    sum_ = step("calculator", "So 84 * 0.41 * 905 * 0.31 = 9,266.14 euros.")
    verdict = blame(tool("calculator", returned, "multiply"), sum_, output="9,266.14 euros")
    assert verdict.step == 1
    assert told in verdict.reason
    assert advice in verdict.fix


def test_a_small_result_in_a_tools_text_is_not_taken_for_the_calculations() -> None:
    sum_ = step("calculator", "So 7 + 8 = 16.")
    verdict = blame(tool("calculator", "Order 15: 3 chairs", "list_orders"), sum_, output="16")
    assert verdict.fix.startswith("Give calculator a calculator tool")


def test_a_result_is_told_with_the_decimals_of_the_stated_one() -> None:
    assert "the result is 21.16." in blame(step("b", "So 42.195 / 1.994 = 21.17 km/h.")).reason


def test_a_quote_is_the_sentence_and_the_number_itself() -> None:
    said = "I typed 2020-2023 into the box. The share is 20 per cent. More follows."
    verdict = blame(step("a", "Look."), step("b", said), output="20", task="q")
    (evidence,) = verdict.evidence
    assert evidence.quote == "The share is 20 per cent."


def test_no_quote_is_contained_in_another() -> None:
    guess = step("b", "Let us assume that 7 + 8 = 16, probably.")
    verdict = blame(step("a", "Hm."), guess, output="16", task="q")
    quotes = [found.quote for found in verdict.evidence]
    assert not [one for one in quotes for other in quotes if one is not other and one in other]


@pytest.mark.parametrize(
    "said",
    [
        "6. Provide the final answer via the tool.",
        "I will check that the result is correct.",
        "Please ensure that the figures are accurate.",
    ],
)
def test_a_plan_is_no_claim(said: str) -> None:
    verdict = blame(step("b", "I begin."), step("b", said), step("c", "I end."), output="Sorry.")
    assert verdict.mode == ""


def test_a_warning_of_a_program_is_no_guess_of_the_agent() -> None:
    logged = "UserWarning: Resolved model mismatch. Model mapping may be incorrect."
    modes = [
        blame(step("b", said), step("c", "Fine."), output="Sorry.").mode
        for said in (logged, "The mapping may be incorrect.")
    ]
    assert modes == ["", "unverified_result"]


def test_weak_evidence_is_told_as_weak_with_its_words() -> None:
    verdict = blame(step("b", "The year might be 1976."), step("c", "Fine."), output="Sorry.")
    assert verdict.reason == "b sounded unsure: it wrote “might be 1976”."


def reason_of(said: str, **fields: Any) -> str:
    """Return the reason of a run in which only the words of its second step are evidence."""
    steps = (step("a", "Begin."), step("b", said), step("c", "End."))
    return blame(*steps, **{"output": "Sorry."} | fields).reason


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Assuming I can find it, I go on.", "b made an assumption: it wrote “Assuming I can find it”."),
        ("Assuming “sx” is “in”, go on.", "b made an assumption: it wrote “Assuming 'sx' is 'in'”."),
        ("From memory, it is 1.", "b may have answered from memory: it wrote “From memory”."),
        ("Use mock data.", "b may have used made-up data: it wrote “mock data”."),
        ("I assume it, but I can't go on.", "b made an assumption: it wrote “I assume it”."),
        (f"I assume {'that this ' * 20}", f"b made an assumption: it wrote “I assume {'that this ' * 5} …”."),
    ],
)
def test_words_are_told_with_their_clause_and_no_more_is_claimed_than_they_say(said: str, told: str) -> None:
    assert reason_of(said).startswith(told.replace("  …", " …"))


@pytest.mark.parametrize(
    "said", ["1. Look.\n4. Sum up.", "UserWarning: Resolved model mismatch: gpt-2024-05-13 4."]
)
def test_a_lists_number_and_a_programs_warning_are_not_told_as_figures_of_the_answer(said: str) -> None:
    assert "stated 4" in reason_of("The total is 4.", output="The answer is 4.")
    assert "4" not in reason_of(said, output="The answer is 4.")


def test_an_agent_that_noticed_a_failure_is_not_said_to_have_taken_it_for_a_result() -> None:
    noticed = step("a", "No output, since the key is not provided. I will list the 12 places from the web.")
    verdict = blame(step("a", "Search."), tool("a", "", "search"), noticed, output="Sorry.")
    found_nothing = "a called search, which returned nothing, and no later call succeeded in its place."
    assert verdict.reason == found_nothing


def test_a_part_of_the_answer_is_told_as_a_part() -> None:
    answer = f"{'I looked it up as asked. ' * 10} It is **Sant Pere**."
    verdict = blame(step("a", "Hm."), step("b", "It is **Sant Pere**."), output=answer)
    assert verdict.reason == "b was the first to state “Sant Pere”, which is in the final answer."


def test_code_that_failed_is_not_to_be_run_again_as_it_is() -> None:
    terminal = tool("computer_terminal", "exitcode: 1\nNameError: name 'search' is not defined", "")
    verdict = blame(step("coder", "```search()```"), replace(terminal, target=None))
    assert verdict.reason.startswith("coder had code run that failed")
    assert verdict.fix.startswith("Have coder correct its code and run it again")


def test_a_verdict_by_position_says_so_and_what_to_do() -> None:
    verdict = blame(step("a", "one"), step("b", "two"), output="Sorry.")
    named = "a comes first because runs most often break early."
    assert verdict.reason == f"No evidence singles out a step. {named}"
    assert "--model" in verdict.fix


@pytest.mark.parametrize(
    "trajectory",
    [
        run(calling("a", ("x", "")), failed_tool("a", "TimeoutError: " + "no answer " * 40)),
        run(step("a", "x"), step("b", "Let's assume the population is 4,711 in all of it."), output="4,711"),
        run(calling("a", ("x", "")), tool("a", "", "x"), step("a", "The result is 47."), output="47"),
        run(*(step(UNKNOWN_AGENT, f"part {n} might be done") for n in range(70))),
    ],
)
def test_reasons_are_whole_sentences_and_say_nothing_twice(trajectory: Trajectory) -> None:
    verdict = judge_by_signals(trajectory)
    sentences = [one for one in re.split(r"(?<=[.…])\s(?=[A-Z])", verdict.reason) if one]
    assert len(sentences) <= 3
    assert len(set(sentences)) == len(sentences)
    assert all(one.endswith((".", "…")) for one in sentences)
    assert not re.search(r"\w{60}|  |\.\.", verdict.reason)


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("KeyError: 'berth'", "Correct moor"),
        ("HTTP 403 Forbidden", "Check the credentials and rights of moor"),
        ("JSONDecodeError: Expecting value", "Show"),
        ("monthly quota exceeded", "Raise the quota"),
        ("TimeoutError: no answer", "Retry moor"),
    ],
)
def test_a_fix_is_one_that_can_help(error: str, fix: str) -> None:
    failed = failed_tool("a", error, "moor")
    assert (
        fix in blame(step("a", "I will moor it."), failed, root_status=SpanStatus.ERROR, root_error=error).fix
    )


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("This model's maximum context length is 8192 tokens", "Send the model of a less"),
        ("the provider's filter stopped the answer (content_filter)", "in other words"),
        ("the model refused to answer (refusal)", "in other words"),
        ("HTTP 500", "when the provider fails"),
    ],
)
def test_a_fix_of_a_model_call_is_one_that_can_help(error: str, fix: str) -> None:
    failed = failed_call("a", error)
    assert fix in blame(step("b", "Ask a."), failed, root_status=SpanStatus.ERROR, root_error=error).fix
