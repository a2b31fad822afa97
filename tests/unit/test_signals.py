"""Stories with the step that a careful reader would blame."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from analyzer.methods.without_model import judge_by_signals
from analyzer.signals.registry import findings
from analyzer.signals.scoring import posterior
from analyzer.signals.triage import triage
from analyzer.texts.run_view import Role, read
from analyzer.texts.tool_results import Fault
from semconv.model import (
    UNKNOWN_AGENT,
    Abstention,
    Blame,
    ContentState,
    SpanStatus,
    Status,
    Step,
    StepKind,
    Trajectory,
)
from tests.runs import calling, failed_tool, hearing, run, step, tool

TASK = "The Falcon cluster: how many GPUs, and what do 10 hours cost at $3 per GPU-hour?"


def blame(trajectory: Trajectory) -> Blame:
    verdict = judge_by_signals(trajectory)
    assert isinstance(verdict, Blame)
    return verdict


def struck(trajectory: Trajectory, signal: str) -> list[int]:
    """Return the steps that a signal marks."""
    return [found.step for found in findings(read(trajectory)) if found.signal == signal]


def falcon(*ending: Step) -> Trajectory:
    """A planner, a researcher whose tool fails once and then works, and an ending."""
    return run(
        step("planner", "The researcher finds the cluster, then the analyst works out the cost."),
        calling("researcher", ("lookup", '{"name": "Falcon"}')),
        failed_tool("researcher", "inventory timed out", input='{"name": "Falcon"}'),
        calling("researcher", ("lookup", '{"name": "Falcon"}'), input="Error: inventory timed out"),
        tool("researcher", "Falcon cluster: 16 GPUs", input='{"name": "Falcon"}'),
        step("researcher", "Falcon has 16 GPUs."),
        *ending,
        task=TASK,
    )


def test_a_wrong_calculation_is_blamed_and_not_the_error_that_was_repaired() -> None:
    verdict = blame(falcon(step("analyst", "16 x 10 x 3 = 450, so $450"), step("writer", "It costs $450.")))
    assert (verdict.agent, verdict.step) == ("analyst", 6)
    assert verdict.mode == "wrong_computation"
    assert "480" in verdict.reason
    assert verdict.evidence[0].quote == "16 x 10 x 3 = 450, so $450"


def shipment(crates: int, error: str = "OSError: no space left", **ending: str) -> Trajectory:
    """One agent weighs crates; then a tool raises, and the run ends in that error unless told otherwise."""
    weighed = [
        one
        for crate in range(crates)
        for one in (
            step("clerk", f'call weigh({{"crate": {crate}}})'),
            tool("clerk", f"crate {crate}: sound", target="weigh", input=f'{{"crate": {crate}}}'),
        )
    ]
    sealing = step("clerk", 'call seal({"hold": 2})')
    failed = failed_tool("clerk", error, target="seal", input='{"hold": 2}')
    fields = {"root_error": error, **ending}
    return run(*weighed, sealing, failed, root_status=SpanStatus.ERROR, **fields)


@pytest.mark.parametrize("crates", [5, 30, 200, 1000])
def test_steps_that_went_well_are_no_evidence_against_the_error_that_ended_the_run(crates: int) -> None:
    verdict = blame(shipment(crates))
    assert verdict.step == 2 * crates + 1
    assert verdict.confidence == pytest.approx(blame(shipment(5)).confidence, abs=0.1)
    for same in ("", "clerk: OSError('no space left on /dev/sda1')", "no space left"):
        assert blame(shipment(crates, root_error=same)).confidence > 0.5


def test_a_long_run_that_another_error_ended_stays_uncertain() -> None:
    assert blame(shipment(200, root_error="ValueError: the answer is wrong")).confidence < 0.3


def test_an_error_in_a_long_run_that_went_on_is_as_uncertain_as_before() -> None:
    story = shipment(200)
    sealed = step("clerk", "Hold 3 is sealed.")
    went_on = run(*story.steps, sealed, root_status=SpanStatus.ERROR, root_error="OSError: late")
    assert blame(went_on).confidence < 0.3


def test_a_turn_that_crashed_is_blamed_without_saying_that_it_ended_the_run() -> None:
    espresso, mocha = (f'{{"of": "a small cup of {what}"}}' for what in ("espresso", "mocha"))
    error = "TimeoutError: boiler is cold"
    story = run(
        step("barista", f"call brew({espresso})"),
        failed_tool("barista", error, target="brew", input=espresso),
        step("barista", f"call brew({mocha})"),
        tool("barista", "one mocha", target="brew", input=mocha),
        step("barista", "Here is the mocha."),
        root_error=error,
        failed_turn=(0, 1),
    )
    reason = triage(story).reason
    assert reason.startswith("the turn of steps 0 to 1 ended in an error that no later turn makes good")
    verdict = blame(story)
    assert (verdict.agent, verdict.step, verdict.mode) == ("barista", 1, "unhandled_error")
    assert "its turn ended without a successful retry" in verdict.reason
    assert "the run" not in verdict.reason


def test_the_last_failure_of_a_turn_ended_it_whatever_words_its_agent_uses() -> None:
    order = '{"of": "a small cup of espresso"}'
    story = run(
        step("barista", f"call brew({order})"),
        tool("barista", "one espresso", target="brew", input=order),
        step("barista", f"call froth({order})"),
        failed_tool("barista", "no milk", target="froth", input=order),
        step("barista", f"call froth({order})"),
        tool("barista", "foam", target="froth", input=order),
        root_error="cancelled by the till",
        failed_turn=(0, 3),
    )
    verdict = blame(story)
    assert verdict.step == 3
    assert "its turn ended without a successful retry" in verdict.reason


def test_a_failed_evaluation_is_evidence_for_its_step() -> None:
    story = falcon(step("analyst", "It costs 480 dollars."), step("writer", "It costs 480 dollars."))
    graded = replace(story.steps[6], failed_evaluations=("price_check",))
    verdict = blame(replace(story, steps=(*story.steps[:6], graded, *story.steps[7:])))
    assert (verdict.agent, verdict.step) == ("analyst", 6)
    assert "failed the evaluation price_check" in verdict.reason


def test_repeating_a_wrong_result_is_not_the_error() -> None:
    first = step("analyst", "16 x 10 x 3 = 450")
    reviewed = step("reviewer", "16 x 10 x 3 = 450 is right")
    assert blame(falcon(first, reviewed, step("writer", "16 GPUs; 16 x 10 x 3 = 450"))).step == 6


def test_who_shows_a_sum_to_be_wrong_is_not_blamed_for_quoting_it() -> None:
    verdict = blame(
        run(
            step("calc", "It is 8."),
            step("critic", "Calc's claim 3 + 4 = 8 is wrong; it must be 7."),
            step("writer", "The answer is 8."),
            task="What is the sum of three and four?",
            output="The answer is 8.",
        )
    )
    assert verdict.agent == "calc"


def test_a_denied_sum_that_nobody_stated_before_marks_no_one() -> None:
    trajectory = run(step("a", "I look."), step("critic", "Is 3 + 4 = 8? No, 7."), step("w", "7"))
    assert struck(trajectory, "wrong_computation") == []


def test_who_makes_a_sum_is_blamed_though_somebody_asked_after_it_before() -> None:
    asked, made = step("critic", "Is 3 + 4 = 8?"), step("calc", "3 + 4 = 8")
    assert blame(run(asked, made, step("writer", "It is 8."))).agent == "calc"


@pytest.mark.parametrize("source", ["task", "person"])
def test_a_wrong_sum_that_was_given_is_not_its_readers(source: str) -> None:
    given = "The bill says 16 x 10 x 3 = 450."
    person = (step("user", given, StepKind.HUMAN),) if source == "person" else ()
    trajectory = run(
        *person, step("clerk", "16 x 10 x 3 = 450"), task=given if source == "task" else "Check."
    )
    assert struck(trajectory, "wrong_computation") == []


def test_a_figure_from_nowhere_is_blamed_where_it_comes_in() -> None:
    verdict = blame(replace(falcon(step("analyst", "16 GPUs; 10 hours cost $450.")), output="16 GPUs; $450."))
    assert (verdict.agent, verdict.step) == ("analyst", 6)
    assert verdict.mode == "wrong_computation"
    assert verdict.reason == "analyst gave $450; 16 GPUs x 10 hours x $3 is $480."


def test_a_figure_that_a_tool_gave_is_not_from_nowhere() -> None:
    priced = (calling("a", ("price", "")), tool("a", "price: 450"), step("a", "It is 450."))
    trajectory = run(*priced, task="price?", output="450.")
    assert struck(trajectory, "unsupported_figure") == []


def test_a_figure_is_recognised_in_another_unit() -> None:
    verdict = blame(
        run(
            step("planner", "Find the power of the heater."),
            tool("scout", "power: 9,600 W"),
            step("scout", "The heater takes 6,900 W."),
            step("writer", "In total, the heater takes 6.9 kW."),
            task="How much power does the heater take?",
            output="6.9 kW",
        )
    )
    assert (verdict.agent, verdict.mode) == ("scout", "unsupported_claim")


def test_a_figure_of_a_tool_in_another_unit_is_not_from_nowhere() -> None:
    converted = run(
        tool("scout", "power: 9,600 W"), step("writer", "It takes 9.6 kW."), task="power?", output="9.6 kW"
    )
    assert struck(converted, "unsupported_figure") == []


def test_what_another_agent_does_at_the_same_time_repairs_no_crash() -> None:
    shops = '{"shop": "s-1"}', '{"shop": "n-2"}'
    south = [
        calling("south", ("index", shops[0]), group=0),
        failed_tool("south", "boom", "index", input=shops[0], group=0),
    ]
    north = [tool("north", "500", "index", input=shops[1], group=0), step("north", "Rebuilt.", group=0)]
    steps = [step("lead", "Rebuild both."), *south, *north]
    ended = run(*steps, root_status=SpanStatus.ERROR, root_error="a worker failed")
    assert struck(ended, "unhandled_error") == [2]
    later = run(*steps, step("north", "Both work."), root_status=SpanStatus.ERROR, root_error="late")
    assert struck(later, "unhandled_error") == []


def test_the_crash_that_ends_the_run_is_blamed() -> None:
    looking = calling("researcher", ("lookup", ""))
    verdict = blame(run(step("planner", "plan"), looking, failed_tool("researcher")))
    assert (verdict.agent, verdict.step) == ("researcher", 2)
    assert verdict.mode == "unhandled_error"
    assert verdict.confidence > 0.6


def test_an_agent_that_failed_is_said_to_have_failed() -> None:
    failed = replace(step("clerk", "", StepKind.AGENT), status=SpanStatus.ERROR, error="ValueError: 12")
    reasons = [f.reason for f in findings(read(run(step("planner", "plan"), failed, step("clerk", "ok"))))]
    assert "failed, and no later call succeeded in its place" in reasons


def test_going_on_after_an_error_as_if_nothing_happened_is_blamed() -> None:
    trajectory = run(
        calling("researcher", ("lookup", "")),
        tool("researcher", "exitcode: 1 (execution failed)\nCode output: boom"),
        step("writer", "The answer is confirmed."),
    )
    assert struck(trajectory, "ignored_error") == [2]
    assert blame(trajectory).agent == "writer"


def test_an_agent_that_says_that_there_was_an_error_does_not_ignore_it() -> None:
    trajectory = run(
        step("r", "call"), tool("r", "exitcode: 1 (failed)\nboom"), step("w", "The lookup failed; answer 5.")
    )
    assert struck(trajectory, "ignored_error") == []


@pytest.mark.parametrize(
    ("honest", "silent"),
    [
        ("Die Abfrage ist fehlgeschlagen; ich schätze 5 Kisten.", "Im Lager stehen 5 Kisten bereit."),
        ("La consulta falló; calculo unas 5 cajas.", "En el almacén hay 5 cajas preparadas."),
        ("Запрос не удался; думаю, ящиков 5.", "Сейчас есть 5 ящиков."),
        ("查询失败。我估计有 5 箱。", "仓库里有 5 箱。"),
        ("照会できませんでした。推定では 5 箱です。", "倉庫には 5 箱あります。"),
        ("تعذر الاستعلام، وأقدر العدد بنحو 5 صناديق.", "في المستودع 5 صناديق جاهزة."),
    ],
)
def test_an_error_may_be_mentioned_in_any_language(honest: str, silent: str) -> None:
    def ignored(answer: str) -> list[int]:
        trajectory = run(step("r", "call"), tool("r", "exitcode: 1 (failed)\nboom"), step("w", answer))
        return struck(trajectory, "ignored_error")

    assert ignored(honest) == []
    assert ignored(silent) == [2]


def test_trying_again_what_failed_is_no_loop_and_trying_again_what_worked_is() -> None:
    again = calling("r", ("lookup", '{"name": "Falcon"}'))
    retried = run(again, failed_tool("r"), again, tool("r", "16 GPUs"))
    looping = run(again, tool("r", "16 GPUs"), again, tool("r", "16 GPUs"))
    assert struck(retried, "loop") == []
    assert struck(looping, "loop") == [2]


ASKED = 'call search({"query": "house prices in Freiburg"})'


def searches(*results: str) -> list[Step]:
    return [one for told in results for one in (step("scout", ASKED), tool("scout", told, "search"))]


def test_a_call_repeated_without_end_is_a_loop_even_if_it_never_gave_a_result() -> None:
    verdict = blame(run(step("lead", "Scout, search."), *searches(*["No results found."] * 15)))
    assert (verdict.agent, verdict.mode) == ("scout", "loop")
    assert "15 times" in verdict.reason


@pytest.mark.parametrize(
    "results",
    [
        pytest.param([*["not found"] * 11, "612,000 EUR"], id="until the result is there"),
        pytest.param(["not found"] * 3, id="three times what fails"),
    ],
)
def test_a_call_is_repeated_without_a_loop(results: list[str]) -> None:
    assert struck(run(step("lead", "Scout, search."), *searches(*results)), "loop") == []


@pytest.mark.parametrize(
    "error", ["Max turns (10) exceeded", "MaxTurnsExceeded", "Recursion limit of 25 reached"]
)
def test_a_run_that_reached_its_limit_of_turns_is_blamed_on_the_agent_that_used_them_up(error: str) -> None:
    limited = run(
        step("lead", "It costs 450 EUR, I think."),
        *searches("612,000 EUR", "612,000 EUR", "612,000 EUR"),
        root_status=SpanStatus.ERROR,
        root_error=error,
        output="450 EUR",
    )
    verdict = blame(limited)
    assert (verdict.agent, verdict.mode) == ("scout", "loop")
    assert error in verdict.reason


def test_an_error_late_in_a_long_run_is_among_the_candidates() -> None:
    steps = [step(f"worker {n % 5}", f"I wrote the part about {'x' * n}.") for n in range(1_000)]
    steps[734] = failed_tool("worker 4", "HTTP 503")
    assert 734 in [one.step for one in blame(run(*steps)).ranking]


def test_words_that_are_said_again_led_nowhere_when_they_were_first_said() -> None:
    plan = "I will now write the functional requirements of the product."
    circling = run(step("a", "Hm."), step("b", plan), step("a", "Hm, hm."), step("b", plan), step("b", plan))
    assert struck(circling, "loop") == [1]


def test_made_up_data_are_blamed() -> None:
    verdict = blame(
        run(
            step("reader", "I read the page on sales."),
            step("analyst", "Let's assume a placeholder value of revenue for the year."),
            step("writer", "Revenue grew."),
        )
    )
    assert verdict.agent == "analyst"


def test_what_a_terminal_reports_is_laid_at_the_door_of_whoever_wrote_the_code() -> None:
    trajectory = run(
        step("Coder", "```python\nprint(x)\n```"),
        step("Computer_terminal", "exitcode: 1 (execution failed)\nNameError: x", StepKind.TOOL),
    )
    reading = read(trajectory)
    assert reading.roles == (Role.ACTING, Role.RELAYING)
    assert reading.responsible_steps == (0, 0)
    assert blame(trajectory).agent == "Coder"


def test_putting_the_task_is_no_action_unless_a_tool_answers_it() -> None:
    task = "Count the even street numbers in the attached file, please."
    stated = run(step("A", f"You are given: {task}"), step("B", "I count."), task=task)
    acted = run(step("A", f"You are given: {task}"), step("T", "4", StepKind.TOOL), task=task)
    assert read(stated).roles[0] is Role.STATING
    assert read(acted).roles[0] is Role.ACTING


@pytest.mark.parametrize(
    "statement",
    [
        "YOU ARE GIVEN: COUNT THE EVEN STREET NUMBERS IN THE ATTACHED FILE, PLEASE.",
        "You are given:\n> Count the **even** street\u00a0numbers\n> in the attached file, please.",
    ],
)
def test_the_task_is_known_however_it_is_set(statement: str) -> None:
    task = "Count the even street numbers in the attached file, please."
    assert read(run(step("A", statement), step("B", "I count."), task=task)).roles[0] is Role.STATING


def test_a_log_that_does_not_give_its_task_apart_opens_with_it() -> None:
    steps = (step("A", "Count the even street numbers."), step("B", "I count."))
    assert read(run(*steps, is_recorded_conversation=True)).roles[0] is Role.STATING
    assert read(run(*steps)).roles[0] is Role.ACTING  # of a trace the first step is an agent's
    alone = run(steps[0], is_recorded_conversation=True)
    assert read(alone).roles == (Role.ACTING,)


@pytest.mark.parametrize(
    ("plain", "typeset"),
    [
        ("Let's assume we have a dataset.", "Let\u2019s assume we have a dataset."),
        ("Let us assume that it is so.", "Let\u00a0us assume\u202fthat it is so."),
        ("16 x 10 x 3 = 450, so it costs that.", "\uff11\uff16 x 10 x 3 = 450, so it costs that."),
    ],
)
def test_how_a_text_is_typeset_changes_no_finding(plain: str, typeset: str) -> None:
    told, set_ = (findings(read(run(step("a", "Hm."), step("b", text)))) for text in (plain, typeset))
    assert told
    assert [(f.step, f.signal, f.weight) for f in told] == [(f.step, f.signal, f.weight) for f in set_]
    assert all(f.quote in typeset for f in set_)


def test_handing_over_is_coordination() -> None:
    passed = step("triage", "to b", StepKind.HANDOFF, target="b")
    trajectory = run(calling("triage", ("transfer_to_b", "")), passed, step("b", "x"))
    assert read(trajectory).roles == (Role.COORDINATING, Role.COORDINATING, Role.ACTING)
    assert blame(trajectory).agent == "b"


def test_who_gives_work_to_others_coordinates() -> None:
    steps = (
        step("lead", "I will assign tasks to the team members based on their expertise."),
        step("engineer", "I assign the value 4 to x, and finish the work that was assigned to me."),
        step("lead", "Well done, all of you."),
    )
    assert read(run(*steps)).roles == (Role.COORDINATING, Role.ACTING, Role.COORDINATING)
    assert blame(run(*steps)).agent == "engineer"


def test_who_gives_work_to_others_and_does_it_alone_acts() -> None:
    alone = run(step("lead", "I will delegate the work to my team."), step("lead", "There is no team."))
    assert set(read(alone).roles) == {Role.ACTING}
    own_tool = run(step("lead", "I assign tasks to others."), tool("lead", "4"), step("b", "It is 4."))
    assert read(own_tool).roles[0] is Role.ACTING


def test_the_right_answer_seen_late_clears_the_steps_before_it() -> None:
    steps = (step("a", "looking"), tool("a", "the capital is Lisbon"), step("b", "So it is Porto."))
    without = blame(run(*steps, output="Porto", task="capital?"))
    with_reference = blame(run(*steps, output="Porto", task="capital?", reference="Lisbon"))
    assert with_reference.step == 2
    assert with_reference.confidence > without.confidence or without.step != 2


def test_an_unseen_result_is_not_an_empty_one() -> None:
    unseen = run(step("a", "call"), tool("a", "", content=ContentState.ABSENT), step("b", "done"))
    empty = run(step("a", "call"), tool("a", "[]"), step("b", "done"))
    assert read(unseen).faults[1] is Fault.NONE
    assert read(empty).faults[1] is Fault.EMPTY


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        ("exitcode: 0 (execution succeeded)\nCode output: \n", Fault.EMPTY),
        ("exitcode: 0 (execution succeeded)\nCode output: Error: none of yours", Fault.NONE),
        ("exitcode: 1 (execution failed)\nCode output: x", Fault.FAILED),
        ("Traceback (most recent call last):\n…", Fault.FAILED),
        ("ValueError: bad", Fault.FAILED),
        ("HTTP 503 from upstream", Fault.FAILED),
        ("no results for that", Fault.EMPTY),
        ("None", Fault.EMPTY),
        ("\n\n  exitcode: 0 (execution succeeded)\nCode output: \n", Fault.EMPTY),
        ("exitcode: 0 (execution succeeded)\nCode\u00a0output: no\u00a0results", Fault.EMPTY),
        ("\x1b[31mValueError\x1b[0m: bad", Fault.FAILED),
        ("Falcon cluster: 16 GPUs", Fault.NONE),
        ("500 widgets were sold", Fault.NONE),
    ],
)
def test_how_a_tool_says_that_it_went_wrong(output: str, fault: Fault) -> None:
    assert read(run(tool("a", output))).faults == (fault,)


def test_an_agent_that_talks_about_errors_has_made_none() -> None:
    assert read(run(step("a", "ValueError: this is what you would see"))).faults == (Fault.NONE,)
    assert read(run(step("a", "", status=SpanStatus.ERROR))).faults == (Fault.FAILED,)


def test_probabilities_sum_to_one_and_the_ranking_leads_with_the_blamed_step() -> None:
    trajectory = falcon(step("analyst", "16 x 10 x 3 = 450"))
    reading = read(trajectory)
    assert sum(posterior(reading, findings(reading))) == pytest.approx(1)
    verdict = blame(trajectory)
    assert verdict.ranking[0].step == verdict.step
    assert sum(candidate.probability for candidate in verdict.ranking) <= 1.001


def test_without_evidence_the_confidence_is_low_and_the_reason_says_so() -> None:
    verdict = blame(run(*(step(name, f"{name} speaks") for name in "abcdef")))
    assert verdict.confidence < 0.5
    assert "No evidence singles out a step" in verdict.reason
    assert verdict.mode == ""


@pytest.mark.parametrize("agents", ["a", "ab", "abcd"])
def test_few_steps_to_choose_from_are_no_evidence(agents: str) -> None:
    verdict = blame(run(*(step(name, f"{name} speaks") for name in agents), output="Sorry."))
    assert "No evidence singles out a step" in verdict.reason
    assert verdict.confidence <= 0.3
    assert verdict.ranking[0].probability == verdict.confidence


def test_a_weak_mark_makes_nobody_sure_though_there_is_no_other_to_blame() -> None:
    weak = blame(run(step("a", "Paris."), task="q", output="Paris."))
    strong = blame(run(failed_tool("a", "boom")))
    assert 0.3 < weak.confidence < 0.6
    assert strong.confidence == 0.9


def test_the_confidence_is_the_first_probability_of_the_ranking_though_it_is_bounded() -> None:
    verdict = blame(run(step("a", "5 + 5 = 11"), failed_tool("a")))
    crash = blame(run(failed_tool("a", "boom")))
    assert crash.confidence == crash.ranking[0].probability == 0.9
    assert verdict.confidence == verdict.ranking[0].probability
    assert sum(candidate.probability for candidate in verdict.ranking) <= 1.001


def test_a_signal_that_strikes_one_step_often_counts_once() -> None:
    once = blame(run(step("a", "x"), step("b", "5 + 5 = 11")))
    often = blame(run(step("a", "x"), step("b", "5 + 5 = 11 and 6 + 6 = 13 and 7 + 7 = 15")))
    assert often.confidence == once.confidence


def test_where_nothing_stands_out_confidence_is_what_such_verdicts_earned() -> None:
    assert blame(run(step("a", "x"), step("b", "y"))).confidence <= 0.18


def test_a_dialogue_of_one_agent_with_a_user_limits_confidence_and_says_so() -> None:
    guess = step("clerk", "I assume the order is number 12, so I made up the rest of the data.")
    alone = blame(run(guess, step("clerk", "Done.")))
    user = step("user", "No, I want a refund.", kind=StepKind.HUMAN)
    talking = blame(run(user, guess, user, step("clerk", "Done.")))
    assert talking.confidence <= 0.15 < alone.confidence
    said = "One agent talks with a user (2 turns), so no single step shows what the user wanted."
    assert talking.reason.endswith(said)
    assert talking.ranking[0].probability == talking.confidence


def test_hundreds_of_steps_limit_confidence_unless_the_error_is_undisputable() -> None:
    many = [step("worker", f"part {number} is done") for number in range(100)]
    guess = step("worker", "I assume this; let me make up sample data.")
    doubtful = blame(run(*many[:3], guess, *many))
    assert doubtful.confidence <= 0.15
    assert "The run has 104 steps" in doubtful.reason
    wrong = blame(run(*many[:3], step("worker", "16 x 10 x 3 = 450"), *many))
    assert wrong.confidence > 0.5
    assert "steps, and such evidence" not in wrong.reason


def test_unknown_agents_and_missing_texts_limit_confidence_and_are_named() -> None:
    guess, fine = "I assume this; let me make up sample data.", step("c", "fine")
    named = blame(run(step("a", "plan"), step("b", guess), fine, fine))
    unknown = blame(run(*(step(UNKNOWN_AGENT, text) for text in ("plan", guess, "fine"))))
    assert unknown.confidence <= 0.15
    assert "The agent of 3 of 3 steps is unknown." in unknown.reason
    dark = replace(fine, content=ContentState.ABSENT)
    missing = blame(run(step("a", "plan"), step("b", guess), dark, dark))
    assert missing.confidence == pytest.approx(named.confidence * 3 / 5, abs=0.01)
    assert "2 of 4 steps cannot be read" in missing.reason


def test_a_run_without_steps_is_an_error_and_no_guess() -> None:
    verdict = judge_by_signals(run())
    assert isinstance(verdict, Abstention)
    assert verdict.status is Status.ERROR


def after_hearing(result: str, *ending: Step) -> Trajectory:
    """A tool without a span: the agent's next call receives its result."""
    asking = calling("researcher", ("lookup", '{"name": "Falcon"}'), input="user: How many GPUs?")
    heard = hearing(ending[0], ("tool", result))
    return run(step("planner", "Ask the researcher."), asking, heard, *ending[1:], task=TASK)


