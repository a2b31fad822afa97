"""The runs of a backtest: of files and of the store, each with the call at which its tape ends. Not pure."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from analyzer.cli.experiment_runs import Subject, open_run, subjects_of, tenant_of_kept
from analyzer.cli.judged_runs import known_or_judged, settings_here
from analyzer.cli.kept_runs import find_issue, opened_store
from analyzer.cli.output import WrongUsage
from analyzer.cli.recorded_runs import RecordedRun
from analyzer.experiment.backtest.conduct import Replay
from analyzer.experiment.backtest.findings import Backtest
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.tape import CallKind, Matching, Tape
from analyzer.history.spectrum import Said
from analyzer.inquiry.errors import AnalyzerError
from analyzer.issues.counting import CountingRules, IssueCounting
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.kept_trace import KeptTrace
from analyzer.issues.labels.label_store import LabelStore
from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.settings import load_settings
from collector_processor.store.run_history import RunHistoryRows
from collector_processor.writeback.outgoing import service_of
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
class NamedIssue:
    """An issue that was named."""

    issue: str
    tenant: Tenant
    service: str
    runs: tuple[str, ...]
    """Its newest runs."""

    def is_proved_by(self, found: Backtest) -> bool:
        """Say whether more than half of its own runs were replayed, and one was compared with yesterday's."""
        own = [state for state in found.played if state.run_id in self.runs]
        return len(own) * 2 > len(self.runs) and any(state.is_compared and state.today.n for state in own)


@record
class Backtested:
    """The runs of a backtest."""

    failed: tuple[tuple[str, str], ...]
    """The id of each failed run, with the agent its verdict blames."""
    passing: tuple[str, ...]
    replays: dict[str, Replay]
    refused: dict[str, str]
    """Why runs cannot be replayed, by their ids."""
    issues: tuple[NamedIssue, ...] = ()
    """The issues that were named, each with its runs."""
    subjects: tuple[Subject, ...] = ()
    """The issues and kept runs that were named: their pages show the result."""
    tenant: Tenant = NO_TENANT
    service: str = ""
    """The service of the first failed run, and its tenant."""


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
    reading = _Reading(tenant, options)
    sources = [source for name in named for source in reading.named(name)]
    failed = {source.run_id: source for source in sources if not source.has_passed}
    if not failed and not reading.refused:
        raise WrongUsage(
            "expected a failed run: the verdict of each of these finds no failure; record one with"
            " `blamespan run --failed --save FILE -- COMMAND`, or say that it failed with --expect there"
        )
    blamed = {run: str(source.verdict["agent"] or "") for run, source in failed.items()}
    lost = dict.fromkeys(reading.refused, "")
    passed = {source.run_id: source for source in sources if source.has_passed}
    for run_id, owner in _passing_ids([*failed.values()], passing):
        passed |= {each.run_id: each for each in reading.one(run_id, owner)}
    for source in failed.values():
        reading.replay(source)
    agents = frozenset(filter(None, blamed.values()))
    for source in passed.values():
        reading.replay_passing(source, agents)
    first = next(iter(failed.values()), None)
    return Backtested(
        failed=tuple({**blamed, **lost}.items()),
        passing=tuple(passed),
        replays=reading.replays,
        refused=reading.refused,
        issues=tuple(reading.issues),
        subjects=tuple(reading.subjects),
        tenant=tenant_of_kept(first.kept) if first else NO_TENANT,
        service=service_of(first.run) if first else "",
    )


