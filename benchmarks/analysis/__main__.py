"""Cost of analysis and latency of verdicts: ``python -m benchmarks.analysis``.

It measures first the stages alone, on complete traces, in CPU time; then a real ``blamespan serve`` with the
method ``signals``: failing runs at a fixed pace, and the time from each run's completion until its verdict's
carrier is in a backend that keeps nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

import uvloop

from benchmarks.analysis.live import Delays, Pace, measure
from benchmarks.analysis.stages import WORKLOADS, Costs
from benchmarks.analysis.stages import measure as measure_stages
from collector_processor.rebuild.redaction import ALL_KINDS


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables, or one JSON object per line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.analysis", description=__doc__)
    parser.add_argument("--only", choices=["stages", "live"])
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=10, help="of each stage; the quickest counts")
    parser.add_argument("--runs", type=float, default=100.0, help="a second, through the service")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--grace", type=int, default=2000, help="milliseconds of quiet that complete a run")
    parser.add_argument(
        "--redact", default=",".join(ALL_KINDS), help="kinds of secrets that live runs lose, or none"
    )
    parser.add_argument("--format", choices=["table", "json"], default="table")
    chosen = parser.parse_args(arguments)
    show_costs, show_delays = (_json, _json) if chosen.format == "json" else (_cost_row, _delay_rows)
    if chosen.only != "live":
        for workload in chosen.workload:
            print(show_costs(measure_stages(workload, chosen.rounds)), flush=True)
    if chosen.only != "stages":
        pace = Pace(
            runs_per_s=chosen.runs, seconds=chosen.seconds, grace_ms=chosen.grace, redact=chosen.redact
        )
        print(show_delays(uvloop.run(measure(pace))), flush=True)


def _cost_row(costs: Costs) -> str:
    shares = ", ".join(f"{stage} {costs.share(stage):.0%}" for stage in costs.stages)
    size = f"{costs.spans:,} spans of {costs.bytes / costs.spans:,.0f} B"
    return f"{costs.workload:10} {costs.spans_per_s:>8,.0f} spans/s per core ({size}): {shares}"


def _delay_rows(delays: Delays) -> str:
    return (
        f"{delays.runs:,} runs of {delays.spans_per_run} spans, {delays.verdicts:,} verdicts in the backend;"
        f" sending fell behind by {1000 * delays.late_s:.0f} ms at worst\n"
        f"verdict after completion: {_quantiles(delays.after_completion_ms)}\n"
        f"acknowledgement:          {_quantiles(delays.acknowledged_ms)}\n"
        f"others' acknowledgement:  {_quantiles(delays.bystanders_ms)}\n"
        f"  while no runs came:     {_quantiles(delays.bystanders_alone_ms)}\n"
        f"CPU {delays.cpu_per_run_ms:.1f} ms a run, all in, {delays.own_cpu_per_run_ms:.1f} the service's;"
        f" memory {delays.peak_mib:.0f} MiB at most, {delays.beside_mib:.0f} beside it"
    )


def _json(found: Costs | Delays) -> str:
    if isinstance(found, Costs):
        return json.dumps(asdict(found) | {"spans_per_s": found.spans_per_s})
    quantiles = {
        f"{name}_p{share}": _quantile(values, share / 100)
        for name, values in (
            ("verdict_ms", found.after_completion_ms),
            ("ack_ms", found.acknowledged_ms),
            ("others_ack_ms", found.bystanders_ms),
            ("others_ack_alone_ms", found.bystanders_alone_ms),
        )
        for share in (50, 99)
    }
    left_out = {"after_completion_ms", "acknowledged_ms", "bystanders_ms", "bystanders_alone_ms"}
    return json.dumps({key: value for key, value in asdict(found).items() if key not in left_out} | quantiles)


def _quantiles(values: Sequence[float]) -> str:
    shown = " ".join(f"p{100 * share:g} {_quantile(values, share):,.0f} ms," for share in (0.5, 0.9, 0.99))
    return f"{shown} most {_quantile(values, 1.0):,.0f} ms"


def _quantile(ascending: Sequence[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else float("nan")


if __name__ == "__main__":
    main()
