"""``python -m benchmarks.history PART``: what the history of a workflow tells, and what it costs.

``accuracy``: signals, ranker, history and their pool on the example systems. ``early``: warnings before a
run's end. ``stable``: false alarms of months without a change. ``delay``: runs until a bad release is
noticed. ``cost``: bytes and CPU time kept of a run. ``million``: a store with a million runs, and what pages
and verdicts read of it. ``archive``: Parquet files of a hundred million synthetic steps, and SQL over them.
``exporting``: time of an export from a store. ``engines``: Spark and ClickHouse over exported files, by the
scripts of ``docs/history.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.history import early
from benchmarks.history.accuracy import measure, table
from benchmarks.history.million import million
from benchmarks.history.months import cost, delay, stable


def main() -> None:
    """Run the requested part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument(
        "what",
        choices=(
            "accuracy",
            "early",
            "stable",
            "delay",
            "cost",
            "million",
            "archive",
            "exporting",
            "engines",
        ),
    )
    parser.add_argument(
        "--number",
        type=int,
        help="groups of ten failing runs for each system (30), months (1000), runs (1000, a million) or steps"
        " (100 million)",
    )
    parser.add_argument("--seed", type=int, default=2, help="0 and 1 were used to choose constants")
    parser.add_argument(
        "--folder", type=Path, default=Path("archive"), help="where `archive` keeps its files (6 GB)"
    )
    asked = parser.parse_args()
    parts: dict[str, Callable[[int], None]] = {"stable": stable, "delay": delay, "cost": cost}
    if asked.what == "million":
        million(asked.number or 1_000_000)
    elif asked.what == "archive":
        from benchmarks.history.archive import archive  # noqa: PLC0415 - an extra

        archive(asked.number or 100_000_000, asked.folder)
    elif asked.what == "exporting":
        from benchmarks.history.exporting import exporting  # noqa: PLC0415 - as above

        exporting(asked.number or 5_000)
    elif asked.what == "engines":
        from benchmarks.history.engines import engines  # noqa: PLC0415 - as above

        engines()
    elif asked.what in parts:
        parts[asked.what](asked.number or 1000)
    elif asked.what == "early":
        early.table(early.measure(asked.number or 30, asked.seed))
    else:
        table(measure(asked.number or 30, asked.seed))


if __name__ == "__main__":
    main()
