from __future__ import annotations

from typing import Any

import pytest

from analyzer.methods.suspicion import suspect
from analyzer.signals.triage import answers, ended_by_error, output_matching, triage, worth_a_model
from semconv.model import (
    UNKNOWN_AGENT,
    ContentState,
    Outcome,
    OutcomeSource,
    SpanStatus,
    Step,
    StepKind,
    Trajectory,
)
from tests.factories import agent, chat, ordered, workflow
from tests.runs import calling, failed_tool, hearing, run, step, tool


def test_a_run_that_nobody_finds_fault_with_did_not_fail() -> None:
    finding = triage(run(step("a", "Paris."), output="Paris."))
    assert not finding.failed
    assert finding.source is None


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_the_run_states_decides_with_its_source(outcome: Outcome) -> None:
    stated: Any = {"outcome": outcome, "outcome_source": OutcomeSource.EVALUATOR}
    finding = triage(run(step("a", "x"), **stated, output="error"))
    assert finding.failed is (outcome is Outcome.FAILURE)
    assert finding.source is OutcomeSource.EVALUATOR
    assert "evaluator" in finding.reason


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        ("The Falcon cluster has 16 GPUs; 10 hours cost $480.", False),
        ("The Falcon cluster has 16 GPUs; 10 hours cost $450.", True),
        ("480.00 dollars for 16 gpus", False),
    ],
)
def test_the_answer_is_compared_with_the_right_one(output: str, *, failed: bool) -> None:
    finding = triage(run(step("a", output), output=output, reference="16 GPUs, $480"))
    assert finding.failed is failed
    assert finding.source is OutcomeSource.REFERENCE


def test_an_unknown_answer_is_not_compared() -> None:
    assert triage(run(step("a", ""), reference="42")).source is None


def test_a_trace_that_gives_the_task_for_its_answer_is_judged_by_what_was_said_last() -> None:
    finding = triage(run(step("a", "It is 5."), task="How many?", output="How many?", reference="6"))
    assert finding.failed


def test_numbers_are_compared_by_value_and_words_without_case() -> None:
    assert answers("about 1,080.0 in all", "1080")
    assert answers("THE Eiffel Tower", "eiffel tower")
    assert answers("Take ① and ² of it", "② ²") is False
    assert answers("Take ① and ²", "① ²"), "digits that are no numbers"
    assert not answers("10801", "1080")
    assert not answers("10,80", "1080")
    assert answers("!?", "!?")
    assert not answers("x", "!?")


def test_an_error_of_the_root_is_a_failure() -> None:
    finding = triage(run(step("a", "x"), root_status=SpanStatus.ERROR, root_error="boom"))
    assert finding.failed
    assert finding.source is OutcomeSource.ERROR
    assert "boom" in finding.reason


def test_a_crash_below_a_root_that_says_ok_is_a_failure() -> None:
    finding = triage(run(step("a", "call"), failed_tool("a"), root_status=SpanStatus.OK))
    assert finding.failed
    assert finding.source is OutcomeSource.ERROR


def test_an_error_that_was_survived_is_no_failure() -> None:
    assert not triage(run(failed_tool("a"), tool("a", "16"), step("a", "16."), output="16.")).failed


def failed_call(agent: str = "purser") -> Step:
    """Return a model call that the provider refused."""
    return step(agent, status=SpanStatus.ERROR, error="InternalServerError: 500")


def left_to(final: str, *between: Step, **fields: Any) -> Trajectory:
    """Return a run whose concierge asks the purser, whose model call fails; then the concierge answers."""
    asking = calling("concierge", ("ask_purser", '{"objective": "What do 12 crossings take in?"}'))
    last = step("concierge", final)
    fields.setdefault("output", final)
    return run(asking, failed_call(), *between, last, task="What do 12 crossings take in?", **fields)


@pytest.mark.parametrize(
    "final",
    [
        "The purser should answer this.",
        "Noted.",
        "I have asked the purser about the 12 crossings. Thank you.",
        "We are still waiting for the purser.",
        "The answer is not available: the service returned an error. Please try again later.",
        "There was a problem, and no result could be obtained.",
        "",
    ],
)
def test_a_run_that_only_puts_off_what_a_failed_model_call_was_for_has_failed(final: str) -> None:
    finding = triage(left_to(final))
    assert finding.failed
    assert finding.source is OutcomeSource.HEURISTIC
    assert "step 1 of purser" in finding.reason


