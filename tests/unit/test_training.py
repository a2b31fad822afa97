from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.cli import run as blamespan
from analyzer.conversation import Conversation, Label, read_conversation
from analyzer.learning.candidates import CANDIDATES, Candidate, Forest, Linear, heard_alike, pooled
from analyzer.learning.features import FEATURES, FEATURES_OF
from analyzer.learning.fitting import TrainingImpossible, library
from analyzer.learning.model_file import read_model, write_model
from analyzer.learning.ranker import Ranker, Record, step_rows
from analyzer.learning.training import as_example, choose, count_records, train
from analyzer.measuring.validation import Labelled, across_systems, cross_validated, prepare
from analyzer.posterior import Opinion, pool

pytest.importorskip("sklearn")

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


def made(seed: int, subset: str = "one", blamed: str = "Coder") -> Conversation:
    """A run in which one agent, in one of its turns, writes an error: that is the labelled step."""
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


def test_what_marks_the_labelled_steps_is_learned_and_found_again_in_unseen_runs(
    labelled: tuple[Labelled, ...],
) -> None:
    scores = cross_validated(labelled, folds=2)
    assert sum(score.step_right for score in scores) >= 0.8 * len(scores)
    assert len({score.history for score in scores}) == len(scores), "by it, kin are kept in one fold"


def test_the_same_runs_and_seed_give_the_same_model(labelled: tuple[Labelled, ...], ranker: Ranker) -> None:
    assert train([one.example for one in labelled]) == ranker


def test_the_model_says_what_it_was_trained_on(ranker: Ranker) -> None:
    assert ranker.systems == ("made/one",)
    assert ranker.card["labels"] == 24
    assert ranker.is_at_home(["planner", "coder"])
    assert not ranker.is_at_home(["planner", "somebody", "else"])


def test_the_card_shows_how_every_candidate_did_and_which_is_used(ranker: Ranker) -> None:
    told = ranker.card["candidates"]
    assert list(told) == [candidate.name for candidate in CANDIDATES]
    assert told[ranker.card["chosen"]] < told["signals"]


def test_the_weights_of_every_candidate_sum_to_one() -> None:
    for candidate in CANDIDATES:
        weights = [candidate.signals, *(weight for _, weight in candidate.learners)]
        assert math.fsum(weights) == pytest.approx(1.0)


def test_the_first_candidate_gives_way_to_one_that_is_better_beyond_doubt_and_to_no_other(
    labelled: tuple[Labelled, ...],
) -> None:
    examples = [one.example for one in labelled]
    signals = Candidate(name="signals", signals=1.0)
    firm, firmer = (heard_alike(f"{p}", Linear(penalty=p), signals=0.0) for p in (1.0, 1.05))
    assert choose(examples, [signals, firm]).candidate is firm
    assert choose(examples, [firm, firmer]).candidate is firm
    assert choose(examples, [firmer, firm]).candidate is firmer


def test_a_pool_of_candidates_trained_is_the_pool_of_what_they_say(labelled: tuple[Labelled, ...]) -> None:
    examples = [one.example for one in labelled]
    parts = [
        heard_alike("one", Linear(penalty=1.0), signals=0.5),
        heard_alike("two", Linear(penalty=50.0), Forest(), signals=0.0),
    ]
    together = train(examples, candidates=[pooled("both", parts)])
    apart = [train(examples, candidates=[part]) for part in parts]
    rows = step_rows(examples[0].table, together.records)
    said = pool([Opinion(shares=one.steps.opinion(rows), weight=0.5) for one in apart])
    assert together.steps.opinion(rows) == pytest.approx(said)


def test_what_labels_do_not_show_is_left_to_the_signals() -> None:
    """The labelled steps are drawn at random: what is learned from them is noise, as inner folds show."""
    draw = random.Random(7)
    runs = [
        replace(one, label=Label(agent=one.trajectory.steps[place].agent, step=place))
        for one in (made(seed) for seed in range(30))
        for place in [draw.randrange(len(one.trajectory.steps))]
    ]
    noise = heard_alike("noise", Linear(penalty=0.001), signals=0.0)
    signals = Candidate(name="signals", signals=1.0)
    choice = choose([one.example for one in prepare(runs)], [signals, noise])
    assert choice.candidate is signals
    assert choice.surprises["noise"] > choice.surprises["signals"]


def test_a_learner_sees_no_group_of_features_but_its_own(labelled: tuple[Labelled, ...]) -> None:
    wordless = heard_alike("w", Linear(penalty=1.0, groups=("place",)), signals=0.0)
    model = train([one.example for one in labelled], candidates=[wordless])
    seen = {name for name, weight in zip(FEATURES, model.steps.weights, strict=False) if weight}
    assert seen
    assert seen <= set(FEATURES_OF["place"])


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


def test_a_label_whose_agent_never_speaks_counts_for_who_acted_in_the_step() -> None:
    run = made(1)
    assert run.label is not None
    example = as_example(replace(run, label=Label(agent="Nobody", step=run.label.step)))
    assert example is not None
    assert example.agent == "coder"


def test_records_count_runs_and_blame(labelled: tuple[Labelled, ...]) -> None:
    records = count_records([one.example for one in labelled])
    assert records["coder"] == Record(runs=24, blamed=24)
    assert records["planner"].blamed == 0


def test_a_second_sources_label_of_a_conversation_is_no_second_run() -> None:
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
    with pytest.raises(TrainingImpossible, match=r"needs no_such_library: pip install 'blamespan\[ranker\]'"):
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


def test_a_wanted_precision_leaves_the_less_sure_undetermined_and_needs_a_ranker(
    tmp_path: Path, ranker: Ranker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "runs.jsonl", 1)
    monkeypatch.setenv("BLAMESPAN_PRECISION", "0.9")
    assert blamespan(["attribute", str(run)]) == 2
    assert "without a ranker" in capsys.readouterr().err
    without = {key: value for key, value in ranker.card.items() if key != "confidences"}
    (bare := tmp_path / "bare.json").write_text(write_model(replace(ranker, card=without)))
    monkeypatch.setenv("BLAMESPAN_RANKER", str(bare))
    assert blamespan(["attribute", str(run)]) == 2
    assert "card of BLAMESPAN_RANKER does not say" in capsys.readouterr().err
    never_right = replace(ranker, card={**ranker.card, "confidences": [[0.4, 0], [0.9, 0]]})
    model = tmp_path / "ranker.json"
    model.write_text(write_model(never_right))
    monkeypatch.setenv("BLAMESPAN_RANKER", str(model))
    blamespan(["attribute", str(run), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["status"] == "undetermined"
    monkeypatch.setenv("BLAMESPAN_PRECISION", "0.5")
    often_right = replace(ranker, card={**ranker.card, "confidences": [[0.01, 0], [0.02, 1], [0.9, 1]]})
    model.write_text(write_model(often_right))
    blamespan(["attribute", str(run), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["status"] == "attributed"


def test_a_file_that_is_no_model_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "runs.jsonl", 1)
    (pickled := tmp_path / "model.pkl").write_bytes(b"\x80\x04.")
    for file in (run, pickled, Path("/dev/zero")):
        monkeypatch.setenv("BLAMESPAN_RANKER", str(file))
        assert blamespan(["attribute", str(run)]) == 2
        assert "not a ranker" in capsys.readouterr().err
