"""Displayed text of a trace cannot move the cursor, colour the screen or fake a row."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from analyzer.inquiry.present import counted, plain, set_in_prose
from analyzer.inquiry.terminal import run_heading, steps_table, verdict_panel
from analyzer.signals.triage import triage
from analyzer.telemetry.json_lines import json_text
from semconv.model import (
    UNKNOWN_AGENT,
    Abstention,
    Attribution,
    Blame,
    Change,
    Evidence,
    Origin,
    Passed,
    Pooled,
    Ranked,
    SpanStatus,
    Status,
    Step,
    StepKind,
    StepSet,
    Trajectory,
    ValueOrigin,
)

STEPS = (
    Step(index=0, agent="planner", kind=StepKind.LLM, output="plan"),
    Step(index=1, agent="calculator", kind=StepKind.TOOL, target="multiply", input="2, 3", output="6"),
    Step(index=2, agent="calculator", kind=StepKind.LLM, output="it is 7", status=SpanStatus.ERROR),
)
RUN = Trajectory(run_id="r", steps=STEPS, task="what is 2 x 3?", output="7", reference="6")
BLAME = Blame(
    agent="calculator",
    step=2,
    reason="the tool gave 6",
    confidence=0.8,
    evidence=(Evidence(step=2, quote="it is 7"), Evidence(step=2, quote="7")),
    ranking=(
        Ranked(step=2, agent="calculator", probability=0.8),
        Ranked(step=0, agent="planner", probability=0.1),
    ),
)


def shown(*parts: object) -> str:
    screen = Console(file=io.StringIO(), width=100, force_terminal=False)
    for part in parts:
        screen.print(part)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_an_agent_without_a_name_is_shown_as_unnamed() -> None:
    steps = (
        Step(index=0, agent=UNKNOWN_AGENT, kind=StepKind.LLM, output="6"),
        Step(index=1, agent="planner", kind=StepKind.HANDOFF, target=UNKNOWN_AGENT),
    )
    nameless = replace(RUN, steps=steps)
    ranking = (
        Ranked(step=0, agent=UNKNOWN_AGENT, probability=0.6),
        Ranked(step=1, agent="planner", probability=0.3),
    )
    verdict = replace(BLAME, agent=UNKNOWN_AGENT, step=0, ranking=ranking)
    attribution = Attribution(run_id="r", verdict=verdict, method="signals")
    told = shown(steps_table(nameless), verdict_panel(attribution, nameless))
    assert told.count("unnamed agent") == 4
    assert UNKNOWN_AGENT not in told


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2Jgone",
        "a\rb",
        "line\nline",
        "right\u202eleft",
        "zero\u200bwidth",
        "bell\x07",
        "\x9b31m",
        "\ud800",
    ],
)
def test_no_character_controls_the_terminal(text: str) -> None:
    assert plain(text).isprintable()


def test_long_text_is_cut_and_says_so() -> None:
    assert plain("x" * 10_000, 20) == "x" * 19 + "…"
    assert plain("short", 20) == "short"


def test_markup_of_a_trace_is_text() -> None:
    step = replace(STEPS[0], agent="[red]x[/red]", output="[link=http://evil]y[/link]")
    text = shown(steps_table(replace(RUN, steps=(step,))))
    assert "[red]x[/red]" in text
    assert "[link=http://evil]y" in text


def test_the_blamed_step_is_marked_and_the_verdict_says_who_where_and_why() -> None:
    attribution = Attribution(run_id="r", verdict=BLAME, method="signals")
    text = shown(run_heading(RUN), steps_table(RUN, attribution), verdict_panel(attribution, RUN))
    (marked,) = [line for line in text.splitlines() if line.startswith("▶")]
    assert "calculator" in marked
    assert "✗ it is 7" in marked
    assert "calculator, at step 2 of 3" in text
    assert "the tool gave 6" in text
    assert "multiply(2, 3) → 6" in text
    assert text.count("“") == 1, "a quote that another contains is not shown again"


def test_the_verdict_says_what_the_model_named_and_has_earned() -> None:
    both = Pooled(
        step=0, agent="a", own_step=2, own_agent="b", weight=0.3125, accuracy=0.4, right=6.5, labelled=12
    )
    judged = Attribution(run_id="r", verdict=BLAME, method="judge+signals", model="large", pooled=both)
    text = " ".join(shown(verdict_panel(judged, RUN)).replace("│", "").split())
    assert "model large · it named step 0, weight 0.3125 of 1 (right in 6.5 of 12 labelled runs)" in text
    new = replace(judged, pooled=replace(both, right=0.0, labelled=0.0, weight=0.25))
    text = " ".join(shown(verdict_panel(new, RUN)).replace("│", "").split())
    assert "it named step 0, weight 0.25 of 1 (no labelled runs)" in text


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (Status.NO_FAILURE, "Nothing broke"),
        (Status.UNDETERMINED, "Undetermined"),
        (Status.WAITING, "Waiting"),
        (Status.CANCELLED, "Cancelled"),
        (Status.ERROR, "Could not analyse"),
    ],
)
def test_a_verdict_without_blame_says_why(status: Status, title: str) -> None:
    attribution = Attribution(
        run_id="r", verdict=Abstention(status=status, reason="because"), method="triage"
    )
    text = shown(verdict_panel(replace(attribution, checked=("One was checked.", "Two not.")), RUN))
    assert title in text
    assert "because" in text
    assert "checked   One was checked." in text
    assert "Two not." in text


@pytest.mark.parametrize("char", ["\x9b", "\x7f", "\u202e", "\u2066", "\u200b", "\u2028", "\U000e0041"])
def test_json_for_a_terminal_bears_nothing_that_steers_it_and_says_the_same(char: str) -> None:
    document = {f"na{char}me": f"prices{char}31m größer 数"}
    line = json_text(document)
    assert char not in line
    assert "größer 数" in line
    assert json.loads(line) == document


def test_a_suspicion_shows_the_probabilities_of_a_failure_and_of_this_step() -> None:
    suspicion = replace(BLAME, status=Status.SUSPECTED, confidence=0.41, failed_probability=0.95)
    text = shown(verdict_panel(Attribution(run_id="r", verdict=suspicion, method="signals"), RUN))
    assert "probably failed: 95%, this step: 41%" in text


def test_a_set_of_steps_is_shown_with_what_was_observed() -> None:
    found = StepSet(steps=(1, 2, 4), coverage=0.9, observed=0.93, interval=(0.86, 0.97), n=84)
    text = shown(
        verdict_panel(Attribution(run_id="r", verdict=replace(BLAME, step_set=found), method="ranker"), RUN)
    )
    assert "the decisive step is 1, 2 or 4 in 90% of such runs" in " ".join(text.split())
    assert set_in_prose(replace(found, steps=(2,))).startswith("the decisive step is 2 in 90%")


def test_values_without_an_origin_are_shown_with_the_value_they_replace() -> None:
    said, changed = (
        Passed(step=1, value="6", change=Change.SAID),
        Passed(step=2, value="7", change=Change.CHANGED),
    )
    values = (
        ValueOrigin(value="2", origin=Origin.GIVEN),
        ValueOrigin(value="7", origin=Origin.NOWHERE, step=2, chain=(said, changed)),
        ValueOrigin(value="R-9", origin=Origin.NOWHERE, step=2),
    )
    attribution = Attribution(run_id="r", verdict=BLAME, method="signals", lineage=values)
    text = shown(verdict_panel(attribution, RUN))
    assert "7 at step 2, for 6 of step 1" in text
    assert "R-9 at step 2, from nowhere in the run" in text


def test_what_the_reason_says_is_not_shown_again() -> None:
    value = ValueOrigin(value="3,530", origin=Origin.NOWHERE, step=2)
    quote = Evidence(step=2, quote="1,200 + 2,430 = 3,530.")
    told = replace(BLAME, reason="b calculated “1,200 + 2,430 = 3,530”.", evidence=(quote,))
    repeated = shown(verdict_panel(Attribution(run_id="r", verdict=told, method="m", lineage=(value,)), RUN))
    assert repeated.count("3,530") == 1
    other = replace(told, reason="b is wrong.")
    shown_once = shown(
        verdict_panel(Attribution(run_id="r", verdict=other, method="m", lineage=(value,)), RUN)
    )
    assert "“1,200 + 2,430 = 3,530.”" in shown_once
    assert "3,530 at step 2" in shown_once


def test_suspects_are_listed_only_where_there_is_a_second_one() -> None:
    def suspects(second: float) -> str:
        ranking = (Ranked(step=2, agent="b", probability=0.84), Ranked(step=1, agent="a", probability=second))
        verdict = replace(BLAME, ranking=ranking)
        return shown(verdict_panel(Attribution(run_id="r", verdict=verdict, method="m"), RUN))

    assert "suspects" in suspects(0.1)
    assert "suspects" not in suspects(0.01)


def test_a_run_without_a_stated_outcome_is_shown_as_neither_failed_nor_passed() -> None:
    finding = triage(replace(RUN, reference=None, steps=RUN.steps[:2]))
    assert not finding.failed
    verdict = Abstention(status=Status.NO_FAILURE, reason=finding.reason)
    text = shown(verdict_panel(Attribution(run_id="r", verdict=verdict, method="triage"), RUN))
    assert "No sign of failure" in text
    assert "Nothing broke" not in text


@pytest.mark.parametrize(("number", "said"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps")])
def test_a_count_of_one_has_no_plural(number: int, said: str) -> None:
    assert counted(number, "step") == said
