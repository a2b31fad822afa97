"""What the readers of a run's lineage find, as findings on a run that failed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from analyzer.lineage.known import Known
from analyzer.lineage.readers import MOST_CLUES, READERS
from analyzer.signals.run_view import Finding, Reading

_WEIGHT: Final = 3.0
"""Log-odds of a value that went wrong: above wording, below an error that a step itself states."""


def wrong_values(reading: Reading) -> Iterator[Finding]:
    """Find the steps that wrote a value which something in the run contradicts."""
    known = Known(reading)
    places = {step.index: place for place, step in enumerate(reading.steps)}
    for reader in READERS:
        for clue in islice(reader(known), MOST_CLUES):
            own = next((one for one in clue.evidence if one.step == clue.step), None)
            quoted = own or next(iter(clue.evidence), None)
            yield Finding(
                step=reading.responsible_steps[places[clue.step]],
                signal=clue.kind.value,
                weight=_WEIGHT,
                reason=clue.reason,
                quote=quoted.quote if quoted else "",
                quoted_step=places[quoted.step] if quoted else None,
            )
