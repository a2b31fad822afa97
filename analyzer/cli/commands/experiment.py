"""``blamespan experiment``: rerun a recorded run with one answer changed: would it have succeeded?"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from analyzer.analyses.composition import open_analyst
from analyzer.analyses.models.completion import price_of
from analyzer.cli.experiment_options import (
    INTERRUPTED_CODE,
    AllowToolOption,
    BudgetOption,
    CheckOption,
    ExpectOption,
    HttpToolOption,
    MaxCallsOption,
    McpCommandOption,
    McpToolOption,
    ParallelOption,
    TimeoutOption,
    UpstreamOption,
    UrlOption,
    checks_of,
    gateway_options,
    on_interrupt,
    remote_tools,
    require_one,
    require_prices,
    workflow_failures,
)
from analyzer.cli.experiment_runs import (
    given_options,
    hand_over,
    keep_report,
    last_time,
    open_run,
    remember_for,
    subjects_of,
    tenant_of_kept,
    trial_ids,
)
from analyzer.cli.kept_runs import TenantOption
from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, WrongUsage, optional, print_json
from analyzer.cli.recorded_runs import LogsOption
from analyzer.cli.retry_command import RetryRequest, retry_pilot
from analyzer.experiment.call_budget import BUDGET_USD
from analyzer.experiment.candidates import ChangeKind, Fix, steps_to_try
from analyzer.experiment.conduct import Conductor
from analyzer.experiment.experiment_output import (
    conclusion,
    forecast,
    forecast_json,
    forecast_of,
    progress,
    refused,
    report,
    tool_lines,
)
from analyzer.experiment.findings import Experiment, refusal, to_json
from analyzer.experiment.open_experiment import (
    CannotReplay,
    NoSuchStep,
    Request,
    prepare,
)
from analyzer.experiment.open_experiment import (
    experiment as run_experiment,
)
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.sequential import Decision
from analyzer.experiment.trial_runner import Options
from analyzer.experiment.walk import MOST_TRIALS
from analyzer.experiment.workflow import TIMEOUT_S, Check, Command, Endpoint, Workflow, every
from analyzer.inquiry.terminal import console
from analyzer.issues.labels.kept_trace import KeptTrace
from analyzer.records.proof_records import Remembered
from collector_processor.core.runs import Run
from collector_processor.settings import load_settings
from collector_processor.writeback.outgoing import service_of
from semconv.model import Blame, Ranked
from semconv.record import replace

_INTERRUPTED = "interrupted"


def experiment(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A trace file, or the id of a kept run; with --retry a file or folder of many runs.",
            show_default=False,
        ),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND…", help="The command that runs the workflow once.", show_default=False
        ),
    ] = None,
    check: CheckOption = None,
    expect: ExpectOption = None,
    upstream: UpstreamOption = None,
    step: Annotated[int | None, optional("N", "Try this step alone.")] = None,
    agent: Annotated[str | None, optional("NAME", "Try this agent's steps alone.")] = None,
    change: Annotated[
        ChangeKind | None,
        optional("KIND", "How the answer is changed: hint, text, model or prompt. Default: sampled anew."),
    ] = None,
    text: Annotated[
        str | None,
        optional("TEXT", "The replacement answer, hint, model or prompt; without --change, the answer."),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, metavar="MAX", help="Maximum number of trials in each arm.")
    ] = MOST_TRIALS,
    parallel: ParallelOption = 1,
    budget_usd: BudgetOption = BUDGET_USD,
    max_calls: MaxCallsOption = None,
    allow_tool: AllowToolOption = None,
    http_tool: HttpToolOption = None,
    mcp_tool: McpToolOption = None,
    mcp_command: McpCommandOption = None,
    url: UrlOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print the planned calls, what they send, and the cost; start nothing."
        ),
    ] = False,
    timeout: TimeoutOption = TIMEOUT_S,
    retry: Annotated[
        bool, typer.Option("--retry", help="Measure what retrying recovers and disrupts, on many runs.")
    ] = False,
    gate: Annotated[
        Path | None, optional("FILE", "Where --retry writes its result, for `analyzer.retry`.")
    ] = None,
    keep: Annotated[
        Path | None,
        optional(
            "DIR", "Write each trial's trace into this folder, for `blamespan diff`; it goes nowhere else."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Use command, check, tools and upstream of the last experiment on this service's runs.",
        ),
    ] = False,
    tenant: TenantOption = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Passed on as BLAMESPAN_SEED; each trial gets the next number.")
    ] = 0,
    logs: LogsOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Rerun a failed run with one answer changed, and see whether it would have succeeded.

    The workflow is started once for each trial. Calls before the suspected step get their recorded
    answers, that step's answer is changed, and later calls go to the live model. The
    step is proved if the run then succeeds more often than with the recorded answer.

    Example: [bold]blamespan experiment trace.json --expect 480 -- python my_agents.py[/bold]
    """
    given = given_options(
        command,
        check=check,
        expect=expect,
        upstream=upstream,
        allow_tool=allow_tool,
        http_tool=http_tool,
        mcp_tool=mcp_tool,
        mcp_command=mcp_command,
    )
    options = Options(most_trials=trials, parallel=parallel, timeout_s=timeout, seed=seed)
    if retry:
        _checks(given, {})  # refused before anything is read
        retry_request = RetryRequest(
            place=Path(run),
            command=given.command,
            check=lambda variables: every(_checks(given, variables)),
            gateway=_gateway(given),
            options=options,
            budget_usd=budget_usd,
            max_calls=max_calls,
            gate=gate,
        )
        excluded = (url, step, agent, change, text, tenant, keep, dry_run or None, again or None)
        retry_pilot(retry_request, output, excluded=excluded)
        return
    if gate is not None:
        raise WrongUsage("--gate: expected --retry too")
    found, kept = open_run(run, tenant, logs or [])
    given = _chosen(given, url, lambda: last_time(run, found, kept, again=again), again=again)
    checks, gateway = _checks(given, {}), _gateway(given)
    workflow = _workflow(given.command, url, found)
    request = Request(
        ranking=_ranking(found),
        step=step,
        agent=agent,
        fix=_fix(change, text, found),
        budget_usd=budget_usd,
        max_calls=max_calls,
        options=options,
        gateway=gateway,
        resource=os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""),
        keep=_made(keep, url),
    )
    try:
        prepared = prepare(found, request)
    except CannotReplay as error:
        _show_refusal(found, str(error), output, Decision.NOT_REPLAYABLE)
        keep_report(refused(str(error)), "experiment", given, subjects_of(kept))
        raise CommandFailed(f"{run}: cannot be replayed: {error}") from error
    except NoSuchStep as error:
        raise WrongUsage(str(error)) from error
    expected = forecast_of(prepared, request, workflow, price_of)
    if dry_run:
        if output is OutputFormat.JSON:
            print_json(forecast_json(expected))
        else:
            console().print(forecast(expected), soft_wrap=True)
        return
    other = [request.fix.text] if request.fix.kind is ChangeKind.MODEL else []
    require_prices([prepared.tape], budget_usd, max_calls, other)
    sys.stderr.writelines(f"{line}\n" for line in tool_lines(expected.tools))
    with trial_ids(kept, timeout) as issue:
        try:
            result = asyncio.run(_run(found, workflow, every(checks), replace(request, issue=issue)))
        except CommandFailed as error:
            _show_refusal(found, str(error), output, Decision.UNDECIDED)
            raise
    _show(result, output)
    _keep(result, found, kept, given)
    if code := _exit_code(result):
        raise typer.Exit(code)


