"""Forecast of an experiment, before anything starts: calls, tools, cost, and the limits. Pure."""

from __future__ import annotations

from typing import Any, Final

from analyzer.experiment.call_budget import Price
from analyzer.experiment.candidates import Fix
from analyzer.experiment.open_experiment import Prepared, Request
from analyzer.experiment.replay.tape import RecordedCall
from analyzer.experiment.replay.trial_tools import Planned, plan
from analyzer.experiment.running.workflow import Workflow
from semconv.record import record

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
    sent = call.answer.input_tokens or sum(len(str(each)) for each in call.messages) // _BYTES_PER_TOKEN
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
            {"name": each.tool, "fate": each.fate, "certain": each.is_certain} for each in expected.tools
        ],
        "live_calls": expected.live_calls,
        "trials": expected.trials,
        "cost_usd": expected.cost_usd,
        "budget_usd": expected.budget_usd,
        "max_calls": expected.max_calls,
        "change": {"kind": expected.fix.kind.value, "text": expected.fix.text},
        "final": True,
    }
