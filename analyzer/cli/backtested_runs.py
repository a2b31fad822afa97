"""The runs of a backtest: of files and of the store, each with the call at which its tape ends. Not pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from analyzer.cli.experiment_runs import open_run
from analyzer.cli.judged_runs import known_or_judged, settings_here
from analyzer.cli.kept_runs import find_issue, opened_store
from analyzer.cli.output import CommandFailed, WrongUsage
from analyzer.cli.recorded_runs import RecordedRun
from analyzer.experiment.backtest.conduct import Replay
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.tape import CallKind, Matching, Tape
from analyzer.history.spectrum import Said
from analyzer.inquiry.errors import AnalyzerError
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.kept_trace import KeptTrace
from collector_processor.core.runs import Run
from collector_processor.otlp import CollectorError, Tenant
from collector_processor.settings import load_settings
from collector_processor.store.run_history import RunHistoryRows
from semconv.model import Status
from semconv.record import record, replace

MOST_RUNS: Final = 40
"""Runs of an issue that are replayed, the newest ones: each costs a live call for every trial."""
_MOST_TOLD: Final = 2_000


@record
class Source:
    """A run, where it is and what its verdict says."""

    run: Run
    kept: KeptTrace | None
    verdict: dict[str, Any]

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.trajectory.run_id

    @property
    def has_passed(self) -> bool:
        """Whether the verdict finds no failure."""
        return bool(self.verdict["status"] == Status.NO_FAILURE.value)


@record
class Backtested:
    """The runs of a backtest."""

    failed: tuple[tuple[str, str], ...]
    """The id of each failed run, with the agent its verdict blames."""
    passing: tuple[str, ...]
    replays: dict[str, Replay]
    refused: dict[str, str]
    """Why runs cannot be replayed, by their ids."""


def backtested(named: Sequence[str], tenant: str | None, passing: int, options: GatewayOptions) -> Backtested:
    """Return the named runs and issues, and the newest passing runs of their workflow.

    Args:
        named: trace files, ids of kept runs, ids of issues.
        tenant: theirs, if several have such a run or issue.
        passing: how many runs of the store that passed are replayed too.
        options: tools that may run.

    Raises:
        WrongUsage: a name is none of these, or no run failed, or passing runs are wanted and none is kept.
        CommandFailed: a file has not one run.
    """
    refused: dict[str, str] = {}
    found = [source for name in named for source in _named(name, tenant, refused)]
    failed = {source.run_id: source for source in found if not source.has_passed}
    if not failed and not refused:
        raise WrongUsage(
            "expected a failed run: the verdict of each of these finds no failure; record one with"
            " `blamespan run --failed --save FILE -- COMMAND`, or say that it failed with --expect there"
        )
    blamed = {run: str(source.verdict["agent"] or "") for run, source in failed.items()}
    lost = dict.fromkeys(refused, "")
    passed = {source.run_id: source for source in found if source.has_passed}
    for run_id, kept_by in _passing_ids([*failed.values()], passing):
        passed |= {each.run_id: each for each in _one(run_id, kept_by, refused)}
    replays: dict[str, Replay] = {}
    for source in failed.values():
        _replay(source, options, replays, refused)
    agents = frozenset(filter(None, blamed.values()))
    for source in passed.values():
        _replay_passing(source, options, agents, replays, refused)
    return Backtested(
        failed=tuple({**blamed, **lost}.items()),
        passing=tuple(passed),
        replays=replays,
        refused=refused,
    )


def _named(name: str, tenant: str | None, refused: dict[str, str]) -> Iterator[Source]:
    """Yield the runs behind a name; runs of an issue that are no longer kept are refused."""
    found = None if Path(name).exists() else _issue_runs(name, tenant)
    if found is None:
        yield _opened(name, tenant)
        return
    owner, run_ids = found
    for run_id in run_ids:
        yield from _one(run_id, owner, refused)


def _one(run_id: str, tenant: str, refused: dict[str, str]) -> Iterator[Source]:
    try:
        yield _opened(run_id, tenant)
    except AnalyzerError as error:
        refused[run_id] = str(error)


def _issue_runs(name: str, tenant: str | None) -> tuple[Tenant, list[str]] | None:
    """Return the newest runs of an issue, and its tenant; ``None`` if there is no such issue."""
    if not re.fullmatch("[0-9a-f]{1,16}", name):
        return None
    settings = load_settings(os.environ, directory=Path.cwd())
    try:
        with opened_store(settings, "issues") as db:
            store = IssueStore(db)
            owner = None if tenant is None else Tenant(tenant)
            if not store.starting_with(name, owner):
                return None
            found, issue = find_issue(store, name, owner)
            runs = store.runs_of_issue(found, issue.fingerprint.id, MOST_RUNS)
            return found, [run.run_id for run in runs]
    except CommandFailed as error:
        if "several" in str(error):
            raise
        return None  # there is no store, so it is no issue; as a run, the name gets its own message
    except CollectorError as error:
        raise WrongUsage(f"{name}: no such file, and no issue: {error}") from error


def _opened(name: str, tenant: str | None) -> Source:
    run, kept = open_run(name, tenant)
    settings = settings_here(None, "", None, None)
    document, _ = known_or_judged(RecordedRun(trajectory=run.trajectory, trace=run.trace), kept, settings)
    return Source(run=run, kept=kept, verdict=document)


def _passing_ids(failed: Sequence[Source], most: int) -> list[tuple[str, Tenant]]:
    """Return the newest passing runs of the failed runs' workflow, with their tenant."""
    if not most:
        return []
    kept = [source.kept.verdict for source in failed if source.kept is not None]
    if not kept:
        raise WrongUsage("--passing: expected an issue or a kept run; of files, name the passing ones too")
    tenant = kept[0].tenant
    settings = load_settings(os.environ, directory=Path.cwd())
    with opened_store(settings, "kept runs") as db:
        history = RunHistoryRows(db)
        places = history.workflows_of(tenant, [verdict.run_id for verdict in kept])
        rows = history.told(tenant, *places[0], _MOST_TOLD) if places else []
    found = [(row.run_id, tenant) for row in rows if row.said == Said.PASSED]
    if not found:
        raise WrongUsage("--passing: no run of this workflow is known to have passed")
    return found[:most]