def heard_findings(trajectory: Trajectory) -> list[tuple[int, str]]:
    heard = {"unrepaired_error", "ignored_error"}
    return [(found.step, found.signal) for found in findings(read(trajectory)) if found.signal in heard]


def test_a_tools_failure_that_only_the_next_call_hears_is_evidence() -> None:
    gave_up = after_hearing("Error: inventory timed out", step("researcher", "I could not find it."))
    assert heard_findings(gave_up) == [(1, "unrepaired_error")]
    went_on = after_hearing("Error: inventory timed out", step("researcher", "Falcon has 96 GPUs."))
    assert heard_findings(went_on) == [(1, "unrepaired_error"), (2, "ignored_error")]
    (found,) = [each for each in findings(read(gave_up)) if each.signal == "unrepaired_error"]
    assert found.reason.startswith("called lookup, which failed")
    assert found.quoted_step == 2
    assert found.quote == "Error: inventory timed out"
    assert blame(gave_up).agent == "researcher"


def test_a_heard_failure_that_a_second_try_repaired_is_no_evidence() -> None:
    again = calling("researcher", ("lookup", '{"name": "Falcon"}'))
    worked = hearing(step("researcher", "16 GPUs."), ("tool", "16 GPUs"))
    repaired = after_hearing("Error: inventory timed out", again, worked)
    assert heard_findings(repaired) == []
    failed = hearing(step("researcher", "Not found."), ("tool", "Error: timed out"))
    failed_again = after_hearing("Error: timed out", again, failed)
    assert [at for at, _ in heard_findings(failed_again)] == [1, 2]


