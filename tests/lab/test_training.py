from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from analyzer.cli.main import run as blamespan
from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.posterior import Opinion, pool
from analyzer.lab.evaluation.training import (
    PENALTIES,
    TrainingImpossible,
    as_example,
    count_records,
    fit_linear,
    library,
    train,
)
from analyzer.lab.evaluation.validation import Labelled, across_systems, cross_validated, prepare
from analyzer.methods.ranker import (
    Ranker,
    Record,
    linear_shares,
    read_model,
    signal_shares,
    step_rows,
    write_model,
)
from analyzer.recordings.conversation_log import read_conversation

pytest.importorskip("sklearn")

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


def made(seed: int, subset: str = "one", blamed: str = "Coder") -> Conversation:
    """A run in which one agent, in one of its turns, writes an error: the labelled step."""
    draw = random.Random(seed)
    speakers = ["Planner", *(draw.choice(("Planner", "Coder", "Reader")) for _ in range(5)), blamed]
    wrong = draw.choice([place for place, name in enumerate(speakers) if name == blamed])
    history = [
        {
            "name": name,
            "content": " ".join(draw.choices(WORDS, k=6)) + (" error: wrong" if i == wrong else ""),
        }
        for i, name in enumerate(speakers)
    ]
    conversation = read_conversation({"history": history, "question": "?", "id": f"{subset}-{seed}"})
    return replace(conversation, label=Label(agent=blamed, step=wrong), source="made", subset=subset)


@pytest.fixture(scope="module")
def labelled() -> tuple[Labelled, ...]:
    return prepare([made(seed) for seed in range(24)])


@pytest.fixture(scope="module")
def ranker(labelled: tuple[Labelled, ...]) -> Ranker:
    return train([one.example for one in labelled])


def test_features_of_labelled_steps_are_learned_and_found_in_unseen_runs(
    labelled: tuple[Labelled, ...],
) -> None:
    scores = cross_validated(labelled, folds=2)
    assert sum(score.step_right for score in scores) >= 0.8 * len(scores)
    assert len({score.history for score in scores}) == len(scores), "by it, related runs are kept in one fold"


def test_the_same_runs_give_the_same_model(labelled: tuple[Labelled, ...], ranker: Ranker) -> None:
    assert train([one.example for one in labelled]) == ranker


def test_the_model_says_what_it_was_trained_on(ranker: Ranker) -> None:
    assert ranker.systems == ("made/one",)
    assert ranker.card["labels"] == 24
    assert ranker.is_at_home(["planner", "coder"])
    assert not ranker.is_at_home(["planner", "somebody", "else"])


def test_the_model_is_the_even_pool_of_its_learners_and_the_signals(
    labelled: tuple[Labelled, ...], ranker: Ranker
) -> None:
    examples = [one.example for one in labelled]
    rows = [step_rows(one.table, ranker.records, own=one.agent) for one in examples]
    fits = [fit_linear(rows, [one.step for one in examples], penalty) for penalty in PENALTIES]
    shown = step_rows(examples[0].table, ranker.records)
    said = [Opinion(shares=linear_shares(fit, shown), weight=0.5 / len(fits)) for fit in fits]
    expected = pool([*said, Opinion(shares=signal_shares(shown), weight=0.5)])
    assert ranker.steps.opinion(shown) == pytest.approx(expected)


def test_a_model_of_labels_at_random_claims_less_than_one_of_labels_that_show_something(
    ranker: Ranker,
) -> None:
    """Random labels teach only noise, which calibration detects out of fold."""
    draw = random.Random(7)
    runs = [
        replace(one, label=Label(agent=one.trajectory.steps[place].agent, step=place))
        for one in (made(seed) for seed in range(30))
        for place in [draw.randrange(len(one.trajectory.steps))]
    ]
    noise = train([one.example for one in prepare(runs)])
    assert noise.calibration.temperature > 2 * ranker.calibration.temperature


