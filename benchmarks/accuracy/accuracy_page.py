# ruff: noqa: E501 - rows of Markdown tables cannot be wrapped
"""Refreshes the tables of docs/accuracy.md: ``python -m benchmarks.accuracy.accuracy_page DATASETS_FOLDER [--only NAME]``.

Each table is between two marks in the page and is rebuilt here, by ``blamespan bench --format json`` or by
``benchmarks.accuracy.ranker_limits``, so that no number is typed by hand. Takes ten
minutes of one core, mostly for the ranker. The prose around the tables is written by hand: read it again when
the numbers change.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from analyzer.inquiry.intervals import wilson
from analyzer.inquiry.posterior import LogShares, log_softmax, ranked
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.scores import Score, score
from analyzer.lab.evaluation.validation import Labelled, across_systems, prepare
from analyzer.lab.published import draw
from analyzer.signals.registry import SIGNALS, findings
from analyzer.signals.scoring import posterior
from analyzer.texts.run_view import Reading, Signal, read
from benchmarks.accuracy.abstaining import TABLES as ABSTAINING
from benchmarks.accuracy.model_pool import learned_from_half, pool_table
from benchmarks.accuracy.ranker_limits import TABLES as LIMITS
from benchmarks.accuracy.trivial import best_agent, best_step
from semconv.model import Attribution, Blame

PAGE: Final = Path(__file__).parents[2] / "docs" / "accuracy.md"
WHO_AND_WHEN: Final = "who_and_when.dev.jsonl.gz"
SECOND: Final = "agentrx.dev.jsonl.gz"
REPLIES: Final = "recorded_replies.dev.jsonl.gz"
OTHERS: Final = (
    "agenterrorbench_gaia.dev.jsonl.gz",
    "trail.dev.jsonl.gz",
    "tracertraj_code.dev.jsonl.gz",
    SECOND,
)
TEN_FOLD: Final = "Algorithm-Generated"
FLOOR: Final = ("random", "first-agent-step", "constant", "constant-agent")
METHODS: Final = (
    ("random", "none", ()),
    ("constant", "9 of 10 folds", ()),
    ("constant-agent", "9 of 10 folds", ()),
    ("first-agent-step", "none", ()),
    ("signals", "none", ()),
    ("ranker", "4 of 5 folds", ("--cv", "5")),
)

SEEN_WITHOUT_REFERENCE = tuple(signal for signal in SIGNALS if signal.__name__ != "right_answer_seen")

Line = Mapping[str, Any]


def bench(dataset: Path, *options: str) -> list[Line]:
    """Return the JSON lines of one run of ``blamespan bench``."""
    command = [sys.executable, "-m", "analyzer", "bench", str(dataset), *options, "--format", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def interval(line: Line, name: str) -> str:
    low, high = line[f"{name}_ci"]
    return f"{percent(line[name])} [{percent(low)}, {percent(high)}]"


def methods_table(folder: Path) -> list[str]:
    """Return the results of every method without a model, beside the floor."""
    rows = [
        "| method | labels it learned from | data | n | step % | agent % | step in top 3 % | ECE (if calibrated) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method, labels, options in METHODS:
        rows += [
            f"| `{method}` | {labels} | {figures(line)} |"
            for line in bench(folder / WHO_AND_WHEN, "--method", method, *options)
        ]
    with TemporaryDirectory() as place:
        part = one_subset(folder / WHO_AND_WHEN, TEN_FOLD, Path(place))
        line = bench(part, "--method", "ranker", "--cv", "10")[-1]
    rows.append(f"| `ranker` | 9 of 10 folds of these | {figures({**line, 'subset': TEN_FOLD})} |")
    runs = [one.run for one in prepare(read_dataset(folder / WHO_AND_WHEN))]
    for subset in (*dict.fromkeys(one.subset for one in runs), "total"):
        own = [one for one in runs if subset in {one.subset, "total"}]
        cells = (subset, len(own), best_step(own), best_agent(own))
        rows.append(f"| best trivial rule | these | {' | '.join(map(str, cells))} | | |")
    return rows


def figures(line: Line) -> str:
    """Return the cells of one line of a benchmark."""
    return (
        f"{line['subset']} | {line['n']} | {interval(line, 'step_accuracy')} |"
        f" {interval(line, 'agent_accuracy')} | {percent(line['top3_step_accuracy'])} |"
        f" {line['ece']:.3f} ({line['ece_if_calibrated']:.3f})"
    )


def one_subset(dataset: Path, subset: str, folder: Path) -> Path:
    """Write the runs of one subset to a separate file."""
    lines = gzip.decompress(dataset.read_bytes()).decode().splitlines()
    part = folder / f"{subset}.jsonl"
    part.write_text("\n".join(line for line in lines if json.loads(line)["subset"] == subset))
    return part


def comparison_table(folder: Path) -> list[str]:
    """Return paired tests on the same runs, by subset."""
    rows = [
        "| second against first | data | step, points | p | agent, points | p | top 3, points | p |",
        "|---|---|---|---|---|---|---|---|",
    ]
    pairs = [(floor, "signals", ()) for floor in FLOOR] + [("signals", "ranker", ("--cv", "5"))]
    for first, second, options in pairs:
        for line in bench(folder / WHO_AND_WHEN, "--compare", first, second, *options):
            if "compare" not in line:
                continue  # a line of one of the two methods
            cells = [f"`{second}` against `{first}`", line["subset"]]
            for what in ("step", "agent", "top3_step"):
                low, high = line[what]["difference_ci"]
                cells += [
                    f"{100 * line[what]['difference']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]",
                    f"{line[what]['p_value']:.2g}",
                ]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def second_table(folder: Path) -> list[str]:
    """Return the results against either of two groups of annotators, for runs labelled by both."""
    rows = [
        "| method | n | step % by the first labels | by the second | by either | agent % by the first | by the second | by either |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method, options in (("signals", ()), ("ranker", ("--cv", "5"))):
        line = bench(
            folder / WHO_AND_WHEN, "--method", method, *options, "--second-labels", str(folder / SECOND)
        )[-1]["second_labels"]
        keys = [
            f"{what}_accuracy_{whose}"
            for what in ("step", "agent")
            for whose in ("first", "second", "either")
        ]
        rows.append(f"| `{method}` | {line['n']} | {' | '.join(percent(line[key]) for key in keys)} |")
    agree = ("labels_agree_on_step", "labels_agree_on_agent")
    shares = [percent(line[key]) for key in agree]
    return [
        *rows,
        f"| the second labels, as if they were a method | {line['n']} | {shares[0]} | | | {shares[1]} | | |",
    ]


def elsewhere_table(folder: Path) -> list[str]:
    """Return the results on each system of methods that saw none of its runs, tasks or labels."""
    runs = prepare([run for name in (WHO_AND_WHEN, *OTHERS) for run in read_dataset(folder / name)])
    readings = [read(replace(one.run.trajectory, reference=None)) for one in runs]
    by_method = {
        "signals": judge(runs, [weighed(reading, SEEN_WITHOUT_REFERENCE) for reading in readings]),
        "random": judge(runs, [drawn(one) for one in runs]),
        "ranker": list(across_systems(runs)),
    }
    rows = [
        "| system left out | n | "
        + " | ".join(
            f"{name} {what} %"
            for what in ("step", "agent")
            for name in (*(f"`{each}`" for each in by_method), "best trivial rule")
        )
        + " |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for system in dict.fromkeys(one.example.system for one in runs):
        held = [[s for s in scores if s.subset == system] for scores in by_method.values()]
        own = [one for one in runs if one.example.system == system]
        cells = [_with_wilson([s.step_right for s in scores]) for scores in held] + [
            str(best_step([one.run for one in own]))
        ]
        cells += [_with_wilson([s.agent_right for s in scores]) for scores in held] + [
            str(best_agent([one.run for one in own]))
        ]
        rows.append(f"| {system} | {len(held[0])} | {' | '.join(cells)} |")
    return rows


def ablation_table(folder: Path) -> list[str]:
    """Return the contribution of each signal, on Who&When and on all systems together."""
    runs = prepare([run for name in (WHO_AND_WHEN, *OTHERS) for run in read_dataset(folder / name)])
    readings = [read(replace(one.run.trajectory, reference=None)) for one in runs]
    own = sum(one.run.source == runs[0].run.source for one in runs)
    rows = [
        f"| signals | step % of the first {own} | agent % | top 3 % | step % of all {len(runs)} | agent % | top 3 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, scores in without_each(runs, readings):
        cells = []
        for part in (scores[:own], scores):
            claims = (
                [s.step_right for s in part],
                [s.agent_right for s in part],
                [s.in_top_three for s in part],
            )
            cells += [percent(sum(held) / len(held)) for held in claims]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    every = [one.run for one in runs]
    best = [each(part).share for part in (every[:own], every) for each in (best_step, best_agent)]
    return [*rows, f"| best trivial rule | {best[0]} | {best[1]} | | {best[2]} | {best[3]} | |"]


def without_each(runs: Sequence[Labelled], readings: Sequence[Reading]) -> Iterator[tuple[str, list[Score]]]:
    """Score all signals, all but one for each signal, and the prior alone."""
    kept: list[tuple[str, Sequence[Signal]]] = [("all signals", SEEN_WITHOUT_REFERENCE)]
    kept += [
        (f"without {left_out.__name__}", [s for s in SEEN_WITHOUT_REFERENCE if s is not left_out])
        for left_out in SEEN_WITHOUT_REFERENCE
    ]
    kept.append(("prior alone", ()))
    for name, signals in kept:
        yield name, judge(runs, [weighed(reading, signals) for reading in readings])


def judge(runs: Sequence[Labelled], shares: Sequence[LogShares]) -> list[Score]:
    """Score the most likely step of each run."""
    scores = []
    for one, share in zip(runs, shares, strict=True):
        ranking = ranked(share, one.run.trajectory, 5)
        first = ranking[0]
        verdict = Blame(
            agent=first.agent, step=first.step, reason="", confidence=first.probability, ranking=ranking
        )
        attribution = Attribution(run_id=one.run.trajectory.run_id, verdict=verdict, method="signals")
        assert one.run.label is not None
        scores.append(score(attribution, one.run.label, one.example.system))
    return scores


def weighed(reading: Reading, signals: Sequence[Signal]) -> LogShares:
    shares = posterior(reading, findings(reading, signals))
    return log_softmax([math.log(max(share, 1e-12)) for share in shares])


def drawn(one: Labelled) -> LogShares:
    """Rank the steps in the order in which ``random`` draws them."""
    order = sorted(one.run.trajectory.steps, key=draw)
    place = {step.index: number for number, step in enumerate(order)}
    return log_softmax([-1e-6 * place[step.index] for step in one.run.trajectory.steps])


def limits_table(name: str, folder: Path) -> list[str]:
    """Return a table of ``benchmarks.accuracy.ranker_limits``."""
    lines = limits(folder).splitlines()
    rest = lines[lines.index(name) + 1 :]
    return list(takewhile(lambda line: line.startswith("|"), rest))


@cache
def limits(folder: Path) -> str:
    """Run ``benchmarks.accuracy.ranker_limits`` once for all of its tables, which share their models."""
    command = [sys.executable, "-m", "benchmarks.accuracy.ranker_limits", str(folder / WHO_AND_WHEN)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _with_wilson(claims: Sequence[bool]) -> str:
    bounds = wilson(sum(claims), len(claims))
    share = sum(claims) / max(1, len(claims))
    return f"{percent(share)} [{percent(bounds.low)}, {percent(bounds.high)}]"


TABLES: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "methods": methods_table,
    "comparison": comparison_table,
    "second": second_table,
    "elsewhere": elsewhere_table,
    "ablation": ablation_table,
    **ABSTAINING,
    "model_pool": lambda folder: pool_table(folder / WHO_AND_WHEN, folder / REPLIES),
    "learned_pool": lambda folder: pool_table(
        folder / WHO_AND_WHEN, folder / REPLIES, repool=learned_from_half
    ),
    **{name: partial(limits_table, name) for name in LIMITS},
}


def refreshed(page: str, tables: Mapping[str, Sequence[str]]) -> str:
    """Return the page with the text between the marks replaced; every mark must exist."""
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
    parser.add_argument("--only", choices=TABLES, action="append", help="this table; may be repeated")
    chosen = parser.parse_args()
    tables = {name: TABLES[name](chosen.folder) for name in chosen.only or TABLES}
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