class _Reading:
    """Reads runs, and collects what cannot be replayed."""

    def __init__(self, tenant: str | None, options: GatewayOptions) -> None:
        self._tenant: Final = tenant
        self._options: Final = options
        self.replays: Final[dict[str, Replay]] = {}
        self.refused: Final[dict[str, str]] = {}
        self.issues: Final[list[NamedIssue]] = []
        self.subjects: Final[list[Subject]] = []

    def named(self, name: str) -> Iterator[Source]:
        """Yield the runs behind a name; runs of an issue that are no longer kept are refused."""
        issue = None if Path(name).exists() else _issue_of(name, self._tenant)
        if issue is None:
            source = _opened(name, self._tenant)
            self.subjects.extend(subjects_of(source.kept))
            yield source
            return
        self.issues.append(issue)
        self.subjects.append(Subject(tenant=issue.tenant, id=issue.issue, service=issue.service))
        for run_id in issue.runs:
            yield from self.one(run_id, issue.tenant)

    def one(self, run_id: str, tenant: str) -> Iterator[Source]:
        """Yield a kept run; one that cannot be read is refused."""
        try:
            yield _opened(run_id, tenant)
        except AnalyzerError as error:
            self.refused[run_id] = str(error)

    def replay(self, source: Source) -> None:
        """Let a failed run go live at the model call of its decisive step."""
        tape, step = self._tape(source), source.verdict["step"]
        if tape is None:
            return
        call = None if step is None else tape.call_up_to(step)
        if call is not None:
            self._play(source, tape, call.index)
            return
        why = "its verdict names no step" if step is None else "no model call was recorded up to its step"
        self.refused[source.run_id] = why

    def replay_passing(self, source: Source, agents: frozenset[str]) -> None:
        """Let a passing run go live from the first call of an agent on that failed runs blame."""
        tape = self._tape(source)
        if tape is None:
            return
        chats = (call for call in tape.calls if call.kind is CallKind.CHAT)
        call = next((call for call in chats if call.agent in agents), None)
        if call is not None:
            self._play(source, tape, call.index)
            return
        self.refused[source.run_id] = f"it has no call of {', '.join(sorted(agents)) or 'a blamed agent'}"

    def _play(self, source: Source, tape: Tape, call: int) -> None:
        self.refused.pop(source.run_id, None)  # named as a file too, and not readable through its issue
        task = source.run.trajectory.task or ""
        self.replays[source.run_id] = Replay(tape=tape, call=call, task=task)

    def _tape(self, source: Source) -> Tape | None:
        try:
            return replace(tape_of(source.run, self._options), matching=Matching.CONVERSATION)
        except AnalyzerError as error:
            self.refused[source.run_id] = str(error)
            return None


def _issue_of(name: str, tenant: str | None) -> NamedIssue | None:
    """Return an issue with its newest runs; ``None`` if there is no such issue."""
    if not re.fullmatch("[0-9a-f]{1,16}", name):
        return None
    settings = load_settings(os.environ, directory=Path.cwd())
    place = settings.store_place
    if isinstance(place, Path) and not place.is_file():
        return None  # as a run, the name gets its own message
    with opened_store(settings, "issues") as db:
        store = IssueStore(db)
        owner = None if tenant is None else Tenant(tenant)
        if not store.starting_with(name, owner):
            return None
        found, issue = find_issue(store, name, owner)
        mark = issue.fingerprint
        runs = store.runs_of_issue(found, mark.id, MOST_RUNS)
        return NamedIssue(
            issue=mark.id, tenant=found, service=mark.service, runs=tuple(run.run_id for run in runs)
        )


def resolve_issues(issues: Sequence[NamedIssue]) -> None:
    """Close issues whose fix is proved; a later failure is a regression."""
    settings = load_settings(os.environ, directory=Path.cwd())
    with opened_store(settings, "issues") as db:
        rules = CountingRules(is_fair_sample=settings.is_fair_sample)
        counting = IssueCounting(IssueStore(db), LabelStore(db), rules)
        for issue in issues:
            counting.resolve(issue.tenant, issue.issue, time.time_ns())


def _opened(name: str, tenant: str | None) -> Source:
    run, kept = open_run(name, tenant)
    settings = settings_here(None, "", None, None)
    document, _ = known_or_judged(RecordedRun(trajectory=run.trajectory, trace=run.trace), kept, settings)
    return Source(run=run, kept=kept, verdict=document)


def _passing_ids(failed: Sequence[Source], most: int) -> list[tuple[str, Tenant]]:
    """Return the newest passing runs of the failed runs' workflow, with their tenant."""
    if not most:
        return []
    verdicts = [source.kept.verdict for source in failed if source.kept is not None]
    if not verdicts:
        raise WrongUsage("--passing: expected an issue or a kept run; of files, name the passing ones too")
    tenant = verdicts[0].tenant
    settings = load_settings(os.environ, directory=Path.cwd())
    with opened_store(settings, "kept runs") as db:
        history = RunHistoryRows(db)
        places = history.workflows_of(tenant, [verdict.run_id for verdict in verdicts])
        rows = history.told(tenant, *places[0], _MOST_TOLD) if places else []
    found = [(row.run_id, tenant) for row in rows if row.said == Said.PASSED]
    if not found:
        raise WrongUsage("--passing: no run of this workflow is known to have passed")
    return found[:most]
