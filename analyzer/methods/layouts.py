"""Other layouts of an answer → one ``Label: value`` a line: headings, tables, tags, one line, cut-off JSON.

Only how it is set changes; whether the values can be used is ``free_text.py``'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

_LABEL: Final = (
    r"(?:the )?(?:mistaken? |mistake_|responsible[ _]|decisive )?(?:agent|step|reason|explanation)"
    r"(?:[ _-]?(?:name|number|index|for[ _](?:the[ _])?(?:mistake|error)))?"
)
_TAG: Final = re.compile(rf"<({_LABEL})>([^<]{{0,4000}})</\1>", re.IGNORECASE)
_HEADING: Final = re.compile(
    rf"^[#*_ \t]{{1,8}}(?:\d[.)][ \t]{{1,3}})?({_LABEL})[*_ \t]{{0,6}}$", re.IGNORECASE | re.MULTILINE
)
_JOINT: Final = re.compile(
    rf"[,;|{{][ \t\n]{{0,9}}[\"'*_]{{0,3}}(?={_LABEL}[\"'*_]{{0,3}}[ \t]{{0,3}}[:=\uff1a])", re.IGNORECASE
)
_QUOTED_LABEL: Final = re.compile(rf"^([ \t]{{0,9}}{_LABEL})[\"']", re.IGNORECASE | re.MULTILINE)
_NAMED: Final = re.compile(rf"{_LABEL}\Z", re.IGNORECASE)
_RULE: Final = re.compile(r"[:\- ]*")


def as_lines(text: str) -> str:
    """Return a text with each label that it sets in another way at the beginning of a line of its own."""
    text = _TAG.sub(lambda found: f"\n{found[1]}: {found[2].strip()}\n", text)
    text = _HEADING.sub(r"\1:", text)
    text = "\n".join(_lines(text.splitlines()))
    return _QUOTED_LABEL.sub(r"\1", _JOINT.sub("\n", text))


def _lines(lines: Sequence[str]) -> Iterator[str]:
    for is_table, group in groupby(lines, key=lambda line: line.lstrip().startswith("|")):
        together = list(group)
        yield from _from_table(together) if is_table else together


def _from_table(lines: Sequence[str]) -> Iterator[str]:
    """Labels stand in a table's first column, beside their values, or in its first row, above them."""
    table = [[cell.strip(" *_`") for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in table if not all(_RULE.fullmatch(cell) for cell in row)]
    beside = [row for row in rows if len(row) == 2 and _NAMED.match(row[0])]
    if len(beside) > 1 or not rows:
        yield from (f"{label}: {value}" for label, value in beside)
        return
    for row in rows[1:]:
        yield from (f"{label}: {cell}" for label, cell in zip(rows[0], row, strict=False))
