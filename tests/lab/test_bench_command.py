"""``blamespan bench`` as scripts use it, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from analyzer.cli.main import run
from analyzer.lab.evaluation.benchmark import Contender, read_contender


def log(name: str, at: int, subset: str = "s") -> dict[str, Any]:
    turns = [{"role": agent, "content": f"{name} {agent}"} for agent in ("user", "A", "B", "C")]
    label = {"agent": ("user", "A", "B", "C")[at], "step": at}
    return {"id": name, "subset": subset, "question": "q", "history": turns, "label": label}


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("BLAMESPAN_MODEL", "BLAMESPAN_METHOD"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("BLAMESPAN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs.jsonl"
    logs = [log(f"r{n}", 2) for n in range(8)] + [log("last", 1, "t")]
    path.write_text("\n".join(json.dumps(one) for one in logs))
    return path


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_is_one_line_a_subset_and_a_total(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", str(dataset), "--method", "first-agent-step", "--format", "json"]) == 0
    said = lines(capsys)
    assert [(line["subset"], line["n"], line["step_accuracy"]) for line in said] == [
        ("s", 8, 0.0),
        ("t", 1, 1.0),
        ("total", 9, pytest.approx(1 / 9)),
    ]
    assert said[0]["with_reference"] is False


def test_runs_without_a_usable_label_are_left_out_and_reported(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beyond = log("beyond", 1) | {"label": {"agent": "A", "step": 99}}
    dataset.write_text("\n".join((dataset.read_text(), json.dumps(beyond))))
    assert run(["bench", str(dataset), "--method", "random", "--format", "json"]) == 0
    said = capsys.readouterr()
    assert "1 runs left out: the label names no agent, or no step of the run" in said.err
    assert json.loads(said.out.splitlines()[-1])["n"] == 9


def test_without_a_model_nothing_is_kept(dataset: Path, tmp_path: Path) -> None:
    assert run(["bench", str(dataset), "--method", "random"]) == 0
    assert not (tmp_path / "data").exists()


def test_the_constant_is_chosen_out_of_fold(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", str(dataset), "--method", "constant", "--format", "json"]) == 0
    said = lines(capsys)
    assert said[0]["step_accuracy"] == 1.0, "step 2, as in the other folds"
    assert said[-1]["trained_on"] == "the other folds of 10"


def test_a_method_can_be_trained_on_another_data_set(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(log("x", 3)))
    arguments = ["bench", str(dataset), "--method", "constant", "--train", str(other), "--format", "json"]
    assert run(arguments) == 0
    said = lines(capsys)
    assert said[0]["step_accuracy"] == 0.0
    assert said[0]["trained_on"] == "other.jsonl"


def test_two_methods_are_compared_by_a_paired_test(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "both.svg"
    arguments = ["bench", str(dataset), "--compare", "first-agent-step", "constant", "--format", "json"]
    assert run([*arguments, "--plot", str(picture)]) == 0
    said = lines(capsys)
    assert [line["method"] for line in said[:6]] == ["first-agent-step"] * 3 + ["constant"] * 3
    total = said[-1]
    assert total["compare"] == ["first-agent-step", "constant"]
    assert (total["step"]["only_first"], total["step"]["only_second"]) == (0, 8)
    assert total["step"]["p_value"] == pytest.approx(2 / 2**8)
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_the_table_shows_every_figure_whole(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", str(dataset), "--method", "constant", "--precision", "0.5"]) == 0
    said = capsys.readouterr().out
    assert "88.9 [56, 98]" in said
    assert "…" not in said.replace("surest … %", "")
    assert "abstaining to reach 50 %" in said


def test_second_labels_and_excluded_runs_are_shown_apart(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relabelled = tmp_path / "second.jsonl"
    relabelled.write_text(json.dumps(log("r1", 1)))
    excluded = tmp_path / "excluded.json"
    excluded.write_text('["r0", "last"]')
    arguments = ["bench", str(dataset), "--method", "constant", "--second-labels", str(relabelled)]
    assert run([*arguments, "--exclude", str(excluded), "--format", "json"]) == 0
    total = lines(capsys)[-1]
    assert total["second_labels"]["n"] == 1
    assert total["second_labels"]["labels_agree_on_step"] == 0.0
    assert (total["n"], total["without_excluded"]["n"]) == (9, 7)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--compare", "signals", "constant", "--method", "random"], "exclude each other"),
        (["--method", "constant", "--cv", "3", "--train", "runs.jsonl"], "expected one of them"),
        (["--method", "random", "--cv", "3"], "nothing to train"),
        (["--method", "random", "--plot", "x.gif"], "ends in .svg"),
        (["--method", "random", "--exclude", "runs.jsonl"], "JSON list"),
        (["--method", "judge"], "needs a model, and none is set"),
        (["--method", "no-such"], "unknown method"),
        (["--compare", "signals", "no-such"], "unknown method"),
        (["--method", "constant", "--train", "missing.jsonl"], "no such file"),
        (["missing.jsonl", "--method", "random"], "no such file"),
        (["--method", "random", "--plot", "missing/x.svg"], "no such folder"),
        (["--method", "random", "--exclude", "deep.json"], "nested too deeply"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_was_expected(
    dataset: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], wanted: str
) -> None:
    (dataset.parent / "deep.json").write_text("[" * 100_000)
    assert run(["bench", str(dataset), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert wanted in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "contender"),
    [
        ("judge", Contender(method="judge", model="m")),
        ("judge+reference", Contender(method="judge", model="m", with_reference=True)),
        ("judge@gpt-4o", Contender(method="judge", model="gpt-4o")),
        ("judge+reference@a/b@c", Contender(method="judge", model="a/b@c", with_reference=True)),
    ],
)
def test_a_contender_is_a_method_and_what_differs_from_the_options(text: str, contender: Contender) -> None:
    assert read_contender(text, Contender(model="m")) == contender


def test_runs_without_a_label_are_no_benchmark(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset.write_text(json.dumps({"question": "q", "history": [{"role": "A", "content": "a"}]}))
    assert run(["bench", str(dataset), "--method", "random", "--format", "json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "none of its 1 runs has a label with an agent and a step of its own: expected" in said.err
    assert len(said.err.splitlines()) == 1


def test_second_labels_of_other_runs_are_said_to_be_of_none(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = tmp_path / "others.jsonl"
    others.write_text(json.dumps(log("stranger", 1)))
    arguments = ["bench", str(dataset), "--method", "random", "--second-labels", str(others)]
    assert run([*arguments, "--format", "json"]) == 0
    said = capsys.readouterr()
    assert "none of its runs has a second label" in said.err
    assert json.loads(said.out.splitlines()[-1])["second_labels"]["n"] == 0


def test_one_line_says_that_replies_cannot_be_stored(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["bench", str(dataset), "--method", "judge", "--model", "openai/none"]
    assert run([*arguments, "--cache", str(tmp_path / "file" / "kept")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "replies cannot be kept there" in line


def test_two_methods_in_one_command_are_refused(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", str(dataset), "--method", "signals", "--method", "random"]) == 2
    assert "--compare A B" in capsys.readouterr().err


def test_below_the_floor_nothing_is_answered_and_abstaining_counts_as_wrong(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", str(dataset), "--method", "constant", "--format", "json"]
    assert run([*arguments, "--floor", "0.5"]) == 0
    first, second, total = lines(capsys)
    assert (first["answered"]["n"], first["answered"]["step_accuracy"], first["step_accuracy"]) == (
        8,
        1.0,
        1.0,
    )
    assert (second["answered"]["coverage"], second["answered"]["step_accuracy"]) == (0.0, None)
    assert (total["undetermined"], total["step_accuracy"]) == (1, pytest.approx(8 / 9))
    assert run(["bench", str(dataset), "--method", "constant", "--floor", "0.5"]) == 0
    assert "agent % of these" in capsys.readouterr().out
    assert run([*arguments, "--floor", "0.5", "--precision", "0.5"]) == 2


def test_the_services_least_confidence_changes_no_accuracy(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLAMESPAN_PRECISION", "1")
    assert run(["bench", str(dataset), "--method", "signals", "--format", "json"]) == 0
    assert lines(capsys)[-1]["answered"]["n"] == 9
