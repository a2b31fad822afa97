"""``blamespan experiment --retry``: the pilot of a retry on recorded runs, and what it prints."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.analyses.composition import open_analyst
from analyzer.analyses.models.completion import price_of
from analyzer.cli.experiment_options import INTERRUPTED_CODE, on_interrupt, require_prices, workflow_failures
from analyzer.cli.output import CommandFailed, OutputFormat, WrongUsage, print_json
from analyzer.cli.recorded_runs import load_runs, reader_here
from analyzer.experiment.call_budget import Ledger
from analyzer.experiment.open_experiment import CannotReplay, tape_of
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.gateway_server import serving
from analyzer.experiment.retry_gate import INTERVENTIONS, Gate, RetryArm, Share, Trigger, to_json
from analyzer.experiment.trial_runner import Options, Parts
from analyzer.experiment.workflow import Check, Command
from analyzer.inquiry.present import counted, plain
from analyzer.inquiry.terminal import console
from analyzer.lab.retry_pilot import ArmReport, Pilot, PilotRun, RetryPilot, Tried, suspected_call
from collector_processor.core.runs import Run
from collector_processor.settings import load_settings
from semconv.model import Blame, Ranked, Status
from semconv.record import record, replace

_EXCLUDES: Final = "--retry excludes --url, --step, --agent, --change, --text, --tenant and --dry-run"
_WHERE: Final = {Trigger.ALWAYS: "in every run", Trigger.FLAGGED: "in flagged runs"}
_FLAGS: Final = frozenset({Status.ATTRIBUTED, Status.SUSPECTED})


@record
class RetryRequest:
    """The pilot that was asked for."""

    place: Path
    """A file of recorded runs, or a folder of such files."""
    command: Sequence[str]
    check: Callable[[dict[str, str]], Check]
    """Makes the check of a run from its variables."""
    gateway: GatewayOptions
    options: Options
    budget_usd: float
    max_calls: int | None
    gate: Path | None
    """File for the result; ``None`` to write none."""


def retry_pilot(
    retry_request: RetryRequest, output: OutputFormat, *, excluded: Sequence[object] = ()
) -> None:
    """Run the pilot and print what each arm recovers, disrupts and costs, and what its gate says.

    Args:
        retry_request: the pilot.
        output: format of the result.
        excluded: values of options that a pilot has no use for; all must be ``None``.
    """
    if any(each is not None for each in excluded):
        raise WrongUsage(_EXCLUDES)
    if not retry_request.command:
        raise WrongUsage("--retry: expected -- COMMAND…: what runs the workflow once")
    if retry_request.gate is not None and not retry_request.gate.parent.is_dir():
        raise WrongUsage(f"{retry_request.gate.parent}: no such folder")
    runs = _read(retry_request.place)
    ledger = Ledger(price_of, budget_usd=retry_request.budget_usd, max_calls=retry_request.max_calls)
    pilot_runs, refused = asyncio.run(_judged(runs, retry_request.gateway))
    require_prices([each.tape for each in pilot_runs], retry_request.budget_usd, retry_request.max_calls)
    for name, why in refused:
        sys.stderr.write(f"{plain(name, 200)}: left out: {plain(why, 600)}\n")
    pilot, interrupted = asyncio.run(_piloted(pilot_runs, runs, retry_request, ledger))
    document = _final(pilot, len(runs), ledger)
    if retry_request.gate is not None:
        retry_request.gate.write_text(f"{json.dumps(document)}\n", encoding="utf-8")
    _show(pilot, document, output)
    if interrupted:
        raise typer.Exit(INTERRUPTED_CODE)
    if not any(not each.refused for each in pilot.tried):
        raise typer.Exit(1)


def _read(place: Path) -> dict[str, Run]:
    """Return the runs of a file or of a folder's files, by name."""
    if not place.exists():
        raise WrongUsage(f"{place}: no such file or folder")
    files = sorted(path for path in place.iterdir() if path.is_file()) if place.is_dir() else [place]
    found: dict[str, Run] = {}
    for file in files:
        for each in load_runs(file, []):
            if each.trace is not None:
                name = f"{file.name}: {each.trajectory.run_id}"
                found[name] = Run(trace=each.trace, trajectory=each.trajectory, reader=reader_here())
    if not found:
        raise CommandFailed(f"{place}: holds no run with spans")
    return found


