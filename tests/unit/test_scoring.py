from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.conversation import Label
from analyzer.scoring import Score, brier, calibration_error, score, summarise, wilson
from semconv.model import Abstention, Attribution, Blame, Effort, Ranked, Status

KEYS = [
    "dataset",
    "subset",
    "n",
    "method",
    "model",
    "step_accuracy",
    "step_accuracy_ci",
    "agent_accuracy",
    "agent_accuracy_ci",
    "joint_accuracy",
    "top3_step_accuracy",
    "within",
    "undetermined",
    "errors",
    "brier",
    "ece",
    "calls",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "duration_s",
]


def blamed(agent: str, step: int, confidence: float = 0.5, ranked: tuple[int, ...] = ()) -> Attribution:
    ranking = tuple(Ranked(step=s, agent="x", probability=0.1) for s in ranked)
    verdict = Blame(agent=agent, step=step, reason="", confidence=confidence, ranking=ranking)
    return Attribution(run_id="r", verdict=verdict, method="m", effort=Effort(calls=1, cost_usd=0.5))


def abstained(status: Status) -> Attribution:
    return Attribution(run_id="r", verdict=Abstention(status=status, reason=""), method="m")


LABEL = Label(agent="WebSurfer", step=12)


def scored(attribution: Attribution) -> Score:
    return score(attribution, LABEL, "s")


def summed(*scores: Score) -> dict[str, Any]:
    return summarise(scores, dataset="d", subset="s", method="m", model=None)


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


def test_the_line_has_the_keys_of_the_contract_in_order() -> None:
    assert list(summed(scored(blamed("WebSurfer", 12)))) == KEYS
    assert list(summed()) == KEYS


def test_everything_is_counted() -> None:
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


def test_no_runs_have_no_shares() -> None:
    line = summed()
    assert (line["n"], line["step_accuracy"], line["step_accuracy_ci"], line["brier"]) == (
        0,
        None,
        None,
        None,
    )


def test_wilson_gives_the_published_interval() -> None:
    """ATTRIBUTION's 69 of 125 is 46.5 to 63.6 %, 17 of 58 is 19.2 to 42.0 %."""
    assert (round(wilson(69, 125).low, 3), round(wilson(69, 125).high, 3)) == (0.465, 0.636)
    assert (round(wilson(17, 58).low, 3), round(wilson(17, 58).high, 3)) == (0.192, 0.420)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share(counts: tuple[int, int]) -> None:
    right, n = counts
    interval = wilson(right, n)
    assert 0 <= interval.low <= right / n + 1e-12
    assert right / n - 1e-12 <= interval.high <= 1


def test_confidence_that_is_always_right_is_perfectly_calibrated() -> None:
    sure = [scored(blamed("A", 12, confidence=1.0)) for _ in range(10)]
    assert brier(sure) == 0
    assert calibration_error(sure) == 0
    wrong = [scored(blamed("A", 3, confidence=1.0)) for _ in range(10)]
    assert brier(wrong) == 1
    assert calibration_error(wrong) == pytest.approx(1)


def test_abstaining_is_neither_well_nor_badly_calibrated() -> None:
    assert brier([scored(abstained(Status.ERROR))]) is None
    assert calibration_error([]) is None


def test_an_incomplete_label_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="label"):
        score(blamed("A", 1), Label(agent=None, step=1), "s")
