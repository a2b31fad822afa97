"""Every framework's recorded run gives the true steps, according to the server's own log."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import pytest

from analyzer.analyses.composition import open_analyst
from analyzer.signals.triage import triage
from collector_processor.core.runs import Run
from collector_processor.settings import load_settings
from semconv.model import Blame, Status, Stop, Verdict
from tests.frameworks.catalogue import FOLDER, VARIANTS, RunScript, catalogue, single_runs
from tests.frameworks.changes import runs_of
from tests.frameworks.kit.story import question
from tests.frameworks.script import MISREAD, UNAVAILABLE, WRONG_ANSWER, WRONG_TOTAL, purser_answer
from tests.frameworks.truth import (
    REGISTRARS_FAULT,
    Expected,
    decisive_step,
    differences,
    expected_steps,
    pairs,
    read_truth,
    says,
)

RUNS = single_runs()
ALL = [(name, variant) for name, run in RUNS.items() for variant in run.variants]
READ = [(name, variant) for name, variant in ALL if variant not in RUNS[name].unread]
FAILED = {"crash", "max_turns"}
SOUND = {"sound", "reported"}
STOPPED = {"guarded"}
"""An application's own guardrail did its job: the run was cut short, and has not failed."""
CUT_SHORT = FAILED | STOPPED


def _those(lacking: str, variants: Collection[str]) -> list[tuple[str, str]]:
    """The recordings of these variants, except those that lack what the test needs."""
    return [
        (name, variant)
        for name, variant in READ
        if variant in variants and not {lacking, f"{variant}.{lacking}"} & {*RUNS[name].lacks}
    ]


@dataclass(frozen=True)
class Recording:
    run: Run
    expected: tuple[Expected, ...]


def _runs(name: str, variant: str) -> list[Run]:
    """Set-up traces without a step are runs of their own and are ignored."""
    return [run for run in runs_of(RUNS[name].fixture(variant).read_bytes()) if run.trajectory.steps]


@functools.cache
def recording(name: str, variant: str) -> Recording:
    (run,) = _runs(name, variant)
    return Recording(run=run, expected=_expected(RUNS[name], variant))


def _expected(run: RunScript, variant: str) -> tuple[Expected, ...]:
    return expected_steps(run, read_truth(run.truth(variant)))


@pytest.mark.parametrize(("name", "variant"), READ)
def test_the_steps_are_those_that_happened(name: str, variant: str) -> None:
    found = recording(name, variant)
    told = differences(found.expected, found.run.trajectory)
    assert told == [], "\n".join(told)


@pytest.mark.parametrize(("name", "variant"), _those("task", VARIANTS))
def test_the_task_is_what_the_passenger_asked(name: str, variant: str) -> None:
    assert question(variant) in recording(name, variant).run.trajectory.task


@pytest.mark.parametrize(("name", "variant"), _those("answer", {*VARIANTS} - CUT_SHORT))
def test_the_answer_is_what_the_last_agent_said(name: str, variant: str) -> None:
    assert purser_answer(variant) in recording(name, variant).run.trajectory.output


@pytest.mark.parametrize(("name", "variant"), _those("outcome", {*VARIANTS} - CUT_SHORT - {"given_up"}))
def test_a_tool_error_that_was_repaired_is_no_error_of_the_run(name: str, variant: str) -> None:
    trajectory = recording(name, variant).run.trajectory
    assert trajectory.root_error == ""
    assert not triage(trajectory).failed


@pytest.mark.parametrize(("name", "variant"), _those("outcome", FAILED))
def test_a_run_that_was_cut_short_has_failed_whatever_its_root_says(name: str, variant: str) -> None:
    assert triage(recording(name, variant).run.trajectory).failed


@pytest.mark.parametrize(("name", "variant"), _those("outcome", STOPPED))
def test_a_run_that_a_guardrail_stopped_has_not_failed(name: str, variant: str) -> None:
    trajectory = recording(name, variant).run.trajectory
    assert trajectory.stop is Stop.GUARDED
    assert triage(trajectory).status is Status.NO_FAILURE


@pytest.mark.parametrize(("name", "variant"), _those("text", {*VARIANTS} - SOUND - {"max_turns"}))
def test_the_decisive_step_is_the_last_agents_and_says_what_went_wrong(name: str, variant: str) -> None:
    found = recording(name, variant)
    step = decisive_step(found.expected, found.run.trajectory)
    assert step is not None
    if variant in {"crash", "given_up"}:
        assert step.error or UNAVAILABLE in step.output
    else:
        wrong = {"misread": f"{MISREAD} seats", "structured": WRONG_TOTAL}
        assert wrong.get(variant, WRONG_ANSWER) in step.output


@pytest.mark.parametrize(("name", "variant"), _those("target", VARIANTS))
def test_a_tool_is_known_by_its_name_and_a_handoff_by_whom_it_reaches(name: str, variant: str) -> None:
    found = recording(name, variant)
    acts = [(each, step) for each, step in pairs(found.expected, found.run.trajectory) if each.target]
    assert [step.target for _, step in acts] == [each.target for each, _ in acts]


