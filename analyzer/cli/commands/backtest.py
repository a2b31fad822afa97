"""``blamespan backtest``: does today's code still fail where yesterday's did?

The runs are of files and of the store, each with the call at which its tape ends.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from analyzer.analyses.models.completion import price_of
from analyzer.cli.experiment_options import (
    INTERRUPTED_CODE,
    AllowToolOption,
    BudgetOption,
    CheckOption,
    ExpectOption,
    MaxCallsOption,
    ParallelOption,
    TimeoutOption,
    UpstreamOption,
    checks_of,
    gateway_options,
    on_interrupt,
    require_prices,
    split_command,
    words_of,
)
from analyzer.cli.experiment_runs import (
    Subject,
    given_options,
    keep_report,
    open_run,
    remember_for,
    subjects_of,
    tenant_of_kept,
)
from analyzer.cli.judged_runs import known_or_judged, settings_here
from analyzer.cli.kept_runs import TenantOption, find_issue, opened_store
from analyzer.cli.output import CommandFailed, WrongUsage, complain, optional, print_json
from analyzer.cli.recorded_runs import RecordedRun
from analyzer.cli.run_report import Reporter
from analyzer.experiment.backtest.conduct import Conductor, Replay
from analyzer.experiment.backtest.findings import Backtest, progress, report, to_json
from analyzer.experiment.backtest.plan import MOST_TRIALS, Plan, Side, Verdict
from analyzer.experiment.call_budget import BUDGET_USD, Ledger
from analyzer.experiment.captured import Capture, capturing
from analyzer.experiment.experiment_output import shown
from analyzer.experiment.open_experiment import tape_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.replay.tape import CallKind, Matching, Tape
from analyzer.experiment.trial_runner import Options, Parts, Ran
from analyzer.experiment.workflow import TIMEOUT_S, Check, CheckFailed, Command, Ended, every
from analyzer.history.spectrum import Said
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.inquiry.terminal import console
from analyzer.issues.counting import CountingRules, IssueCounting
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.kept_trace import KeptTrace
from analyzer.issues.labels.label_store import LabelStore
from analyzer.programs.child import Ended as ChildEnded
from analyzer.programs.child import Seen, Wishes
from analyzer.programs.model_call import PassedCall
from analyzer.programs.recording_gateway import recording
from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT, CollectorError, Tenant
from collector_processor.settings import load_settings
from collector_processor.store.run_history import RunHistoryRows
from collector_processor.writeback.outgoing import service_of
from semconv.emit.tool_playback import TRIAL_VARIABLE
from semconv.model import Blame, Status
from semconv.record import record, replace

_INTERRUPTED: Final = "interrupted"
_NAME: Final = "workflow"


class BacktestFormat(StrEnum):
    """Format of the result."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