def _replay(
    source: Source, options: GatewayOptions, replays: dict[str, Replay], refused: dict[str, str]
) -> None:
    tape = _tape(source, options, refused)
    step = source.verdict["step"]
    call = tape.call_up_to(step) if tape is not None and step is not None else None
    if call is not None and tape is not None:
        replays[source.run_id] = Replay(tape=tape, call=call.index)
    elif tape is not None:
        refused[source.run_id] = (
            "its verdict names no step" if step is None else "no model call was recorded up to its step"
        )


def _replay_passing(
    source: Source,
    options: GatewayOptions,
    agents: frozenset[str],
    replays: dict[str, Replay],
    refused: dict[str, str],
) -> None:
    """Let a passing run go live from the first call of an agent on that is blamed in the failed runs."""
    tape = _tape(source, options, refused)
    if tape is None:
        return
    chats = (call for call in tape.calls if call.kind is CallKind.CHAT)
    call = next((call for call in chats if call.agent in agents), None)
    if call is None:
        refused[source.run_id] = f"it has no call of {', '.join(sorted(agents)) or 'a blamed agent'}"
    else:
        replays[source.run_id] = Replay(tape=tape, call=call.index)


def _tape(source: Source, options: GatewayOptions, refused: dict[str, str]) -> Tape | None:
    try:
        return replace(tape_of(source.run, options), matching=Matching.CONVERSATION)
    except AnalyzerError as error:
        refused[source.run_id] = str(error)
        return None
