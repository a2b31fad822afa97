"""Recorded runs of real frameworks; nothing is fitted to them.

``tests/frameworks/fixtures`` hold the project's own recordings: one story in the dialects of some forty
frameworks, with a wrong result in the answer, or with the right one (``sound``). ``../shared/captures`` hold
another story with a wrong result. Their passing twins have the right one instead; a third kind has the
right arithmetic with a figure that the tool did not return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from analyzer.cli.output import CommandFailed
from analyzer.cli.recorded_runs import load_runs
from analyzer.inquiry.visible import visible_run
from analyzer.signals.run_view import read
from analyzer.signals.suspicion import clues
from analyzer.signals.suspicion.clue import Weighed, Weights, weigh
from analyzer.signals.triage import triage
from benchmarks.accuracy.suspicion.tables import row
from semconv.model import Step, StepKind, Trajectory

_ROOT: Final = Path(__file__).parents[3]
_FIXTURES: Final = _ROOT / "tests" / "frameworks" / "fixtures"
_CAPTURES: Final = _ROOT.parent / "shared" / "captures"
_WRONG: Final = frozenset({"normal", "parallel", "streaming", "delegating"})


def recorded_runs(weights: Weights, least: float) -> None:
    """Print how many recorded runs that report no failure reach a probability by these coefficients."""
    print("\n| recorded runs | suspected | n | 95 % |\n|---|---|---|---|")
    fixtures = [(path.name.partition(".")[0], path) for path in sorted(_FIXTURES.glob("*.json.gz"))]
    wrong = [path for name, path in fixtures if (name.partition("-")[2] or "normal") in _WRONG]
    sound = [path for name, path in fixtures if name.endswith("-sound")]
    captures = [path for path in sorted(_CAPTURES.glob("*.json")) if _is_capture(path)]
    _tell("project's recordings, wrong result", wrong, weights, least)
    _tell("project's recordings, right result", sound, weights, least)
    _tell("shared captures, wrong result", captures, weights, least)
    _tell("shared captures, right result in its place", captures, weights, least, _passing)
    _tell("shared captures, a figure that the tool did not return", captures, weights, least, _silent)


def _is_capture(path: Path) -> bool:
    return not path.name.endswith(".logs.json") and path.name != "INDEX.json"


def _tell(
    name: str,
    paths: Sequence[Path],
    weights: Weights,
    least: float,
    change: Callable[[Trajectory], Trajectory] = lambda run: run,
) -> None:
    found = [weigh(clues(read(change(run))), weights) for path in paths for run in _silent_runs(path)]
    print(row(name, sum(_is_suspected(one, least) for one in found), len(found)))


def _is_suspected(weighed: Weighed, least: float) -> bool:
    return bool(weighed.clues) and weighed.probability >= least


def _silent_runs(path: Path) -> Iterator[Trajectory]:
    """Yield the runs of a file that report no failure; set-up traces without steps are skipped."""
    logs = path.with_suffix(".logs.json")
    try:
        runs = load_runs(path, [logs] if logs.exists() else [])
    except CommandFailed:
        return
    for run in runs:
        trajectory = visible_run(run.trajectory)
        if trajectory.steps and not triage(trajectory).failed:
            yield trajectory


def _passing(run: Trajectory) -> Trajectory:
    return _retold(run, lambda text: text.replace("450", "480"))


def _silent(run: Trajectory) -> Trajectory:
    """Return the run as if the agents had misread the tool: 61 GPUs instead of 16, and their cost."""
    misread = {"16 GPUs": "61 GPUs", "16 x": "61 x", "450": "1,830"}

    def tell(text: str) -> str:
        for right, wrong in misread.items():
            text = text.replace(right, wrong)
        return text

    return _retold(run, tell)


def _retold(run: Trajectory, tell: Callable[[str], str]) -> Trajectory:
    def retold(step: Step) -> Step:
        is_result = step.kind is StepKind.TOOL and not _is_relayed(step.output)
        return step if is_result else replace(step, output=tell(step.output))

    return replace(run, steps=tuple(map(retold, run.steps)), output=tell(run.output))


def _is_relayed(text: str) -> bool:
    """Tell whether a tool's result holds the final answer: the tool is an agent, or takes the answer."""
    return "$450" in text
