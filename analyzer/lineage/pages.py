"""First pages given for the whole list: the result says that there is more, and no call reads on. Pure.

Whoever asks for all of it wants the whole list, and whoever is told the length of the page as the number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.cut_short import counts
from analyzer.lineage.entries import document_in
from analyzer.lineage.figures import CURRENCY_CODES, figures, words_of
from analyzer.lineage.known import Known, counts_in
from analyzer.texts.numbers import measure_of
from analyzer.texts.tool_names import deed_of
from analyzer.texts.vocabulary import phrases, worded
from analyzer.texts.wordings import languages_in
from semconv.dialects.reading.values import mapping
from semconv.model import StepKind
from semconv.record import record

_MOST_PAGES: Final = 200
_FOOTER: Final = 400
_MOST_TIMES: Final = 5
_LARGEST: Final = 2**63
"""Numbers that are added up are smaller: JSON's may be too large for a float."""
_LONGEST_NUMBER: Final = 9
_LEAST_COUNTED: Final = 5
"""Entries of a page whose number an answer has by no other way: three days, four people."""
_COUNT: Final = r"(?:total|num|number)_?(?:of_?)?(?:count|items|results|hits|found|rows|entries)$"
"""Keys that can only count the entries of the list."""
_TOTAL: Final = "{total_key}$"
"""Keys that count the entries of the list, or sum something up."""
_MORE: Final = re.compile(
    r"(?:has_?(?:more|next)(?:_?page)?|more|(?:is_?)?truncated|limit_?reached)$", re.IGNORECASE
)
_NEXT: Final = r"(?:@odata\.)?(?:next_?(?:page|cursor|token|link|url)|{next_key})$"
_LINK_TO_NEXT: Final = re.compile(r"""\brel="?next\b""")
"""In the ``Link`` header of a page (RFC 8288)."""
_RELATIONS: Final = ("rel", "relation")
_LIMIT: Final = re.compile(
    r"(?:limit|per_?page|page_?size|size|top|first|p(?:or|ar|ro|er)_?(?:page|pagina|página|seite|sida)|na_stronie|每页)$",
    re.IGNORECASE,
)
_PAGES: Final = re.compile(r"(?:total_?pages|pages|page_?count|last_?page)$", re.IGNORECASE)
_CUT: Final = re.compile(r"[(\[]?\s?(?:\.{3}|…|\+)[^\d\n]{0,30}(\d{1,6})(?!\d)[^\n]{0,60}")
"""A last line that stands for lines left out: ``... 15 more rows``, ``(+3 weitere)``."""
_ROWS: Final = re.compile(
    r"1(?<!\d1)\s?(?:-|–|to|bis|à|a|do|до)\s?(\d{1,4})\s(?:of|von|van|sur|de|di|z|из|/)\s?(\d{1,6})(?!\d)"  # noqa: RUF001 - as written
)


@record
class _Page:
    """A page of a list."""

    shown: int
    total: int = 0
    """How many entries there are; 0 if the page does not say so."""
    pages: int = 0
    """How many pages there are; 0 if the page does not say so."""
    is_more: bool = False
    """Whether it says that more follow."""

    @property
    def is_most(self) -> bool:
        """Tell whether it has a good part of the entries, and is no choice of the best of many."""
        return 0 < self.total <= _MOST_TIMES * self.shown

    def is_part_of(self, read: Sequence[_Page]) -> bool:
        """Tell whether there are more entries than all pages that were read have."""
        if self.total and sum(page.shown for page in read) >= self.total:
            return False
        if self.pages and not self.is_more:
            return len(read) < self.pages
        return self.is_more or self.total > self.shown


def unread_pages(known: Known) -> Iterator[Clue]:
    """Yield the results that say that there is more, which no later call reads nor the answer mentions."""
    answer = known.answer
    steps = known.reading.steps
    read: dict[str, dict[str, _Page]] = {}
    results = list(islice(known.results(), _MOST_PAGES)) if answer else []
    pages = [(position, text, page) for position, text in results if (page := _page(text)) is not None]
    if not pages:
        return
    wants_all, counted = known.asks_for("every", "total"), _counts(answer)
    lasts = {steps[position].target: position for position, text in results if _has_entries(text)}
    for position, text, page in pages:
        if not (wants_all or (page.is_most and _is_counted(known, page, answer, counted))):
            continue
        tool = steps[position].target or ""
        if tool.casefold().startswith(deed_of(tool) or " "):
            continue  # what is around the thing that was changed
        is_call = steps[position].kind is StepKind.TOOL
        target = (steps[position].target or "") if is_call else ""
        read.setdefault(target, {})[text] = page
        is_last = not is_call or lasts[steps[position].target] == position
        if is_last and page.is_part_of([*read[target].values()]) and not _is_told(known, page, answer):
            yield _clue(known, position, page)