def test_what_a_tools_own_step_shows_is_not_heard_a_second_time() -> None:
    asking = calling("researcher", ("lookup", '{"name": "Falcon"}'))
    heard = hearing(step("researcher", "I could not find it."), ("tool", "Error: timed out"))
    shown = run(asking, failed_tool("researcher", "timed out"), heard, task=TASK)
    assert [found.quoted_step for found in findings(read(shown)) if found.signal == "unrepaired_error"] == [1]


def test_a_result_that_only_speaks_of_errors_is_no_failure() -> None:
    assert heard_findings(after_hearing("16 GPUs, error rate 0.1 %", step("researcher", "16 GPUs."))) == []


COMMAND = '{"goto": "analyst", "update": {"messages": [{"id": "450", "usage": {"total_tokens": 450}}]}}'


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param({"output": COMMAND}, id="langgraph's command as JSON"),
        pytest.param({"output": "Command(goto='analyst', update={'total_tokens': 450})"}, id="its repr"),
        pytest.param({"input": '{"state": {"remaining_steps": 450}}'}, id="a graph's state"),
    ],
)
def test_numbers_in_a_handoffs_payload_are_no_source_of_a_figure(payload: dict[str, str]) -> None:
    handoff = step("researcher", kind=StepKind.HANDOFF, target="analyst", **payload)
    story = falcon(handoff, step("analyst", "16 GPUs; 10 hours cost $450."))
    verdict = blame(replace(story, output="16 GPUs; $450."))
    assert verdict.agent == "analyst"
    assert re.search(r"\b(?:stated|gave) \$?450\b", verdict.reason)