async def _judged(
    runs: dict[str, Run], options: GatewayOptions
) -> tuple[list[PilotRun], list[tuple[str, str]]]:
    """Return the runs that can be replayed with their verdicts, and the others with the reason."""
    analyst = open_analyst(load_settings(os.environ, directory=Path.cwd()))
    judged: list[PilotRun] = []
    refused: list[tuple[str, str]] = []
    for name, run in runs.items():
        attribution = (await analyst.analyse(run.trajectory)).attribution
        verdict = attribution.verdict
        if not isinstance(verdict, Blame):  # not flagged: where to intervene if it were
            verdict = analyst.attributor.at_once(run.trajectory).verdict
        fix = verdict.fix if isinstance(verdict, Blame) else ""
        ranking: tuple[Ranked, ...] = verdict.ranking
        try:
            tape = tape_of(run, options)
        except CannotReplay as error:
            refused.append((name, f"cannot be replayed: {error}"))
            continue
        call = suspected_call(tape, ranking)
        if call is None:
            refused.append((name, "has no model call of a step"))
            continue
        is_flagged = attribution.status in _FLAGS
        judged.append(PilotRun(name=name, tape=tape, call=call, fix=fix, is_flagged=is_flagged))
    return judged, refused


async def _piloted(
    pilot_runs: Sequence[PilotRun], runs: dict[str, Run], retry_request: RetryRequest, ledger: Ledger
) -> tuple[RetryPilot, bool]:
    options = replace(retry_request.gateway, reserve=ledger.reserve, settle=ledger.settle)
    async with serving(options) as gateway:

        def parts(pilot_run: PilotRun) -> Parts:
            trajectory = runs[pilot_run.name].trajectory
            variables = {"BLAMESPAN_RUN": trajectory.run_id, "BLAMESPAN_TASK": trajectory.task or ""}
            workflow = Command(arguments=retry_request.command, environment=variables)
            return Parts(
                gateway=gateway,
                workflow=workflow,
                check=retry_request.check(variables),
                ledger=ledger,
                clock=time.monotonic,
            )

        pilot = Pilot(parts, ledger, retry_request.options)
        task = asyncio.ensure_future(pilot.run(pilot_runs, _watch))
        on_interrupt(task.cancel)
        await asyncio.wait([task])
        if not task.cancelled():
            with workflow_failures():
                task.result()
        return pilot.result(), task.cancelled()


def _watch(tried: Tried) -> None:
    if tried.refused:
        said = f"left out: {plain(tried.refused, 600)}"
    else:
        arms = ", ".join(f"{arm.value} {_in_a_word(tried, arm)}" for arm in RetryArm)
        said = f"recorded {'passed' if tried.passed else 'failed'}; {arms}"
    sys.stderr.write(f"{plain(tried.run.name, 200)}: {said}\n")
    sys.stderr.flush()


def _in_a_word(tried: Tried, arm: RetryArm) -> str:
    trial = tried.trials[arm]
    return "invalid" if trial.invalid else "passed" if trial.success else "failed"


