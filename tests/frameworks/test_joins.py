"""Real plays whose agents leave several traces: joined by an id, or told that they may be one run."""

from __future__ import annotations

import gzip
import random

import pytest

from collector_processor.core.runs import MAY_JOIN
from tests.frameworks.catalogue import catalogue, single_runs
from tests.frameworks.changes import runs_of, side_by_side
from tests.frameworks.truth import differences, expected_steps, read_truth

SEVERAL = {name: run for name, run in catalogue().items() if run.runs > 1}
PROXY = "litellm_proxy"


def test_three_frameworks_leave_traces_that_may_be_one_run() -> None:
    assert {run.framework for run in SEVERAL.values()} >= {"ag2", "crewai", "pydantic-ai"}


@pytest.mark.parametrize("name", SEVERAL)
def test_the_steps_of_all_runs_are_those_that_happened(name: str) -> None:
    script = SEVERAL[name]
    runs = [run.trajectory for run in runs_of(script.fixture("normal").read_bytes()) if run.trajectory.steps]
    assert len(runs) == script.runs
    expected = expected_steps(script, read_truth(script.truth("normal")))
    assert differences(expected, side_by_side(runs)) == []


@pytest.mark.parametrize("name", SEVERAL)
def test_each_later_run_names_the_run_that_it_may_continue(name: str) -> None:
    found = runs_of(SEVERAL[name].fixture("normal").read_bytes())
    first, *others = [run.trajectory for run in found if run.trajectory.steps]
    assert not any(note.startswith(MAY_JOIN) for note in first.warnings)
    for before, run in zip([first, *others], others, strict=False):
        assert [note.partition(":")[0] for note in run.warnings] == [f"{MAY_JOIN}{before.run_id}"]


@pytest.mark.parametrize("variant", single_runs()[PROXY].variants)
def test_calls_through_litellms_proxy_are_one_run_by_the_session_sent_along(variant: str) -> None:
    script = single_runs()[PROXY]
    (run,) = [run for run in runs_of(script.fixture(variant).read_bytes()) if run.trajectory.steps]
    assert len({span.trace_id for span in run.trace.spans}) >= len(run.trajectory.steps)
    expected = expected_steps(script, read_truth(script.truth(variant)))
    assert differences(expected, run.trajectory) == []


def test_the_order_in_which_the_proxys_traces_arrive_does_not_matter() -> None:
    data = single_runs()[PROXY].fixture("normal").read_bytes()
    lines = gzip.decompress(data).splitlines()
    random.Random(1).shuffle(lines)
    shuffled = runs_of(gzip.compress(b"\n".join(lines)))
    assert [run.trajectory.steps for run in shuffled] == [run.trajectory.steps for run in runs_of(data)]