def _keep(result: Experiment, run: Run, kept: KeptTrace | None, given: Remembered) -> None:
    if result.valid:
        remember_for(tenant_of_kept(kept), service_of(run), given)
    if kept is not None:
        hand_over(result, run, kept)
    keep_report(report(result), "experiment", given, subjects_of(kept))


def _chosen(given: Remembered, url: str | None, last: Callable[[], Remembered], *, again: bool) -> Remembered:
    """Return what this experiment was given, or, without a workflow, what the last one was."""
    if not given.command and url is None:
        return last()
    if again:
        raise WrongUsage("--again stands for the command of the last time: leave out COMMAND and --url")
    return given


def _checks(given: Remembered, variables: Mapping[str, str]) -> list[Check]:
    return checks_of(given.value("--check"), given.value("--expect"), variables)


def _gateway(given: Remembered) -> GatewayOptions:
    remotes = remote_tools(
        given.values("--http-tool"), given.values("--mcp-tool"), given.values("--mcp-command")
    )
    options = gateway_options(given.value("--upstream"), given.values("--allow-tool"))
    return replace(options, remotes=remotes)


def _exit_code(result: Experiment) -> int:
    """Return exit code 0 for a decision, including "undecided" after valid trials."""
    if result.decision is Decision.NOT_REPLAYABLE or result.control_passes:
        return 1
    if result.decision is not Decision.UNDECIDED:
        return 0
    if result.is_interrupted:
        return INTERRUPTED_CODE
    return 0 if result.valid else 1


