"""Terminal tables and SVG plot of ``blamespan bench``; programs read its JSON lines instead.

The plot shows accuracy with intervals, and accuracy by coverage, without a plotting library. Colours are
those of Okabe and Ito, which can be told apart with any colour vision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from analyzer.inquiry.terminal import console
from analyzer.lab.evaluation.scores import Score

_SHOWN_ERRORS: Final = 3
_ERROR_WIDTH: Final = 160
_REPORT_WIDTH: Final = 120
"""Width that fits every table: output into a pipe must not be truncated."""


def show_accuracy(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print how often a method was right."""
    first = lines[0]
    seen = "with" if first["with_reference"] else "without"
    title = f"{first['dataset']}: {_method(first)}, {seen} reference"
    table = _table(title, ("subset", "n", "step %", "agent %", "both %", "top-3 %", "none", "errors"))
    for line in lines:
        table.add_row(
            line["subset"],
            str(line["n"]),
            _with_interval(line["step_accuracy"], line["step_accuracy_ci"]),
            _with_interval(line["agent_accuracy"], line["agent_accuracy_ci"]),
            _percent(line["joint_accuracy"]),
            _percent(line["top3_step_accuracy"]),
            str(line["undetermined"]),
            str(line["errors"]),
        )
    _print(table)
    if first["trained_on"]:
        _note(f"trained on {first['trained_on']}")


