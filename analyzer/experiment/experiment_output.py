"""Forecast of an experiment (calls, tools, cost, limits), and its terminal output. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from analyzer.experiment.call_budget import Price, Spent
from analyzer.experiment.candidates import ChangeKind, Fix
from analyzer.experiment.conduct import Conductor
from analyzer.experiment.findings import Experiment, Finding, KeptTrials
from analyzer.experiment.open_experiment import Prepared, Request
from analyzer.experiment.replay.tape import RecordedCall
from analyzer.experiment.replay.trial_tools import Planned, plan
from analyzer.experiment.sequential import Arm, Decision
from analyzer.experiment.workflow import Workflow
from analyzer.inquiry.present import counted, plain
from analyzer.records.proof_records import MOST_CELL, MOST_LINE, Report
from semconv.model import agent_label
from semconv.record import record, replace

_COLUMNS: Final = ("step", "agent", "recorded", "changed", "effect", "95 %", "decision")
_LEAVING = (
    "leaves this machine, to the upstream: the workflow's own requests from the changed step on (its prompts,"
    " the recorded answers before that step, the replacement or hint) and your key; nothing else"
)


def progress(conductor: Conductor) -> str:
    """Return the state of an experiment on one line, with an estimate of the trials left."""
    spent, walk = conductor.spent, conductor.walk
    head = f"trial {conductor.trials}: {spent.calls} live calls, {_usd(spent)}"
    fidelity = conductor.fidelity
    if not walk.tried:
        served = "" if fidelity is None else f"; {fidelity.served} of {fidelity.calls} recorded calls served"
        return head + served
    beliefs = walk.posterior()
    top = max(walk.tried, key=lambda c: (walk.decision(c) == "proved", beliefs.get(c.call, 0.0)))
    comparison = walk.comparison(top)
    left = walk.trials_left()
    state = f"about {counted(left, 'trial')} left" if left else walk.decision(top).value
    return (
        f"{head}; step {top.step} ({_name(top.agent, 40)}): recorded {_rate(walk.arm(top.control))}, changed"
        f" {_rate(walk.arm(top.treatment))}, effect {comparison.effect:+.2f}, {state}"
    )


def conclusion(result: Experiment) -> RenderableType:
    """Return a table of the steps tried, and the conclusion, with the files of the trials."""
    found = report(result)
    return shown(replace(found, lines=(*found.lines, *_kept_lines(result.kept))))


def shown(found: Report) -> RenderableType:
    """Return a report's table and panel for a terminal."""
    lines = "\n".join(plain(line, MOST_LINE) for line in found.lines)
    panel = Panel(Text(lines), title=Text(found.head), title_align="left")
    if not found.rows:
        return panel
    table = Table(*found.columns, box=None)
    for row in found.rows:
        table.add_row(*(Text(plain(cell, MOST_CELL)) for cell in row))
    return Group(table, panel)


def report(result: Experiment) -> Report:
    """Return the conclusion with a row for each step tried."""
    head = f"{result.decision.value.replace('_', ' ')}"
    if result.decisive is not None:
        head += f": step {result.decisive.candidate.step}, {_name(result.decisive.candidate.agent, 60)}"
    lines = [result.reason]
    if len(result.healing) > 1:
        lines.append(f"steps whose change heals: {', '.join(map(str, result.healing))}")
    lines += _uncounted(result)
    lines.append(f"{result.spent.calls} live calls, {_usd(result.spent)}, {result.duration_s:.0f} s")
    return Report(head=head, lines=tuple(lines), columns=_COLUMNS, rows=tuple(map(_row, result.findings)))


def refused(reason: str) -> Report:
    """Return the report of an experiment that could not begin."""
    return Report(head=Decision.NOT_REPLAYABLE.value.replace("_", " "), lines=(reason,))


def _kept_lines(kept: KeptTrials | None) -> list[str]:
    if kept is None:
        return []
    lines = [f"both arms: blamespan diff {shlex.join(kept.arms.files)}"] if kept.arms else []
    if kept.without_spans:
        trials = counted(kept.without_spans, "trial")
        lines.append(
            f"{trials} without a file: no spans came to OTEL_EXPORTER_OTLP_ENDPOINT (OTLP over HTTP)"
        )
    return [*lines, f"not all trials are kept: {kept.error}"] if kept.error else lines


def _uncounted(result: Experiment) -> list[str]:
    """Return lines about the trials that no arm counts."""
    lines = []
    if result.invalid:
        lines.append(f"{counted(result.invalid, 'trial')} invalid:")
        lines += [f"  {reason.n}: {plain(reason.text, 600)}" for reason in result.reasons]
        if (others := result.invalid - sum(reason.n for reason in result.reasons)) > 0:
            lines.append(f"  {others}: earlier, for other reasons")
    if result.copies:
        lines.append(
            f"{counted(result.copies, 'trial')} not counted: live requests and answers equal those of another"
            " trial of the arm, so the model's answers may be cached or not random"
        )
    return lines


