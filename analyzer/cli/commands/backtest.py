"""``blamespan backtest``: does today's code still fail where yesterday's did?"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Final

import typer

from analyzer.analyses.models.completion import price_of
from analyzer.cli.backtested_runs import Backtested, NamedIssue, backtested, resolve_issues
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
from analyzer.cli.experiment_runs import given_options, keep_report, remember_for
from analyzer.cli.judged_runs import settings_here
from analyzer.cli.kept_runs import TenantOption
from analyzer.cli.output import CommandFailed, WrongUsage, complain, optional, print_json
from analyzer.cli.run_report import Reporter
from analyzer.experiment.backtest.conduct import Conductor
from analyzer.experiment.backtest.findings import Backtest, progress, report, to_json
from analyzer.experiment.backtest.plan import MOST_TRIALS, Plan, Side, Verdict
from analyzer.experiment.call_budget import BUDGET_USD, Ledger
from analyzer.experiment.captured import Capture, capturing
from analyzer.experiment.experiment_output import shown
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.trial_runner import Options, Parts, Ran
from analyzer.experiment.workflow import TIMEOUT_S, Check, CheckFailed, Command, Ended, every
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.inquiry.terminal import console
from analyzer.programs.child import Ended as ChildEnded
from analyzer.programs.child import Seen, Wishes
from analyzer.programs.model_call import PassedCall
from analyzer.programs.recording_gateway import recording
from collector_processor.otlp import CollectorError
from semconv.emit.tool_playback import TRIAL_VARIABLE
from semconv.model import Blame
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
