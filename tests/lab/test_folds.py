from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.inquiry.conversation import Conversation
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.folds import RunKeys, families, history_key, split, split_by_keys
from tests.runs import run, step

DATASETS = Path(__file__).parents[3] / "shared" / "datasets"


def conversations(count: int, subset: str = "s") -> list[Conversation]:
    return [
        Conversation(trajectory=run(step("a", f"{subset} {n}"), step("b", "y")), subset=subset)
        for n in range(count)
    ]


def test_every_run_is_in_one_fold_and_subsets_are_spread_evenly() -> None:
    runs = [*conversations(20, "one"), *conversations(10, "two")]
    folds = split(runs, 5)
    assert sorted(index for fold in folds for index in fold) == list(range(30))
    assert [sum(runs[i].subset == "two" for i in fold) for fold in folds] == [2] * 5


def test_identical_histories_are_in_one_fold_whatever_their_spelling_and_order() -> None:
    runs = conversations(11)
    twin = run(step("A (thought)", "s  3\n"), step("b", "y"))
    runs.append(Conversation(trajectory=twin, subset="elsewhere"))
    assert history_key(twin) == history_key(runs[3].trajectory)
    assert next(fold for fold in split(runs, 4) if 3 in fold).count(11) == 1
    turned = runs[::-1]
    there = [sorted(runs[i].trajectory.steps[0].output for i in fold) for fold in split(runs, 4)]
    back = [sorted(turned[i].trajectory.steps[0].output for i in fold) for fold in split(turned, 4)]
    assert there == back


def test_runs_of_one_task_are_in_one_fold_whichever_agents_worked_on_it() -> None:
    runs = [
        replace(one, trajectory=replace(one.trajectory, task=f"t{n // 2}"))
        for n, one in enumerate(conversations(20))
    ]
    folds = split(runs, 5)
    assert all({n ^ 1 for n in fold} == set(fold) for fold in folds)


def test_kinship_of_runs_is_transitive() -> None:
    keys = [
        RunKeys(subset="s", history="x", task="one"),
        RunKeys(subset="s", history="x", task="two"),
        RunKeys(subset="s", history="y", task="two"),
        RunKeys(subset="s", history="a", task=""),
        RunKeys(subset="s", history="b", task=""),
    ]
    assert families(keys) == ("hx", "hx", "hx", "ha", "hb")


def test_a_task_that_all_runs_share_does_not_keep_them_together() -> None:
    keys = [RunKeys(subset="s", history=str(n), task="the same") for n in range(10)]
    assert [len(fold) for fold in split_by_keys(keys, 5)] == [2] * 5


def test_another_salt_gives_another_split() -> None:
    keys = [RunKeys(subset="s", history=str(n)) for n in range(40)]
    splits = {split_by_keys(keys, 5, salt) for salt in range(4)}
    assert len(splits) == 4
    assert all(sorted(i for fold in one for i in fold) == list(range(40)) for one in splits)


def test_the_key_follows_from_speakers_texts_and_their_order() -> None:
    one = run(step("a", "x"), step("b", "y"))
    assert history_key(one) == history_key(replace(one, task="another", run_id="another"))
    assert history_key(one) != history_key(run(step("b", "y"), step("a", "x")))
    assert history_key(one) != history_key(run(step("a", "xb"), step("", "y")))


def test_folds_are_at_most_as_many_as_runs_and_at_least_two() -> None:
    assert len(split(conversations(3), 10)) == 3
    with pytest.raises(ValueError, match="at least 2"):
        split(conversations(3), 1)


@pytest.mark.skipif(not DATASETS.exists(), reason="the labelled logs are not beside the checkout")
def test_the_twins_and_the_second_labels_are_recognised() -> None:
    first = {history_key(r.trajectory) for r in read_dataset(DATASETS / "who_and_when.dev.jsonl.gz")}
    second = read_dataset(DATASETS / "agentrx.dev.jsonl.gz")
    assert len(first) == 91, "two of the 92 are twins"
    assert sum(history_key(r.trajectory) in first for r in second) == 22
