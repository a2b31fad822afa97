"""Evidence per step with no model: what a careful reader would mark in the margin.

Each signal is a function from a ``Reading`` to findings; a finding says which
step, why, in words, and with what weight. Weights are log-odds chosen by
reasoning about how often such a mark means the decisive error, not fitted to
labels: 4 and more for what is wrong beyond dispute (a sum that does not add up,
the crash that ended the run), 1 to 2 for what usually matters, below 1 for what
often does not. Findings may be negative: reasons not to blame.

Cost: no calls; linear in the text, microseconds to a few milliseconds a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from analyzer.ending import root_error
from analyzer.finding import Finding, Signal
from analyzer.reading import Reading
from analyzer.signals.answers import answer_origin, right_answer_seen
from analyzer.signals.faults import crash, ignored_fault, unrepaired_fault
from analyzer.signals.figures import unsupported_figure, wrong_sum
from analyzer.signals.loops import repetition
from analyzer.wording import gave_up, hedging, made_up, unverified_claim

__all__ = ["SIGNALS", "findings"]

SIGNALS: Final[tuple[Signal, ...]] = (
    crash,
    root_error,
    unrepaired_fault,
    ignored_fault,
    wrong_sum,
    unsupported_figure,
    answer_origin,
    right_answer_seen,
    made_up,
    hedging,
    gave_up,
    repetition,
    unverified_claim,
)


def findings(reading: Reading, signals: Sequence[Signal] = SIGNALS) -> tuple[Finding, ...]:
    """Collect every signal's findings, in the order of the signals."""
    return tuple(finding for signal in signals for finding in signal(reading))