def backtest(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|ISSUE… -- COMMAND…",
            help="Trace files, ids of kept runs or issues, and the command that runs today's program once.",
            show_default=False,
        ),
    ],
    check: CheckOption = None,
    expect: ExpectOption = None,
    baseline: Annotated[
        str | None, optional("COMMAND", "Yesterday's program, which is compared with today's.")
    ] = None,
    passing: Annotated[
        int,
        typer.Option("--passing", min=0, metavar="N", help="Replay N passing runs of the workflow too."),
    ] = 0,
    trials: Annotated[
        int, typer.Option("--trials", min=1, metavar="MAX", help="Most trials of each arm of a run.")
    ] = MOST_TRIALS,
    upstream: UpstreamOption = None,
    parallel: ParallelOption = 1,
    budget_usd: BudgetOption = BUDGET_USD,
    max_calls: MaxCallsOption = None,
    allow_tool: AllowToolOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    tenant: TenantOption = None,
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Resolve the named issues if they are fixed, and nothing broke.")
    ] = False,
    output: Annotated[
        BacktestFormat,
        typer.Option("--format", help="`table`, `json` for programs, or `markdown` for a pull request."),
    ] = BacktestFormat.TABLE,
) -> None:
    """Replay failed runs with today's code, and see whether they still fail.

    Each run is played back up to its decisive step, and is live from there on. Half of the trials ask that
    step as it was recorded, so that luck on a retry is not taken for a fix. Calls are matched by their
    conversation: instructions may have changed. A passing run that is named, or sampled with --passing,
    is live from the first call of the blamed agent on.

    Exit code: 0 fixed (proved), 1 not fixed, or a passing run broke, or another agent is blamed now, 2 wrong
    usage, 3 undecided or not replayable, or no longer fails without a proof.

    Example: [bold]blamespan backtest trace.json --expect 480 -- python my_agents.py[/bold]
    """
    named, command = split_command(arguments)
    if not named or not command:
        raise WrongUsage("backtest: expected RUN|ISSUE… -- COMMAND…")
    words = _baseline_words(baseline)
    wanted = _Wanted(
        command=Command(arguments=command),
        baseline=Command(arguments=words) if words else None,
        check=every(checks_of(check, expect, {})),
        gateway=_with_upstreams(gateway_options(upstream, allow_tool or []), upstream),
        options=Options(most_trials=trials, parallel=parallel, timeout_s=timeout),
        budget_usd=budget_usd,
        max_calls=max_calls,
    )
    try:
        runs = backtested(named, tenant, passing, wanted.gateway)
    except (CommandFailed, UnreadableInput) as error:  # exit code 1 would say that the runs still fail
        raise WrongUsage(str(error)) from error
    if resolve and not runs.issues:
        raise WrongUsage("--resolve: expected the id of an issue")
    if runs.replays:
        require_prices([replay.tape for replay in runs.replays.values()], budget_usd, max_calls)
    try:
        found = asyncio.run(_run(runs, wanted))
    except OSError as error:
        what = f"{error.filename or command[0]}: {error.strerror or error}"
        raise WrongUsage(f"the program cannot be started: {what}") from error
    except CheckFailed as error:
        raise WrongUsage(str(error)) from error
    _show(found, output)
    given = given_options(command, check=check, expect=expect, upstream=upstream, allow_tool=allow_tool)
    keep_report(report(found), "backtest", given, runs.subjects)
    if found.trials and found.verdict is not Verdict.NOT_REPLAYABLE:
        remember_for(runs.tenant, runs.service, given)
    if not found.code:
        _conclude(runs.issues, found, resolves=resolve)
    is_open = found.verdict in {Verdict.UNDECIDED, Verdict.NO_LONGER_FAILS}
    if code := INTERRUPTED_CODE if found.stopped == _INTERRUPTED and is_open else found.code:
        raise typer.Exit(code)


def _conclude(issues: Sequence[NamedIssue], found: Backtest, *, resolves: bool) -> None:
    """Resolve the issues whose fix is proved, or say how to once the fix is released."""
    proved = [issue for issue in issues if issue.is_proved_by(found)]
    if resolves:
        resolve_issues(proved)
    for named_issue in issues:
        if named_issue not in proved:
            complain(f"issue {named_issue.issue}: not resolved: too few of its own runs were replayed")
        elif resolves:
            complain(f"issue {named_issue.issue}: resolved")
        else:
            complain(
                f"issue {named_issue.issue}: fixed; once that is released:"
                f" `blamespan issues resolve {named_issue.issue}`"
            )


@record
class _Wanted:
    """What the user says of the programs and the trials."""

    command: Command
    baseline: Command | None
    check: Check
    gateway: GatewayOptions
    options: Options
    budget_usd: float
    max_calls: int | None


def _baseline_words(baseline: str | None) -> tuple[str, ...]:
    words = words_of(baseline or "")
    if baseline is not None and not words:
        raise WrongUsage(f"--baseline {baseline}: expected a command whose quotation marks are closed")
    return words


def _with_upstreams(options: GatewayOptions, upstream: str | None) -> GatewayOptions:
    """Return the options with the addresses of the user's environment, unless --upstream names one."""
    if upstream is not None:
        return options
    return replace(
        options,
        openai=os.environ.get("OPENAI_BASE_URL") or options.openai,
        anthropic=os.environ.get("ANTHROPIC_BASE_URL") or options.anthropic,
    )


