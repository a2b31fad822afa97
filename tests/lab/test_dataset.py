"""Labelled runs from files and labelled traces, with places in errors, and their folds without leaks."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.errors import UnreadableInput
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.folds import RunKeys, families, history_key, split, split_by_keys
from analyzer.recordings.otlp_file import trace_document
from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from tests.factories import chat, workflow
from tests.runs import run, step


def log(name: str, said: str = "hello") -> dict[str, Any]:
    return {"id": name, "history": [{"role": "A", "content": said}]}


ONE, TWO = log("one"), log("two")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        pytest.param(json.dumps(ONE), ["one"], id="one document"),
        pytest.param(json.dumps(ONE) + "\n\n", ["one"], id="one line"),
        pytest.param(json.dumps(ONE, indent=2), ["one"], id="one document over many lines"),
        pytest.param(json.dumps([ONE, TWO]), ["one", "two"], id="an array"),
        pytest.param(json.dumps([ONE, TWO], indent=1), ["one", "two"], id="an array over many lines"),
        pytest.param(f"{json.dumps(ONE)}\n{json.dumps(TWO)}", ["one", "two"], id="lines"),
        pytest.param(f"\n{json.dumps(ONE)}\r\n\n{json.dumps(TWO)}\n", ["one", "two"], id="blank lines"),
        pytest.param(json.dumps(log("one", "a\u2028b"), ensure_ascii=False), ["one"], id="odd line ends"),
        pytest.param("\ufeff" + json.dumps(ONE), ["one"], id="byte order mark"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_every_shape_is_read(
    tmp_path: Path, text: str, ids: list[str], pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(pack(text.encode()))
    runs = read_dataset(path)
    assert [run.trajectory.run_id for run in runs] == ids
    assert {run.subset for run in runs} <= {"part"}


def test_a_folder_may_hold_packed_files(tmp_path: Path) -> None:
    line = json.dumps(ONE).encode()
    (tmp_path / "a.json").write_bytes(line)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(line))
    assert len(read_dataset(tmp_path)) == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", ":1: not JSON"),
        (json.dumps(ONE).encode() + b"\n{\n", ":2: not JSON"),
        (b"{\n" + json.dumps(ONE).encode(), ":1: not JSON"),
        (json.dumps(ONE).encode() + b"\n\xff\n", ":2: cannot be read"),
        (b"\xff", ":1: cannot be read"),
        (json.dumps([ONE, 7]).encode(), r"\[1\]: not a conversation"),
        (json.dumps(ONE).encode() + b"\n7\n", ":2: not a conversation"),
        (b"null", ": not a conversation"),
        (gzip.compress(b"{}", mtime=0)[:-3], "gzip or zstd"),
    ],
)
def test_an_unreadable_line_is_reported_with_its_place(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "runs"
    path.write_bytes(data)
    with pytest.raises(UnreadableInput, match=message):
        read_dataset(path)


def test_reading_takes_little_more_memory_than_the_runs(tmp_path: Path) -> None:
    """If decoded as one text, a single non-Latin character would make all others as wide as itself."""
    path = tmp_path / "many.jsonl"
    line = json.dumps(log("run", "x" * 20_000 + "\U0001f600"), ensure_ascii=False)
    path.write_text("\n".join([line] * 200), encoding="utf-8")
    tracemalloc.start()
    runs = read_dataset(path)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(runs) == 200
    assert most < kept + 2 * path.stat().st_size


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


SPANS = encode([workflow(1), chat(2, answer="4", agent_name="planner")])
OTHER = encode([workflow(1, trace_id=TraceId("b" * 32)), chat(2, agent_name="x", trace_id=TraceId("b" * 32))])
LABEL = {"agent": "planner", "step": 0, "category": "wrong_value", "weight": 0.9}


def test_a_labelled_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = tmp_path / "faults.jsonl"
    line = json.dumps({"source": "shop", "subset": "loop", "label": LABEL, **trace_document([SPANS], [])})
    place.write_text(f"{line}\n{line}\n")
    one, _ = read_dataset(place)
    assert one.label is not None
    assert (one.label.agent, one.label.step, one.label.category, one.label.trust) == (
        "planner",
        0,
        "wrong_value",
        0.9,
    )
    assert (one.source, one.subset) == ("shop", "loop")
    assert [(step.agent, step.output) for step in one.trajectory.steps] == [("planner", "4")]


@pytest.mark.parametrize("weight", [0, -1, 2, "much", None, True, float("nan")])
def test_an_invalid_weight_counts_fully(tmp_path: Path, weight: object) -> None:
    place = tmp_path / "faults.jsonl"
    document = {"label": {**LABEL, "weight": weight}, **trace_document([SPANS], [])}
    place.write_text(json.dumps(document) + "\n")
    (one,) = read_dataset(place)
    assert one.label is not None
    assert one.label.trust == 1.0


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"label": LABEL, **trace_document([SPANS, OTHER], [])}, "2 runs", id="two runs"),
        pytest.param({"label": LABEL, "resourceSpans": []}, "0 runs", id="no span"),
        pytest.param({"label": LABEL, "resourceSpans": [5]}, "cannot be read", id="no spans at all"),
    ],
)
def test_anything_but_one_run_is_refused(tmp_path: Path, document: object, expected: str) -> None:
    place = tmp_path / "faults.jsonl"
    place.write_text(json.dumps(document) + "\n")
    with pytest.raises(UnreadableInput, match=expected):
        read_dataset(place)
