"""Totals that the lines above them do not add up to: 6,750.50 below four amounts of 6,850.50. Pure.

The parts may also stand on the total's own line, a clause each: "Two tickets: 236. Hotel: 164. Total: 450".
Such a line may also hold a mean, or leave out what is included; so only a total counts that looks like a slip
of the sum.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Final

from analyzer.lineage.claims import judged
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.derivation import BY_CHANCE, alike_by_chance
from analyzer.lineage.entries import Scalar, tables_in
from analyzer.lineage.figures import CURRENCY_CODES, Figure, figures, prose_of, unit_of, words_of
from analyzer.lineage.known import Known, counts_in
from analyzer.texts.run_view import HEAD, own_words
from analyzer.texts.vocabulary import phrases
from analyzer.texts.wordings import languages_in
from semconv.model import StepKind
from semconv.record import record

_MARKS: Final = " |*_-•>#\t"
_RULE: Final = re.compile(r"[\s|:+=—–-]*")  # noqa: RUF001 - as written
_CLAUSE_END: Final = re.compile(r"[.;,](?=\s|$)|[。；、]")  # noqa: RUF001 - other scripts
_STOP: Final = re.compile(r"(?<!\d)[.!?](?=\s)|\n|。")
"""The end of a sentence; a number with a point is a day."""
_NAMED: Final = re.compile(r"[^\W\d].{0,60}?(?::\s|=\s|：)\D{0,6}\d[^:]{0,80}$")  # noqa: RUF001 - as above
"""A clause that names one figure: ``Hotel: 164``."""
_LEAST: Final = 2
_MOST_GROUPS: Final = 100
"""Parts of a list with a value in common of which means are compared."""
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
        return float(f"{sum(part.value for part in self.parts):.12g}")

    def is_wrong(self) -> bool:
        """Tell whether the total is a slip of the sum, and not a rounded one."""
        within = 0.51 * max(part.step for part in self.parts) * len(self.parts)
        off = self.sum - self.total.value
        if abs(off) <= within or self.total.is_about(self.sum / len(self.parts)):
            return False
        if any(abs(off - 2 * part.value) <= within for part in self.parts):
            return False  # a discount is a part to subtract
        return alike_by_chance(self.total, self.sum) <= BY_CHANCE


def wrong_totals(known: Known) -> Iterator[Clue]:
    """Yield the totals that are a slip of what the lines above them add up to, and that the answer gives."""
    answered = {figure.value for figure in figures(known.answer)}
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
        if len(clauses) > _LEAST and all(_NAMED.search(clause) for clause in clauses):
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


@record
class _Numbers:
    """A column of numbers of a list."""

    source: int
    key: str
    values: tuple[float, ...]
    currencies: frozenset[str]
    """Those that its rows name."""
    rows: Sequence[Mapping[str, Scalar]]

    @property
    def sum(self) -> float:
        """What the numbers add up to."""
        return float(f"{math.fsum(self.values):.12g}")

    @property
    def mean(self) -> float:
        """Their mean."""
        return self.sum / len(self.values)

    def other_means(self, counts: Sequence[int]) -> Iterator[float]:
        """Yield medians and means of parts of the numbers, and means that another column weights.

        Args:
            counts: how many of the greatest, least, first or last numbers may be meant.
        """
        ordered = sorted(self.values)
        yield statistics.median(ordered)
        parts: list[Sequence[float]] = [ordered[1:-1], [one for one in ordered if one]]
        for count in counts:
            parts += [
                each[part] for each in (ordered, self.values) for part in (slice(count), slice(-count, None))
            ]
        yield from (statistics.fmean(part) for part in parts if part)
        yield from self._means_by_rows()

    def _means_by_rows(self) -> Iterator[float]:
        """Yield the means of the rows with the same value in a column, plain and weighted by a column."""
        groups: defaultdict[tuple[str, Scalar], list[int]] = defaultdict(list)
        for place, row in enumerate(self.rows):
            groups["", ""].append(place)
            for key, value in row.items():
                groups[key, value].append(place)
        for places in islice(groups.values(), _MOST_GROUPS):
            values = [self.values[place] for place in places]
            yield statistics.fmean(values)
            for key in self.rows[0].keys() - {self.key}:
                weights = [_number(self.rows[place].get(key)) or 0.0 for place in places]
                if min(weights) >= 0 < sum(weights):
                    yield statistics.fmean(values, weights)

    def may_give(self, figure: Figure) -> bool:
        """Tell whether a figure has the size and the unit of a total or a mean of the numbers."""
        is_unit = not figure.unit or figure.unit in {*self.currencies, *words_of(self.key), unit_of(self.key)}
        return is_unit and min(self.values) < figure.value < 2 * self.sum


def wrong_aggregates(known: Known) -> Iterator[Clue]:
    """Yield a total or mean of all entries of a list that is another one, or adds up several currencies."""
    columns = list(_numbers(known)) if not known.is_blind else []
    for position, step in enumerate(known.reading.steps if columns else ()):
        words = prose_of(own_words(step)[:HEAD]) if step.kind is not StepKind.TOOL else ""
        for figure in figures(words):
            known_columns = [column for column in columns if column.source < position]
            found = _aggregate(known, position, words, figure, known_columns) if known_columns else ""
            if found:
                reason, quote = f"gave {figure.shown}, where {found}", known.quote(position, figure.literal)
                yield Clue(
                    step=step.index,
                    kind=ClueKind.WRONG_SUM,
                    reason=reason,
                    evidence=(quote,) if quote.quote else (),
                    value=figure.value,
                    is_miscalculated=True,
                    signs={"in_answer": 1.0},
                )
                return


def _aggregate(known: Known, position: int, words: str, figure: Figure, columns: Sequence[_Numbers]) -> str:
    """Return what the column has in place of a figure; empty if the figure is right, or something else."""
    if figure.is_small or figure.is_label or known.is_number_read(figure.value, position):
        return ""
    for column in columns:
        if len(column.currencies) > 1 and figure.unit in CURRENCY_CODES and figure.is_about(column.sum):
            return f"the amounts are in {' and '.join(sorted(map(str.upper, column.currencies)))}"
    found = (_counted(known, words, each, columns) for each in figure.as_read())
    return next(filter(None, found), "")


def _counted(known: Known, words: str, figure: Figure, columns: Sequence[_Numbers]) -> str:
    """Return what the only column has that has as many rows as the figure's sentence counts."""
    near = [one for one in columns if one.may_give(figure)]
    sentence = _sentence(words, figure) if near else ""
    counted = counts_in(sentence) if near else ()
    near = [one for one in near if len(one.values) in counted]
    stated = figures(sentence) if len(near) == 1 else ()
    read = [each for one in stated for each in one.as_read()]
    if not read:
        return ""
    (column,) = near
    is_meant, is_added_up = (any(one.is_about(right) for one in read) for right in (column.mean, column.sum))
    before, _, after = sentence.partition(figure.literal)
    is_mean = _ends_with(before, "mean") or phrases("mean", languages_in(sentence)).search(after[:_REACH])
    is_other = is_mean and any(map(figure.is_about, column.other_means(counted)))
    if is_mean and not is_meant and not is_other and figure.value < max(column.values):
        return f"the {len(column.values)} values of {column.key} have the mean {column.mean:,.6g}"
    is_total = not is_added_up and _ends_with(before, "total") and column.sum < 2 * figure.value
    lone = judged(known.reading, words).lone if is_total else ()
    if not any(one.literal == figure.literal for one in lone):
        return ""
    return f"the {len(column.values)} values of {column.key} add up to {column.sum:,.10g}"


