"""Says where in a file's records a reader failed, and why, in words about the file. Pure.

Readers raise Python's own exceptions for values of the wrong type. The place is found by what the reader's
functions held when it failed: the field of an object that was being read and has the wrong value. Where
several fields may be meant, or none, the place is what they are in, at least the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeAlias

_Path: TypeAlias = tuple[Any, ...]
"""Keys and places from the list of records to a value."""


class Words(NamedTuple):
    """What a file's records and their fields are called."""

    record: str = "record"
    key: str = "key"


DOCUMENTS: Final = Words()
ROWS: Final = Words("row", "column")

_TYPES: Final = {
    **dict.fromkeys(("int", "float"), "a number"),
    **dict.fromkeys(("str", "string"), "a text"),
    **dict.fromkeys(("list", "tuple"), "a list"),
    "dict": "an object",
    "bool": "true or false",
    "NoneType": "nothing",
}
_OF_OBJECTS: Final = r"get|items|keys|values|pop"
_WRONG_TYPES: Final = tuple(
    (re.compile(pattern), expected)
    for pattern, expected in (
        (rf"'(\w+)' object has no attribute '(?:{_OF_OBJECTS})'", "an object"),
        (r"'(\w+)' object has no attribute '(?:append|extend|index)'", "a list"),
        (r"'(\w+)' object has no attribute '\w+'", "a text"),
        (r"'(\w+)' object is not iterable", "a list"),
        (r"argument of type '(\w+)' is not ", "an object or a list"),
        (r"'(\w+)' object (?:is not (?:subscriptable|a mapping)|does not support item)", "an object"),
        (r"(\w+) indices must be", "an object"),
        (r"(?:cannot use|unhashable type:) '(\w+)'", "a text"),
        (r"object of type '(\w+)' has no len", "a list"),
        (r"float\(\) argument must be .*, not '(\w+)'", "a number"),
        (r"int\(\) argument must be .*, not '(\w+)'", "a number"),
        (r"bad operand type for abs\(\): '(\w+)'", "a number"),
        (r"expected str instance, (\w+) found", "a text"),
        (r"expected string or bytes-like object, got '(\w+)'", "a text"),
        (r"type (\w+) doesn't define __round__", "a number"),
        (r"should be a bytes-like object or ASCII string, not '(\w+)'", "a text"),
        (r"attributes that are no object: (\w+)", "an object"),
        (r"after \*\*? must be an? (?:iterable|mapping), not (\w+)", "a list"),
    )
)
_WRONG_TEXTS: Final = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"could not convert string to float: (.*)", "not a number: "),
        (r"not a time: (.*)", "not a time: "),
        (r"expected a list of objects, found (.*)", "expected a list of objects, found "),
        (r"a time outside the years 1970 to 2262: (.*)", "a time outside the years 1970 to 2262: "),
        (r"invalid literal for int\(\) with base \d+: (.*)", "not a whole number: "),
    )
)
_LONGEST: Final = 80
"""Characters shown of a reason's text."""
_LONGEST_WAY: Final = 200
"""Characters shown of the way to a value."""
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][\w.-]*")


class _Reason(NamedTuple):
    text: str
    found: str = ""
    """The type or the text that is wrong, as Python writes it; empty if it is unknown."""


def where_and_why(error: Exception, records: Any, words: Words = DOCUMENTS) -> str:
    """Return one line about a reader's failure: the place in the records, if it is known, and the reason."""
    reason = _reason(error)
    frames = [list(frame.values()) for frame in _held(error)]
    paths = _paths(records, {id(one) for frame in frames for one in frame if isinstance(one, dict | list)})
    known = [[(paths[id(one)], one) for one in frame if id(one) in paths] for frame in frames]
    wrong = (_wrong(holders, frame, reason) for holders, frame in zip(known, frames, strict=True))
    inside = (max((path for path, _ in holders), key=len, default=())[:1] for holders in known)
    path = next(filter(None, wrong), None) or next(filter(None, inside), ())
    place = _shown(path, words)
    return f"{place}: {reason.text}" if place else reason.text


def _reason(error: Exception) -> _Reason:
    text = " ".join(str(error).split())
    if isinstance(error, KeyError):
        return _Reason(f"the key {text[:_LONGEST]} is missing")
    for pattern, expected in _WRONG_TYPES:
        if found := pattern.search(text):
            return _Reason(f"{_TYPES.get(found[1], 'a value')} where {expected} is expected", found[1])
    for pattern, reason in _WRONG_TEXTS:
        if found := pattern.match(text):
            return _Reason(f"{reason}{found[1][:_LONGEST]}", found[1])
    if isinstance(error, IndexError) or "to unpack" in text:
        return _Reason("a list of fewer or more items than expected", "list")
    if re.search(r"not supported between|unsupported operand|can only concatenate|must be str, not", text):
        return _Reason("values of several types where one is expected")
    return _Reason(text[: 2 * _LONGEST] or "a value of the wrong type")


def _held(error: Exception) -> Iterator[Mapping[str, Any]]:
    """Yield what each function held, the innermost function first."""
    trace, frames = error.__traceback__, []
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    yield from (frame.f_locals for frame in reversed(frames))


def _paths(records: Any, wanted: set[int]) -> dict[int, _Path]:
    """Return the way from the records to each of these values that is part of them."""
    found: dict[int, _Path] = {}
    left: list[tuple[_Path, Any]] = [((), list(records))]
    while left:
        path, value = left.pop()
        if id(value) in wanted:
            found[id(value)] = path
        items = value.items() if isinstance(value, dict) else enumerate(value)
        left += [((*path, key), one) for key, one in items if isinstance(one, dict | list)]
    return found


def _wrong(holders: Sequence[tuple[_Path, Any]], frame: Sequence[Any], reason: _Reason) -> _Path:
    """Return the way to what one function read: the wrong value, or what all that may be wrong is in."""
    found = [(path, value) for path, holder in holders for path, value in _fields(path, holder, reason)]
    alone = [one for one in frame if not isinstance(one, dict | list) and _is_wrong(one, reason)]
    paths = [path for path, value in found if value in alone]
    if not paths and reason.found != "str":  # keys are texts too
        paths = [path for path, _ in found]
    same = takewhile(lambda keys: len(set(keys)) == 1, zip(*paths, strict=False))
    return tuple(keys[0] for keys in same)


def _fields(path: _Path, holder: Any, reason: _Reason) -> Iterator[tuple[_Path, Any]]:
    items = holder.items() if isinstance(holder, dict) else enumerate(holder)
    yield from (((*path, key), value) for key, value in items if _is_wrong(value, reason))


def _is_wrong(value: Any, reason: _Reason) -> bool:
    return reason.found != "" and reason.found in (type(value).__name__, repr(value), repr(str(value)))


def _shown(path: _Path, words: Words) -> str:
    inner = "".join(
        f".{key}" if isinstance(key, str) and _PLAIN_KEY.fullmatch(key) else f"[{key!r}]" for key in path[1:]
    ).removeprefix(".")[:_LONGEST_WAY]
    return f"{words.record} {path[0] + 1}{f', {words.key} {inner}' if inner else ''}" if path else ""
