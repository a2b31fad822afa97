"""Fidelity of replays: ``python -m benchmarks.experiment.fidelity recorded | live``.

``recorded`` builds each call's request from its trace, as chat completions with new ids, and sends them in
recorded order: it shows that a tape serves its own recording, not that a framework sends the same requests
again. ``live`` shows that: the program of each framework installed here runs twice.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import NotReplayable, Tape
from analyzer.experiment.replay.trial import Request, Serve, Trial
from analyzer.experiment.replay.wire import WIRES
from analyzer.inquiry.intervals import wilson
from analyzer.recordings.read_files import read_recording
from collector_processor.core.runs import Run
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from tests.frameworks.catalogue import VARIANTS, catalogue
from tests.frameworks.install import python_of
from tests.frameworks.play import RunFailed
from tests.frameworks.replaying import replay
from tests.tapes import chat_body

AIM = 0.98
RECORDINGS = Path("tests/frameworks/fixtures")


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
            runs = [run for run in rebuild(recording.traces, logs) if run.trajectory.steps]
            yield from ((path, run) for run in runs)


def _serve(tape: Tape, tally: Tally) -> None:
    """Request each call as a client would; the answer must be that call's own."""
    trial = Trial(tape)
    for one in tape.calls:
        asked = WIRES["chat/completions"].read(chat_body(one.messages))
        decision = trial.ask(Request(messages=asked.messages, kind=one.kind))
        tally.calls += 1
        tally.served += isinstance(decision, Serve) and decision.answer == one.answer
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
    interval = wilson(served, calls)
    runs = sum(each.runs for each in tallies.values())
    share = f"{served / max(calls, 1):.2%} [{interval.low:.2%}, {interval.high:.2%}]"
    print(f"{served} of {calls} calls served: {share}; {refused} of {runs} runs cannot be replayed")
    return int(served < AIM * calls or not calls)


def main() -> int:
    """Run the requested part; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiment.fidelity", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    of_recordings = what.add_parser("recorded")
    of_recordings.add_argument("folder", nargs="*", type=Path, default=[RECORDINGS])
    of_frameworks = what.add_parser("live")
    of_frameworks.add_argument("name", nargs="*")
    of_frameworks.add_argument("--variant", action="append", help="of the story; by default all of a run's")
    options = parser.parse_args()
    if options.what == "recorded":
        return recorded(options.folder)
    return live(options.name, options.variant or VARIANTS)


if __name__ == "__main__":
    raise SystemExit(main())
