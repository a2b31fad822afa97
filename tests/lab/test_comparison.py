from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.intervals import wilson
from analyzer.lab.evaluation.bench_tables import to_svg
from analyzer.lab.evaluation.benchmark import compare, multi_reference, second_labels
from analyzer.lab.evaluation.folds import history_key
from analyzer.lab.evaluation.scores import Score, Subject, score, tabulate
from analyzer.lab.evaluation.significance import bootstrap, difference_interval, mcnemar, paired
from semconv.model import Attribution, Blame, Trajectory
from tests.runs import run, step

RUNS = [run(step("a", f"{n}"), step("b", "y"), step("c", "z"), run_id=f"r{n}") for n in range(4)]


def scored(trajectory: Trajectory, blamed: int, label: int = 1, subset: str = "s") -> Score:
    agents = "abc"
    verdict = Blame(agent=agents[blamed], step=blamed, reason="", confidence=0.5)
    attribution = Attribution(run_id=trajectory.run_id, verdict=verdict, method="m")
    history = history_key(trajectory)
    return score(attribution, Label(agent=agents[label], step=label), subset, steps=3, history=history)


def test_two_methods_are_compared_run_by_run_in_each_subset_and_in_total() -> None:
    first = [scored(r, at, subset=s) for r, at, s in zip(RUNS, (1, 0, 0, 0), "xxyy", strict=True)]
    second = [scored(r, at, subset=s) for r, at, s in zip(RUNS, (1, 1, 1, 0), "xxyy", strict=True)]
    lines = compare(first, second, dataset="d", names=("A", "B"))
    assert [(line["subset"], line["n"]) for line in lines] == [("x", 2), ("y", 2), ("total", 4)]
    total = lines[-1]["step"]
    assert (total["both"], total["only_first"], total["only_second"], total["neither"]) == (1, 0, 2, 1)
    assert total["difference"] == 0.5
    assert total["p_value"] == 0.5
    assert lines[-1]["compare"] == ["A", "B"]


def test_scores_of_different_runs_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same runs"):
        compare([scored(RUNS[0], 1)], [scored(RUNS[1], 1)], dataset="d", names=("A", "B"))


def test_runs_that_were_labelled_twice_are_scored_against_either_label() -> None:
    relabelled = [
        Conversation(trajectory=RUNS[0], label=Label(agent="c", step=2)),
        Conversation(trajectory=RUNS[1], label=Label(agent="b", step=1)),
        Conversation(trajectory=RUNS[2], label=Label(agent=None, step=1)),
    ]
    scores = [scored(RUNS[0], 2), scored(RUNS[1], 0), scored(RUNS[2], 1), scored(RUNS[3], 1)]
    twice = multi_reference(scores, second_labels(relabelled))
    assert twice["n"] == 2, "a label that lacks its agent is none"
    assert (twice["step_accuracy_first"], twice["step_accuracy_second"]) == (0.0, 0.5)
    assert twice["step_accuracy_either"] == twice["agent_accuracy_either"] == 0.5
    assert twice["labels_agree_on_step"] == twice["labels_agree_on_agent"] == 0.5
    assert twice["labels_agree_within_3"] == 1.0


SVG = "{http://www.w3.org/2000/svg}"


def drawn(*blamed: int, title: str = "t") -> ET.Element:
    scores = [
        score(
            Attribution(
                run_id=f"r{n}",
                verdict=Blame(agent="a", step=at, reason="", confidence=1 / (n + 1)),
                method="m",
            ),
            Label(agent="a", step=1),
            "sub<set>",
            steps=4,
            history=f"{n}",
        )
        for n, at in enumerate(blamed)
    ]
    return ET.fromstring(to_svg(tabulate(scores, Subject(dataset="d", method="m")), title))


def test_every_line_has_its_row_its_intervals_and_its_curve() -> None:
    picture = drawn(1, 2, 1, 1, title="a & b")
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert "a & b" in words
    assert "m, sub<set> (n=4)" in words
    assert "step 75.0" in words
    assert "agent 100.0" in words
    curves = list(picture.iter(f"{SVG}polyline"))
    assert len(curves) == 2
    assert all(len(curve.attrib["points"].split()) == 4 for curve in curves)


def test_nothing_is_drawn_outside_the_picture() -> None:
    picture = drawn(1, 1, 2, 3, 1, 2)
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    for circle in picture.iter(f"{SVG}circle"):
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height


def test_nothing_measured_is_an_empty_picture() -> None:
    assert list(drawn().iter(f"{SVG}circle")) == []


def test_wilson_gives_the_published_interval() -> None:
    """69 of 125 gives 46.5 to 63.6 %, 17 of 58 gives 19.2 to 42.0 %."""
    assert (round(wilson(69, 125).low, 3), round(wilson(69, 125).high, 3)) == (0.465, 0.636)
    assert (round(wilson(17, 58).low, 3), round(wilson(17, 58).high, 3)) == (0.192, 0.420)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share(counts: tuple[int, int]) -> None:
    right, n = counts
    interval = wilson(right, n)
    assert 0 <= interval.low <= right / n + 1e-12
    assert right / n - 1e-12 <= interval.high <= 1


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (0, 6, 0.03125), (1, 9, 0.021484375), (9, 25, 0.00904)],
)
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int, p: float) -> None:
    assert mcnemar(only_first, only_second) == pytest.approx(p, rel=1e-3)
    assert mcnemar(only_second, only_first) == mcnemar(only_first, only_second)


def test_a_paired_comparison_counts_all_four_cases() -> None:
    split = paired([True, True, False, False, False], [True, False, True, True, False])
    assert (split.both, split.only_first, split.only_second, split.neither) == (1, 1, 2, 1)
    assert split.difference == pytest.approx(0.2)
    with pytest.raises(ValueError, match="shorter"):
        paired([True], [])


def test_resampling_gives_the_same_interval_each_time_and_about_the_right_one() -> None:
    items = [0.0] * 50 + [1.0] * 50

    def mean(drawn: object) -> float:
        assert isinstance(drawn, list)
        return float(sum(drawn) / len(drawn))

    one, other = bootstrap(items, mean), bootstrap(items, mean)
    assert one == other
    assert one.low == pytest.approx(0.40, abs=0.04)
    assert one.high == pytest.approx(0.60, abs=0.04)
    with pytest.raises(ValueError, match="nothing"):
        bootstrap([], mean)


def test_a_difference_on_the_same_runs_has_a_narrower_interval_than_its_parts() -> None:
    first = [n % 2 == 0 for n in range(100)]
    second = [right or n < 10 for n, right in enumerate(first)]
    interval = difference_interval(first, second)
    assert 0 <= interval.low < 0.05 < interval.high < 0.12
