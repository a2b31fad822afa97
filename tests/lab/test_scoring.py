from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analyzer.inquiry.conversation import Label
from analyzer.lab.evaluation.scores import (
    Score,
    Subject,
    as_abstention,
    confident,
    score,
    summarise,
)
from semconv.model import Abstention, Attribution, Blame, Effort, Ranked, Status
from tests.contract_keys import BENCH_KEYS


def blamed(agent: str, step: int, confidence: float = 0.5, ranked: tuple[int, ...] = ()) -> Attribution:
    ranking = tuple(Ranked(step=s, agent="x", probability=0.1) for s in ranked)
    verdict = Blame(agent=agent, step=step, reason="", confidence=confidence, ranking=ranking)
    return Attribution(run_id="r", verdict=verdict, method="m", effort=Effort(calls=1, cost_usd=0.5))


def abstained(status: Status) -> Attribution:
    return Attribution(run_id="r", verdict=Abstention(status=status, reason=""), method="m")


LABEL = Label(agent="WebSurfer", step=12)


def scored(attribution: Attribution) -> Score:
    return score(attribution, LABEL, "s", steps=20, history="h")


def summed(*scores: Score) -> dict[str, Any]:
    return summarise(scores, Subject(dataset="d", method="m"), subset="s")


def test_integers_are_compared_as_integers_and_agents_by_any_spelling() -> None:
    right = scored(blamed("Websurfer (thought)", 12))
    assert right.step_right
    assert right.agent_right
    assert not scored(blamed("WebSurfer", 1)).step_right
    assert not scored(blamed("WebSurfer", 2)).step_right
    assert not scored(blamed("Surfer", 12)).agent_right


def test_a_missing_answer_is_wrong() -> None:
    for status in (Status.ERROR, Status.UNDETERMINED, Status.NO_FAILURE):
        result = scored(abstained(status))
        assert not result.step_right
        assert not result.agent_right
        assert not result.in_top_three


def test_the_line_begins_with_the_keys_of_the_contract_in_order() -> None:
    one, none = summed(scored(blamed("WebSurfer", 12))), summed()
    assert list(one)[: len(BENCH_KEYS)] == BENCH_KEYS
    assert list(one) == list(none)


def test_the_reference_scorers_figure_is_reported_under_its_own_name() -> None:
    """Label 2 is a substring of 12, which the reference scorer counts as right."""
    off = score(blamed("The WebSurfer", 12), Label(agent="WebSurfer", step=2), "s")
    line = summed(off)
    assert line["step_accuracy"] == line["agent_accuracy"] == 0
    assert line["reference_scorer"] == {"step_accuracy": 1.0, "agent_accuracy": 1.0}


def moded(mode: str, category: str) -> Score:
    verdict = Blame(agent="A", step=1, reason="", confidence=0.5, mode=mode)
    attribution = Attribution(run_id="r", verdict=verdict, method="m")
    return score(attribution, Label(agent="A", step=1, category=category), "s")


def test_the_failure_mode_is_scored_where_the_label_has_a_known_category() -> None:
    line = summed(
        moded("loop", "planning/inefficient_plan"),
        moded("bad_plan", "Planning / Inefficient Plan".replace(" / ", "/")),
        moded("", "Goal Deviation"),
        moded("loop", "Goal  deviation"),
        moded("loop", "a category of nobody's"),
        moded("loop", ""),
    )
    assert (line["modes"]["n"], line["modes"]["accuracy"], line["modes"]["best_constant"]) == (4, 0.5, 0.5)
    assert summed(moded("loop", ""))["modes"] is None


def test_figures_are_given_by_length_of_run() -> None:
    runs = [score(blamed("WebSurfer", 12), LABEL, "s", steps=n) for n in (5, 10, 11, 60, 61, 500)]
    assert [(row["steps"], row["n"]) for row in summed(*runs)["by_length"]] == [
        ("1-10", 2),
        ("11-30", 1),
        ("31-60", 1),
        ("61+", 2),
    ]


def test_a_verdict_that_is_withheld_counts_as_undetermined_and_wrong() -> None:
    right = scored(blamed("WebSurfer", 12))
    line = summed(as_abstention(right), right)
    assert (line["undetermined"], line["step_accuracy"], line["top3_step_accuracy"]) == (1, 0.5, 0.5)
    assert confident([as_abstention(right), right]) == [(0.5, True)]


def test_a_fallbacks_verdict_is_counted_as_one() -> None:
    helped = replace(blamed("A", 1), fallback="signals, because judge failed")
    assert summed(scored(helped), scored(blamed("A", 1)))["fallbacks"] == 1


def test_a_line_sums_accuracy_errors_calls_and_cost() -> None:
    line = summed(
        scored(blamed("WebSurfer", 12)),
        scored(blamed("A", 13, ranked=(13, 12))),
        scored(blamed("A", 16, ranked=(16, 1, 2, 12))),
        scored(abstained(Status.ERROR)),
        scored(abstained(Status.UNDETERMINED)),
    )
    assert line["n"] == 5
    assert line["step_accuracy"] == line["agent_accuracy"] == line["joint_accuracy"] == 0.2
    assert line["top3_step_accuracy"] == 0.4
    assert line["within"] == {"1": 0.4, "3": 0.4, "5": 0.6}
    assert (line["errors"], line["undetermined"], line["calls"]) == (1, 1, 3)
    assert line["cost_usd"] == 1.5


def test_an_unknown_cost_makes_the_sum_unknown() -> None:
    unknown = Attribution(
        run_id="r",
        verdict=Abstention(status=Status.ERROR, reason=""),
        method="m",
        effort=Effort(cost_usd=None),
    )
    assert summed(scored(unknown), scored(blamed("A", 1)))["cost_usd"] is None


def test_without_runs_there_are_no_shares() -> None:
    line = summed()
    assert (line["n"], line["step_accuracy"], line["step_accuracy_ci"], line["brier"]) == (
        0,
        None,
        None,
        None,
    )


def test_an_incomplete_label_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="label"):
        score(blamed("A", 1), Label(agent=None, step=1), "s")
