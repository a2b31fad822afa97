"""``blamespan inject``: make labelled failures of your own system, by faults in reruns of passing runs."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer

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
from analyzer.cli.experiment_runs import open_run
from analyzer.cli.kept_runs import TenantOption
from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, WrongUsage, optional, print_json
from analyzer.cli.recorded_runs import load_runs
from analyzer.experiment.call_budget import BUDGET_USD, Ledger
from analyzer.experiment.captured import Capture, capturing
from analyzer.experiment.open_experiment import CannotReplay, tape_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import Gateway, serving
from analyzer.experiment.replay.tape import Tape
from analyzer.experiment.trial_runner import Options, Parts
from analyzer.experiment.workflow import TIMEOUT_S, Command, Endpoint, Workflow, every
from analyzer.inquiry.present import plain
from analyzer.inquiry.terminal import console
from analyzer.lab.injection.fault_kinds import FaultKind
from analyzer.lab.injection.gates import (
    Likeness,
    balanced_weights,
    likenesses,
    purity,
    samples_of,
    shortcut_gates,
)
from analyzer.lab.injection.injection_output import (
    by_kind,
    conclusion,
    final_json,
    forecast_json,
    forecast_lines,
    forecast_of,
    progress,
    tried_json,
)
from analyzer.lab.injection.injector import MOST_TRIALS, Injected, Injector, Plan, Tried
from collector_processor.core.runs import Run
from semconv.model import Trajectory
from semconv.record import record, replace

_BORDER: Final = "--"


def inject(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN… -- COMMAND…",
            help="Passing runs (trace files, or ids of kept runs), and what runs the workflow once.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, optional("FILE", "The data set, one labelled failure a line; must not exist. Required.")
    ] = None,
    kind: Annotated[
        list[FaultKind] | None, optional("KIND", "A kind of fault; may be repeated. Default: all.")
    ] = None,
    check: CheckOption = None,
    expect: ExpectOption = None,
    upstream: UpstreamOption = None,
    organic: Annotated[
        list[Path] | None,
        optional("FILE", "Organic failures, not injected, to compare with; may be repeated."),
    ] = None,
    url: UrlOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the planned faults and their cost; start and write nothing."),
    ] = False,
    labels: Annotated[
        int, typer.Option("--labels", min=1, metavar="N", help="Maximum number of labels from one run.")
    ] = 3,
    trials: Annotated[
        int, typer.Option("--trials", min=12, metavar="MAX", help="Maximum trials with a fault, and without.")
    ] = MOST_TRIALS,
    parallel: ParallelOption = 1,
    budget_usd: BudgetOption = BUDGET_USD,
    max_calls: MaxCallsOption = None,
    allow_tool: AllowToolOption = None,
    http_tool: HttpToolOption = None,
    mcp_tool: McpToolOption = None,
    mcp_command: McpCommandOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    tenant: TenantOption = None,
    seed: Annotated[int, typer.Option("--seed", help="Chooses the faults and their order.")] = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Make labelled failures of your own system, by corrupting one answer of a passing run.

    Give the runs first, then the options, then [bold]--[/bold] and the command that runs the workflow once.
    A fault becomes a label if it lowers the run's success rate by at least 50 points, and the run passes
    again with the step restored. The command finds the task in BLAMESPAN_TASK and the run's id in
    BLAMESPAN_RUN.

    Example: [bold]blamespan inject pass.json --out faults.jsonl --expect 480 -- python my_agents.py[/bold]
    """
    given, command = _split(runs)
    require_one(command, url)
    place = None if dry_run else _new_file(out)
    remotes = remote_tools(http_tool or (), mcp_tool or (), mcp_command or ())
    options = replace(gateway_options(upstream, allow_tool or []), remotes=remotes)
    opened = [open_run(each, tenant)[0] for each in given]
    checks_of(check, expect, {})  # report wrong usage before a tape is made
    passing = [_passing(each, name, options) for each, name in zip(opened, given, strict=True)]
    plan = Plan(
        kinds=tuple(kind or FaultKind),
        most_trials=trials,
        most_labels=labels,
        seed=seed,
        allow_tools=options.allow_tools,
        others=tuple(each.tape for each in passing),
    )
    natural = _organic(organic or [])
    if place is None:
        _foretell([each.tape for each in passing], plan, output)
        return
    require_prices([each.tape for each in passing], budget_usd, max_calls)
    request = _Request(
        plan=plan,
        options=Options(parallel=parallel, timeout_s=timeout, seed=seed),
        workflow=lambda run: _workflow(command, url, run),
        is_service=url is not None,
        checks=lambda run: every(checks_of(check, expect, _environment(run))),
        ledger=Ledger(price_of, budget_usd=budget_usd, max_calls=max_calls),
    )
    with place.open("w", encoding="utf-8") as file:
        found = asyncio.run(_inject(passing, request, options, _Watch(file=file)))
    _weigh(found.tried, place)
    _show(found, passing, likenesses(samples_of(found.tried, natural)), request.ledger, place, output)
    if found.is_interrupted:
        raise typer.Exit(INTERRUPTED_CODE)
    if not any(tried.failure for tried in found.tried):
        raise typer.Exit(1)


@record
class _Passing:
    """A passing run and its tape."""

    name: str
    run: Run
    tape: Tape