def test_a_refuted_step_makes_steps_like_it_less_likely() -> None:
    """Column 0 marks the refuted rows: the others share the weight, whichever of them is right."""
    rows = [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    (away, aside) = fit_linear([rows] * 4, [0] * 4, 1.0, refuted=[True] * 4)
    assert away < -0.1
    assert abs(aside) < abs(away)
    named = fit_linear([rows] * 4, [2] * 4, 1.0)
    both = fit_linear([rows] * 8, [2] * 4 + [0] * 4, 1.0, (), [False] * 4 + [True] * 4)
    assert both[0] < named[0]


def test_the_slope_of_a_refuted_run_is_that_of_its_loss() -> None:
    """No other point near the minimum has a lower loss, computed here by definition."""
    runs = [[[0.3, 1.0], [0.9, -0.2], [-0.5, 0.1]], [[1.0, 0.4], [0.2, 0.8]], [[0.1, 0.2], [0.7, -0.9]]]
    right, refuted, trust, penalty = [1, 0, 1], [False, True, True], [1.0, 0.5, 0.25], 0.3
    table = [row for run in runs for row in run]
    means = [fmean(column) for column in zip(*table, strict=True)]
    scale = [pstdev(column) + 1e-6 for column in zip(*table, strict=True)]

    def loss(weights: Sequence[float]) -> float:
        total = penalty / 2 * math.fsum((w * s) ** 2 for w, s in zip(weights, scale, strict=True))
        for run, place, is_wrong, weight in zip(runs, right, refuted, trust, strict=True):
            shown = [sum(w * (x - m) for w, x, m in zip(weights, row, means, strict=True)) for row in run]
            share = math.exp(shown[place]) / sum(map(math.exp, shown))
            total -= weight * math.log(1 - share if is_wrong else share)
        return total

    found = fit_linear(runs, right, penalty, trust, refuted)
    for step in (1e-3, -1e-3):
        assert loss(found) < loss((found[0] + step, found[1]))
        assert loss(found) < loss((found[0], found[1] + step))


def test_refuted_runs_are_learned_from_and_neither_counted_nor_scored(
    labelled: tuple[Labelled, ...], ranker: Ranker
) -> None:
    refuted = [
        replace(one, label=Label(agent=None, step=0, trust=0.5, is_refuted=True))
        for one in (made(seed) for seed in range(100, 112))
    ]
    more = (*labelled, *prepare(refuted))
    assert len(more) == len(labelled) + 12
    taught = train([one.example for one in more])
    assert (taught.card["labels"], taught.records, taught.steps != ranker.steps) == (24, ranker.records, True)
    assert len(cross_validated(more, folds=2)) == len(labelled)
    with pytest.raises(TrainingImpossible, match="4 labelled runs"):
        train([one.example for one in (*labelled[:4], *prepare(refuted))])


def test_runs_of_agents_that_change_from_run_to_run_are_at_home_all_the_same() -> None:
    runs = [
        replace(
            one,
            trajectory=replace(
                one.trajectory,
                steps=tuple(
                    replace(s, agent=f"Reader{seed}" if s.agent == "Reader" else s.agent)
                    for s in one.trajectory.steps
                ),
            ),
        )
        for seed, one in ((seed, made(seed)) for seed in range(24))
    ]
    model = train([one.example for one in prepare(runs)])
    assert 0 < model.home <= 0.5
    assert not model.is_at_home(["x", "y"])


def test_the_right_answer_is_never_learned_from() -> None:
    blind, told = made(1), made(1)
    told = replace(told, trajectory=replace(told.trajectory, reference="alpha"))
    assert as_example(blind) == as_example(told)


def test_runs_without_a_usable_label_are_no_examples() -> None:
    good = made(1)
    for label in (
        None,
        Label(agent=None, step=1),
        Label(agent="Coder", step=None),
        Label(agent="a", step=99),
    ):
        assert as_example(replace(good, label=label)) is None


def test_a_label_whose_agent_never_speaks_counts_for_the_actor_of_the_step() -> None:
    run = made(1)
    assert run.label is not None
    example = as_example(replace(run, label=Label(agent="Nobody", step=run.label.step)))
    assert example is not None
    assert example.agent == "coder"


def test_records_count_runs_and_blame(labelled: tuple[Labelled, ...]) -> None:
    records = count_records([one.example for one in labelled])
    assert records["coder"] == Record(runs=24, blamed=24)
    assert records["planner"].blamed == 0


def test_two_labels_of_one_conversation_are_one_run() -> None:
    first = made(1)
    again = replace(first, source="others", label=Label(agent="Planner", step=0))
    twin = replace(first, label=Label(agent="Planner", step=0))
    assert len(prepare([first, again])) == 1
    assert len(prepare([first, twin])) == 2  # two runs of one source that happen to be alike


def test_other_systems_are_judged_by_models_that_saw_none_of_their_runs() -> None:
    runs = [made(seed) for seed in range(8)] + [made(seed, "two", "Reader") for seed in range(100, 108)]
    labelled = prepare(runs)
    assert len(across_systems(labelled)) == 16
    assert across_systems(labelled[:8]) == ()
    assert len(across_systems(labelled[:11])) == 3  # three labels are too few to judge the first eight by


def test_too_few_labels_are_refused_in_words() -> None:
    with pytest.raises(TrainingImpossible, match="4 labelled runs: a ranker needs 5"):
        train([one.example for one in prepare([made(seed) for seed in range(4)])])


def test_a_missing_library_is_named_with_what_brings_it() -> None:
    with pytest.raises(TrainingImpossible, match=r"needs no_such_library: pip install '.\[server,ranker\]'"):
        library("no_such_library")


def write(path: Path, count: int) -> Path:
    lines = []
    for seed in range(count):
        run = made(seed)
        assert run.label is not None
        history = [{"name": s.agent, "content": s.output} for s in run.trajectory.steps]
        label = {"agent": run.label.agent, "step": run.label.step}
        lines.append(json.dumps({"history": history, "question": "?", "label": label, "id": str(seed)}))
    path.write_text("\n".join(lines))
    return path


def test_the_command_writes_a_model_and_its_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = write(tmp_path / "runs.jsonl", 15), tmp_path / "ranker.json"
    options = ["--date", "2026-01-02", "--folds", "2", "--no-curve", "--format", "json"]
    assert blamespan(["train", str(data), "--out", str(out), *options]) == 0
    card = json.loads(capsys.readouterr().out)
    assert (card["labels"], card["date"], card["folds"]) == (15, "2026-01-02", 2)
    assert card["in_distribution"][-1]["n"] == 15
    assert [split["n"] for split in card["splits"]] == [15] * 3
    assert card["splits"][0]["step_accuracy"] == card["in_distribution"][-1]["step_accuracy"]
    assert card["out_of_distribution"] == [], "one system: nothing else to try it on"
    assert dict(read_model(out.read_text()).card) == {k: v for k, v in card.items() if k != "model"}


def test_a_model_that_could_not_be_written_is_not_trained_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "runs.jsonl", 12)
    for out, problem in ((tmp_path / "nowhere" / "ranker.json", "no such folder"), (tmp_path, "is a folder")):
        assert blamespan(["train", str(data), "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert problem in error
        assert "training" not in error


def test_a_trained_model_answers_where_the_setting_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = write(tmp_path / "runs.jsonl", 12), tmp_path / "ranker.json"
    assert blamespan(["train", str(data), "--out", str(out), "--folds", "2", "--no-curve"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "other systems: not measured" in said
    monkeypatch.setenv("BLAMESPAN_RANKER", str(out))
    run = tmp_path / "run.json"
    run.write_text(data.read_text().splitlines()[0])
    assert blamespan(["attribute", str(run), "--format", "json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["method"] == "ranker"
    assert "12 labelled runs" in verdict["reason"]


def test_the_least_confidence_holds_for_a_ranker_too(
    tmp_path: Path, ranker: Ranker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "runs.jsonl", 1)
    model = tmp_path / "ranker.json"
    model.write_text(write_model(ranker))
    monkeypatch.setenv("BLAMESPAN_RANKER", str(model))
    for floor, status in (("0.01", "attributed"), ("1", "undetermined")):
        assert blamespan(["attribute", str(run), "--floor", floor, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["method"], found["status"]) == ("ranker", status)


def test_a_file_that_is_not_a_model_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "runs.jsonl", 1)
    (pickled := tmp_path / "model.pkl").write_bytes(b"\x80\x04.")
    for file in (run, pickled, Path("/dev/zero")):
        monkeypatch.setenv("BLAMESPAN_RANKER", str(file))
        assert blamespan(["attribute", str(run)]) == 2
        assert "not a ranker" in capsys.readouterr().err
