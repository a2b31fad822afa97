# ruff: noqa: E501 - a pattern a line is a table
"""Secrets in a column of a table, and codes in a list: their name stands above them. Pure.

Each public function gets a text and the place of a pattern's match in it, and yields the secrets there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collector_processor.rebuild.named_secrets import LEAST, NAMED_PASSWORD, NO_VALUE, PASSWORD, QUOTES

_MOST_ROWS: Final = 500
_LONGEST_ROW: Final = 1_000
_RULE: Final = re.compile(r"[\s|:=+-]*")


def password_column(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the cells below a column's head in Markdown, CSV, or a table with tabs or blanks.

    Only the first line of a table is its head: a line like it would have all rows read once more.
    """
    line = text.rfind("\n", max(0, start - _LONGEST_ROW), start) + 1
    stop = text.find("\n", end - 1, end + _LONGEST_ROW)
    head = text[max(line, start - _LONGEST_ROW) : max(stop, end)]
    sign = next((sign for sign in "|\t;," if sign in head), "")
    if stop < 0 or _is_in_table(_line_before(text, line), sign) or (sign == "," and ", " in head):
        return
    if not sign:
        indent = len(text[start:end]) - len(text[start:end].lstrip())
        yield from _aligned(text, start + indent, stop) if "  " in head.strip() else ()
        return
    column = text[max(line, start - _LONGEST_ROW) : max(line, end - 1)].count(sign)
    for at, row in _rows(text, stop):
        if _RULE.fullmatch(row):
            continue
        if row.count(sign) < head.count(sign) or (sign == "," and _is_prose(row)):
            return
        yield from _cell(row, at, sign, column)


def _is_in_table(before: str, sign: str) -> bool:
    """Return whether the line before a head is a row itself: of a table, only the first line is its head."""
    if not sign:
        return "  " in before.strip()
    return sign in before and not (sign == "," and _is_prose(before))


def _is_prose(row: str) -> bool:
    return ", " in re.sub(r'"[^"]*"', "", row)


def _line_before(text: str, line: int) -> str:
    begin = text.rfind("\n", max(0, line - _LONGEST_ROW), max(0, line - 1)) + 1
    return text[max(begin, line - _LONGEST_ROW) : max(0, line - 1)]


def _rows(text: str, stop: int) -> Iterator[tuple[int, str]]:
    """Yield the lines behind ``stop``, each with its place; ends at one that is too long."""
    for _ in range(_MOST_ROWS):
        at = stop + 1
        stop = text.find("\n", at, at + _LONGEST_ROW)
        row = text[at : at + _LONGEST_ROW if stop < 0 else stop]
        if row:
            yield at, row
        if stop < 0 or not row:
            return


