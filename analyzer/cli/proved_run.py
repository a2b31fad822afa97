"""``blamespan run --prove``: an experiment on the run that was just judged. Not pure.

Imported after the program has ended. The trials' report goes to standard error like the verdict, so that
standard output stays the program's; as JSON it follows the verdict.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final

import typer

from analyzer.cli.commands.experiment import experiment
from analyzer.cli.output import OutputFormat, complain
from analyzer.cli.repeated_runs import Judged
from analyzer.cli.run_report import save_runs
from analyzer.inquiry.errors import AnalyzerError
from analyzer.programs.child import Wishes
from collector_processor.core.runs import Run
from collector_processor.otlp import CollectorError
from collector_processor.settings import Settings
from semconv.model import Outcome
from semconv.record import record

_UPSTREAMS: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL")


@record
class Proof:
    """What the experiment needs besides the run."""

    command: Sequence[str]
    wishes: Wishes
    providers: Mapping[str, str]
    """The environment that names the program's model providers."""
    max_calls: int | None
    """Most live calls of all trials; needed for a model whose price is unknown."""


def prove(proof: Proof, runs: Sequence[Run], judged: Sequence[Judged], settings: Settings) -> None:
    """Try to prove which step broke the last run, or say what is missing for that."""
    if missing := _missing(proof.wishes, judged):
        complain(f"--prove: {missing}")
        return
    with tempfile.TemporaryDirectory(prefix="blamespan-") as folder:
        path = Path(folder) / "run.json"
        try:
            save_runs(path, runs[-1:], settings, mode="wb")
            _experiment(proof, path)
        except (AnalyzerError, CollectorError) as error:
            complain(f"--prove: {str(error).replace(str(path), 'the run')}")
            complain(f"with other options: {_by_hand(proof)}")


def _missing(wishes: Wishes, judged: Sequence[Judged]) -> str:
    """Return what is missing for a proof; empty if nothing is."""
    if not wishes.watches_output:
        return (
            "nothing was tried: expected --expect TEXT or --check COMMAND too, which tells a trial that"
            " succeeded from one that failed"
        )
    if not judged:
        return "nothing was tried: there is no run to repeat"
    if judged[-1].trajectory.outcome is not Outcome.FAILURE:
        return "there is nothing to prove: the run succeeded"
    return ""


def _experiment(proof: Proof, path: Path) -> None:
    wishes = proof.wishes
    complain("--prove: runs the program again, with one answer sampled anew; Ctrl-C ends it")
    output = OutputFormat.JSON if wishes.as_json else OutputFormat.TABLE
    try:
        with redirect_stdout(sys.stdout if wishes.as_json else sys.stderr):
            experiment(
                str(path),
                [*proof.command],
                check=wishes.check,
                expect=wishes.expect,
                upstream=_upstream(proof.providers),
                max_calls=proof.max_calls,
                output=output,
            )
    except typer.Exit:
        return  # the exit code is the program's; the report says what was decided


def _upstream(providers: Mapping[str, str]) -> str | None:
    """Return the address that the program's calls went to; ``None`` for the providers' own."""
    return next((providers[name] for name in _UPSTREAMS if providers.get(name)), None)


def _by_hand(proof: Proof) -> str:
    wishes = proof.wishes
    check = ["--check", wishes.check] if wishes.check is not None else ["--expect", wishes.expect or ""]
    run = str(wishes.save) if wishes.save else "FILE"
    words = ["blamespan", "experiment", run, *check, "--", *proof.command]
    before = "" if wishes.save else "save the run with --save FILE, then "
    return f"{before}{shlex.join(words)}"
