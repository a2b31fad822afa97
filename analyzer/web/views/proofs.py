"""View model of experiments and backtests: their results, and the commands that start the next ones. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.inquiry.explanation import proof_command
from analyzer.records.proof_records import Remembered, Report, given_in, read_report
from collector_processor.store.small_tables import StoredProof


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line to copy."""

    line: str
    is_whole: bool
    """Whether command and check are those of the last time; else the reader fills in placeholders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownProof:
    """One result."""

    kind: str
    ended_ns: int
    report: Report


def shown_proofs(stored: Sequence[StoredProof]) -> tuple[ShownProof, ...]:
    """Return the results that can be read, in the given order."""
    found = ((one, read_report(one.fields)) for one in stored)
    return tuple(
        ShownProof(kind=one.kind, ended_ns=one.ended_ns, report=report) for one, report in found if report
    )


def experiment_command(run_id: str, of_service: Sequence[StoredProof]) -> Command:
    """Return the command that proves the verdict on a run; ``of_service`` has the newest results first."""
    given = _given(of_service)
    line = proof_command(run_id) if given is None else given.line(run_id)
    return Command(line=line, is_whole=given is not None)


def backtest_command(issue_id: str, of_service: Sequence[StoredProof]) -> Command:
    """Return the command that tries a fix on the runs of an issue."""
    given = _given(of_service)
    if given is None:
        return Command(line=f"blamespan backtest {issue_id} --check CHECK -- COMMAND", is_whole=False)
    return Command(line=shlex.join(["blamespan", *given.backtest(issue_id)]), is_whole=True)


def _given(of_service: Sequence[StoredProof]) -> Remembered | None:
    return next((given for one in of_service if (given := given_in(one.fields)) is not None), None)
