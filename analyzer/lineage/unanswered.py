"""Figures for the very thing whose look-up failed: 460 cartons at D-07, whose scanner never answered. Pure.

Other look-ups of the run may have succeeded, so that an answer with figures is to be expected. A figure that
nothing gives is invented if its sentence names what only the failed look-ups asked for.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Final

from analyzer.lineage.after_nothing import ending_of, invented, is_empty
from analyzer.lineage.claims import judged
from analyzer.lineage.clue import Clue
from analyzer.lineage.figures import Figure, prose_of
from analyzer.lineage.known import Known
from analyzer.signals.commands import call_name
from analyzer.signals.run_view import HEAD
from analyzer.signals.tool_names import deed_of
from analyzer.signals.tool_results import Fault
from semconv.model import StepKind

_MOST_TERMS: Final = 400
_MOST_FIGURES: Final = 8
"""Figures for each of which the calls before it are read."""
_LEAST_COUNT: Final = 100
"""A smaller count may have been read as a word, or added up."""
_LEAST_PARTS: Final = 2
"""Parts beside a total from which what is left of it is a figure that nothing else gives."""
_TERM: Final = re.compile(r"[^\W_]+(?:[-.][^\W_]+)*")
"""A word, an id or a host."""
_LEAST: Final = 4
"""Letters of a term without a digit; shorter words stand in any text."""
_ENDS: Final = re.compile(r"[!?\n。]|\.(?=\s)")


def figures_for_failed(known: Known) -> Iterator[Clue]:
    """Yield the first figure of the answer that nothing gives, for what only failed look-ups asked for."""
    answer = prose_of(known.answer)
    is_blind = known.is_blind or not any(_has_nothing(known, place) for place in _calls(known))
    lone = judged(known.reading, answer).lone if answer and not is_blind else ()
    for figure in lone[:_MOST_FIGURES] if lone and not known.admits_fault else ():
        position = known.first_with(figure.literal)
        asked = _asked_in_vain(known, position)
        place = next((asked[term] for term in _terms(_sentence(answer, figure)) if term in asked), None)
        is_count = figure.value.is_integer() and figure.value < _LEAST_COUNT
        if place is not None and not figure.is_label and not is_count and not _is_rest(known, figure):
            reason = f"gave {figure.shown}, although {ending_of(known, place)} for it"
            yield invented(known, position, figure.literal, reason)
            return


def _is_rest(known: Known, figure: Figure) -> bool:
    """Tell whether a figure is what the parts in a result leave of its total, the greatest figure."""
    values = ([one.value for one in found] for _, found in known.figures())
    return any(figure.is_about(2 * max(one) - math.fsum(one)) for one in values if len(one) > _LEAST_PARTS)


def _calls(known: Known) -> Iterator[int]:
    return (place for place, step in enumerate(known.reading.steps) if step.kind is StepKind.TOOL)


def _has_nothing(known: Known, place: int) -> bool:
    step = known.reading.steps[place]
    return known.reading.faults[place] is Fault.FAILED or is_empty(step.output[:HEAD], step.input)


def _asked_in_vain(known: Known, before: int) -> Mapping[str, int]:
    """Return the terms of earlier look-ups that came to nothing, by the position of the last.

    A term counts if no call of this tool that gave something has it.
    """
    vain: dict[str, int] = {}
    answered: defaultdict[str | None, set[str]] = defaultdict(set)
    for place in takewhile(lambda place: place < before, _calls(known)):
        step = known.reading.steps[place]
        if not _has_nothing(known, place):
            answered[step.target] |= _terms(f"{step.target} {step.input[:HEAD]} {step.output[:HEAD]}")
        elif not deed_of(call_name(step)) and len(vain) < _MOST_TERMS:
            vain |= dict.fromkeys(_terms(f"{step.target} {step.input[:HEAD]}"), place)
    tools = {place: known.reading.steps[place].target for place in vain.values()}
    return {term: place for term, place in vain.items() if term not in answered[tools[place]]}


def _terms(text: str) -> frozenset[str]:
    found = (one.casefold() for one in _TERM.findall(text))
    return frozenset([one for one in found if len(one) >= _LEAST or _is_code(one)])


def _is_code(term: str) -> bool:
    has_digits = any(map(str.isdigit, term))
    return len(term) > 1 and has_digits and (any(map(str.isalpha, term)) or term[0] == "0")


def _sentence(text: str, figure: Figure) -> str:
    start = max((one.end() for one in _ENDS.finditer(text, 0, figure.start)), default=0)
    end = _ENDS.search(text, figure.end)
    return text[start : end.start() if end else len(text)]
