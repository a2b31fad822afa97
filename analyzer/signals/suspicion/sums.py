"""Wrong calculations as clues."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.signals.arithmetic import wrong_calculations
from analyzer.signals.numbers import numbers
from analyzer.signals.run_view import HEAD, Reading, final_answer
from analyzer.signals.suspicion.clue import Clue, ClueKind
from analyzer.signals.suspicion.figure_sources import sources
from analyzer.signals.wrong_numbers import wrong_results
from semconv.model import Evidence


def wrong_sums(reading: Reading) -> Iterator[Clue]:
    """Yield the agents' wrong calculations; one that is not in the answer may have been corrected."""
    answer = numbers(final_answer(reading.trajectory)[:HEAD])
    quoted = {error.stated for source in sources(reading) for error in wrong_calculations(source.text)}
    for found in wrong_results(reading):
        if found.error.stated in quoted:
            continue  # an agent that corrects a calculation must repeat it
        step = reading.steps[found.step].index
        yield Clue(
            step=step,
            kind=ClueKind.WRONG_SUM,
            reason=f"calculated “{found.error.quote}”, which gives {found.error.right_shown}",
            evidence=(Evidence(step=step, quote=found.quote),),
            value=found.error.stated,
            is_miscalculated=True,
            signs={"in_answer": float(found.error.stated in answer)},
        )
