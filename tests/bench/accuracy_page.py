# ruff: noqa: E501 - the rows of a Markdown table are as long as they are
"""Refreshes the tables of docs/accuracy.md: ``python -m tests.bench.accuracy_page DATASETS_FOLDER``.

Every table stands between two marks in the page; each is made anew from
``blamespan bench --format json``, so that no figure is typed. The prose around
them is a person's, and has to be read again when figures move.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "accuracy.md"
WHO_AND_WHEN: Final = "who_and_when.dev.jsonl.gz"
OTHERS: Final = (
    ("AgentErrorBench (GAIA)", "agenterrorbench_gaia.dev.jsonl.gz"),
    ("TRAIL", "trail.dev.jsonl.gz"),
    ("TracerTraj (code)", "tracertraj_code.dev.jsonl.gz"),
    ("AgentRx", "agentrx.dev.jsonl.gz"),
)
METHODS: Final = (
    ("random", "none", ()),
    ("constant", "9 of 10 folds", ()),
    ("first-agent-step", "none", ()),
    ("signals", "none", ()),
    ("ranker", "4 of 5 folds", ("--cv", "5")),
)

Line = Mapping[str, Any]


def bench(dataset: Path, *options: str) -> list[Line]:
    """Return the JSON lines of one ``blamespan bench``."""
    command = [sys.executable, "-m", "analyzer", "bench", str(dataset), *options, "--format", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def interval(line: Line, name: str) -> str:
    low, high = line[f"{name}_ci"]
    return f"{percent(line[name])} [{percent(low)}, {percent(high)}]"


def methods_table(folder: Path) -> list[str]:
    """Every method that asks no model, beside the floor."""
    rows = [
        "| method | labels it learned from | data | n | step % | agent % | step in top 3 % | ECE (if calibrated) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method, labels, options in METHODS:
        rows += [
            f"| `{method}` | {labels} | {line['subset']} | {line['n']} | {interval(line, 'step_accuracy')} |"
            f" {interval(line, 'agent_accuracy')} | {percent(line['top3_step_accuracy'])} |"
            f" {line['ece']:.3f} ({line['ece_if_calibrated']:.3f}) |"
            for line in bench(folder / WHO_AND_WHEN, "--method", method, *options)
        ]
    return rows


def comparison_table(folder: Path) -> list[str]:
    """Paired tests on the same runs."""
    rows = ["| second against first | step, points | p | agent, points | p |", "|---|---|---|---|---|"]
    for first, second, options in (("constant", "signals", ()), ("signals", "ranker", ("--cv", "5"))):
        line = bench(folder / WHO_AND_WHEN, "--compare", first, second, *options)[-1]
        cells = [f"`{second}` against `{first}`"]
        for what in ("step", "agent"):
            low, high = line[what]["difference_ci"]
            cells += [
                f"{100 * line[what]['difference']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]",
                f"{line[what]['p_value']:.3g}",
            ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def elsewhere_table(folder: Path) -> list[str]:
    """Systems that nothing was made for."""
    rows = [
        "| data | n | `signals` step % | `random` step % | `signals` agent % | `random` agent % |",
        "|---|---|---|---|---|---|",
    ]
    for name, file in OTHERS:
        ours, chance = (bench(folder / file, "--method", method)[-1] for method in ("signals", "random"))
        rows.append(
            f"| {name} | {ours['n']} | {interval(ours, 'step_accuracy')} | {interval(chance, 'step_accuracy')} |"
            f" {interval(ours, 'agent_accuracy')} | {interval(chance, 'agent_accuracy')} |"
        )
    return rows


TABLES: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "methods": methods_table,
    "comparison": comparison_table,
    "elsewhere": elsewhere_table,
}


def refreshed(page: str, tables: Mapping[str, Sequence[str]]) -> str:
    """Return the page with what stands between the marks replaced; every mark must be there."""
    for name, rows in tables.items():
        marks = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        page, count = marks.subn(partial(_replaced, rows), page)
        if count != 1:
            raise SystemExit(f"{PAGE.name}: expected the marks of {name!r} once, found them {count} times")
    return page


def _replaced(rows: Sequence[str], found: re.Match[str]) -> str:
    return "\n".join([found[1].rstrip("\n"), *rows, found[2]])


def main() -> None:
    """Refresh the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the labelled data sets lie")
    folder = parser.parse_args().folder
    tables = {name: make(folder) for name, make in TABLES.items()}
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