def _ends_with(before: str, kind: str) -> bool:
    """Tell whether the words before a figure, after the one before it, say that it is a total or a mean."""
    words = before[max((figure.end for figure in figures(before)), default=0) :]
    return phrases(kind, languages_in(before)).search(words) is not None


def _sentence(text: str, figure: Figure) -> str:
    start = max((one.end() for one in _STOP.finditer(text, 0, figure.start)), default=0)
    end = _STOP.search(text, figure.end)
    return text[start : end.start() if end else len(text)]


def _numbers(known: Known) -> Iterator[_Numbers]:
    """Yield the columns of results that hold a number in each of three rows and more."""
    for source, text in known.results():
        for rows in tables_in(text):
            texts = [value.casefold() for row in rows for value in row.values() if isinstance(value, str)]
            for key in rows[0] if len(rows) > _LEAST else ():
                values = [_number(row.get(key)) for row in rows]
                if None not in values and len({*values}) > 1:
                    yield _Numbers(
                        source=source,
                        key=key,
                        values=tuple(value for value in values if value is not None),
                        currencies=CURRENCY_CODES & {*texts},
                        rows=rows,
                    )


def _number(value: Scalar | None) -> float | None:
    if isinstance(value, str):
        found = figures(value) if value[:1].isdigit() else ()
        return found[0].value if len(found) == 1 and not found[0].is_label else None
    return None if value is None or isinstance(value, bool) else float(value)


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
    if len(own) == 1 and len(parts) >= _LEAST and {part.unit for part in parts} <= {own[0].unit, ""}:
        yield _Block(total=own[0], parts=parts)


def _amounts(line: str) -> Sequence[Figure]:
    return [figure for figure in figures(line) if not figure.is_label and figure.unit != "%"]