@record
class _Request:
    """The parts of the request that all runs share."""

    plan: Plan
    options: Options
    workflow: Callable[[Run], Workflow]
    is_service: bool
    """Whether the workflow is a service, which learns of a trial only by ``rerun``."""
    checks: Callable[[Run], Any]
    ledger: Ledger


@record
class _Found:
    """Results of all runs."""

    injected: tuple[Injected, ...]
    tried: tuple[Tried, ...]
    is_interrupted: bool = False


@dataclass(slots=True)
class _Watch:
    """Writes each label when it is found, and shows progress on standard error."""

    file: TextIO
    tried: list[Tried] = field(default_factory=list)

    def __call__(self, tried: Tried) -> None:
        self.tried.append(tried)
        if tried.failure is not None:
            self.file.write(json.dumps(tried.failure.document, ensure_ascii=False) + "\n")
            self.file.flush()
        sys.stderr.write(f"{progress(tried)}\n")
        sys.stderr.flush()


def _weigh(tried: Sequence[Tried], out: Path) -> None:
    """Write the labels again, weighted so that no position dominates."""
    failures = [each.failure for each in tried if each.failure is not None]
    lines = [
        {**failure.document, "label": {**failure.document["label"], "weight": weight}}
        for failure, weight in zip(failures, balanced_weights(failures), strict=True)
    ]
    out.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def _split(runs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide the arguments at ``--``, which ``main`` keeps for this command."""
    at = runs.index(_BORDER) if _BORDER in runs else len(runs)
    given, command = list(runs[:at]), list(runs[at + 1 :])
    if not given:
        raise WrongUsage("expected RUN… -- COMMAND…: passing runs, and what runs the workflow once")
    return given, command


def _new_file(out: Path | None) -> Path:
    if out is None:
        raise WrongUsage("expected --out FILE: where the data set is written")
    if out.exists():
        raise WrongUsage(f"{out}: exists already, expected the name of a new file")
    if not out.parent.is_dir():
        raise WrongUsage(f"{out.parent}: no such folder")
    return out


def _organic(files: Sequence[Path]) -> list[Trajectory]:
    return [each.trajectory for file in files for each in load_runs(file, [])]


def _foretell(tapes: Sequence[Tape], plan: Plan, output: OutputFormat) -> None:
    expected = forecast_of(tapes, plan, price_of)
    if output is OutputFormat.JSON:
        for document in forecast_json(expected):
            print_json(document)
        return
    console().print(*forecast_lines(expected), sep="\n", soft_wrap=True)


def _workflow(command: Sequence[str], url: str | None, run: Run) -> Workflow:
    if url is not None:
        return Endpoint(url=url, task=run.trajectory.task or "")
    return Command(arguments=command, environment=_environment(run))


def _passing(run: Run, name: str, options: GatewayOptions) -> _Passing:
    try:
        return _Passing(name=name, run=run, tape=tape_of(run, options))
    except CannotReplay as error:
        raise CommandFailed(f"{name}: cannot be replayed: {error}") from error


def _environment(run: Run) -> dict[str, str]:
    return {"BLAMESPAN_RUN": run.trajectory.run_id, "BLAMESPAN_TASK": run.trajectory.task or ""}


async def _inject(
    passing: Sequence[_Passing], request: _Request, options: GatewayOptions, watch: _Watch
) -> _Found:
    task = asyncio.ensure_future(_each(passing, request, options, watch))
    on_interrupt(task.cancel)
    await asyncio.wait([task])
    if task.cancelled():
        return _Found(injected=(), tried=tuple(watch.tried), is_interrupted=True)
    with workflow_failures():
        return _Found(injected=task.result(), tried=tuple(watch.tried))


async def _each(
    passing: Sequence[_Passing], request: _Request, options: GatewayOptions, watch: _Watch
) -> tuple[Injected, ...]:
    ledger = request.ledger
    options = replace(options, reserve=ledger.reserve, settle=ledger.settle)
    async with serving(options) as gateway, capturing() as capture:
        found = []
        for each in passing:
            injector = Injector(
                each.run, each.tape, _parts(each, request, gateway, capture), request.options, capture
            )
            found.append(await injector.run(request.plan, watch))
            if found[-1].refused:
                sys.stderr.write(f"{each.name}: {plain(found[-1].refused, 600)}\n")
        return tuple(found)


def _parts(each: _Passing, request: _Request, gateway: Gateway, capture: Capture) -> Parts:
    return Parts(
        gateway=gateway,
        workflow=request.workflow(each.run),
        check=request.checks(each.run),
        ledger=request.ledger,
        clock=time.monotonic,
        telemetry=capture.environment,
        must_announce=request.is_service,
    )


def _show(
    found: _Found,
    passing: Sequence[_Passing],
    alike: Sequence[Likeness],
    ledger: Ledger,
    out: Path,
    output: OutputFormat,
) -> None:
    failures = [each.failure for each in found.tried if each.failure is not None]
    gates = shortcut_gates(failures, [each.tape for each in passing])
    if output is OutputFormat.JSON:
        for tried in found.tried:
            print_json(tried_json(tried))
        refused = [(each.run_id, each.refused) for each in found.injected if each.refused]
        print_json(final_json(refused, found.tried, gates, alike, ledger, str(out)))
        return
    if found.tried:
        console().print(by_kind(found.tried))
    lines = conclusion(purity(found.tried), gates, alike, ledger, str(out))
    console().print(*lines, sep="\n", soft_wrap=True)