@pytest.mark.parametrize("again", [1, 3])
def test_asking_again_in_vain_changes_nothing(again: int) -> None:
    between = [calling("concierge", ("ask_purser", "{}")), failed_call()] * again
    assert triage(left_to("Noted.", *between)).failed


def test_an_agent_whose_tool_never_worked_may_leave_the_run_undone_too() -> None:
    tries = [step("registrar", ""), failed_tool("registrar", "down")] * 3
    end = "The registrar should look this up."
    assert triage(run(calling("concierge", ("ask", "{}")), *tries, step("concierge", end), output=end)).failed


HEARD = "Error: the register is down"


def deaf(*results: str) -> list[Step]:
    """Return the calls of an agent whose tools have no spans; each hears the result of the call before."""
    asking = calling("registrar", ("look_up", "{}"))
    return [asking, *[hearing(asking, ("tool", result)) for result in results[:-1]]]


def test_a_tool_whose_failure_is_only_heard_may_leave_the_run_undone() -> None:
    end = hearing(step("registrar", "Noted."), ("tool", HEARD))
    finding = triage(run(*deaf(HEARD), end, output=end.output))
    assert finding.failed
    assert "step 0 of registrar" in finding.reason


@pytest.mark.parametrize(
    ("final", "heard"),
    [
        pytest.param("They take in 7,140 euros.", [HEARD], id="it knew by itself"),
        pytest.param("Noted.", [HEARD, "85 seats"], id="the tool worked the second time"),
        pytest.param("Noted.", ["85 seats"], id="nothing failed"),
    ],
)
def test_a_failure_that_was_heard_and_did_not_matter_is_none(final: str, heard: list[str]) -> None:
    end = hearing(step("registrar", final), ("tool", heard[-1]))
    assert not triage(run(*deaf(*heard), end, output=final)).failed


@pytest.mark.parametrize(
    ("final", "between"),
    [
        pytest.param("They take in 7,140 euros.", [], id="it knew by itself"),
        pytest.param("The purser could not answer, so I worked it out: 7,140.", [], id="did it itself"),
        pytest.param("The purser did not answer. They take in 7,140 euros.", [], id="says so and answers"),
        pytest.param("The purser is down, but the brochure says Paris.", [], id="knows it from elsewhere"),
        pytest.param("It is larger than the Lotte.", [], id="a short answer"),
        pytest.param("Yes.", [], id="the shortest answer"),
        pytest.param("Done.", [tool("concierge", "written")], id="did it with a tool"),
        pytest.param("Noted.", [step("purser", "7,140 euros.")], id="the same agent tried again"),
        pytest.param("Noted.", [step("clerk", "7,140 euros.")], id="another agent answered"),
    ],
)
def test_a_failed_model_call_that_did_not_matter_is_no_failure(final: str, between: list[Step]) -> None:
    assert not triage(left_to(final, *between)).failed


def test_an_acknowledgement_without_a_failure_is_an_answer() -> None:
    assert not triage(run(step("concierge", "Noted."), task="Remember the milk.", output="Noted.")).failed
    assert not triage(run(step("clerk", "call"), tool("clerk", "ok"), step("clerk", "Noted."))).failed


@pytest.mark.parametrize(
    "output",
    [
        "I'm sorry, but I was unable to find it.",
        "I was not able to complete the task.",
        "Unfortunately, I could not access the page.",
        "Agent stopped due to max iterations.",
        "Maximum number of turns (10) exceeded",
        "Error: upstream failed",
    ],
)
def test_how_an_answer_sounds_makes_no_failure_by_itself(output: str) -> None:
    """It makes a suspicion at most: ``tests/unit/test_undelivered.py``."""
    ended = run(step("a", output, tools="find_page(title)"), output=output)
    assert not triage(ended).failed
    assert suspect(ended, least=0.5) is not None


