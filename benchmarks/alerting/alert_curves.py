"""Plot of alert delays by the share that doubles, one curve for each system and method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from benchmarks.alerting.alert_worlds import MOST_DAYS, World

_X: Final = (60.0, 640.0)
_BOTTOM, _TOP = 375.0, 45.0
_LEAST_DAYS: Final = 0.2
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_DASHES: Final = {0.4: "", 0.2: "8 3", 0.0: "2 4"}


def to_svg(medians: Mapping[World, float]) -> str:
    """Draw medians in days; both axes are logarithmic. Changes mostly not found have no point."""
    body = [*_frame(sorted({world.share for world in medians}))]
    systems = list(dict.fromkeys((world.agents, world.runs_a_day) for world in medians))
    for number, (agents, runs) in enumerate(systems):
        for place, (confusion, dash) in enumerate(_DASHES.items()):
            points = [
                (_x(world.share), _y(days))
                for world, days in medians.items()
                if (world.agents, world.runs_a_day, world.confusion) == (agents, runs, confusion)
                and math.isfinite(days)
            ]
            body.append(_line(points, _COLOURS[number], dash))
            body += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_COLOURS[number]}"/>' for x, y in points
            ]
            method = "sees the truth" if not confusion else f"wrong {confusion:.0%}"
            beneath = 420 + 16 * (3 * number + place)
            body.append(_line([(60, beneath - 4), (100, beneath - 4)], _COLOURS[number], dash))
            body.append(_label(108, beneath, f"{agents} agents, {runs} runs a day, {method}", "start"))
    height = 430 + 48 * len(systems)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 {height}" font-family="sans-serif"'
        f' font-size="12"><rect width="660" height="{height}" fill="#ffffff"/>{"".join(body)}</svg>\n'
    )


def _frame(shares: Sequence[float]) -> Iterator[str]:
    yield _label(330, 20, "Days until a doubled failure share is found (median)", "middle")
    for days in (0.25, 0.5, 1, 2, 4, 7, 14, 28, 56):
        yield _line([(_X[0], _y(days)), (_X[1], _y(days))], "#dddddd")
        yield _label(_X[0] - 8, _y(days) + 4, f"{days:g}", "end")
    for share in shares:
        yield _label(_x(share), 395, f"{share:.0%} to {2 * share:.0%}", "middle")


def _x(share: float) -> float:
    return _X[0] + 60 + (_X[1] - _X[0] - 120) * math.log(share / 0.02) / math.log(5)


def _y(days: float) -> float:
    height = math.log(max(days, _LEAST_DAYS) / _LEAST_DAYS) / math.log(MOST_DAYS / _LEAST_DAYS)
    return _BOTTOM - (_BOTTOM - _TOP) * height


def _line(points: Sequence[tuple[float, float]], colour: str, dash: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    stroke = f'stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"'
    return f'<polyline points="{path}" fill="none" {stroke}/>'


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222222">{text}</text>'
