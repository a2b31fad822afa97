"""How often verdicts led by each signal were right.

The counts are generated: ``python -m benchmarks.accuracy.worth FOLDER --write``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

Counts: TypeAlias = Mapping[str, tuple[int, int]]
"""By signal: right verdicts, and all verdicts whose strongest evidence it was."""

_SHRUNK: Final = 10
"""Number of verdicts as the overall share that are added to each signal's own: few verdicts prove little."""

MEASURED: Final[Counts] = {
    "loop": (29, 65),
    "unsupported_figure": (16, 40),
    "made_up_data": (18, 37),
    "answer_origin": (4, 14),
    "deed": (1, 10),
    "hedging": (2, 7),
    "gave_up": (1, 3),
    "unhandled_error": (1, 3),
    "unrepaired_error": (1, 3),
    "ignored_error": (0, 2),
    "empty_result": (0, 1),
    "wrong_computation": (0, 1),
}


def highest_confidence(signal: str, counts: Counts = MEASURED) -> float:
    """Return the highest confidence that a verdict led by a signal deserves.

    ``counts`` of labels and proofs of the user's own runs may be added to the measured ones.
    """
    right, verdicts = counts.get(signal, (0, 0))
    overall = sum(one for one, _ in counts.values()) / max(1, sum(each for _, each in counts.values()))
    return (right + _SHRUNK * overall) / (verdicts + _SHRUNK)
