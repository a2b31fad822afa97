"""Wrong calculations as clues, and the product that an answer should have stated. Pure.

A rate (``$3 per GPU-hour``) is multiplied by the counts that the task and the tools give. That is certain
only if nothing else was given: one rate, at most three counts, each in the answer or in the task. If the rate
names the unit of every count, the units prove the product; if not, the stated figure must be a slip of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.derivation import near_miss
from analyzer.lineage.figures import Figure, figures, unit_of
from analyzer.lineage.known import known_of
from analyzer.lineage.sources import sources
from analyzer.texts.arithmetic import wrong_calculations
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD, Reading, final_answer
from analyzer.texts.vocabulary import denies
from analyzer.texts.wrong_numbers import wrong_results
from semconv.model import Evidence

_PER: Final = re.compile(
    r"\s?(?:[A-Za-z€$£]{1,12}\s)?(?:(?:per|an?|for each|for every)\s([A-Za-z-]{1,30})|(?:each|apiece)\b)"
    r"|\s?[A-Za-z€$£]{0,8}/([A-Za-z-]{1,30})"
)
_MOST: Final = 4
_SUM: Final = re.compile(
    r"(?:[^\W\d_]+[:,]?\s){0,4}"
    r"(\d[\d.,]{0,12}(?:\s?[*×·÷+]\s?\d[\d.,]{0,12}|\s[-−/x]\s\d[\d.,]{0,12}){1,6}?)[\s=?.。？]{0,4}"  # noqa: RUF001 - signs
)
"""At most four words, and then a sum. A bare ``-``, ``/`` or ``x`` may stand in a date or a size."""
_FRACTION: Final = ("/", "⁄", "∕")  # noqa: RUF001 - signs
_LONGEST_SUM: Final = 200
_MOST_WORDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A figure given in the run."""

    figure: Figure
    per: tuple[str, ...] | None
    """Units of the rate's denominator; empty for ``each``; ``None`` if it is a count."""


def given_in(text: str) -> list[Given]:
    """Return the quantities in a text, with the denominators of rates."""
    return [
        Given(figure=one, per=_per(text, one)) for one in figures(text) if not one.is_label and one.value > 0
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """One rate and the counts to multiply it by: all that the run gave."""

    rate: Given
    counts: tuple[Given, ...]
    """In the order of the units that the rate names."""

    @property
    def product(self) -> float:
        """The rate times all counts."""
        return math.prod(one.figure.value for one in (*self.counts, self.rate))

    def corrects(self, claim: Figure) -> bool:
        """Tell whether a figure of the answer should have been the product, and is not."""
        if claim.unit and claim.unit != self.rate.figure.unit:
            return False
        is_right = claim.is_about(self.product)
        return not is_right and (_units_prove(self.rate, self.counts) or near_miss(claim, self.product))

    def as_text(self, claim: Figure) -> str:
        """Return the product as text in place of a claim: ``16 GPUs x 10 hours x $3 is $480``."""
        shown = " x ".join([*(_shown(one, self.rate) for one in self.counts), self.rate.figure.shown])
        return f"{shown} is {claim.shown.replace(claim.literal, f'{self.product:,.10g}')}"


def factors(task: str, results: Iterable[str], claims: Sequence[Figure]) -> Factors | None:
    """Return the factors of the only product that a run can mean; ``None`` if it is not certain."""
    asked = given_in(task)
    said = {one.figure.value for one in asked} | {figure.value for figure in claims}
    given: dict[tuple[float, str], Given] = {}
    for found in chain([asked], map(given_in, results)):
        given |= {(one.figure.value, one.figure.unit): one for one in found}
        if len(given) > _MOST:
            return None
    rates = [one for one in given.values() if one.per is not None]
    counts = [one for one in given.values() if one.per is None]
    if any(one.figure.unit == "%" for one in given.values()):
        return None
    if len(rates) != 1 or not counts or any(count.figure.value not in said for count in counts):
        return None
    named = rates[0].per or ()
    counts.sort(key=lambda one: named.index(one.figure.unit) if one.figure.unit in named else len(named))
    return Factors(rate=rates[0], counts=tuple(counts))


def _units_prove(rate: Given, counts: Sequence[Given]) -> bool:
    return bool(counts) and sorted(one.figure.unit for one in counts) == sorted(rate.per or ())


def _shown(count: Given, rate: Given) -> str:
    return count.figure.shown if count.figure.unit in (rate.per or ()) else count.figure.literal


def _per(text: str, figure: Figure) -> tuple[str, ...] | None:
    found = _PER.match(text, figure.end)
    if found is None:
        return None
    return tuple(unit_of(word) for word in (found[1] or found[2] or "").split("-") if word)


def wrong_sums(reading: Reading) -> Iterator[Clue]:
    """Yield the agents' wrong calculations; one that is not in the answer may have been corrected."""
    yield from _wrong_answer_to_sum(reading)
    wrong = list(wrong_results(reading))
    texts = [source.text for source in sources(reading)] if wrong else []
    answer = numbers(final_answer(reading.trajectory)[:HEAD]) if wrong else frozenset()
    quoted = {error.stated for text in texts for error in wrong_calculations(text)}
    for found in wrong:
        if found.error.stated in quoted:
            continue  # an agent that corrects a calculation must repeat it
        step = reading.steps[found.step].index
        yield Clue(
            step=step,
            kind=ClueKind.WRONG_SUM,
            reason=f"calculated “{found.error.quote}”; the right result is {found.error.right_shown}",
            evidence=(Evidence(step=step, quote=found.quote),),
            value=found.error.stated,
            is_miscalculated=True,
            signs={"in_answer": float(found.error.stated in answer)},
        )


def _wrong_answer_to_sum(reading: Reading) -> Iterator[Clue]:
    """Yield the wrong number that an answer of few words gives to a task that is a sum: ``Compute 13*20``.

    The number may be right in another base.
    """
    asked = _SUM.fullmatch(reading.trajectory.task[:_LONGEST_SUM].strip())
    answer = final_answer(reading.trajectory)
    if asked is None or not 0 < len(answer.split()) <= _MOST_WORDS:
        return
    given = numbers(asked[1])
    stated = [one for one in figures(answer) if one.value not in given]
    if len(stated) != 1 or denies(answer) or not numbers(answer) <= given | {stated[0].value}:
        return
    if stated[0].unit or stated[0].after[:1].isalnum():
        return  # so many of something, or a number in another base
    if stated[0].after.lstrip()[:1] in _FRACTION or stated[0].before.rstrip()[-1:] in _FRACTION:
        return  # part of a fraction
    wrong = next(wrong_calculations(f"{asked[1].strip()} = {stated[0].literal}"), None)
    if wrong is None or stated[0].literal in _in_other_bases(wrong.right):
        return
    position = known_of(reading).first_stating(stated[0].value)
    reason = f"answered {stated[0].literal} to “{asked[1].strip()}”; the right result is {wrong.right_shown}"
    quote = known_of(reading).quote(position, stated[0].literal)
    yield known_of(reading).clue(position, ClueKind.WRONG_SUM, reason, quote, value=stated[0].value)


def _in_other_bases(value: float) -> Iterator[str]:
    """Yield a whole number in the bases 2, 8 and 16."""
    if value.is_integer():
        yield from (format(int(value), base) for base in "box")
