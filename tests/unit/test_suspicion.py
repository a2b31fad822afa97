"""Clues that a run failed although it reported no failure, and harmless things that look like them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.lineage.clue import least_suspicion, weigh
from analyzer.lineage.figures import figures
from analyzer.methods.attribution import Attributor
from analyzer.methods.suspicion import suspect
from analyzer.signals.suspicion import Clue, ClueKind, clues
from analyzer.texts.run_view import read
from semconv.model import Blame, Outcome, SpanStatus, Status, Step, Trajectory
from tests.runs import calling, failed_tool, hearing, run, step, tool

METERED = "Rack B draws 9600 W. Rack C draws 4100 W."
METER = tool("analyst", METERED, input='{"site": "Graz"}', target="read_meter")


def found(trajectory: Trajectory, kind: ClueKind) -> list[Clue]:
    return [clue for clue in clues(read(trajectory)) if clue.kind is kind]


def answered(*texts: str, task: str = "What does rack B draw?") -> Trajectory:
    """Return a run in which the analyst reads the meter and says these texts."""
    return run(METER, *(step("analyst", text) for text in texts), task=task, output=texts[-1])


WRONG = answered("Rack B draws 6,900 W.")


async def status_of(trajectory: Trajectory) -> Status:
    return (await RunAnalyst(attributor=Attributor()).analyse(trajectory)).attribution.status


def test_a_figure_that_the_tool_did_not_return_is_the_step_that_first_says_it() -> None:
    said = "Rack B draws 6,900 W."
    trajectory = run(METER, step("analyst", "Rack B: 6,900 W."), step("writer", said), output=said)
    (clue,) = found(trajectory, ClueKind.WRONG_FIGURE)
    assert clue.step == 1
    assert clue.reason == "gave 6,900 W; read_meter returned 9600 W"
    assert [evidence.step for evidence in clue.evidence] == [0, 1]


@pytest.mark.parametrize(
    "answer",
    [
        "Rack B draws 9,600 W.",
        "Rack B draws 9.6 kW.",
        "Rack B draws about 10,000 W.",
        "Together they draw 13,700 W.",
        "Rack B draws 5,500 W more than rack C.",
        "Rack B draws 2.34 times as much as rack C.",
        "On average they draw 6,850 W.",
        "Rack B draws 9.600 W (Stand 2024-05-01, 10:45, Ticket ABC-6900).",
        "See https://meters.example/racks/6900 for rack B.",
        "```\nlimit = 6900\n```",
        "@@ -6900,6 +6900,9 @@ def draw():\n-    return 6901\n+    return 6902",
    ],
)
def test_what_a_tool_returned_rounded_converted_or_computed_with_is_no_clue(answer: str) -> None:
    assert found(answered(answer), ClueKind.WRONG_FIGURE) == []


def test_what_an_agent_used_as_a_tool_says_is_no_source() -> None:
    inner = step("meter_agent", "Rack B draws 6,900 W now.", start_ns=20, end_ns=30)
    outer = tool("lead", "Rack B draws 6,900 W now.", target="ask_meter_agent", start_ns=10, end_ns=40)
    trajectory = run(METER, outer, inner, step("lead", "It is 6,900 W."), output="It is 6,900 W.")
    (clue,) = found(trajectory, ClueKind.WRONG_FIGURE)
    assert clue.step == 2


def test_where_a_tool_result_is_not_seen_no_figure_is_a_clue() -> None:
    unseen = tool("analyst", "", target="read_other", content="absent")
    trajectory = run(METER, unseen, step("analyst", "It is 6,900 W."), output="It is 6,900 W.")
    assert found(trajectory, ClueKind.WRONG_FIGURE) == []


def test_a_wrong_calculation_is_a_clue_unless_it_is_quoted_from_a_tool() -> None:
    trajectory = run(step("a", "16 x 10 x 3 = 450"), output="16 x 10 x 3 = 450")
    (clue,) = found(trajectory, ClueKind.WRONG_SUM)
    assert clue.step == 0
    quoted = run(tool("a", "2 + 3 = 6"), step("a", "The pupil has 2 + 3 = 6 in line 1."))
    assert found(quoted, ClueKind.WRONG_SUM) == []


RATE = "what does running all of them for 10 hours cost at $3 per GPU-hour?"


def cluster(answer: str, task: str = RATE, result: str = "The Falcon cluster has 16 GPUs.") -> Trajectory:
    return run(tool("a", result), step("a", answer), task=f"The Falcon cluster: {task}", output=answer)


@pytest.mark.parametrize(
    ("trajectory", "product"),
    [
        (cluster("It has 16 GPUs; that costs $450."), "16 GPUs x 10 hours x $3 is $480"),
        (
            cluster("85 seats take in 7,410 euros.", "12 crossings at 7 euros a seat?", "85 seats."),
            "85 seats x 12 x 7 euros is 7,140 euros",
        ),
        (cluster("It costs $450.", "what do 40 nights cost?", "$12 per night."), "40 nights x $12 is $480"),
    ],
)
def test_a_product_that_is_certain_is_named(trajectory: Trajectory, product: str) -> None:
    reasons = [clue.reason for clue in found(trajectory, ClueKind.WRONG_FIGURE) if clue.is_miscalculated]
    assert [reason.partition("; ")[2] for reason in reasons] == [product]


SURCHARGED = cluster("16 GPUs; $432 in all.", result="16 GPUs, 10 % off.")
MORE_GIVEN = cluster("16 GPUs; $450.", result="16 GPUs in 4 racks, 2 spare.")
NO_SLIP = cluster("16 GPUs; $6,250.", "what do 2 teams pay at $3 per hour?")


@pytest.mark.parametrize(
    "trajectory",
    [
        pytest.param(cluster("16 GPUs; that costs $480."), id="it is right"),
        pytest.param(SURCHARGED, id="a discount"),
        pytest.param(MORE_GIVEN, id="more was given"),
        pytest.param(cluster("That costs $450."), id="the answer does not use the count"),
        pytest.param(NO_SLIP, id="no slip, and other units"),
        pytest.param(cluster("16 GPUs take 450 W.", "at $3 per GPU-hour, how much?"), id="another unit"),
    ],
)
def test_a_product_that_is_not_certain_is_not_named(trajectory: Trajectory) -> None:
    assert not any(clue.is_miscalculated for clue in clues(read(trajectory)))


def test_a_figure_whose_calculation_stands_beside_it_is_told_by_its_calculation() -> None:
    wrong = cluster("With 16 GPUs that is 16 x 10 x 3 = 450, so $450.", "what does it cost?")
    blame = suspect(wrong, 0.01)
    assert blame is not None
    assert blame.reason == "a calculated “16 x 10 x 3 = 450”; the right result is 480."
    assert blame.mode == "wrong_computation"
    assert [found.quote for found in blame.evidence if found.step == 1] == [wrong.output]


def test_a_figure_is_not_compared_with_one_of_another_unit() -> None:
    told = cluster("The 16 GPUs take in 6,841 euros.", "what do they take in?", "It has 6,481 W.")
    assert found(told, ClueKind.WRONG_FIGURE) == []


def test_a_call_without_arguments_is_quoted_by_its_result() -> None:
    pages = [tool("a", "End of page.", input='{"": {}}', target="page_down") for _ in range(3)]
    (clue,) = found(run(*pages, step("a", "All read.")), ClueKind.LOOP)
    assert clue.evidence[0].quote == "End of page."


def test_a_result_that_only_an_input_shows_is_not_quoted_from_the_output() -> None:
    heard = hearing(step("a", "I have it. Rack B draws 6,900 W."), ("tool", "Rack B draws 9600 W."))
    quotes = [one.quote for clue in clues(read(run(heard, output=heard.output))) for one in clue.evidence]
    assert quotes
    assert all("6,900" in quote for quote in quotes)


def test_an_error_that_is_not_mentioned_is_a_clue_and_one_that_is_mentioned_is_none() -> None:
    silent = run(failed_tool("a"), step("a", "The price is 45,20 EUR."), output="The price is 45,20 EUR.")
    (clue,) = found(silent, ClueKind.IGNORED_ERROR)
    assert clue.step == 1
    unavailable = step("a", "The price could not be looked up.")
    honest = run(failed_tool("a"), unavailable, output="It is unavailable.")
    assert found(honest, ClueKind.IGNORED_ERROR) == []
    healed = run(failed_tool("a"), tool("a", "45.20"), step("a", "It is 45.20."), output="It is 45.20.")
    assert found(healed, ClueKind.IGNORED_ERROR) == []


@pytest.mark.parametrize(
    ("honest", "silent"),
    [
        ("Le prix est indisponible.", "Le prix est de 45,20 EUR."),
        ("Prezzo non trovato nel listino.", "Il prezzo è di 45,20 EUR."),
        ("Fiyat mevcut değil.", "Fiyat 45,20 avrodur."),
        ("가격을 찾을 수 없었습니다.", "가격은 45.20 유로입니다."),
        ("कीमत उपलब्ध नहीं है।", "कीमत 45.20 यूरो है।"),
        ("Der Preis war nicht erreichbar.", "Der Preis ist nicht hoch: 45,20 EUR."),
    ],
)
def test_an_error_may_be_mentioned_in_any_language(honest: str, silent: str) -> None:
    assert found(run(failed_tool("a"), step("a", honest), output=honest), ClueKind.IGNORED_ERROR) == []
    assert len(found(run(failed_tool("a"), step("a", silent), output=silent), ClueKind.IGNORED_ERROR)) == 1


def long(*ending: Step, steps: int = 600) -> Trajectory:
    """A run of very many weighings, each with its own result."""
    weighings = [
        one
        for crate in range(steps // 2)
        for one in (
            calling("clerk", ("weigh", f'{{"crate": {crate}}}')),
            tool("clerk", f"crate {crate} is sound", target="weigh", input=f'{{"crate": {crate}}}'),
        )
    ]
    return run(*weighings, *ending, task="Weigh all crates, then seal the hold.", output=ending[-1].output)


def test_no_number_of_steps_hides_an_error_or_a_loop() -> None:
    sealing = failed_tool("clerk", "seal jammed", target="seal_hold", input='{"hold": 2}')
    ignoring = long(calling("clerk", ("seal_hold", '{"hold": 2}')), sealing, step("clerk", "All is sealed."))
    (clue,) = found(ignoring, ClueKind.IGNORED_ERROR)
    assert clue.step == len(ignoring.steps) - 1
    again = tool("clerk", "hold 2 is open", target="open_hold", input='{"hold": 2}')
    looping = long(again, again, again, again, step("clerk", "It is done."))
    assert [clue.step for clue in found(looping, ClueKind.LOOP)] == [602]
    assert clues(read(long(step("clerk", "All crates are weighed.")))) == ()


def test_equal_calls_with_an_equal_result_are_a_loop_and_waiting_for_a_job_is_none() -> None:
    pending = [tool("a", "running", input="{}", target="get_job") for _ in range(5)]
    (clue,) = found(run(*pending, step("a", "All done here.")), ClueKind.LOOP)
    repeated = "repeated get_job with the same arguments 5 times without a new result"
    assert clue.reason == f"{repeated} (step 2 is the third time)"
    waited = run(*pending, tool("a", "finished", input="{}", target="get_job"), step("a", "Done."))
    assert found(waited, ClueKind.LOOP) == []


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        ("Filed under QX-47118.", 1),
        ("Filed under ABC-12.", 0),
        ("Any card from GTX-1080 on, or EN-60601 for clinics.", 0),
        ("See https://other.example/report.", 0),
        ('It says that "the pump was switched off twice in May".', 1),
        ('It says that "the pump was switched on twice in May".', 0),
        ("According to the Meridian Institute it is fine.", 0),
    ],
)
def test_references_that_no_tool_returned_are_clues(answer: str, kinds: int) -> None:
    text = "ABC-12 by Jane Roe, https://docs.example/a: the pump was switched on twice in May."
    assert len(found(run(tool("a", text), step("a", answer), output=answer), ClueKind.UNSOURCED)) == kinds


def test_who_first_says_what_no_tool_returned_is_named() -> None:
    answer = "Filed under QX-471130."
    plan, boats, sent = step("lead", "plan"), tool("a", "3 boats"), tool("b", "sent")
    steps = (plan, boats, step("a", answer), sent, step("b", answer))
    (clue,) = found(run(*steps, output=answer), ClueKind.UNSOURCED)
    assert clue.step == 2


@pytest.mark.parametrize(
    ("task", "answer", "broken"),
    [
        ("Say it in at most 3 words.", "one two three", False),
        ("Say it in at most 3 words.", "one two three four five", True),
        ("Give exactly 2 bullet points.", "- a\n- b", False),
        ("Give exactly 2 bullet points.", "- a\n- b\n- c", True),
        ("Do not use the word 'price'.", "It is pricey.", False),
        ("Do not use the word 'price'.", "The price is high.", True),
        ("Answer only in valid JSON.", '{"a": 1}', False),
        ("Answer only in valid JSON.", "a is 1", True),
        ("Answer without bullet points.", "- a\n- b", True),
        ("Is it under 3 words a day?", "It is a long answer about words.", True),
    ],
)
def test_demands_on_the_form_of_the_answer_are_checked(task: str, answer: str, *, broken: bool) -> None:
    trajectory = run(step("a", answer), task=task, output=answer)
    assert bool(found(trajectory, ClueKind.CONSTRAINT)) is broken


def test_figures_are_read_with_units_and_ids_dates_and_list_markers_are_none() -> None:
    text = (
        "1. Pay $1,234.50 by 2024-05-01 (INV-77), i.e. 12 %; 1.234,5 kg at 10:45, 2.1 million people, v1.2.3"
    )
    read = [(1234.5, "usd"), (12.0, "%"), (1234.5, "kg"), (2.1e6, "people")]
    assert [(one.value, one.unit) for one in figures(text)] == read


def test_no_clue_is_no_suspicion_and_the_tolerated_share_sets_the_threshold() -> None:
    assert weigh(()).probability == 0.0
    strict, usual, lax = (least_suspicion(share) for share in (0.005, 0.02, 0.1))
    assert strict is not None
    assert usual is not None
    assert lax is not None
    assert strict >= usual >= lax
    assert least_suspicion(0.0) is None


async def test_a_wrong_figure_makes_a_silent_run_suspected() -> None:
    analysis = await RunAnalyst(attributor=Attributor()).analyse(WRONG)
    verdict = analysis.attribution.verdict
    assert isinstance(verdict, Blame)
    assert (verdict.status, verdict.agent, verdict.step) == (Status.SUSPECTED, "analyst", 1)
    assert verdict.ranking[0].probability == verdict.confidence


TWO_MISTAKES = run(
    METER,
    step("analyst", "Rack B draws 6,900 W."),
    tool("buyer", "A socket costs 8.42 EUR. A cable costs 3.15 EUR.", input="{}", target="prices"),
    step("buyer", "A socket costs 8.24 EUR."),
    task="What does rack B draw, and what does a socket cost?",
    output="Rack B draws 6,900 W and a socket costs 8.24 EUR.",
)


async def test_that_a_run_failed_and_that_it_was_this_step_are_two_probabilities() -> None:
    analysis = await RunAnalyst(attributor=Attributor(least_confidence=0.9)).analyse(TWO_MISTAKES)
    verdict = analysis.attribution.verdict
    assert isinstance(verdict, Blame)
    assert verdict.failed_probability is not None
    assert len(verdict.ranking) == 2
    assert verdict.confidence == verdict.ranking[0].probability < 0.9 * verdict.failed_probability
    ranked = sum(one.probability for one in verdict.ranking)
    assert ranked == pytest.approx(verdict.failed_probability, abs=1e-3)
    document = json.loads(analysis.document)
    assert document["confidence"] == verdict.confidence
    assert document["failed_probability"] == verdict.failed_probability


async def test_a_model_that_agrees_raises_both_probabilities_by_the_same_factor() -> None:
    before = (await RunAnalyst(attributor=Attributor()).analyse(TWO_MISTAKES)).attribution.verdict
    model = ScriptedModel(replies=("Yes. It does.",))
    after = (await RunAnalyst(attributor=Attributor(model=model)).analyse(TWO_MISTAKES)).attribution.verdict
    assert isinstance(before, Blame)
    assert isinstance(after, Blame)
    assert before.failed_probability is not None
    assert after.failed_probability is not None
    factor = after.failed_probability / before.failed_probability
    assert factor > 1
    assert after.confidence == pytest.approx(before.confidence * factor, abs=1e-3)
    assert after.confidence == after.ranking[0].probability


async def test_suspicion_is_off_where_no_false_alarm_is_tolerated() -> None:
    analyst = RunAnalyst(attributor=Attributor(), least_suspicion=least_suspicion(0.0))
    assert (await analyst.analyse(WRONG)).attribution.status is Status.NO_FAILURE


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"outcome": Outcome.SUCCESS}, id="its outcome is stated"),
        pytest.param({"complete": False}, id="spans are missing"),
    ],
)
async def test_a_run_is_not_suspected_if(fields: dict[str, Any]) -> None:
    assert await status_of(replace(WRONG, **fields)) is Status.NO_FAILURE


@pytest.mark.parametrize("status", [SpanStatus.UNSET, SpanStatus.ERROR])
async def test_a_run_without_steps_is_unreadable_whether_it_failed_or_not(status: SpanStatus) -> None:
    analysis = await RunAnalyst(attributor=Attributor()).analyse(run(root_status=status))
    assert analysis.attribution.status is Status.UNREADABLE
    assert RunAnalyst(attributor=Attributor()).glance(run()).attribution.status is Status.UNREADABLE


@pytest.mark.parametrize("reply", ["Yes. Step 1 misreports.", "No. It holds."])
async def test_a_model_is_asked_once_and_alone_clears_no_suspicion(reply: str) -> None:
    model = ScriptedModel(replies=(reply,))
    before = (await RunAnalyst(attributor=Attributor()).analyse(WRONG)).attribution.verdict
    attribution = (await RunAnalyst(attributor=Attributor(model=model)).analyse(WRONG)).attribution
    assert (attribution.status, attribution.method, len(model.prompts)) == (Status.SUSPECTED, "confirm", 1)
    assert isinstance(before, Blame)
    assert isinstance(attribution.verdict, Blame)
    says_so = reply.startswith("Yes")
    assert (attribution.verdict.certainty > before.certainty) is says_so
    denied = "A model that was asked says that this does not hold"
    assert (denied in attribution.verdict.reason) is not says_so


async def test_a_suspicion_stands_where_the_model_fails() -> None:
    model = ScriptedModel(replies=())
    attribution = (await RunAnalyst(attributor=Attributor(model=model)).analyse(WRONG)).attribution
    assert attribution.status is Status.SUSPECTED
    assert attribution.fallback is not None
    assert attribution.error is None


def test_the_sign_of_a_product_is_no_unit() -> None:
    found = figures("580 x 12 x (7 + 1) = 48,720; a 3x gain of 40 x-rays")
    plain = [("580", ""), ("12", ""), ("7", ""), ("1", ""), ("48,720", "")]
    assert [(one.shown, one.unit) for one in found] == [*plain, ("3x", "x"), ("40 x", "x")]


def test_a_figure_that_a_hidden_call_passes_on_is_an_agents_word() -> None:
    """Traceloop's spans of LangChain.js do not show what a model requested."""
    answer = "With 580 seats the ferry takes in 48,720 euros."
    passed_on = run(
        step("concierge", "", input="user: How many seats does the ferry have?"),
        tool("registrar", "The ferry Marianne has 850 seats."),
        step("registrar", "The register says: The ferry Marianne has 580 seats."),
        step("purser", answer, input="user: What does it take in? The ferry Marianne has 580 seats."),
        task="How many seats does the ferry have, and what do 12 crossings take in at 7 euros?",
        output=answer,
    )
    assert [clue.step for clue in found(passed_on, ClueKind.WRONG_FIGURE) if clue.value == 580.0] == [2]
