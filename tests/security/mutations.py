"""Mutates requests: whole fields dropped, doubled, nested, or given another length or type.

Random bytes mostly fail at the first length. These mutations keep most of the protobuf valid, so that the
code behind the parser meets hostile input.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, Final

from collector_processor.otlp import MalformedRequestError
from collector_processor.wire.protobuf import Field, fields, write_varint

LONGEST: Final = 1 << 16
_LENGTHS: Final = (0, 1, 127, 128, 1 << 14, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
_NUMBERS: Final = (0, 1, 2, 4, 5, 9, 11, 13, 15, 16, 999, 18_999, (1 << 29) - 1, 1 << 29)
_VALUES: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1 << 64, 10**400, 1e308, "", "0", "x" * 200, "\ud83d", "\0", [], [[]], {}, {"": {}},
    "NaN", "0af7651916cd43dd8448eb211c80319c", [None], {"stringValue": {"stringValue": 1}},
)  # fmt: skip


def mutate(body: bytes, chance: Random) -> bytes:
    """Return a protobuf request with one to four fields, at any depth, changed."""
    for _ in range(chance.randint(1, 4)):
        path = _descend(body, chance)
        if not path:
            return _scatter(body, chance)
        at = path[-1]
        change = chance.choice(_CHANGES)
        body = _replace(body, path, change(body[at.at : at.end], at, chance))[:LONGEST]
    return body


def mutate_json(text: bytes, chance: Random) -> bytes:
    """Return a JSON document with one to four values changed; other bytes are changed at random."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _scatter(text, chance)
    for _ in range(chance.randint(1, 4)):
        places = list(_places(document))
        if not places:
            break
        holder, key = chance.choice(places)
        holder[key] = deepcopy(chance.choice((*_VALUES, [holder[key]] * 3, {"stringValue": holder[key]})))
    return json.dumps(document).encode("utf-8", "surrogatepass")[:LONGEST]


def _places(document: Any) -> list[tuple[Any, Any]]:
    places: list[tuple[Any, Any]] = []
    stack = [document]
    while stack and len(places) < 2_000:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append((node, key))
            stack.append(node[key])
    return places


def _descend(body: bytes, chance: Random) -> list[Field]:
    """Return the fields from the outermost to a chosen one; empty if the protobuf is invalid."""
    path: list[Field] = []
    start, end = 0, len(body)
    while True:
        try:
            found = list(fields(body, start, end))
        except MalformedRequestError:
            return path
        if not found:
            return path
        path.append(chance.choice(found))
        start, end = path[-1].start, path[-1].end
        if path[-1].wire_type != 2 or chance.random() < 0.15:
            return path


def _replace(body: bytes, path: list[Field], new: bytes) -> bytes:
    """Replace the innermost field by ``new``, and correct the lengths around it."""
    for outer, inner in zip([None, *path[:-1]][::-1], path[::-1], strict=True):
        start, end = (outer.start, outer.end) if outer else (0, len(body))
        new = body[start : inner.at] + new + body[inner.end : end]
        if outer:
            new = write_varint(outer.number << 3 | 2) + write_varint(len(new)) + new
    return new


def _drop(_raw: bytes, _field: Field, _chance: Random) -> bytes:
    return b""


def _double(raw: bytes, _field: Field, chance: Random) -> bytes:
    return raw * chance.choice((2, 3, 50))


def _nest(raw: bytes, field: Field, chance: Random) -> bytes:
    for _ in range(chance.choice((1, 3, 30, 120))):
        raw = write_varint(field.number << 3 | 2) + write_varint(len(raw)) + raw
    return raw


def _lie_about_length(raw: bytes, field: Field, chance: Random) -> bytes:
    length = chance.choice((*_LENGTHS, len(raw), field.end - field.start + 1))
    return write_varint(field.number << 3 | 2) + write_varint(length) + raw[field.start - field.at :]


def _renumber(raw: bytes, field: Field, chance: Random) -> bytes:
    number = chance.choice((*_NUMBERS, field.number + 1))
    return write_varint(number << 3 | chance.randrange(8)) + raw[1:]


def _fill(raw: bytes, field: Field, chance: Random) -> bytes:
    size = chance.choice((0, 1, 8, 16, 28, 30, 38, field.end - field.start))
    content = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size), b"\xed\xa0\xbd" * size))
    return raw[: max(1, field.start - field.at - 1)] + write_varint(len(content)) + content


def _scatter(body: bytes, chance: Random) -> bytes:
    changed = bytearray(body or b"\0")
    for _ in range(chance.randint(1, 6)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randint(0, len(changed))] if chance.random() < 0.2 else changed)


def _scatter_within(raw: bytes, _field: Field, chance: Random) -> bytes:
    return _scatter(raw, chance)


_CHANGES: Final[tuple[Callable[[bytes, Field, Random], bytes], ...]] = (
    _drop, _double, _nest, _lie_about_length, _renumber, _fill, _scatter_within,
)  # fmt: skip
