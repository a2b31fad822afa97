"""``python -m benchmarks.group``: spans, copies and verdicts while a group of processors is disturbed.

Real Collector, Kafka, PostgreSQL and Jaeger, three processors, two analyzers with a scripted model. While
runs of 20 spans arrive, processors and analyzers are killed, replaced and joined by another, and the broker
is restarted. Exits with 1 if a span is missing in Jaeger, if a copy is explained neither by a kill nor by a
producer's repetition, if a run has no verdict or a version of one has several ids, if spans are not
conserved, or if recovery takes too long.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.group.disturbed import Outcome, play, summed


def main(arguments: Sequence[str] | None = None) -> int:
    """Play a round, print what it found, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group", description=__doc__)
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--disturbances", type=int, default=20)
    parser.add_argument("--pace", type=float, default=12.0, help="runs per second")
    parser.add_argument("--recovery", type=float, default=30.0, help="longest recovery tolerated, in seconds")
    parser.add_argument("--folder", type=Path, help="where data and logs stay; by default they are deleted")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        outcome = play(folder, runs=chosen.runs, disturbances=chosen.disturbances, per_s=chosen.pace)
    faults = outcome.faults(chosen.recovery)
    sys.stdout.write(f"{told(outcome)}\n\n{'; '.join(faults) or 'all promises were kept'}\n")
    return 1 if faults else 0


def told(outcome: Outcome) -> str:
    """Return the findings as two Markdown tables."""
    counts = outcome.counts
    rows = {
        "runs": outcome.runs,
        "spans acknowledged": counts.spans,
        "spans missing in Jaeger": counts.missing,
        "copies: Kafka has them too (the Collector repeated a request)": counts.written_twice,
        "copies: sent on, but not committed yet, at a kill": counts.in_flight,
        "copies without an explanation": counts.unexplained,
        "runs without a verdict": counts.unjudged,
        "versions of a verdict with several ids": counts.odd_verdicts,
        "verdicts after a run's first": counts.later_versions,
        "carriers": counts.carriers,
        "copies of carriers": counts.carrier_copies,
        **{f"verdicts by {method}": count for method, count in counts.methods.most_common()},
        **{f"surviving processors, summed: {what}": n for what, n in summed(outcome.balances).items()},
        **{
            f"{len(outcome.ended)} others before their end: {what}": n
            for what, n in summed(outcome.ended).items()
        },
        "bytes in Kafka for a span": outcome.kafka_bytes // counts.spans,
        "bytes in PostgreSQL for a run": outcome.store_bytes // outcome.runs,
        "seconds": round(outcome.seconds),
    }
    table = ["| counted | |", "|---|---|", *(f"| {what} | {count:,} |" for what, count in rows.items())]
    kinds = sorted({one.kind for one in outcome.disturbances})
    times = {kind: [one.recovered_s for one in outcome.disturbances if one.kind == kind] for kind in kinds}
    told = [
        f"| {kind} | {len(each)} | {median(each):.1f} | {max(each):.1f} |" for kind, each in times.items()
    ]
    head = ["", "| disturbance | times | recovery in s, median | longest |", "|---|---|---|---|"]
    return "\n".join([*table, *head, *told])


if __name__ == "__main__":
    sys.exit(main())
