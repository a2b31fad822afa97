"""``blamespan experiment``: rerun a recorded run with one answer changed: would it have succeeded?"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from analyzer.cli.commands.analyse.steps import (
    STANDARD_INPUT,
    LogsOption,
    RecordedRun,
    load_runs,
    reader_here,
)
from analyzer.cli.commands.learn.label import TenantOption, opened_store
from analyzer.cli.commands.operate.export import open_kept
from analyzer.cli.commands.prove.gateway import (
    HttpToolOption,
    McpCommandOption,
    McpToolOption,
    remote_tools,
)
from analyzer.cli.experiment_options import (
    INTERRUPTED_CODE,
    checks_of,
    gateway_options,
    on_interrupt,
    require_one,
    require_prices,
)
from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, WrongUsage, optional, print_json
from analyzer.cli.retry_command import RetryRequest, retry_pilot
from analyzer.cli.trial_options import (
    AllowToolOption,
    BudgetOption,
    CheckOption,
    ExpectOption,
    MaxCallsOption,
    ParallelOption,
    TimeoutOption,
    UpstreamOption,
    UrlOption,
)
from analyzer.executor.codec import write_answer
from analyzer.executor.composition import open_analyst, open_span_keeper
from analyzer.executor.models.completion import price_of
from analyzer.experiment.call_budget import BUDGET_USD
from analyzer.experiment.candidates import ChangeKind, Fix
from analyzer.experiment.conduct import Conductor
from analyzer.experiment.experiment_output import conclusion, forecast, progress, tool_lines
from analyzer.experiment.findings import Experiment, KeptArms, refusal, to_json
from analyzer.experiment.forecast import forecast_json, forecast_of
from analyzer.experiment.open_experiment import (
    CannotReplay,
    NoSuchStep,
    Request,
    prepare,
)
from analyzer.experiment.open_experiment import (
    experiment as run_experiment,
)
from analyzer.experiment.proofs import attribution_of
from analyzer.experiment.running.checks import Check, CheckFailed, every
from analyzer.experiment.running.kept_trials import packed_trial
from analyzer.experiment.running.trial_ids import TrialIds
from analyzer.experiment.running.trial_runner import Options
from analyzer.experiment.running.workflow import TIMEOUT_S, Command, Endpoint, Workflow
from analyzer.experiment.sequential import Decision
from analyzer.experiment.walk import MOST_TRIALS
from analyzer.inquiry.errors import AnalyzerError
from analyzer.inquiry.present import console
from analyzer.issues.labels.kept_trace import KeptTrace
from analyzer.issues.labels.opinion_store import WaitingExperiments
from collector_processor.otlp import NO_TENANT, CollectorError
from collector_processor.rebuild.kept_spans import SpanKeeper
from collector_processor.rebuild.stages import Run
from collector_processor.settings import load_settings
from collector_processor.store.records import StoredVerdict
from collector_processor.store.small_tables import TrialRows
from collector_processor.store.trial_arms import TrialArm, TrialArmRows, new_trial
from semconv.model import Attribution, Blame, Ranked
from semconv.record import replace

_INTERRUPTED = "interrupted"
_STORES = frozenset({"data_dir", "store_url"})
"""Settings that locate the store of the service that receives the trials' spans."""


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
        typer.Argument(metavar="-- COMMAND…", help="Runs the workflow once.", show_default=False),
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
        str | None, optional("TEXT", "The replacement answer, hint, model or prompt; alone: the answer.")
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, metavar="MAX", help="Trials an arm.")
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
        bool, typer.Option("--dry-run", help="Say what would be called, sent and paid; start nothing.")
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
    tenant: TenantOption = None,
    seed: Annotated[
        int, typer.Option("--seed", help="In the trials' environment as BLAMESPAN_SEED, counted up.")
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
    checks = checks_of(check, expect, {})
    remotes = remote_tools(http_tool or (), mcp_tool or (), mcp_command or ())
    options = Options(most_trials=trials, parallel=parallel, timeout_s=timeout, seed=seed)
    gateway = replace(gateway_options(upstream, allow_tool or []), remotes=remotes)
    if retry:
        asked = RetryRequest(
            place=Path(run),
            command=command or (),
            check=lambda variables: every(checks_of(check, expect, variables)),
            gateway=gateway,
            options=options,
            budget_usd=budget_usd,
            max_calls=max_calls,
            gate=gate,
        )
        retry_pilot(asked, output, excluded=(url, step, agent, change, text, tenant, keep, dry_run or None))
        return
    if gate is not None:
        raise WrongUsage("--gate: expected --retry with it")
    found, kept = open_run(run, tenant, logs or [])
    workflow = _workflow(command, url, found)
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
    with _trial_ids(kept, timeout) as issue:
        try:
            result = asyncio.run(_run(found, workflow, every(checks), replace(request, issue=issue)))
        except CommandFailed as error:
            _show_refusal(found, str(error), output, Decision.UNDECIDED)
            raise
    _show(result, output)
    if kept is not None:
        _hand_over(result, found, kept)
    if code := _exit_code(result):
        raise typer.Exit(code)


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
            "--keep: expected a command, since a service at --url sends its spans where it always does"
        )
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUsage(f"--keep {keep}: cannot be made: {error.strerror or error}") from error
    return keep


