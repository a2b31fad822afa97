"""Forecast of an injection, before anything starts: the faults, their trials, and the cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from analyzer.experiment.call_budget import Price
from analyzer.experiment.experiment_output import price_of_call
from analyzer.experiment.injection.injector import Fault, Plan, faults_of
from analyzer.experiment.replay.tape import Answer, Tape
from analyzer.inquiry.present import counted, plain
from semconv.record import record

_TYPICAL_TRIALS: Final = 15
"""Average trials of a fault, without those that the faults of a call share (docs/experiments.md)."""
_SHARED_TRIALS: Final = 19
"""Average trials of a call with its recorded answer."""
_SHOWN_CHARS: Final = 120


@record
class InjectionForecast:
    """Upper bound of an injection's work, as if no run reached its number of labels early."""

    faults: tuple[tuple[str, Fault], ...]
    """The run and the fault, in the order of their trials."""
    trials: int
    live_calls: int
    cost_usd: float | None
    """``None`` if a price is unknown."""


def forecast_of(tapes: Iterable[Tape], plan: Plan, price: Price) -> InjectionForecast:
    """Return the forecast of an injection into these passing runs."""
    found: list[tuple[str, Fault]] = []
    trials = live = 0
    cost: float | None = 0.0
    for tape in tapes:
        faults = faults_of(tape, plan)
        found += [(tape.run_id, fault) for fault in faults]
        for at, n in _trials(faults):
            later = tape.calls[at + 1 :]
            costs = [price_of_call(call, price) for call in later]
            trials, live = trials + n, live + n * len(later)
            known = None if None in costs else sum(each or 0.0 for each in costs)
            cost = None if cost is None or known is None else cost + n * known
    return InjectionForecast(faults=tuple(found), trials=trials, live_calls=live, cost_usd=cost)


def _trials(faults: Sequence[Fault]) -> Iterator[tuple[int, int]]:
    """Yield the index of a call, and the number of trials that are live after it."""
    yield from ((fault.call.index, _TYPICAL_TRIALS) for fault in faults)
    yield from ((index, _SHARED_TRIALS) for index in sorted({fault.call.index for fault in faults}))


def forecast_json(expected: InjectionForecast) -> Iterator[dict[str, Any]]:
    """Yield an object for each fault, and a last one with the sums."""
    for run_id, fault in expected.faults:
        yield {
            "run_id": run_id,
            "step": fault.call.step,
            "agent": fault.call.agent,
            "kind": fault.kind.value,
            "recorded": _shown(fault.call.answer),
            "answer": _shown(fault.answer),
        }
    yield {
        "dry_run": True,
        "faults": len(expected.faults),
        "trials": expected.trials,
        "live_calls": expected.live_calls,
        "cost_usd": expected.cost_usd,
        "final": True,
    }


def forecast_lines(expected: InjectionForecast) -> Iterator[str]:
    """Yield the same as text."""
    for run_id, fault in expected.faults:
        where = f"{plain(run_id, 12)} step {fault.call.step} ({plain(fault.call.agent, 40)})"
        yield f"{where}, {fault.kind}: {plain(_shown(fault.answer), _SHOWN_CHARS)}"
    cost = "unknown" if expected.cost_usd is None else f"about ${expected.cost_usd:.4f}"
    yield (
        f"{counted(len(expected.faults), 'fault')}: about {counted(expected.trials, 'trial')} with about"
        f" {counted(expected.live_calls, 'live call')}, fewer if runs reach their labels early"
    )
    yield f"cost: {cost}"


def _shown(answer: Answer) -> str:
    calls = [f"call {each.name}({each.arguments})" for each in answer.calls]
    return " ".join(filter(None, [answer.text, *calls]))