def _is_counted(known: Known, page: _Page, answer: str, counted: frozenset[int]) -> bool:
    """Tell whether an answer gives the length of a page as a number; a small one of what is asked for."""
    is_many = page.shown >= _LEAST_COUNTED and page.shown in counted
    return is_many or counts(answer, page.shown, words_of(known.asked))


def _counts(answer: str) -> frozenset[int]:
    """Return the numbers of an answer that may count entries: those of no measure."""
    measured = {one.value for one in figures(answer) if measure_of(one.unit) or one.unit in CURRENCY_CODES}
    return frozenset(counts_in(answer)) - measured


def _is_told(known: Known, page: _Page, answer: str) -> bool:
    """Tell whether the answer says how many there are, so many were asked for, or it does not claim all."""
    is_counted = page.total in counts_in(answer) or page.shown in counts_in(known.asked)
    is_given = page.shown >= _LEAST_COUNTED and page.shown in _counts(answer)
    return is_counted or not (page.total or is_given or _claims_all(answer))


def _clue(known: Known, position: int, page: _Page) -> Clue:
    said = known.first_said(lambda _text: True, after=position)
    part = f"{page.shown} of the {page.total}" if page.total else f"the first {page.shown}"
    reason = f"read {part} entries of {known.giver(position)}, and no further page"
    quote = known.words(said, known.reading.steps[said].output)
    return known.clue(said, ClueKind.CUT_SHORT, reason, quote)


def _has_entries(text: str) -> bool:
    """Tell whether a result may be a page: another call of the tool that returns no list reads no further."""
    row = mapping(document_in(text))
    return not row or any(isinstance(value, list) for value in _flat(row).values())


def _page(text: str) -> _Page | None:
    """Return a result as a page, if it has one list and says how it goes on."""
    row = _flat(mapping(document_in(text)))
    entries = _entries(row)
    if not entries:
        return _printed_page(text) if not row else None
    shown = len(entries)
    wholes = {str(key): number for key, value in row.items() if (number := _whole(value)) is not None}
    is_more = any(_says_more(str(key), value) for key, value in row.items())
    pages = next((value for key, value in wholes.items() if _PAGES.match(key)), 0)
    is_limited = any(_LIMIT.match(key) and value == shown for key, value in wholes.items())
    counted = worded(_COUNT if not (is_more or pages or is_limited) else _TOTAL)
    totals = [value for key, value in wholes.items() if counted.search(key) or worded(_COUNT).match(key)]
    total = max(totals, default=0)
    if (total == shown and not is_more) or total in _sums(entries):
        return None
    return _Page(shown=shown, total=total if total > shown else 0, pages=pages, is_more=is_more)


def _entries(row: Mapping[str, Any]) -> Sequence[Any]:
    """Return the one list of a result, apart from links to pages and from the names of its columns."""
    lists = [value for value in row.values() if isinstance(value, list) and not any(map(_is_link, value))]
    rows = [one for one in lists if any(isinstance(each, dict | list) for each in one)] or lists
    return rows[0] if len(rows) == 1 else ()


def _is_link(entry: Any) -> bool:
    return isinstance(entry, dict) and any(isinstance(entry.get(name), str) for name in _RELATIONS)


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:_LONGEST_NUMBER])
    return value if type(value) is int else None


def _sums(entries: Sequence[Any]) -> set[float]:
    """Return what the numbers of the entries add up to, by field: a total may be one of these."""
    found: defaultdict[str, float] = defaultdict(float)
    for entry in entries:
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
                found[key] += value
    return set(found.values())


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of an object together with those of the objects in it: ``{"paging": {…}}``."""
    inner = [value for value in row.values() if isinstance(value, dict)]
    return {key: value for one in (*inner, row) for key, value in one.items() if not isinstance(value, dict)}


def _says_more(key: str, value: Any) -> bool:
    if _MORE.match(key):
        return value is True or (type(value) is int and value > 0)
    if isinstance(value, list):
        return any(_is_link(one) and "next" in (one.get(name) for name in _RELATIONS) for one in value)
    is_link = isinstance(value, str) and _LINK_TO_NEXT.search(value) is not None
    return is_link or bool(worded(_NEXT).match(key) and value)


def _printed_page(text: str) -> _Page | None:
    """Return the same for lines that end with such words as ``rows 1-8 of 13`` or ``... 5 more``."""
    found = _ROWS.search(text[-_FOOTER:])
    last, total = map(int, found.groups()) if found else (0, 0)
    if 1 < last < total and text.count("\n") >= last:
        return _Page(shown=last, total=total)
    *lines, end = text.strip().splitlines() or [""]
    cut = _CUT.fullmatch(end.strip())
    shown = len(lines) - (1 if lines and not any(map(str.isdigit, lines[0])) else 0)  # without a heading
    is_cut = cut is not None and int(cut[1]) not in {0, shown} and shown >= _LEAST_COUNTED
    return _Page(shown=shown, is_more=True) if is_cut else None


def _claims_all(answer: str) -> bool:
    return phrases("every", languages_in(answer)).search(answer) is not None
