"""What an experiment prints: why trials are not counted, and the command as a shell reads it."""

from __future__ import annotations

import io

from rich.console import Console

from analyzer.experiment.call_budget import Spent
from analyzer.experiment.candidates import Candidate, Fix, suspects
from analyzer.experiment.experiment_output import conclusion
from analyzer.experiment.findings import Experiment, finding, to_json
from analyzer.experiment.sequential import Decision, Draw, TrialResult, latest_reasons
from analyzer.experiment.walk import Walk
from analyzer.experiment.workflow import Command, Endpoint
from tests.tapes import call, tape

TOOL = "no result of the tool `book_flight` for these arguments is left on the tape"
CUT = "the upstream failed (cut: 1)"


def _experiment(*treatment: TrialResult) -> Experiment:
    """An undecided experiment on one step, with one valid trial of the control."""
    found = suspects(tape(call(0, "a")), {0: 1.0}, Fix())
    candidate: Candidate = found.candidates[0]
    walk = Walk(found.candidates)
    walk.end(candidate.control, TrialResult())
    for trial in treatment:
        walk.end(candidate.treatment, trial)
    return Experiment(
        run_id="run",
        fix=Fix(),
        fidelity=None,
        findings=tuple(finding(walk, each, Fix(), Spent(), "") for each in walk.tried),
        decision=Decision.UNDECIDED,
        reason="too few trials",
        spent=Spent(),
        duration_s=1.0,
        invalid=sum(bool(trial.invalid) for trial in treatment),
        reasons=latest_reasons([trial.invalid for trial in treatment if trial.invalid]),
        copies=walk.copies,
    )


def _shown(result: Experiment) -> str:
    screen = Console(file=io.StringIO(), width=200)
    screen.print(conclusion(result))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_the_conclusion_says_why_trials_are_invalid_even_if_none_was_valid() -> None:
    result = _experiment(*[TrialResult(invalid=TOOL)] * 2, TrialResult(invalid=CUT))
    told = _shown(result)
    assert result.findings == ()
    assert "3 trials invalid" in told
    assert f"2: {TOOL}" in told
    assert f"1: {CUT}" in told
    (final,) = to_json(result)
    assert final["invalid_reasons"] == [{"reason": CUT, "n": 1}, {"reason": TOOL, "n": 2}]


def test_each_arm_names_its_reasons_in_json() -> None:
    step, _ = to_json(_experiment(TrialResult(success=True), TrialResult(invalid=TOOL)))
    assert step["treatment"]["invalid_reasons"] == [{"reason": TOOL, "n": 1}]
    assert step["control"]["invalid_reasons"] == []


def test_reasons_beyond_the_last_three_are_counted() -> None:
    told = _shown(_experiment(*(TrialResult(invalid=f"reason {number}") for number in range(5))))
    assert "1: reason 4" in told
    assert "2: earlier, for other reasons" in told
    assert "reason 1" not in told


def test_the_conclusion_says_that_equal_answers_count_once() -> None:
    same = TrialResult(draws=(Draw(source="m", request="q", answer="480"),))
    result = _experiment(same, same, same)
    assert "2 trials not counted: live requests and answers equal those of another trial" in _shown(result)
    step, final = to_json(result)
    assert (step["treatment"]["n"], step["treatment"]["copies"], final["copies"]) == (1, 2, 2)


def test_the_workflow_is_shown_as_the_user_wrote_it() -> None:
    assert str(Command(arguments=["python", "my agents.py", "$X"])) == "python 'my agents.py' '$X'"
    assert str(Endpoint(url="http://127.0.0.1:1/run", task="secret")) == "POST http://127.0.0.1:1/run"