def _workflow(command: list[str] | None, url: str | None, run: Run) -> Workflow:
    require_one(command, url)
    if url is not None:
        return Endpoint(url=url, task=run.trajectory.task or "")
    assert command
    return Command(arguments=command)


def open_run(run: str, tenant: str | None, logs: Sequence[Path] = ()) -> tuple[Run, KeptTrace | None]:
    """Return the run of a file or of the store; of the store also what is kept of it."""
    kept = _kept(run, tenant)
    return (kept.run(), kept) if kept else (_recorded(run, logs), None)


def _kept(run: str, tenant: str | None) -> KeptTrace | None:
    """Return the kept run of this id; ``None`` if a file has this name or the name cannot be a run's id."""
    path = Path(run)
    if path == STANDARD_INPUT or path.exists() or path.name != run:
        if tenant is not None:
            raise WrongUsage("--tenant: expected with it the id of a kept run, and no file")
        return None
    try:
        return open_kept(run, tenant=tenant)
    except (AnalyzerError, CollectorError) as error:
        raise WrongUsage(f"{run}: no such file, and no kept run: {error}") from error


@contextmanager
def _trial_ids(kept: KeptTrace | None, timeout_s: float) -> Iterator[TrialIds | None]:
    """Issue trials in the store of a kept run, or of the configured data directory; ``None`` without one."""
    settings = load_settings(os.environ, directory=Path.cwd(), model="")
    if kept is None and not _STORES & settings.model_fields_set:
        yield None
        return
    with ExitStack() as opened:
        try:
            db = opened.enter_context(opened_store(settings, "kept runs"))
        except CommandFailed:  # a configured directory that no service has used yet
            yield None
            return
        tenant = kept.verdict.tenant if kept else NO_TENANT
        yield TrialIds(rows=TrialRows(db), tenant=tenant, timeout_s=timeout_s, now_ns=time.time_ns)


def _recorded(run: str, logs: Sequence[Path]) -> Run:
    """Return the run of a file."""
    runs = [each for each in load_runs(Path(run), logs) if each.trace is not None]
    if len(runs) != 1:
        raise CommandFailed(f"{run}: holds {len(runs)} runs with spans, expected one")
    return _as_run(runs[0])


def _as_run(recorded: RecordedRun) -> Run:
    assert recorded.trace is not None
    return Run(trace=recorded.trace, trajectory=recorded.trajectory, reader=reader_here())


def _ranking(run: Run) -> tuple[Ranked, ...]:
    """Return the most suspect steps first, by the configured method without a model, at no cost."""
    settings = load_settings(os.environ, directory=Path.cwd(), model="")
    return open_analyst(settings).attributor.at_once(run.trajectory).verdict.ranking


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
    try:
        return await run_experiment(run, workflow, check, price_of, request, watch, watch.begun)
    except OSError as error:
        raise CommandFailed(f"the workflow cannot be started: {error.strerror or error}") from error
    except CheckFailed as error:
        raise CommandFailed(str(error)) from error


def _hand_over(result: Experiment, run: Run, kept: KeptTrace) -> None:
    """Pass the result to the service, which turns it into a new version of the verdict."""
    attribution = attribution_of(result, run.trajectory, kept.verdict)
    arms = _arms_to_show(result, attribution)
    if attribution is None and arms is None:
        return
    settings = load_settings(os.environ, directory=Path.cwd(), model="")
    with opened_store(settings, "kept runs") as db:
        if arms is not None:
            _keep_arms(TrialArmRows(db), kept.verdict, arms, open_span_keeper(settings))
        if attribution is not None:
            document = write_answer(attribution).decode()
            queue = WaitingExperiments(db)
            queue.add(kept.verdict.tenant, kept.verdict.run_id, time.time_ns(), document)
            sys.stderr.write(
                "The service writes it into the trace within seconds, or when it starts again.\n"
            )


def _arms_to_show(result: Experiment, attribution: Attribution | None) -> tuple[int, KeptArms] | None:
    """Return the step that the experiment decided, or the only one tried, with a trial of each arm."""
    if result.kept is None:
        return None
    proof = None if attribution is None else attribution.proof
    decisive = None if result.decisive is None else result.decisive.candidate.step
    step = decisive if proof is None else proof.step
    arms = None if step is None else result.kept.by_step.get(step)
    return None if step is None or arms is None else (step, arms)


def _keep_arms(
    rows: TrialArmRows, verdict: StoredVerdict, shown: tuple[int, KeptArms], keeper: SpanKeeper
) -> None:
    """Keep one trial of each arm beside the run, so that its page shows both."""
    step, arms = shown
    found: list[tuple[TrialArm, bytes]] = []
    for trial in (arms.recorded, arms.changed):
        packed = packed_trial(trial.file, keeper)
        if packed is None:
            sys.stderr.write(f"{trial.file}: too large for the run's page, or texts may not be kept\n")
            return
        arm = TrialArm(
            tenant=verdict.tenant,
            run_id=verdict.run_id,
            id=new_trial(),
            step=step,
            is_changed=trial is arms.changed,
            has_passed=trial.has_passed,
        )
        found.append((arm, packed))
    rows.keep(found, time.time_ns())
    recorded, changed = (arm.id for arm, _ in found)
    sys.stderr.write(f"Both arms on the service's page: /compare?a=trial:{recorded}&b=trial:{changed}\n")


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
