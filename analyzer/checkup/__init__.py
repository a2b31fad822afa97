"""What ``blamespan doctor`` looks at, one kind of thing a file. Shells; nothing is changed, nothing told."""

from __future__ import annotations

from analyzer.checkup.certificates import check_certificate
from analyzer.checkup.clock import check_clock
from analyzer.checkup.finding import Finding, Health
from analyzer.checkup.neighbours import Neighbour, check_analyzer, check_door, check_notifiers
from analyzer.checkup.stores import check_parents, check_privacy, check_stores

__all__ = [
    "Finding",
    "Health",
    "Neighbour",
    "check_analyzer",
    "check_certificate",
    "check_clock",
    "check_door",
    "check_notifiers",
    "check_parents",
    "check_privacy",
    "check_stores",
]