@pytest.mark.parametrize(("name", "variant"), _those("tool", {*VARIANTS} - {"parallel"}))
def test_a_tool_step_holds_what_the_tool_said_or_that_it_failed(name: str, variant: str) -> None:
    """Not in ``parallel``, where the order of the two look-ups is unknown."""
    found = recording(name, variant)
    used = [step for step in pairs(found.expected, found.run.trajectory) if step[0].kind == "tool"]
    assert [step for each, step in used if each.text not in step.output] == []
    assert [step for each, step in used if not each.text and not step.output + step.error] == []


@pytest.mark.parametrize(("name", "variant"), _those("complete", VARIANTS))
def test_a_recording_that_is_sound_gives_no_warning(name: str, variant: str) -> None:
    trajectory = recording(name, variant).run.trajectory
    assert trajectory.warnings == ()
    assert trajectory.complete


@pytest.mark.parametrize(("name", "variant"), _those("noticed", REGISTRARS_FAULT))
def test_a_mistake_that_nothing_reports_is_noticed_and_its_agent_blamed(name: str, variant: str) -> None:
    blame = _verdict(name, variant)
    assert isinstance(blame, Blame), blame
    found = recording(name, variant)
    decisive = decisive_step(found.expected, found.run.trajectory)
    assert decisive is not None
    assert blame.agent == decisive.agent
    assert blame.step == decisive.index


@pytest.mark.parametrize(("name", "variant"), _those("quiet", SOUND))
def test_a_run_that_went_well_is_not_suspected(name: str, variant: str) -> None:
    assert _verdict(name, variant).status is Status.NO_FAILURE


def _verdict(name: str, variant: str) -> Verdict:
    analyst = open_analyst(load_settings({}, directory=FOLDER), with_reference=False)
    return asyncio.run(analyst.analyse(recording(name, variant).run.trajectory)).attribution.verdict


def _test_outcome(name: str, variant: str) -> None:
    if variant in FAILED:
        test_a_run_that_was_cut_short_has_failed_whatever_its_root_says(name, variant)
    elif variant in STOPPED:
        test_a_run_that_a_guardrail_stopped_has_not_failed(name, variant)
    else:
        test_a_tool_error_that_was_repaired_is_no_error_of_the_run(name, variant)


FACETS: Mapping[str, Callable[[str, str], None]] = {
    "task": test_the_task_is_what_the_passenger_asked,
    "answer": test_the_answer_is_what_the_last_agent_said,
    "outcome": _test_outcome,
    "text": test_the_decisive_step_is_the_last_agents_and_says_what_went_wrong,
    "target": test_a_tool_is_known_by_its_name_and_a_handoff_by_whom_it_reaches,
    "tool": test_a_tool_step_holds_what_the_tool_said_or_that_it_failed,
    "noticed": test_a_mistake_that_nothing_reports_is_noticed_and_its_agent_blamed,
    "quiet": test_a_run_that_went_well_is_not_suspected,
    "complete": test_a_recording_that_is_sound_gives_no_warning,
}
EXCUSES = [(name, lacking) for name, run in RUNS.items() for lacking in run.lacks]


@pytest.mark.parametrize(("name", "lacking"), EXCUSES)
def test_what_is_said_to_be_lacking_is_lacking(name: str, lacking: str) -> None:
    """An excuse that is no longer needed must be removed from the run's TOML."""
    variant, _, facet = lacking.rpartition(".")
    with pytest.raises(AssertionError):
        FACETS[facet](name, variant or "normal")


@pytest.mark.parametrize("name", RUNS)
def test_what_is_said_to_be_hidden_or_unnamed_did_happen(name: str) -> None:
    run = RUNS[name]
    truths = [read_truth(run.truth(variant)) for variant in run.variants]
    bare = replace(run, hidden={}, unnamed={})
    happened = [(truth.variant, each) for truth in truths for each in expected_steps(bare, truth)]
    said = [*run.hidden, *run.unnamed]
    assert [word for word in said if not any(says({word: ""}, *each) for each in happened)] == []


@pytest.mark.parametrize(("name", "variant"), [case for case in ALL if case not in READ])
def test_a_run_said_to_be_read_wrong_still_is(name: str, variant: str) -> None:
    """When the reading is corrected, the reason must be removed from the run's TOML."""
    runs = _runs(name, variant)
    expected = _expected(RUNS[name], variant)
    assert len(runs) != 1 or differences(expected, runs[0].trajectory)


def test_every_recording_belongs_to_a_run() -> None:
    kept = {path.name for path in (FOLDER / "fixtures").iterdir()}
    files = [
        path
        for run in catalogue().values()
        for variant in run.variants
        for path in (run.fixture(variant), run.truth(variant))
    ]
    assert kept == {path.name for path in files}