async def _run(runs: Backtested, wanted: _Wanted) -> Backtest:
    ledger = Ledger(price_of, budget_usd=wanted.budget_usd, max_calls=wanted.max_calls)
    plan = Plan(
        runs.failed,
        runs.passing,
        runs.refused,
        has_baseline=wanted.baseline is not None,
        most_trials=wanted.options.most_trials,
    )
    reporter = Reporter(Wishes(failed=True), settings_here(None, "", None, None))
    options = replace(wanted.gateway, reserve=ledger.reserve, settle=ledger.settle)
    async with serving(options) as gateway, capturing() as capture:
        watching = Watching(capture, reporter, dict(runs.failed))
        today = Parts(
            gateway=gateway,
            workflow=WatchedProgram(wanted.command, watching),
            check=wanted.check,
            ledger=ledger,
            clock=time.monotonic,
            telemetry=capture.environment,
        )
        old = WatchedProgram(wanted.baseline or wanted.command, watching)
        programs = {Side.TODAY: today, Side.YESTERDAY: replace(today, workflow=old)}
        conductor = Conductor(plan, runs.replays, programs, wanted.options, watching.judge)
        on_interrupt(partial(conductor.stop, _INTERRUPTED))
        return await conductor.run(_watch)


def _watch(conductor: Conductor) -> None:
    complain(progress(conductor.plan, conductor.trials, conductor.spent))


def _show(found: Backtest, output: BacktestFormat) -> None:
    match output:
        case BacktestFormat.JSON:
            print_json(to_json(found))
        case BacktestFormat.MARKDOWN:
            sys.stdout.write(report(found).markdown("blamespan backtest"))
        case BacktestFormat.TABLE:
            console().print(shown(report(found)))


class Watching:
    """What was seen of trials that are not judged yet."""

    def __init__(self, capture: Capture, reporter: Reporter, blamed: Mapping[str, str]) -> None:
        """Expect trials.

        Args:
            capture: receives the trials' spans.
            reporter: judges runs that failed.
            blamed: the agent that each recorded run's verdict blames, by the run's id.
        """
        self._capture: Final = capture
        self._reporter: Final = reporter
        self._blamed: Final = blamed
        self._calls: Final[dict[str, tuple[PassedCall, ...]]] = {}

    def keep(self, root_url: str, calls: tuple[PassedCall, ...]) -> None:
        """Keep the calls of a trial until it is judged."""
        self._calls[root_url.rpartition("/")[2]] = calls

    async def judge(self, run: str, ran: Ran) -> str:
        """Return the agent that broke a trial; empty if none did, or names cannot be compared.

        The names of a program's agents come from its spans or its prompts. If no agent of the trial has the
        name that the recorded run's verdict blames, another name says nothing.
        """
        telemetry, calls = self._capture.take(ran.trial), self._calls.pop(ran.trial, ())
        if ran.result.success or ran.result.invalid:
            return ""
        seen = Seen(
            program=_NAME,
            ended=ChildEnded(code=0),
            traces=telemetry.spans,
            logs=telemetry.logs,
            calls=calls,
            has_gateway=True,
        )
        try:
            judged = await self._reporter.judge(seen)
        except (AnalyzerError, CollectorError):  # its telemetry is damaged: the trial's outcome still counts
            return ""
        if not judged:
            return ""
        last, verdict = judged[-1].trajectory, judged[-1].attribution.verdict
        is_comparable = self._blamed.get(run) in {step.agent for step in last.steps}
        return verdict.agent if is_comparable and isinstance(verdict, Blame) else ""


class WatchedProgram:
    """A command whose model calls are recorded too."""

    def __init__(self, command: Command, watching: Watching) -> None:
        """Run ``command`` once for each trial."""
        self._command: Final = command
        self._watching: Final = watching

    async def __call__(self, environment: Mapping[str, str], timeout_s: float) -> Ended:
        """Run it to its end or to the time limit.

        Raises:
            OSError: it cannot be started.
        """
        async with recording(environment) as recorder:
            ended = await self._command({**environment, **recorder.environment()}, timeout_s)
            self._watching.keep(environment[TRIAL_VARIABLE], tuple(recorder.calls))
        return ended


# --- the runs ---

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