def show_answers(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print how many runs were answered and how often correctly; nothing if all were answered."""
    if lines[-1]["answered"]["n"] in (0, lines[-1]["n"]):
        return
    table = _table("", ("subset", "answered", "% of runs", "step % of these", "agent % of these"))
    for line in lines:
        answered = line["answered"]
        table.add_row(
            line["subset"],
            str(answered["n"]),
            _percent(answered["coverage"]),
            _with_interval(answered["step_accuracy"], answered["step_accuracy_ci"]),
            _with_interval(answered["agent_accuracy"], answered["agent_accuracy_ci"]),
        )
    _print(table)


def show_nearness_and_confidence(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print accuracy within a distance, calibration, and the reference scorer's accuracy."""
    table = _table("", ("subset", "±1 %", "±3 %", "±5 %", "Brier", "ECE", "(if true)", "substring %"))
    for line in lines:
        other = line["reference_scorer"]
        table.add_row(
            line["subset"],
            *(_percent(line["within"][k]) for k in ("1", "3", "5")),
            _decimal(line["brier"]),
            _decimal(line["ece"]),
            _decimal(line["ece_if_calibrated"]),
            f"{_percent(other['step_accuracy'])} / {_percent(other['agent_accuracy'])}",
        )
    _print(table)
    _note(
        "brackets: 95 % Wilson interval; (if true): the ECE of perfectly calibrated confidences at this n;\n"
        "substring: step / agent as the reference scorer counts"
    )


def show_cost(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print the verdicts' cost; nothing for a method that calls no model."""
    if not lines[-1]["calls"]:
        return
    table = _table("", ("subset", "calls", "input tokens", "output tokens", "cost $", "seconds"))
    for line in lines:
        table.add_row(
            line["subset"],
            str(line["calls"]),
            str(line["input_tokens"]),
            str(line["output_tokens"]),
            "?" if line["cost_usd"] is None else f"{line['cost_usd']:.4f}",
            f"{line['duration_s']:.1f}",
        )
    _print(table)


def show_lengths(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print the total by length of run, and by share of runs answered."""
    table = _table("", ("steps in the run", "n", "step %", "agent %", "top-3 %"))
    for row in lines[-1]["by_length"]:
        table.add_row(
            row["steps"],
            str(row["n"]),
            _with_interval(row["step_accuracy"], row["step_accuracy_ci"]),
            _with_interval(row["agent_accuracy"], row["agent_accuracy_ci"]),
            _percent(row["top3_step_accuracy"]),
        )
    _print(table)
    curve = ", ".join(
        f"{100 * point['coverage']:.0f}: {_percent(point['accuracy'])}"
        for point in lines[-1]["coverage_curve"]
    )
    if curve:
        _note(f"step % of the surest … % of runs: {curve}")


def show_extras(line: Mapping[str, Any]) -> None:
    """Print the optional results: abstaining, second labels, excluded runs."""
    if chosen := line.get("selective"):
        _note(
            f"abstaining to reach {100 * chosen['precision_wanted']:.0f} %: answered {chosen['answered']} of"
            f" {line['n']}, right in {_with_interval(chosen['precision'], chosen['precision_ci'])} %"
            " (thresholds chosen out of fold)"
        )
    if modes := line.get("modes"):
        _note(
            f"failure mode: {_with_interval(modes['accuracy'], modes['accuracy_ci'])} % right of"
            f" {modes['n']} with a labelled category; the best constant mode:"
            f" {_percent(modes['best_constant'])} %"
        )
    if twice := line.get("second_labels"):
        either = _with_interval(twice["step_accuracy_either"], twice["step_accuracy_either_ci"])
        _note(
            f"{twice['n']} runs have second labels: step {_percent(twice['step_accuracy_first'])} % by the"
            f" first, {_percent(twice['step_accuracy_second'])} % by the second, {either} % by either; the"
            f" labels agree on {_percent(twice['labels_agree_on_step'])} % of steps and"
            f" {_percent(twice['labels_agree_on_agent'])} % of agents"
        )
    if rest := line.get("without_excluded"):
        _note(
            f"without the {line['n'] - rest['n']} excluded runs: n={rest['n']}, step"
            f" {_with_interval(rest['step_accuracy'], rest['step_accuracy_ci'])} %, agent"
            f" {_with_interval(rest['agent_accuracy'], rest['agent_accuracy_ci'])} %"
        )
    if line["fallbacks"]:
        _note(f"{line['fallbacks']} of {line['n']} verdicts are a fallback's, not the method's own")


def show_comparison(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print a paired comparison of two methods."""
    first, second = lines[0]["compare"]
    title = f"A: {first}, B: {second}"
    table = _table(title, ("subset", "", "A %", "B %", "B - A", "only A", "only B", "p"))
    for line in lines:
        for claim in ("step", "agent", "joint", "top3_step"):
            pair = line[claim]
            low, high = pair["difference_ci"]
            table.add_row(
                line["subset"] if claim == "step" else "",
                claim.replace("_step", "").replace("joint", "both").replace("top3", "top-3"),
                _percent(pair["first"]),
                _percent(pair["second"]),
                f"{100 * pair['difference']:+.1f} [{100 * low:+.0f}, {100 * high:+.0f}]",
                str(pair["only_first"]),
                str(pair["only_second"]),
                f"{pair['p_value']:.3g}",
            )
    _print(table)
    _note("brackets: 95 % paired bootstrap interval; p: McNemar's exact test, two-sided")


def error_summary(scores: Sequence[Score]) -> list[str]:
    """Return the commonest errors with their counts, one line each."""
    reasons = Counter(" ".join(s.error.split())[:_ERROR_WIDTH] for s in scores if s.error)
    return [f"{count} × {reason}" for reason, count in reasons.most_common(_SHOWN_ERRORS)]  # noqa: RUF001 - times


def _method(line: Mapping[str, Any]) -> str:
    return f"{line['method']}, {line['model']}" if line["model"] else str(line["method"])


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left", title=Text(title) if title else None)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    return table


def _print(table: Table) -> None:
    screen = console()
    if not screen.is_terminal:
        screen.width = max(screen.width, _REPORT_WIDTH)
    screen.print(table)


def _note(words: str) -> None:
    console().print(words, style="dim")


def _with_interval(share: float | None, interval: Sequence[float] | None) -> str:
    if share is None or interval is None:
        return "-"
    return f"{_percent(share)} [{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_WIDTH: Final = 760
_LEFT: Final = 250
_PLOT: Final = 470
_ROW: Final = 22
_TOP: Final = 50
_CURVE_HEIGHT: Final = 260


def to_svg(lines: Sequence[Mapping[str, Any]], title: str) -> str:
    """Draw the result lines of one or several benchmarks; each is one row and one curve."""
    rows_end = _TOP + _ROW * 2 * len(lines) + 10
    height = rows_end + _CURVE_HEIGHT + 90 + 16 * len(lines)
    body = [
        _text(_WIDTH / 2, 22, title, "middle", size=15),
        *_grid(_TOP, rows_end),
        *(mark for number, line in enumerate(lines) for mark in _row(line, _TOP + _ROW * 2 * number, number)),
        *_curves(lines, rows_end + 50),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>' + "".join(body) + "</svg>\n"
    )


def _grid(top: float, bottom: float) -> Iterator[str]:
    for percent in range(0, 101, 20):
        x = _LEFT + _PLOT * percent / 100
        yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#dddddd"/>'
        yield _text(x, bottom + 14, f"{percent} %", "middle")


def _row(line: Mapping[str, Any], y: float, number: int) -> Iterator[str]:
    yield _text(_LEFT - 10, y + 16, f"{line['method']}, {line['subset']} (n={line['n']})", "end")
    colour = _COLOURS[number % len(_COLOURS)]
    for offset, claim in ((12, "step"), (30, "agent")):
        share, interval = line[f"{claim}_accuracy"], line[f"{claim}_accuracy_ci"]
        if share is None or interval is None:
            continue
        low, high = (_LEFT + _PLOT * end for end in interval)
        x = _LEFT + _PLOT * share
        yield (
            f'<line x1="{low:.1f}" y1="{y + offset}" x2="{high:.1f}" y2="{y + offset}"'
            f' stroke="{colour}" stroke-width="2"/>'
        )
        yield f'<circle cx="{x:.1f}" cy="{y + offset}" r="4" fill="{colour}"/>'
        yield _text(high + 6, y + offset + 4, f"{claim} {100 * share:.1f}", "start", size=10)


def _curves(lines: Sequence[Mapping[str, Any]], top: float) -> Iterator[str]:
    bottom = top + _CURVE_HEIGHT
    yield _text(
        _LEFT + _PLOT / 2, top - 8, "step accuracy of the answers, by share of runs answered", "middle"
    )
    for percent in range(0, 101, 20):
        y = bottom - _CURVE_HEIGHT * percent / 100
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + _PLOT}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield _text(_LEFT - 10, y + 4, f"{percent} %", "end")
        yield _text(_LEFT + _PLOT * percent / 100, bottom + 16, f"{percent} %", "middle")
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [
            (_LEFT + _PLOT * point["coverage"], bottom - _CURVE_HEIGHT * point["accuracy"])
            for point in line["coverage_curve"]
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
        legend = f"{line['method']}, {line['subset']}"
        yield f'<rect x="{_LEFT}" y="{bottom + 28 + 16 * number}" width="10" height="10" fill="{colour}"/>'
        yield _text(_LEFT + 16, bottom + 37 + 16 * number, legend, "start")


def _text(x: float, y: float, words: str, anchor: str, *, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'
