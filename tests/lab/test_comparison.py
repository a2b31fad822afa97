from __future__ import annotations

import pytest

from analyzer.inquiry.conversation import Conversation, Label
from analyzer.lab.evaluation.benchmark import compare, multi_reference, second_labels
from analyzer.lab.evaluation.folds import history_key
from analyzer.lab.evaluation.scores import Score, score
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