@pytest.mark.parametrize("said", ['{"task": "10 hours cost $450"}', "10 hours cost $450"])
def test_what_an_agent_says_as_it_hands_over_is_its_word(said: str) -> None:
    handoff = step("researcher", kind=StepKind.HANDOFF, target="analyst", input=said)
    trajectory = replace(falcon(handoff, step("analyst", "It costs $450.")), output="It costs $450.")
    assert not [f for f in findings(read(trajectory)) if f.signal == "unsupported_figure" and f.step == 7]


@pytest.mark.parametrize(
    "result",
    [
        pytest.param("the ship register is not answering", id="a plain text"),
        pytest.param("Error: the ship register is not answering", id="marked as an error"),
    ],
)
def test_a_failed_look_up_is_blamed_and_not_the_words_that_give_up_over_it(result: str) -> None:
    """Frameworks hand an exception to the model as a text, without an error on any span."""
    excuse = "I could not find out how many seats it has: the ship register is not answering."
    gave_up = run(
        calling("registrar", ("look_up", '{"name": "Marianne"}')),
        tool("registrar", result, target="look_up"),
        hearing(step("registrar", excuse), ("tool", result)),
        hearing(step("concierge", excuse), ("tool", excuse)),
        output=excuse,
    )
    verdict = blame(gave_up)
    assert (verdict.agent, verdict.step, verdict.mode) == ("registrar", 1, "unhandled_error")


