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
    "ignored_error": {
        "": -4.713,
        "about_task": -0.419,
        "failed": 1.559,
        "figures": 3.513,
        "nothing_else": 1.15,
        "others_succeed": -3.693,
        "others_succeeded": 0.759,
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
        "": 1.428,
        "alike": 0.212,
        "id": 1.267,
        "known_host": 0.0,
        "link": -3.663,
        "name": 1.531,
        "quotation": 0.986,
    },
    "wrong_figure": {
        "": -6.033,
        "advice": -2.136,
        "chance": -0.582,
        "computed": -2.005,
        "computed_miss": -0.072,
        "computed_overlap": -2.655,
        "computed_slot": -0.263,
        "crowd": 2.689,
        "digits": 9.467,
        "hedged": -1.58,
        "in_company": 0.805,
        "in_threes": -3.338,
        "linked": 0.358,
        "names_it": 0.046,
        "near_miss": 0.499,
        "near_miss_unsaid": 1.512,
        "near_result": 0.24,
        "of_task": 1.377,
        "overlap": 2.403,
        "precise": -2.501,
        "slot": 1.285,
        "task_company": 0.041,
        "task_unit": 1.642,
        "unit": 0.321,
        "unit_overlap": -2.359,
        "unsaid": 0.91,
    },
    "wrong_sum": {
        "": 1.603,
        "in_answer": 0.127,
    },
}
THRESHOLDS: Final[tuple[tuple[float, float], ...]] = (
    (0.002, 0.8838),
    (0.005, 0.8396),
    (0.01, 0.811),
    (0.02, 0.4752),
    (0.03, 0.3851),
    (0.05, 0.1941),
    (0.1, 0.0987),
    (0.2, 0.0071),
)
"""Tolerated share of good runs, and least probability; from 1020 of them, out of fold."""
