"""Totals that the lines above them do not add up to: 6,750.50 below four amounts of 6,850.50. Pure.

The parts may also stand on the total's own line, a clause each: "Two tickets: 236. Hotel: 164. Total: 450".
Such a line may also hold a mean, or leave out what is included; so only a total counts that looks like a slip
of the sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.derivation import BY_CHANCE, alike_by_chance
from analyzer.lineage.figures import Figure, figures
from analyzer.lineage.known import Known
from analyzer.lineage.vocabulary import phrases
from analyzer.signals.run_view import HEAD
from analyzer.signals.wordings import languages_in
from semconv.model import StepKind
from semconv.record import record

_MARKS: Final = " |*_-•>#\t"
_RULE: Final = re.compile(r"[\s|:+=—–-]*")  # noqa: RUF001 - as written
_CLAUSE_END: Final = re.compile(r"[.;,](?=\s|$)|[。；、]")  # noqa: RUF001 - other scripts
_NAMED: Final = re.compile(r"[^\W\d].{0,60}?(?::\s|=\s|：)\D{0,6}\d[^:]{0,80}$")  # noqa: RUF001 - as above
"""A clause that names one figure: ``Hotel: 164``."""
_LEAST: Final = 2
_MOST: Final = 60
_REACH: Final = 24
"""Characters of a line in which it may say that it is the total."""


@record
class _Block:
    """A total, and the figures of the lines above it."""

    total: Figure
    parts: tuple[Figure, ...]

    @property
    def sum(self) -> float:
        """What the parts add up to."""
        return float(f"{sum(one.value for one in self.parts):.12g}")

    def is_wrong(self) -> bool:
        """Tell whether the total is a slip of the sum, and not a rounded one."""
        within = 0.51 * max(one.step for one in self.parts) * len(self.parts)
        off = self.sum - self.total.value
        if abs(off) <= within or self.total.is_about(self.sum / len(self.parts)):
            return False
        if any(abs(off - 2 * one.value) <= within for one in self.parts):
            return False  # a discount is a part to subtract
        return alike_by_chance(self.total, self.sum) <= BY_CHANCE


def wrong_totals(known: Known) -> Iterator[Clue]:
    """Yield the totals that are a slip of what the lines above them add up to, and that the answer gives."""
    answered = {one.value for one in figures(known.answer)}
    said = (text for text in _said(known) if answered and any(one.value in answered for one in figures(text)))
    for text in dict.fromkeys([known.answer, *said]) if answered else ():
        for block in (*_blocks(text, text.splitlines()), *_clauses(text)):
            total = block.total
            difference = abs(total.value - block.sum)
            is_told = total.value in answered and not any(one.is_about(difference) for one in figures(text))
            if is_told and block.is_wrong() and not _is_returned(known, total):
                yield _clue(known, block)


def _is_returned(known: Known, total: Figure) -> bool:
    """Tell whether a text from outside has a total, which may hold more than the lines above it."""
    return any(known.is_number_read(value, len(known.reading.steps)) for value in total.readings)


def _said(known: Known) -> Iterator[str]:
    steps = enumerate(known.reading.steps)
    return (known.reading.outputs[place][:HEAD] for place, step in steps if step.kind is not StepKind.TOOL)


def _clauses(text: str) -> Iterator[_Block]:
    """Yield the total at the end of a line whose clauses before it have a figure each, all after a colon."""
    for line in text.splitlines()[:_MOST] if text.count(":") > _LEAST or "：" in text else ():  # noqa: RUF001 - as above
        clauses = [one for one in _CLAUSE_END.split(line) if one.strip()]
        if len(clauses) > _LEAST and all(_NAMED.search(one) for one in clauses):
            yield from _blocks(text, clauses)


def _clue(known: Known, block: _Block) -> Clue:
    total = block.total
    position = known.first_with(total.literal)
    return Clue(
        step=known.reading.steps[position].index,
        kind=ClueKind.WRONG_SUM,
        reason=f"gave {total.shown} as the total of {len(block.parts)} lines, which add up to"
        f" {block.sum:,.10g}",
        evidence=(known.quote(position, total.literal),),
        value=total.value,
        is_miscalculated=True,
        signs={"in_answer": 1.0},
    )


def _blocks(text: str, parts: Sequence[str]) -> Iterator[_Block]:
    """Yield the totals below neighbouring parts of a text that have one figure of their unit in one place."""
    if len(parts) <= _LEAST:
        return
    is_total = phrases("total", languages_in(text))
    if not is_total.search(text):
        return
    lines = [line for line in parts[:_MOST] if not _RULE.fullmatch(line)]
    rows = [(line, _amounts(line)) for line in lines]
    for has_figures, group in groupby(rows, key=lambda row: bool(row[1])):
        above: list[Sequence[Figure]] = []
        for line, amounts in group if has_figures else ():
            if is_total.match(line.lstrip(_MARKS)[:_REACH]) is None:
                above.append(amounts)
                continue
            yield from _block(amounts, above)
            above = []


def _block(own: Sequence[Figure], above: Sequence[Sequence[Figure]]) -> Iterator[_Block]:
    parts = tuple(row[-1] for row in above)
    if len(own) == 1 and len(parts) >= _LEAST and {one.unit for one in parts} <= {own[0].unit, ""}:
        yield _Block(total=own[0], parts=parts)


def _amounts(line: str) -> Sequence[Figure]:
    return [one for one in figures(line) if not one.is_label and one.unit != "%"]
