from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.errors import UnreadableInput
from analyzer.lab.evaluation.benchmark import (
    LEARNERS,
    Attribute,
    Job,
    blinded,
    examine,
    labelled,
    out_of_fold,
    select,
    trained_on,
)
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.folds import history_key
from analyzer.lab.evaluation.scores import Score, Subject, score, tabulate
from analyzer.methods.attribution import Attributor
from semconv.model import Attribution, Blame, Trajectory
from tests.runs import run, step

WHO_AND_WHEN = Path(__file__).parents[3] / "shared" / "datasets" / "who_and_when.dev.jsonl.gz"


def known(subset: str, at: int | None, agent: str | None = "b") -> Conversation:
    trajectory = run(step("a", "x"), step("b", "y"), is_recorded_conversation=True)
    return Conversation(trajectory=trajectory, label=Label(agent=agent, step=at), subset=subset)


async def always_b(trajectory: Trajectory) -> Attribution:
    verdict = Blame(agent="b", step=1, reason="", confidence=0.5)
    return Attribution(run_id=trajectory.run_id, verdict=verdict, method="m")


def jobs(runs: Sequence[Conversation], attribute: Attribute = always_b) -> list[Job]:
    return [Job(run=one, attribute=attribute) for one in labelled(runs)]


async def test_each_subset_has_a_line_and_the_last_line_is_the_total() -> None:
    runs = [known("one", 1), known("two", 0, "a"), known("one", 1)]
    lines = tabulate(await examine(jobs(runs)), Subject(dataset="d", method="m"))
    assert [(line["subset"], line["n"], line["step_accuracy"]) for line in lines] == [
        ("one", 2, 1.0),
        ("two", 1, 0.0),
        ("total", 3, pytest.approx(2 / 3)),
    ]


def test_labels_without_agent_or_step_are_left_out() -> None:
    unlabelled = Conversation(trajectory=run(step("a", "x")))
    runs = [known("s", 1), known("s", None), known("s", 1, None), known("s", -1), known("s", 99), unlabelled]
    assert labelled(runs) == runs[:1]


async def test_no_more_runs_than_asked_for_are_attributed_at_once() -> None:
    running = highest = 0

    async def counted(trajectory: Trajectory) -> Attribution:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(0)
        running -= 1
        return await always_b(trajectory)

    seen: list[bool] = []
    runs = [known("s", 1)] * 20
    await examine(jobs(runs, counted), concurrency=3, progress=lambda score: seen.append(score.step_right))
    assert highest == 3
    assert seen == [True] * 20


class Memory:
    """Learns the conversations that it is shown, and blames step 1 only in those."""

    per_subset = False
    usual_folds = None

    def __init__(self) -> None:
        self.shown: list[set[str]] = []

    def learn(self, runs: Sequence[Conversation], base: Attributor) -> Attribute:
        seen = {history_key(run.trajectory) for run in runs}
        self.shown.append(seen)

        async def attribute(trajectory: Trajectory) -> Attribution:
            assert history_key(trajectory) not in seen, "tested on what it was trained on"
            return await base(trajectory)

        return attribute


def several(count: int, subset: str = "s", at: int = 1) -> list[Conversation]:
    return [
        Conversation(
            trajectory=run(
                step("a", f"{subset} {n}"), step("b", "y"), step("c", "z"), run_id=f"{subset}-{n}"
            ),
            label=Label(agent="abc"[at], step=at),
            subset=subset,
        )
        for n in range(count)
    ]


async def test_no_run_is_tested_on_a_model_trained_on_it_or_its_twin() -> None:
    runs = several(9)
    runs.append(replace(runs[0], trajectory=replace(runs[0].trajectory, run_id="twin")))
    learner = Memory()
    jobs = out_of_fold(runs, learner, Attributor(method="constant"), 3)
    scores = await examine(jobs)
    assert [s.run_id for s in scores] == [r.trajectory.run_id for r in runs]
    assert len(learner.shown) == 3
    assert all(len(seen) >= 5 for seen in learner.shown)


async def test_a_training_set_is_cleared_of_the_conversations_that_are_tested() -> None:
    learner = Memory()
    jobs = trained_on(several(6), several(2), learner, Attributor(method="constant"))
    await examine(jobs)
    assert [len(seen) for seen in learner.shown] == [4]


def test_a_training_set_is_cleared_of_the_tasks_that_are_tested() -> None:
    def about(run: Conversation, task: str) -> Conversation:
        return replace(run, trajectory=replace(run.trajectory, task=task))

    tested, *others = several(11)
    training = [about(other, "the same" if n == 0 else f"task {n}") for n, other in enumerate(others)]
    learner = Memory()
    trained_on(training, [about(tested, "the same")], learner, Attributor(method="constant"))
    assert [len(seen) for seen in learner.shown] == [9]