def forecast(expected: Forecast) -> RenderableType:
    """Describe the calls, data sent and cost of an experiment."""
    live, trials = expected.live_calls, expected.trials
    cost = "unknown: give --max-calls" if expected.cost_usd is None else f"about ${expected.cost_usd:.4f}"
    limit = "" if expected.max_calls is None else f", {expected.max_calls} calls"
    lines = [
        f"run: {expected.run_id}, {expected.calls} model calls, {len(expected.steps)} steps to try",
        f"workflow: {plain(expected.workflow, 200)}",
        f"upstream: {expected.openai} (OpenAI formats), {expected.anthropic} (Anthropic)",
        f"models: {plain(', '.join(expected.models), 300)}",
        f"live calls: about {live} in about {trials} trials, as the median experiment takes",
        f"cost: {cost}; limit ${expected.budget_usd:g}{limit}",
        *tool_lines(expected.tools),
        _LEAVING,
        "calls that do not go to the address in OPENAI_BASE_URL or ANTHROPIC_BASE_URL are not counted",
    ]
    if expected.fix.kind is not ChangeKind.RESAMPLE:
        lines.append(f"change ({expected.fix.kind}): {plain(expected.fix.text, 300)}")
    return Text("\n".join(lines))


def tool_lines(tools: Iterable[Planned]) -> list[str]:
    """Return a line for each tool."""
    return [f"tool: {plain(tool.tool, 60)} {plain(tool.fate, 300)}" for tool in tools]


def _row(finding: Finding) -> tuple[str, ...]:
    low, high = finding.comparison.interval
    return (
        str(finding.candidate.step),
        _name(finding.candidate.agent, 30),
        _rate(finding.control),
        _rate(finding.treatment),
        f"{finding.comparison.effect:+.2f}",
        f"{low:+.2f} to {high:+.2f}",
        finding.comparison.decision.value,
    )


def _rate(arm: Arm) -> str:
    invalid = f" ({arm.invalid} invalid)" if arm.invalid else ""
    return f"{arm.successes}/{arm.n}{invalid}"


def _usd(spent: Spent) -> str:
    return "cost unknown" if spent.cost_usd is None else f"${spent.cost_usd:.4f}"


def _name(agent: str, limit: int) -> str:
    return plain(agent_label(agent), limit)


_BYTES_PER_TOKEN: Final = 4
_ANSWER_TOKENS: Final = 500
"""Assumed tokens of an answer whose tokens were not recorded."""
_TYPICAL_TRIALS: Final = 30
"""Trials of the median walk (docs/experiments.md), for the lower end; the limit is the upper."""


@record
class Forecast:
    """Expected course and cost of an experiment."""

    run_id: str
    calls: int
    """Model calls on the tape."""
    steps: tuple[int, ...]
    """Steps to try."""
    workflow: str
    openai: str
    anthropic: str
    models: tuple[str, ...]
    tools: tuple[Planned, ...]
    live_calls: int
    """As many as the median experiment makes."""
    trials: int
    cost_usd: float | None
    """``None`` if a price is unknown."""
    budget_usd: float
    max_calls: int | None
    fix: Fix


def forecast_of(prepared: Prepared, request: Request, workflow: Workflow, price: Price) -> Forecast:
    """Return the forecast of an experiment."""
    calls, candidates = prepared.tape.calls, prepared.suspects.candidates
    later = sum(len(calls) - candidate.call for candidate in candidates) / len(candidates)
    costs = [price_of_call(call, price) for call in calls]
    mean = None if any(cost is None for cost in costs) else sum(cost or 0.0 for cost in costs) / len(costs)
    trials = min(_TYPICAL_TRIALS, 2 * request.options.most_trials * len(candidates))
    live = round(trials * later)
    return Forecast(
        run_id=prepared.tape.run_id,
        calls=len(calls),
        steps=tuple(candidate.step for candidate in candidates),
        workflow=str(workflow),
        openai=request.gateway.openai,
        anthropic=request.gateway.anthropic,
        models=tuple(sorted({call.answer.model or "(not recorded)" for call in calls})),
        tools=plan(prepared.tape, request.gateway.rules()),
        live_calls=live,
        trials=trials,
        cost_usd=None if mean is None else live * mean,
        budget_usd=request.budget_usd,
        max_calls=request.max_calls,
        fix=request.fix,
    )


def price_of_call(call: RecordedCall, price: Price) -> float | None:
    """Return what a recorded call would cost again; ``None`` if its price is unknown."""
    sent = call.answer.input_tokens or sum(len(str(message)) for message in call.messages) // _BYTES_PER_TOKEN
    return price(call.answer.model, sent, call.answer.output_tokens or _ANSWER_TOKENS)


def forecast_json(expected: Forecast) -> dict[str, Any]:
    """Return the object of ``experiment --dry-run --format json``."""
    return {
        "run_id": expected.run_id,
        "dry_run": True,
        "calls": expected.calls,
        "steps": list(expected.steps),
        "upstream": {"openai": expected.openai, "anthropic": expected.anthropic},
        "models": list(expected.models),
        "tools": [
            {"name": tool.tool, "fate": tool.fate, "certain": tool.is_certain} for tool in expected.tools
        ],
        "live_calls": expected.live_calls,
        "trials": expected.trials,
        "cost_usd": expected.cost_usd,
        "budget_usd": expected.budget_usd,
        "max_calls": expected.max_calls,
        "change": {"kind": expected.fix.kind.value, "text": expected.fix.text},
        "final": True,
    }
