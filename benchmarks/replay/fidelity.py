"""Fidelity: share of a run's calls that its tape serves, to recordings and to frameworks that rerun."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path

from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import NotReplayable, Tape
from analyzer.experiment.replay.trial import Request, Serve, Trial
from analyzer.experiment.replay.wire import WIRES
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import Run, rebuild
from tests.frameworks.catalogue import catalogue
from tests.frameworks.install import python_of
from tests.frameworks.play import RunFailed
from tests.frameworks.replaying import replay
from tests.tapes import chat_body

AIM = 0.98
Z = 1.96


@dataclass(slots=True)
class Tally:
    """Counts of runs and calls of one framework with one instrumentation."""

    runs: int = 0
    calls: int = 0
    served: int = 0
    masked: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Runs that cannot be replayed, by reason."""
    differences: list[str] = field(default_factory=list)

    def refuse(self, found: NotReplayable) -> None:
        self.refused[found.obstacle.value] = self.refused.get(found.obstacle.value, 0) + 1


def recorded(folders: Sequence[Path]) -> int:
    """Request every recording's calls from its own tape; return 1 below the target."""
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for path, run in _runs(folders):
        tally = tallies[path.name.partition(".")[0].partition("-")[0]]
        tally.runs += 1
        found = read_tape(run)
        if isinstance(found, NotReplayable):
            tally.refuse(found)
        else:
            _serve(found, tally)
    return _print(tallies)


def _runs(folders: Sequence[Path]) -> Iterator[tuple[Path, Run]]:
    for folder in folders:
        for path in sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")]):
            if path.name == "INDEX.json" or ".truth." in path.name or ".logs." in path.name:
                continue
            recording = read_recording(path.read_bytes())
            logs = list(recording.bodies(Signal.LOGS))
            beside = path.with_name(path.name.replace(".json", ".logs.json"))
            if beside.exists():
                logs += read_recording(beside.read_bytes()).bodies(Signal.LOGS)
            runs = [run for run in rebuild(recording.bodies(Signal.TRACES), logs) if run.trajectory.steps]
            yield from ((path, run) for run in runs)


def _serve(tape: Tape, tally: Tally) -> None:
    """Request each call as a client would; the answer must be that call's own."""
    trial = Trial(tape)
    for call in tape.calls:
        asked = WIRES["chat/completions"].read(chat_body(call.messages))
        decision = trial.ask(Request(messages=asked.messages, kind=call.kind))
        tally.calls += 1
        tally.served += isinstance(decision, Serve) and decision.answer == call.answer
    tally.masked += trial.report().masked


def live(names: Sequence[str], variants: Sequence[str]) -> int:
    """Record and replay each installed framework in each variant; return 1 below the target."""
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for name, run in catalogue().items():
        python = python_of(run)
        if python is None or (names and name not in names):
            continue
        for variant in [each for each in variants if each in run.variants]:
            tally = tallies[name]
            try:
                done = replay(run, variant, python=python)
            except RunFailed as error:  # the first run failed: there is nothing to replay
                print(f"{name} {variant} was not recorded: {error}")
                continue
            tally.runs += 1
            if isinstance(done.tape, NotReplayable):
                tally.refuse(done.tape)
                continue
            assert done.report is not None
            tally.calls += done.recorded
            tally.served += done.report.served
            tally.masked += done.report.masked
            if done.report.invalid or done.live_calls:
                tally.differences.append(f"{variant}: {done.report.invalid} {done.report.first_difference}")
        print(name, tallies[name], flush=True)
    return _print(tallies)


def _print(tallies: dict[str, Tally]) -> int:
    calls, served = (sum(getattr(each, of) for each in tallies.values()) for of in ("calls", "served"))
    refused = sum(sum(each.refused.values()) for each in tallies.values())
    print(f"\n{'':34}{'runs':>6}{'calls':>7}{'served':>8}{'masked':>8}  cannot be replayed")
    for name, each in tallies.items():
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(each.refused.items()))
        print(f"{name:34}{each.runs:6}{each.calls:7}{each.served:8}{each.masked:8}  {why}")
        for difference in each.differences:
            print(f"  {difference}")
    low, high = wilson(served, calls)
    runs = sum(each.runs for each in tallies.values())
    print(f"{served} of {calls} calls served: {served / max(calls, 1):.2%} [{low:.2%}, {high:.2%}]", end="")
    print(f"; {refused} of {runs} runs cannot be replayed")
    return int(served < AIM * calls or not calls)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    if not trials:
        return 0.0, 1.0
    share, square = successes / trials, Z * Z
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = Z * sqrt(share * (1 - share) / trials + square / (4 * trials**2)) / (1 + square / trials)
    return middle - half, min(1.0, middle + half)