@pytest.mark.parametrize(
    "output", ["The error rate is 5 %.", "Turn left at the sign.", "I cannot stress this enough: 7."]
)
def test_an_answer_about_errors_is_none(output: str) -> None:
    ended = run(step("a", output), output=output)
    assert not triage(ended).failed
    assert suspect(ended, least=0.1) is None


def test_a_rule_of_the_users_own_decides_either_way() -> None:
    trajectory = run(step("a", "x"), output="VERDICT: rejected")
    failed = triage(trajectory, [output_matching("rejected$")])
    passed = triage(run(step("a", "sorry"), output="sorry"), [output_matching("^sorry", failed=False)])
    assert (failed.failed, failed.source) == (True, OutcomeSource.USER)
    assert (passed.failed, passed.source) == (False, OutcomeSource.USER)


def test_no_rule_of_the_users_own_hangs_on_a_hostile_answer() -> None:
    """Python's own engine would need longer than the age of the universe."""
    hostile = run(step("a", "x"), output="a" * 100_000 + "!")
    assert not triage(hostile, [output_matching("^(a+)+$")]).failed


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(\w)\1", "(a", "a" * 20_000])
def test_a_rule_that_cannot_be_looked_for_in_bounded_time_is_refused_with_words(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"in RE2 syntax|at most"):
        output_matching(pattern)


def test_a_rule_may_be_about_an_empty_answer() -> None:
    assert triage(run(step("a", ""), output=""), [output_matching("^$")]).failed


def test_a_recorded_log_is_a_failure_without_asking() -> None:
    assert triage(run(step("a", "fine"), is_recorded_conversation=True)).failed


def test_a_lone_model_call_is_nobodys_failure_to_attribute() -> None:
    assert not worth_a_model(run(step(UNKNOWN_AGENT, "x")))
    assert worth_a_model(run(step("a", "x")))
    assert worth_a_model(run(step(UNKNOWN_AGENT, "x"), step(UNKNOWN_AGENT, "y", StepKind.TOOL)))
    assert not worth_a_model(run())


def absent(agent: str, **more: Any) -> Step:
    """Return a model call whose texts are not recorded."""
    return step(agent, "", content=ContentState.ABSENT, **more)


def test_an_agents_failed_call_counts_though_no_later_text_is_recorded() -> None:
    broken = step("purser", "", status=SpanStatus.ERROR, error="HTTP 500")
    before = step("registrar", "The Marianne has 85 seats.")
    finding = triage(run(absent("concierge"), before, absent("concierge"), broken, absent("concierge")))
    assert finding.failed
    assert "step 3 of purser failed" in finding.reason
    retried = run(absent("concierge"), broken, absent("purser"), absent("concierge"))
    assert not triage(retried).failed
    replaced = run(absent("concierge"), broken, absent("accountant"), absent("concierge"))
    assert not triage(replaced).failed
    tools = run(absent("concierge"), failed_tool("concierge"), absent("concierge"))
    assert not triage(tools).failed


def test_without_any_text_a_failed_call_may_have_been_recovered_from() -> None:
    broken = step("purser", "", status=SpanStatus.ERROR, error="HTTP 500")
    assert not triage(run(absent("concierge"), broken, absent("concierge"))).failed


LEAVES = "The ferry leaves at nine from the northern quay of the harbour."
TITLE = f"On the ferry {'and the harbour ' * 6}"


def titled(answer: str, title: str = TITLE) -> Trajectory:
    cut = {"gen_ai.response.finish_reasons": ("length",)}
    return ordered(
        workflow(1, task="When does the ferry leave?", answer=answer),
        agent(2, "pilot", end=29),
        chat(3, parent=2, start=21, answer=LEAVES),
        agent(4, "titler", end=90),
        chat(5, parent=4, answer=title, attributes=cut),
    )


def test_what_a_limit_cut_off_beside_the_answer_fails_no_run() -> None:
    assert ended_by_error(titled(LEAVES)) is None
    assert ended_by_error(titled("")) is not None
    assert ended_by_error(titled("On the ferry and the harbour")) is not None
    assert ended_by_error(titled(LEAVES, title="")) is not None