def _show(pilot: RetryPilot, document: dict[str, Any], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        for tried in pilot.tried:
            print_json(_document(tried))
        print_json(document)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in (
        "arm",
        "recovers (r)",
        "disrupts (d)",
        "live calls",
        "cost",
        "in every run",
        "in flagged runs",
    ):
        table.add_column(name, overflow="fold")
    for report in pilot.arms:
        table.add_row(*_row(report, pilot))
    console().print(table)
    lines = [_sentence(pilot, arm, on) for arm in INTERVENTIONS for on in Trigger]
    lines += _uncounted(pilot)
    console().print(*lines, sep="\n", soft_wrap=True)


def _row(report: ArmReport, pilot: RetryPilot) -> list[str]:
    gates = pilot.gates.get(report.arm)
    choices = [gates[on].choice.value for on in Trigger] if gates else ["-", "-"]
    cost = "unknown" if report.spent.cost_usd is None else f"${report.spent.cost_usd:.4f}"
    mark = "" if report.costs_as_blind or report.arm is RetryArm.NONE else " (unequal)"
    shares = [f"{share.k} of {share.n}" for share in (report.recovered, report.disrupted)]
    return [report.arm.value, *shares, f"{report.spent.calls}{mark}", cost, *choices]


def _sentence(pilot: RetryPilot, arm: RetryArm, on: Trigger) -> str:
    gate = pilot.gates[arm][on]
    if not gate.failed.n:
        return f"{arm.value} {_WHERE[on]}: {gate.choice.value}: there is no such run"
    low, high = gate.interval
    return (
        f"{arm.value} {_WHERE[on]}: {gate.choice.value}: {gate.failed.rate:.0%} of {gate.failed.n} failed,"
        f" d/(r+d) = {gate.threshold:.2f}; gain {gate.gain:+.3f} [{low:+.3f}, {high:+.3f}]"
    )


def _uncounted(pilot: RetryPilot) -> list[str]:
    lines = [
        f"{arm.value} against blind retry: better in {pair.only_second}, worse in {pair.only_first} of"
        f" {pair.n} runs (p = {pair.p_value:.3f})"
        for arm, pair in pilot.against_blind.items()
    ]
    if pilot.without_fix:
        runs = counted(pilot.without_fix, "run")
        lines.append(f"{runs} without a fix in the verdict: the generic hint stood in for it")
    for report in pilot.arms:
        lines += [f"{report.arm.value}: {each.n} invalid: {plain(each.text, 400)}" for each in report.reasons]
    if refused := sum(bool(each.refused) for each in pilot.tried):
        lines.append(f"{counted(refused, 'run')} left out, for the reasons above")
    return [*lines, f"stopped: {pilot.stopped}"] if pilot.stopped else lines


def _document(tried: Tried) -> dict[str, Any]:
    call = tried.run.tape.calls[tried.run.call]
    return {
        "run_id": tried.run.tape.run_id,
        "step": call.step,
        "agent": call.agent,
        "flagged": tried.run.is_flagged,
        "passed": None if tried.refused else tried.passed,
        "arms": {arm.value: None if trial.invalid else trial.success for arm, trial in tried.trials.items()},
        "refused": tried.refused or None,
    }


def _final(pilot: RetryPilot, runs: int, ledger: Ledger) -> dict[str, Any]:
    return {
        "runs": runs,
        "tried": sum(not each.refused for each in pilot.tried),
        "arms": {report.arm.value: _arm(report) for report in pilot.arms},
        "gates": {arm.value: _gates(pilot.gates[arm]) for arm in INTERVENTIONS},
        "against_blind": {
            arm.value: {
                "better": pair.only_second,
                "worse": pair.only_first,
                "n": pair.n,
                "p_value": round(pair.p_value, 4),
            }
            for arm, pair in pilot.against_blind.items()
        },
        "without_fix": pilot.without_fix,
        "calls": ledger.total.calls,
        "cost_usd": ledger.total.cost_usd,
        "stopped": pilot.stopped or None,
        "final": True,
    }


def _arm(report: ArmReport) -> dict[str, Any]:
    return {
        "recovered": _share(report.recovered),
        "disrupted": _share(report.disrupted),
        "trials": report.trials,
        "invalid": report.invalid,
        "calls": report.spent.calls,
        "cost_usd": report.spent.cost_usd,
        "costs_as_blind": report.costs_as_blind,
    }


def _share(share: Share) -> dict[str, int]:
    return {"k": share.k, "n": share.n}


def _gates(gates: Any) -> dict[str, Any]:
    found: dict[Trigger, Gate] = dict(gates)
    return {on.value: to_json(gate) for on, gate in found.items()}
