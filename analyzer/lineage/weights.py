"""Coefficients of the clues. Generated: ``python -m benchmarks.accuracy.suspicion --write``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

WEIGHTS: Final[Mapping[str, Mapping[str, float]]] = {
    "constraint": {
        "": 3.472,
        "forbidden": 0.075,
        "length": 0.051,
        "list": 0.063,
    },
    "loop": {
        "": 3.261,
        "at_end": 0.182,
        "failing": 0.0,
        "times": 0.121,
        "waits": 0.008,
        "words": 0.0,
    },
    "unsourced": {
        "": 1.406,
        "alike": 0.214,
        "id": 1.278,
        "known_host": 0.0,
        "link": -3.641,
        "name": 1.543,
        "quotation": 0.94,
    },
    "wrong_sum": {
        "": 1.603,
        "in_answer": 0.127,
    },
}
THRESHOLDS: Final[tuple[tuple[float, float], ...]] = (
    (0.002, 1.0),
    (0.005, 0.7311),
    (0.01, 0.5),
    (0.02, 0.5),
    (0.03, 0.1),
    (0.05, 0.1),
    (0.1, 0.1),
    (0.2, 0.1),
)
"""Tolerated share of good runs, and least probability; from 1020 of them, out of fold."""
