"""Lists in the results of tools, and which of their entries a text names. Pure.

An entry is named by a text that no other entry of its list has: its id, its name, its number.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

from semconv.dialects.reading.values import mapping
from semconv.json_text import read_json
from semconv.record import record

Scalar: TypeAlias = "str | float | bool"
_MOST_ENTRIES: Final = 60
_MOST_LISTS: Final = 20
_MOST_ROWS: Final = 200
_LARGEST: Final = 1e100
"""Bound of numbers: what readers add up and multiply stays within a float."""
_MOST_LINES: Final = 2_000
_LEAST_NAME: Final = 3
_LONGEST_NAME: Final = 80
_LONGEST_HEADING: Final = 40


@record
class Entry:
    """An entry of a list: its fields by name; an entry without fields has one, with an empty name."""

    fields: Mapping[str, Scalar]
    names: tuple[str, ...]
    """Texts, in lower case, that only this entry of the list has."""

    def is_named_in(self, words: frozenset[str], small: str) -> bool:
        """Tell whether a text names the entry, by its words and the text itself in lower case."""
        return any(
            name in words or ((" " in name or not small.isascii()) and stands_in(name, small))
            for name in self.names
        )


@record
class Listed:
    """A list of a result."""

    key: str
    """The name under which the result has it; empty if the result is the list itself."""
    entries: tuple[Entry, ...]


@functools.lru_cache(maxsize=64)
def lists_in(text: str) -> tuple[Listed, ...]:
    """Return the lists of two entries and more in a JSON document, outermost first, or a table's rows."""
    found = (_listed(key, value) for key, value in (_lists(document_in(text)) or _table(text)))
    return tuple(one for one in found if one is not None)[:_MOST_LISTS]


@functools.lru_cache(maxsize=64)
def fields_in(text: str) -> Mapping[str, Any]:
    """Return the object that a text holds as JSON, else an empty one; no reader changes it."""
    return mapping(text)


@functools.lru_cache(maxsize=64)
def document_in(text: str) -> Any:
    """Return the object or list of a JSON text; ``None`` if the text is something else, or damaged.

    All readers of a run ask for the same results; none changes what it gets.
    """
    if text[:1] not in "[{":
        return None
    try:
        return read_json(text)
    except ValueError:
        return None


def _table(text: str) -> list[tuple[str, list[Any]]]:
    """Return the rows of a table in Markdown, CSV, TSV or aligned by blanks, with its columns by name."""
    lines = [line.strip() for line in text.splitlines()[: _MOST_ENTRIES + 8]]
    for mark in ("|", "\t", ";", ",", "  "):
        rows = [[cell.strip() for cell in _cells(line, mark)] for line in lines if mark in line]
        rows = [row for row in rows if not all(set(cell) <= _RULE for cell in row)]
        width = len(rows[0]) if rows else 0
        even = [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if len(row) == width]
        least = _LEAST_ROWS if width < _WIDE else 2
        if len(even) >= least and len(even) == len(rows) - 1 and all(map(_is_heading, rows[0])):
            return [("", even[:_MOST_ENTRIES])]
    return []


def cells_apart(text: str) -> str:
    """Return a text of the same length in which a bar stands between the cells of a table in CSV.

    Otherwise ``84000,31.4`` is no two numbers. Prose has a blank after a comma, and a list of numbers such as
    ``1,234`` has no heading.
    """
    head, line, rest = text.partition("\n")
    mark = next((one for one in ",;" if 0 < head.count(one) == rest.partition("\n")[0].count(one)), "")
    cells = head.split(mark) if mark else []
    if not line or not cells or not all(cell[:1].isalpha() for cell in cells):
        return text
    return "\n".join(
        each.replace(mark, "|") if each.count(mark) == len(cells) - 1 else each for each in text.split("\n")
    )


def _cells(line: str, mark: str) -> list[str]:
    return _BLANKS.split(line) if mark.isspace() and mark != "\t" else line.strip("|").split(mark)


_BLANKS: Final = re.compile(r" {2,}")
_RULE: Final = frozenset("-: ")
_LEAST_ROWS: Final = 3
_WIDE: Final = 4
"""Columns from which two rows make a table, and are not two sentences with commas."""


def _is_heading(cell: str) -> bool:
    return 0 < len(cell) <= _LONGEST_HEADING and not any(map(str.isdigit, cell))


def _lists(document: Any) -> list[tuple[str, list[Any]]]:
    found: list[tuple[str, list[Any]]] = []
    queue: list[tuple[str, Any]] = [("", document)]
    for key, value in queue:
        if isinstance(value, dict):
            queue += [(str(name), one) for name, one in value.items() if isinstance(one, dict | list)]
        elif isinstance(value, list):
            if 1 < len(value) <= _MOST_ENTRIES:
                found.append((key, value))
            queue += [(key, one) for one in value[:_MOST_ENTRIES] if isinstance(one, dict | list)]
    return found


def _listed(key: str, values: Sequence[Any]) -> Listed | None:
    rows = [_fields(value) for value in values]
    if not all(rows):
        return None
    texts = [{form for value in row.values() for form in _forms(_plain(value))} for row in rows]
    counts = Counter(text for row in texts for text in row)
    for can_name in (_can_name, _is_number_of):
        names = [tuple(sorted(one for one in own if counts[one] == 1 and can_name(one))) for own in texts]
        if all(names):
            found = (Entry(fields=row, names=own) for row, own in zip(rows, names, strict=True))
            return Listed(key=key, entries=tuple(found))
    return None


