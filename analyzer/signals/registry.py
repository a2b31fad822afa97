"""Evidence per step without a model: rules that mark suspicious steps.

Each signal is a function from a ``Reading`` to findings; a finding names the
step, the reason and a weight. Weights are log-odds, chosen by reasoning about
how often such a finding means the decisive error, not fitted to labels: 4 and
more for indisputable errors (a wrong calculation, the crash that ended the run),
1 to 2 for findings that usually matter, below 1 for those that often do not.
Negative weights are reasons not to blame.

Cost: no calls; linear in the text, microseconds to a few milliseconds a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from analyzer.lineage.findings import wrong_values
from analyzer.signals.answer_origin import answer_origin, right_answer_seen
from analyzer.signals.deeds import deeds_in_dialogue, preparation
from analyzer.signals.faults import (
    crash,
    failed_evaluation,
    heard_fault,
    ignored_fault,
    root_error,
    turn_limit,
    unrepaired_fault,
)
from analyzer.signals.loops import repetition
from analyzer.texts.run_view import Finding, Reading, Signal
from analyzer.texts.wording import gave_up, hedging, made_up, unverified_claim
from analyzer.texts.wrong_numbers import unsupported_figure, wrong_sum

__all__ = ["SIGNALS", "findings"]

SIGNALS: Final[tuple[Signal, ...]] = (
    crash,
    root_error,
    unrepaired_fault,
    ignored_fault,
    heard_fault,
    failed_evaluation,
    wrong_sum,
    unsupported_figure,
    wrong_values,
    answer_origin,
    right_answer_seen,
    made_up,
    hedging,
    gave_up,
    repetition,
    turn_limit,
    unverified_claim,
    preparation,
    deeds_in_dialogue,
)


def findings(reading: Reading, signals: Sequence[Signal] = SIGNALS) -> tuple[Finding, ...]:
    """Collect every signal's findings, in the order of the signals."""
    return tuple(finding for signal in signals for finding in signal(reading))