def _made(keep: Path | None, url: str | None) -> Path | None:
    """Return the folder for the trials' traces, which exists now."""
    if keep is None:
        return None
    if url is not None:
        raise WrongUsage(
            "--keep needs a COMMAND: a service at --url sends its spans to its own endpoint, not here"
        )
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUsage(f"--keep {keep}: cannot be made: {error.strerror or error}") from error
    return keep


def _workflow(command: Sequence[str], url: str | None, run: Run) -> Workflow:
    require_one(command, url)
    if url is not None:
        return Endpoint(url=url, task=run.trajectory.task or "")
    assert command
    return Command(arguments=command)


def _ranking(run: Run) -> tuple[Ranked, ...]:
    """Return the most suspect steps first, by the configured method without a model, at no cost."""
    settings = load_settings(os.environ, directory=Path.cwd(), model="")
    verdict = open_analyst(settings).attributor.at_once(run.trajectory).verdict
    return steps_to_try(verdict, run.trajectory)


def _fix(change: ChangeKind | None, text: str | None, run: Run) -> Fix:
    kind = change or (ChangeKind.RESAMPLE if text is None else ChangeKind.TEXT)
    if kind is ChangeKind.HINT and text is None:
        text = _proposed(run)
    if (kind is ChangeKind.RESAMPLE) != (text is None):
        raise WrongUsage(f"--change {kind}: expected --text TEXT with it, and no --text without it")
    return Fix(kind=kind, text=text or "")


def _proposed(run: Run) -> str:
    """Return the fix proposed by the verdict."""
    settings = load_settings(os.environ, directory=Path.cwd(), model="")
    verdict = open_analyst(settings).attributor.at_once(run.trajectory).verdict
    if not isinstance(verdict, Blame) or not verdict.fix:
        raise WrongUsage("--change hint: the verdict has no fix to use as a hint: expected --text TEXT")
    return verdict.fix


@dataclass(slots=True)
class _Watch:
    """Shows progress on standard error, and stops the experiment at the first Ctrl-C."""

    conductor: Conductor | None = None
    _write: Callable[[str], object] = field(default=sys.stderr.write)

    def begun(self, conductor: Conductor) -> None:
        self.conductor = conductor
        on_interrupt(partial(conductor.stop, _INTERRUPTED))

    def __call__(self, conductor: Conductor) -> None:
        self._write(f"{progress(conductor)}\n")
        sys.stderr.flush()


async def _run(run: Run, workflow: Workflow, check: Check, request: Request) -> Experiment:
    watch = _Watch()
    with workflow_failures():
        return await run_experiment(run, workflow, check, price_of, request, watch, watch.begun)


def _show_refusal(run: Run, reason: str, output: OutputFormat, decision: Decision) -> None:
    """Print the one object of an experiment without trials, for programs."""
    if output is OutputFormat.JSON:
        print_json(refusal(run.trajectory.run_id, reason, decision))


def _show(result: Experiment, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        for document in to_json(result):
            print_json(document)
        return
    console().print(conclusion(result))
