"""First pages given for the whole list: the result says that there is more, and no call reads on. Pure.

Whoever asks for all of it wants the whole list, and whoever is told the length of the page as the number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from analyzer.inquiry.present import beginning
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.known import Known, counts_in
from analyzer.lineage.vocabulary import phrases
from analyzer.signals.run_view import HEAD, QUOTE, final_answer
from analyzer.signals.wordings import languages_in
from semconv.dialects.reading.values import mapping
from semconv.model import Evidence, StepKind
from semconv.record import record

_MOST_PAGES: Final = 200
_FOOTER: Final = 400
_MOST_TIMES: Final = 5
_COUNT: Final = re.compile(
    r"(?:total|num|number)_?(?:of_?)?(?:count|items|results|hits|found|rows|entries)$", re.IGNORECASE
)
"""Keys that can only count the entries of the list."""
_TOTAL: Final = re.compile(
    r"(?:total|count|size|hits|matches|found|gesamt(?:zahl|anzahl)?|insgesamt|anzahl|totale|totaal|aantal|nombre"
    r"|łącznie|razem|celkem|počet|antal|totalt|toplam|всего|количество|итого|总数|總數|总计|合計|件数|総数|전체|총)$",
    re.IGNORECASE,
)
"""Keys that count the entries of the list, or sum something up."""
_MORE: Final = re.compile(
    r"(?:has_?(?:more|next)(?:_?page)?|more|(?:is_?)?truncated|limit_?reached)$", re.IGNORECASE
)
_NEXT: Final = re.compile(r"(?:next(?:_?(?:page|cursor|token|link|url))?|continuation)$", re.IGNORECASE)
_LIMIT: Final = re.compile(r"(?:limit|per_?page|page_?size|size|top|first)$", re.IGNORECASE)
_PAGES: Final = re.compile(r"(?:total_?pages|pages|page_?count|last_?page)$", re.IGNORECASE)
_ROWS: Final = re.compile(
    r"(?<!\d)(\d{1,4})\s?(?:-|–|to|bis|à|a|do|до)\s?(\d{1,4})\s(?:of|von|van|sur|de|di|z|из|/)\s?(\d{1,6})(?!\d)"  # noqa: RUF001 - as written
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
        if self.total and sum(one.shown for one in read) >= self.total:
            return False
        if self.pages and not self.is_more:
            return len(read) < self.pages
        return self.is_more or self.total > self.shown


def unread_pages(known: Known) -> Iterator[Clue]:
    """Yield the results that say that there is more, which no later call reads nor the answer mentions."""
    answer = final_answer(known.reading.trajectory)[:HEAD]
    steps = known.reading.steps
    wants_all, counted = _wants_all(known), counts_in(answer)
    read: dict[str, dict[str, _Page]] = {}
    for position, text in islice(known.results(), _MOST_PAGES) if answer else ():
        page = _page(text)
        if page is None or not (wants_all or (page.is_most and page.shown in counted)):
            continue
        is_call = steps[position].kind is StepKind.TOOL
        target = (steps[position].target or "") if is_call else ""
        read.setdefault(target, {})[text] = page
        is_last = not is_call or known.last_calls[steps[position].target] == position
        if is_last and page.is_part_of([*read[target].values()]) and not _is_told(known, page, answer):
            yield _clue(known, position, page)


def _is_told(known: Known, page: _Page, answer: str) -> bool:
    """Tell whether the answer says how many there are, so many were asked for, or it does not claim all."""
    is_counted = page.total in counts_in(answer) or page.shown in counts_in(known.asked)
    return is_counted or not (page.total or _claims_all(answer))


def _clue(known: Known, position: int, page: _Page) -> Clue:
    step = known.reading.steps[known.first_said(lambda _text: True, after=position)]
    part = f"{page.shown} of the {page.total}" if page.total else f"the first {page.shown}"
    return Clue(
        step=step.index,
        kind=ClueKind.CUT_SHORT,
        reason=f"read {part} entries of {known.giver(position)}, and no further page",
        evidence=(Evidence(step=step.index, quote=beginning(step.output, QUOTE)),),
    )


def _page(text: str) -> _Page | None:
    """Return a result as a page, if it has one list and says how it goes on."""
    row = _flat(mapping(text))
    lists = [value for value in row.values() if isinstance(value, list)]
    if len(lists) != 1 or not lists[0]:
        return _printed_page(text) if not row else None
    shown = len(lists[0])
    wholes = {str(key): value for key, value in row.items() if type(value) is int}
    is_more = any(_says_more(str(key), value) for key, value in row.items())
    pages = next((value for key, value in wholes.items() if _PAGES.match(key)), 0)
    is_limited = any(_LIMIT.match(key) and value == shown for key, value in wholes.items())
    counted = _COUNT if not (is_more or pages or is_limited) else _TOTAL
    totals = [value for key, value in wholes.items() if counted.match(key) or _COUNT.match(key)]
    total = max(totals, default=0)
    if total == shown or total in _sums(lists[0]):
        return None
    return _Page(shown=shown, total=total if total > shown else 0, pages=pages, is_more=is_more)


def _sums(entries: Sequence[Any]) -> set[float]:
    """Return what the numbers of the entries add up to, by field: a total may be one of these."""
    found: defaultdict[str, float] = defaultdict(float)
    for entry in entries:
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[key] += value
    return set(found.values())


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of an object together with those of the objects in it: ``{"paging": {…}}``."""
    inner = [value for value in row.values() if isinstance(value, dict)]
    return {key: value for one in (*inner, row) for key, value in one.items() if not isinstance(value, dict)}


def _says_more(key: str, value: Any) -> bool:
    if _MORE.match(key):
        return value is True or (type(value) is int and value > 0)
    return bool(_NEXT.match(key) and value)


def _printed_page(text: str) -> _Page | None:
    """Return the same for lines that end with such words as ``rows 1-8 of 13``."""
    found = _ROWS.search(text[-_FOOTER:])
    first, last, total = map(int, found.groups()) if found else (0, 0, 0)
    is_page = first == 1 < last < total and text.count("\n") >= last
    return _Page(shown=last, total=total) if is_page else None


def _wants_all(known: Known) -> bool:
    return phrases("every", known.languages).search(known.asked) is not None


def _claims_all(answer: str) -> bool:
    return phrases("every", languages_in(answer)).search(answer) is not None