def test_a_result_that_an_agent_quotes_in_an_answer_is_no_failure() -> None:
    found = "the ferry leaves from the old harbour"
    reading = read(run(tool("a", found), step("a", f"As it says, {found}."), output=found))
    assert reading.failures_told == frozenset()
    other = read(run(tool("a", found), step("b", f"I could not find the time: {found}.")))
    assert other.failures_told == frozenset()


def test_asking_again_an_agent_whose_call_broke_is_no_loop() -> None:
    broken = step("purser", "", status=SpanStatus.ERROR, error="HTTP 500")
    asking = calling("concierge", ("purser", '{"task": "What do twelve crossings take in?"}'))
    steps = [one for _ in range(4) for one in (asking, broken)]
    verdict = blame(run(*steps, step("concierge", "Noted."), output="Noted."))
    assert (verdict.agent, verdict.step, verdict.mode) == ("purser", 1, "unhandled_error")


def test_a_loop_says_which_of_its_steps_is_blamed() -> None:
    calls = [tool("a", "nothing new", input='{"page": "of the harbour"}') for _ in range(4)]
    (finding,) = [one for one in findings(read(run(*calls, step("a", "Well.")))) if one.signal == "loop"]
    assert finding.step == 1
    assert "step 1 is the first repetition" in finding.reason
