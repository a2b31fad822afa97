"""Whether our clock agrees with those of the machines we talk to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from analyzer.checkup.finding import Finding, Health
from analyzer.checkup.neighbours import Neighbour

TOLERATED_S: Final = 5.0
"""Dates are told in whole seconds; less than this disturbs nothing."""
MOST_S: Final = 120.0
"""Beyond this, signatures are refused as old and spans look late or from the future."""


def check_clock(neighbours: Sequence[Neighbour]) -> Finding:
    """Compare with the dates that neighbours gave in their answers."""
    told = [one for one in neighbours if one.ahead_s is not None]
    if not told:
        detail = "not compared: no analyzer and no Alertmanager answers, whose clocks could be asked"
        return Finding(check="clock", health=Health.SKIPPED, detail=detail)
    worst = max(told, key=lambda one: abs(one.ahead_s or 0.0))
    ahead_s = worst.ahead_s or 0.0
    detail = f"agrees with {', '.join(one.name for one in told)} to {abs(ahead_s):.0f} s"
    if abs(ahead_s) <= TOLERATED_S:
        return Finding(check="clock", health=Health.OK, detail=detail)
    where = "behind" if ahead_s > 0 else "ahead of"
    return Finding(
        check="clock",
        health=Health.WARNING if abs(ahead_s) <= MOST_S else Health.FAILED,
        detail=f"ours is {abs(ahead_s):.0f} s {where} that of the {worst.name}",
        mend="let both machines set their clocks by NTP",
    )
