"""Bounds of uploads that hold before their runs are written for another process."""

from __future__ import annotations

import gzip

import pytest

from analyzer.analyses.codec import write_run
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.uploads import json_bytes, read_runs, unpacked
from collector_processor.rebuild.encode import encode
from semconv.model import Heard, Trajectory
from tests.factories import agent, chat, said, workflow
from tests.runs import run, step


def upload(*, name: str = "a", answer: str = "ok", steps: int = 10) -> bytes:
    """Return a run in which an agent, whose name stands in the upload once, takes all steps."""
    calls = (
        chat(number, parent=2, heard=[said("user", "q")], answer=answer) for number in range(3, 3 + steps)
    )
    return encode([workflow(1, task="t", answer="a"), agent(2, name, parent=1), *calls])


def read(body: bytes) -> Trajectory:
    (run,) = read_runs([body], lambda run: run)
    return run


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(upload(name="n" * 200_000, steps=400), id="one name for 400 steps"),
        pytest.param(upload(name="\x01" * 100_000, steps=150), id="six bytes a character"),
    ],
)
def test_a_run_that_grows_when_it_is_written_is_refused_unwritten(body: bytes) -> None:
    assert len(body) < 1_000_000
    with pytest.raises(UnreadableInput, match="more than 64 MiB"):
        read(body)


@pytest.mark.parametrize("text", ["plain", '"quoted"\n', "\x01\x02", "Grüße, 世界 😀"])
def test_the_size_of_a_run_is_known_before_it_is_written(text: str) -> None:
    run = read(upload(name=text * 1_000, answer=text * 1_000))
    assert len(write_run(run)) < json_bytes([run]) < 1.5 * len(write_run(run))


def test_results_within_outputs_and_evaluations_count() -> None:
    author, name = "a" * 5_000, "n" * 3_000
    said = (Heard(role="tool", start=0, end=2, author=author, answers=("c" * 2_000,)),)
    plain, full = run(step("a", "ok")), run(step("a", "ok", said=said, failed_evaluations=(name,)))
    grown = len(write_run(full)) - len(write_run(plain))
    assert grown <= json_bytes([full]) - json_bytes([plain]) < 1.1 * grown


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(
            b"a,b,c\n" + b",,\n" * 2_000_000, "at most 5,000,000 values", id="a table of empty cells"
        ),
        pytest.param(gzip.compress(b"PAR1..."), "read by the command line", id="Parquet"),
    ],
)
def test_a_table_is_refused_before_it_is_read(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableInput, match=reason):
        read_runs(unpacked([data]), lambda run: run)


@pytest.mark.parametrize("only", [b"\x1f\x8bbroken", b"{}"], ids=["damaged", "of no format"])
def test_the_reason_for_the_only_file_has_no_number(only: bytes) -> None:
    with pytest.raises(UnreadableInput) as alone:
        read_runs(unpacked([only]), lambda run: run)
    with pytest.raises(UnreadableInput) as together:
        read_runs(unpacked([only, only]), lambda run: run)
    reasons = [f"left out file {number} of 2: {alone.value}" for number in (1, 2)]
    assert str(together.value) == "; ".join(reasons)
