"""What the readers of a run's lineage find, as findings on a run that failed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.known import known_of
from analyzer.lineage.readers import MOST_CLUES, READERS
from analyzer.texts.run_view import Finding, Reading

_WRONG_CALL: Final = 4.5
"""Log-odds of a call that contradicts the task or a check: a fact, and what follows only reports it."""
_WRONG_VALUE: Final = 3.0
"""Log-odds of a value that went wrong: above wording, below an error that a step itself states."""
_MISREPORTED: Final = 2.0
"""Log-odds of a report that differs from its deed: either of the two may be the mistake."""


def wrong_values(reading: Reading) -> Iterator[Finding]:
    """Find the steps that wrote a value which something in the run contradicts."""
    known = known_of(reading)
    places = {step.index: place for place, step in enumerate(reading.steps)}
    for reader in READERS if places else ():
        for clue in islice(reader(known), MOST_CLUES):
            own = next((evidence for evidence in clue.evidence if evidence.step == clue.step), None)
            quoted = own or next(iter(clue.evidence), None)
            yield Finding(
                step=reading.responsible_steps[places[clue.step]],
                signal=clue.kind.value,
                weight=_weight(clue),
                reason=clue.reason,
                quote=quoted.quote if quoted else "",
                quoted_step=places[quoted.step] if quoted else None,
            )


def _weight(clue: Clue) -> float:
    if clue.kind is ClueKind.EXCEEDED or "argument" in clue.signs:
        return _WRONG_CALL
    return _MISREPORTED if clue.kind is ClueKind.MISREPORTED else _WRONG_VALUE