def _aligned(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the cells that begin below ``start``, in a table whose columns are at least two blanks apart."""
    offset = start - (text.rfind("\n", 0, start) + 1)
    for at, row in _rows(text, stop):
        if len(row) <= offset or row[max(0, offset - 2) : offset].strip():
            return
        value = re.split(r"\s{2}", row[offset:])[0].strip()
        if value and not _RULE.fullmatch(value) and not NO_VALUE.fullmatch(value):
            yield at + offset, at + offset + len(value)


def inserted(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the passwords among the values of an INSERT, whose list of columns the match holds."""
    columns = text[start:end].partition("(")[2].partition(")")[0].split(",")
    places = [place for place, one in enumerate(columns) if re.search(NAMED_PASSWORD, one)]
    for row in re.finditer(r"\(([^()\n]{0,2000})\)", text[end : end + 4_000]):
        cells = list(re.finditer(r"'((?:[^']|'')*)'|[^,'\s][^,]*", row[1]))
        for place in places:
            if place < len(cells) and cells[place][1]:
                at = end + row.start(1)
                yield at + cells[place].start(1), at + cells[place].end(1)


INSERT: Final = rf"(?i)insert\s+into\s+[\w.\"`\[\]]{{1,100}}\s{{0,9}}\([^()]{{0,400}}(?:{PASSWORD})[^()]{{0,400}}\)\s{{0,9}}values\s{{0,9}}"
_CSV: Final = re.compile(r'"(?:[^"]|"")*"|[^,;]*')


def _cell(row: str, at: int, sign: str, column: int) -> Iterator[tuple[int, int]]:
    parts, place = row.split(sign), 0
    if sign in ",;" and '"' in row:
        parts = []
        while place <= len(row):
            found = _CSV.match(row, place)
            parts.append("" if found is None else found.group())
            place += len(parts[-1]) + 1
    if column >= len(parts):
        return
    before = sum(len(part) + 1 for part in parts[:column])
    value = parts[column].strip().strip(QUOTES)
    if value and not NO_VALUE.fullmatch(value):
        begin = at + before + parts[column].index(value)
        yield begin, begin + len(value)


_MOST_OF_TABLE: Final = 20_000
_MOST_COLUMNS: Final = 40
_LONGEST_TAG: Final = 200


def html_column(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the cells below a column's head in HTML; the head's cell ends at ``end``."""
    row = text.rfind("<tr", max(0, start - 2_000), start)
    other = text.rfind("<th", max(0, start - 2_000), start)
    column = text.count("<th", row, end) - 1
    is_first = other < 0 or other > row or "</table" in text[other:start]
    if row < 0 or not is_first or not 0 <= column < _MOST_COLUMNS:
        return
    last = text.find("</table", end, end + _MOST_OF_TABLE)
    last = min(len(text), end + _MOST_OF_TABLE) if last < 0 else last
    at = end
    for _ in range(_MOST_ROWS):
        begin = text.find("<tr", at, last)
        stop = text.find("</tr", begin, last) if begin >= 0 else -1
        if stop < 0:
            return
        yield from _html_cell(text, begin, stop, column)
        at = stop + 1


def _html_cell(text: str, begin: int, stop: int, column: int) -> Iterator[tuple[int, int]]:
    at = begin
    for _ in range(column + 1):
        at = text.find("<td", at + 1, stop)
        if at < 0:
            return
    at = text.find(">", at, min(stop, at + _LONGEST_TAG)) + 1
    while at and text[at : at + 1] == "<" and text[at : at + 2] != "</":  # markup within the cell
        at = text.find(">", at, min(stop, at + _LONGEST_TAG)) + 1
    close = text.find("<", at, min(len(text), at + _LONGEST_TAG + 1)) if at else -1
    value = text[at:close].strip() if close >= 0 else ""
    if value and not NO_VALUE.fullmatch(value):
        place = text.index(value, at)
        yield place, place + len(value)


HTML_COLUMN: Final = rf"(?i)<th\b[^>]{{0,100}}>\s{{0,9}}(?:{PASSWORD})\s{{0,9}}</th>"
_CODE_IN_LIST: Final = re.compile(
    r"[\s,;:>*|`\"'-]{0,9}(?:\d{1,2}[.)]\s{1,3})?([A-Za-z0-9]{3,12}(?:-[A-Za-z0-9]{3,12}){0,4})(?![\w-])"
)


def codes(text: str, _start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the codes listed after "recovery codes", up to the first that has no digit."""
    at = end
    for _ in range(_MOST_CODES):
        found = _CODE_IN_LIST.match(text, at)
        if found is None or not re.search(r"\d", found[1]) or len(found[1]) < LEAST:
            return
        yield found.span(1)
        at = found.end()


_MOST_CODES: Final = 40
CODES: Final = r"(?i)(?:recovery|backup|scratch|rescue) codes?[\"']?[^\n:]{0,80}[:=]?\s{0,6}"
COLUMN: Final = rf"""(?i)(?:(?m:^)|[|,;\t]|  )[ \t"'*]{{0,3}}(?:[\w.-]{{1,30}} )?[\w.-]{{0,30}}(?:{PASSWORD})[ \t"'*]{{0,3}}(?:[|,;\t\n]|  )"""
"""Head of a column of passwords."""
