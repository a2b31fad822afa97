"""Terminal output and JSON of injections. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.experiment.call_budget import Ledger
from analyzer.experiment.injection.fault_kinds import FaultKind
from analyzer.experiment.injection.gates import Gate, Purity, gate_json, gate_line, purity, purity_json
from analyzer.experiment.injection.injector import Tried, twin_json
from analyzer.experiment.injection.organic import NAME, Likeness, likeness_json, likeness_line
from analyzer.inquiry.present import counted, plain


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
        "gates": [gate_json(each) for each in gates],
        "organic": [likeness_json(each) for each in alike],
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
    lines += [gate_line(each) for each in gates]
    lines += [likeness_line(each) for each in alike]
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
