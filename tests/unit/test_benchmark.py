from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from analyzer.attribution import Attributor
from analyzer.benchmark import bench
from analyzer.conversation import Conversation, Label
from analyzer.dataset import read_dataset
from analyzer.errors import UnreadableInput
from semconv.model import Attribution, Blame, Trajectory
from tests.runs import run, step

WHO_AND_WHEN = Path(__file__).parents[3] / "shared" / "datasets" / "who_and_when.dev.jsonl.gz"


def labelled(subset: str, at: int | None, agent: str | None = "b") -> Conversation:
    trajectory = run(step("a", "x"), step("b", "y"), is_recorded_conversation=True)
    return Conversation(trajectory=trajectory, label=Label(agent=agent, step=at), subset=subset)


async def always_b(trajectory: Trajectory) -> Attribution:
    verdict = Blame(agent="b", step=1, reason="", confidence=0.5)
    return Attribution(run_id=trajectory.run_id, verdict=verdict, method="m")


async def test_there_is_a_line_a_subset_and_a_total_at_the_end() -> None:
    runs = [labelled("one", 1), labelled("two", 0, "a"), labelled("one", 1)]
    result = await bench(runs, always_b, dataset="d", method="m")
    assert [(line["subset"], line["n"], line["step_accuracy"]) for line in result.lines] == [
        ("one", 2, 1.0),
        ("two", 1, 0.0),
        ("total", 3, pytest.approx(2 / 3)),
    ]


async def test_labels_without_agent_or_step_are_left_out_and_counted() -> None:
    unlabelled = Conversation(trajectory=run(step("a", "x")))
    runs = [labelled("s", 1), labelled("s", None), labelled("s", 1, None), unlabelled]
    result = await bench(runs, always_b, dataset="d", method="m")
    assert result.left_out == 3
    assert result.lines[-1]["n"] == 1


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
    runs = [labelled("s", 1)] * 20
    await bench(
        runs,
        counted,
        dataset="d",
        method="m",
        concurrency=3,
        progress=lambda score: seen.append(score.step_right),
    )
    assert highest == 3
    assert seen == [True] * 20


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
        (b"\xff\xfe", "cannot be read"),
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
        result = await bench(runs, Attributor(method=method), dataset="who_and_when", method=method)
        totals[method] = result.lines[-1]
        assert result.lines[-1]["errors"] == 0
        assert result.lines[-1]["n"] == 92
    floor = max(totals[m]["step_accuracy_ci"][1] for m in ("random", "constant", "first-agent-step"))
    assert totals["signals"]["step_accuracy"] > floor
    floor = max(totals[m]["agent_accuracy_ci"][1] for m in ("random", "constant", "first-agent-step"))
    assert totals["signals"]["agent_accuracy"] > floor