def _fields(value: Any) -> dict[str, Scalar]:
    if isinstance(value, dict):
        inner = ((str(name), one) for name, one in value.items() if isinstance(one, dict))
        nested = {f"{name}_{key}": one for name, each in inner for key, one in each.items()}
        every = ((str(name), one) for name, one in (*value.items(), *nested.items()))
        return {name: one for name, one in every if is_scalar(one)}
    if isinstance(value, list):
        return {str(place): one for place, one in enumerate(value) if is_scalar(one)}
    return {"": value} if is_scalar(value) else {}


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """Tell whether a value is a text or a number that readers can calculate with."""
    return isinstance(value, str) or (isinstance(value, int | float) and abs(value) <= _LARGEST)


def _plain(value: Scalar) -> str:
    return str(value).casefold().strip()


def _forms(text: str) -> Iterator[str]:
    """Yield a text and, for ``Boyle, Sinead``, the other ways in which people write such a name."""
    yield text
    last, comma, first = text.partition(", ")
    if comma and last.replace(" ", "").isalpha() and not any(map(str.isdigit, first)) and "," not in first:
        yield from (f"{first} {last}", last)


def _can_name(text: str) -> bool:
    is_word = any(map(str.isalpha, text)) and _LEAST_NAME <= len(text) <= _LONGEST_NAME
    return is_word and text not in _FLAGS and not _is_time(text) and _AMOUNT.fullmatch(text) is None


def _is_number_of(text: str) -> bool:
    """Tell whether a text is the number of a person or a thing, which names it where nothing else does."""
    return text.isdigit() and len(text) >= _LEAST_NUMBER


_LEAST_NUMBER: Final = 5
_AMOUNT: Final = re.compile(
    r"(?:[^\W\d]{1,3}\.?\s?)?\d{1,3}(?:[.,\s]\d{3}){1,4}(?:[.,]\d{1,2})?(?:\s?[^\W\d]{1,3}\.?)?"
)
"""An amount in groups of digits with its currency, ``rp30.000.000`` or ``1 690 kr``, which names nothing."""
_FLAGS: Final = frozenset({"true", "false", "none", "null", "nan"})


def _is_time(text: str) -> bool:
    """Tell whether a text is a time in ISO 8601, which names nothing."""
    return text[:1].isdigit() and (text[4:5] == "-" or text[2:3] == ":")


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a number as ``is_scalar`` has it, and no truth value."""
    return is_scalar(value) and not isinstance(value, str | bool)


def stands_in(name: str, small: str) -> bool:
    """Tell whether a text has a name, not as a part of a longer one; both are in lower case."""
    at = small.find(name)
    while at >= 0:
        before, after = small[at - 1 : at], small[at + len(name) : at + len(name) + 1]
        if not (before.isascii() and before.isalnum()) and not (after.isascii() and after.isalnum()):
            return True
        at = small.find(name, at + 1)
    return False


def strings_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the texts in a JSON document with their keys, at any depth; none if the text is no JSON."""
    stack: list[tuple[str, Any]] = [("", document_in(text))]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict):
            stack += [(str(name), one) for name, one in reversed(value.items())]
        elif isinstance(value, list):
            stack += [(key, one) for one in reversed(value)]
        elif isinstance(value, str):
            yield key, value


def record_texts(text: str) -> Iterator[str]:
    """Yield what a result says of each thing: the texts of each object of a JSON document, or the lines."""
    document = document_in(text)
    if document is None:
        yield from text.splitlines()[:_MOST_LINES]
        return
    waiting: list[Any] = [document]
    while waiting:
        one = waiting.pop()
        inner: Sequence[Any] = [*one.values()] if isinstance(one, dict) else one
        waiting += [each for each in inner if isinstance(each, dict | list)]
        yield " ".join(str(each) for each in inner if not isinstance(each, dict | list))


@functools.lru_cache(maxsize=64)
def tables_in(text: str) -> tuple[Sequence[Mapping[str, Scalar]], ...]:
    """Return the records of each list of two and more, outermost first, whether they have names or not."""
    found = (list(map(_fields, values)) for _, values in (_lists(document_in(text)) or _table(text)))
    return tuple([rows for rows in found if all(rows)][:_MOST_LISTS])


@functools.lru_cache(maxsize=64)
def rows_in(text: str) -> tuple[Mapping[str, Scalar], ...]:
    """Return the records of a result: its objects, outermost first, or the rows of a table."""
    document = document_in(text)
    if document is None:
        return tuple([_fields(row) for _, rows in _table(text) for row in rows])
    found: list[Mapping[str, Scalar]] = []
    queue: list[Any] = [document]
    for one in queue:
        if isinstance(one, dict) and len(found) < _MOST_ROWS:
            found.append(_fields(one))
        inner = _inner(one) if isinstance(one, dict) else one
        queue += [each for each in inner[:_MOST_ENTRIES] if isinstance(each, dict | list)]
    return tuple(found)


def _inner(one: Mapping[str, Any]) -> list[Any]:
    """Return the lists of an object, and what is within its objects, whose own fields count as its own."""
    objects = [each for each in one.values() if isinstance(each, dict)]
    return [
        *(each for each in one.values() if isinstance(each, list)),
        *(each for inner in objects for each in inner.values()),
    ]