async def test_the_constant_step_is_chosen_out_of_fold_and_for_each_subset() -> None:
    runs = [*several(6, "one", at=1), *several(6, "two", at=2)]
    scores = await examine(out_of_fold(runs, LEARNERS["constant"], Attributor(method="constant"), 3))
    assert [s.step for s in scores] == [1] * 6 + [2] * 6
    assert all(s.confidence == 1.0 for s in scores)
    odd = [*several(1, "s", at=2), *several(5, "t", at=1)]
    moved = [replace(r, subset="s") for r in odd]
    scores = await examine(out_of_fold(moved, LEARNERS["constant"], Attributor(method="constant"), 6))
    assert not scores[0].step_right, "its own label did not choose the step"


async def test_the_constant_agent_is_the_most_blamed_of_the_other_folds_at_its_first_step() -> None:
    def labelled(n: int, agent: str) -> Conversation:
        trajectory = run(*(step(name, f"{n}") for name in ("a", "b", "c", "b")), run_id=f"r{n}")
        return Conversation(trajectory=trajectory, label=Label(agent=agent, step=1), subset="s")

    runs = [labelled(n, "b") for n in range(5)] + [labelled(5, "c")]
    constant = Attributor(method="constant-agent")
    scores = await examine(out_of_fold(runs, LEARNERS["constant-agent"], constant, 6))
    assert {(s.agent, s.step) for s in scores} == {("b", 1)}
    assert all(s.confidence == 1.0 for s in scores), "the agent's first step was the one whenever it was it"


async def test_blinded_runs_have_no_right_answer() -> None:
    (one,) = labelled(
        [Conversation(trajectory=run(step("a"), reference="42"), label=Label(agent="a", step=0))]
    )
    assert blinded([one])[0].trajectory.reference is None
    assert blinded([one])[0].label == one.label


def sure(confidence: float, *, right: bool, name: str) -> Score:
    verdict = Blame(agent="b", step=1 if right else 2, reason="", confidence=confidence)
    attribution = Attribution(run_id=name, verdict=verdict, method="m")
    return score(attribution, Label(agent="b", step=1), "s", history=name)


def test_abstaining_reaches_the_target_precision_if_confidence_predicts_correctness() -> None:
    scores = [sure(0.9, right=True, name=f"r{n}") for n in range(20)]
    scores += [sure(0.2, right=False, name=f"w{n}") for n in range(20)]
    chosen = select(scores, 0.8)
    answered = [s for s in chosen.scores if s.step is not None]
    assert len(answered) == 20
    assert all(s.step_right for s in answered)
    assert [s.run_id for s in chosen.scores] == [s.run_id for s in scores]


def test_if_no_threshold_reaches_the_precision_every_run_is_abstained_from() -> None:
    scores = [sure(0.9, right=False, name=f"w{n}") for n in range(20)]
    chosen = select(scores, 0.8)
    assert set(chosen.thresholds) == {None}
    assert all(s.step is None for s in chosen.scores)


def line(text: str = "x") -> str:
    return json.dumps({"history": [{"role": "A", "content": text}], "label": {"agent": "A", "step": 0}})


def test_data_sets_are_lines_documents_arrays_and_folders_gzip_or_not(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text(f"{line('1')}\n\n{line('2')}\n")
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(line("3").encode()))
    folder = tmp_path / "Hand-Crafted"
    folder.mkdir()
    (folder / "1.json").write_text(line("4"))
    (tmp_path / "array.json").write_text(f"[{line('5')}]")
    assert len(read_dataset(tmp_path / "lines.jsonl")) == 2
    assert read_dataset(tmp_path / "packed.jsonl.gz")[0].subset == "packed"
    assert read_dataset(folder)[0].subset == "Hand-Crafted"
    assert len(read_dataset(tmp_path / "array.json")) == 1


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"not json", ":1"),
        (b'{"a": 1}', "expected"),
        (b"\x1f\x8bbroken", "gzip"),
        (b"\xff", "cannot be read"),
    ],
)
def test_an_unreadable_data_set_says_where(tmp_path: Path, content: bytes, place: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(content)
    with pytest.raises(UnreadableInput, match=place):
        read_dataset(path)
    with pytest.raises(UnreadableInput):
        read_dataset(tmp_path / "missing.jsonl")


@pytest.mark.skipif(not WHO_AND_WHEN.exists(), reason="the labelled logs are not beside the checkout")
async def test_signals_stand_clearly_above_the_trivial_baselines_on_the_development_logs() -> None:
    runs = read_dataset(WHO_AND_WHEN)
    totals = {}
    for method in ("signals", "first-agent-step", "constant", "random"):
        lines = tabulate(
            await examine(jobs(runs, Attributor(method=method))), Subject(dataset="w", method=method)
        )
        totals[method] = lines[-1]
        assert (lines[-1]["errors"], lines[-1]["n"]) == (0, 92)
    floor = max(totals[m]["step_accuracy_ci"][1] for m in ("random", "constant", "first-agent-step"))
    assert totals["signals"]["step_accuracy"] > floor
    floor = max(totals[m]["agent_accuracy_ci"][1] for m in ("random", "constant", "first-agent-step"))
    assert totals["signals"]["agent_accuracy"] > floor
