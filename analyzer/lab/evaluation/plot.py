"""SVG plot of benchmarks: accuracy with intervals, and accuracy by coverage. No plotting library.

Colours are those of Okabe and Ito, which can be told apart with any colour vision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

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
