"""Forecast of an injection before anything starts, then terminal output and JSON of its results. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.experiment.call_budget import Ledger, Price
from analyzer.experiment.experiment_output import price_of_call
from analyzer.experiment.replay.tape import Answer, Tape
from analyzer.inquiry.present import counted, plain
from analyzer.lab.injection.fault_kinds import FaultKind
from analyzer.lab.injection.gates import (
    NAME,
    Gate,
    Likeness,
    Purity,
    gate_json,
    gate_line,
    likeness_json,
    likeness_line,
    purity,
    purity_json,
)
from analyzer.lab.injection.injector import Fault, Plan, Tried, faults_of, twin_json
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
    calls = [f"call {call.name}({call.arguments})" for call in answer.calls]
    return " ".join(filter(None, [answer.text, *calls]))


def progress(tried: Tried) -> str:
    """Return the result of one fault as a line."""
    call, twin = tried.fault.call, tried.twin
    what = f"step {call.step} ({plain(call.agent, 40)}), {tried.fault.kind}"
    failures = twin.faulty.n - twin.faulty.successes
    passes = f"{twin.recorded.successes} of {twin.recorded.n}"
    end = "label" if tried.failure else plain(tried.reason, 300)
    return f"{what}: fails {failures} of {twin.faulty.n}; passes without {passes}: {end}"


def final_json(  # noqa: PLR0917 - the parts of the result
    refused: Sequence[tuple[str, str]],
    tried: Sequence[Tried],
    gates: Sequence[Gate],
    alike: Sequence[Likeness],
    ledger: Ledger,
    out: str,
) -> dict[str, Any]:
    """Return the last object: sums and gates of all runs."""
    pure = purity(tried)
    return {
        "out": out,
        "labels": pure.kept,
        "refused": [{"run_id": run_id, "reason": reason} for run_id, reason in refused],
        "purity": purity_json(pure),
        "gates": [gate_json(gate) for gate in gates],
        "organic": [likeness_json(likeness) for likeness in alike],
        "calls": ledger.total.calls,
        "cost_usd": ledger.total.cost_usd,
        "stopped": ledger.exhausted or None,
        "final": True,
    }


def by_kind(tried: Sequence[Tried]) -> Table:
    """Return a table of the kinds of faults."""
    table = Table("kind", "tried", "labels", "fails with it, mean", box=SIMPLE_HEAD, pad_edge=False)
    for kind in FaultKind:
        own = [each for each in tried if each.fault.kind is kind]
        if own:
            mine = purity(own)
            flips = f"{mine.flip_rate:.0%}" if mine.kept else "-"
            table.add_row(kind.value, str(mine.tried), str(mine.kept), flips)
    return table


def conclusion(
    pure: Purity, gates: Sequence[Gate], alike: Sequence[Likeness], ledger: Ledger, out: str
) -> list[str]:
    """Return the conclusion as lines."""
    organic = f"failures without the fault below {pure.organic:.1%} (95 %)" if pure.kept else "no label"
    lines = [f"{out}: {counted(pure.kept, 'labelled failure')} of {counted(pure.tried, 'fault')} tried"]
    lines += [f"  discarded {n}: {plain(reason, 200)}" for reason, n in pure.discarded]
    lines.append(f"purity: {organic}")
    lines += [gate_line(gate) for gate in gates]
    lines += [likeness_line(likeness) for likeness in alike]
    if not alike:
        lines.append(f"{NAME}: not measured: one of the two kinds is missing")
    lines.append(counted(ledger.total.calls, "live call"))
    return [*lines, f"stopped: {ledger.exhausted}"] if ledger.exhausted else lines


def tried_json(tried: Tried) -> dict[str, Any]:
    """Return the result of one fault."""
    return {
        "run_id": tried.run_id,
        "step": tried.fault.call.step,
        "agent": tried.fault.call.agent,
        "kind": tried.fault.kind.value,
        **twin_json(tried.twin),
        "label": tried.failure is not None,
        "reason": tried.reason or None,
    }
