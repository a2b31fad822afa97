"""Fast reader of protobuf's JSON mapping, for requests in the usual spelling.

``json_format.ParseDict`` looks up all fields of a message anew for each object, which takes most of the time
of reading a request. This reader looks them up once for each type of message. It leaves everything unusual
(an integer as "1e3", fields by their ``.proto`` names, histograms, any error) to ``ParseDict``, whose error
the client sees.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_MAX_DEPTH: Final = 90
"""Levels of nested messages: fewer than ``ParseDict`` is allowed."""
_Set: TypeAlias = Callable[[Any, str, Any, int], None]
"""Sets a field of a message to a value, at a depth."""
_Fields: TypeAlias = dict[str, tuple[_Set, str]]
"""How to set each field, and its name in Python, by its name in JSON."""


class _UnusualError(ValueError):
    """A value that this reader leaves to ``ParseDict``."""


def is_filled(message: Message, document: Mapping[str, Any]) -> bool:
    """Fill an empty message as ``ParseDict`` would, ignoring unknown fields.

    Returns:
        False if the document has anything unusual; the message then holds a part of it.
    """
    try:
        _fill(_fields_of(message.DESCRIPTOR), message, document, 1)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return False
    return True


def _fill(fields: _Fields, message: Any, given: Any, depth: int) -> None:
    if given.__class__ is not dict or depth > _MAX_DEPTH or (_ONE_OF in fields and len(given) > 1):
        raise _UnusualError
    for name, value in given.items():
        known = fields.get(name)
        if known is not None and value is not None:
            known[0](message, known[1], value, depth)
        elif known is None and name[:1] == "[":  # an extension
            raise _UnusualError


def _text(message: Any, name: str, value: Any, _: int) -> None:
    if value.__class__ is not str:
        raise _UnusualError
    setattr(message, name, value)


def _bytes(message: Any, name: str, value: Any, _: int) -> None:
    encoded = value.encode()
    setattr(message, name, base64.urlsafe_b64decode(encoded + b"=" * (4 - len(encoded) % 4)))


def _integer(message: Any, name: str, value: Any, _: int) -> None:
    if value.__class__ is str and value.isascii() and value.lstrip("-").isdecimal():
        value = int(value)
    if value.__class__ is not int:
        raise _UnusualError
    setattr(message, name, value)


def _number(message: Any, name: str, value: Any, _: int) -> None:
    if value.__class__ not in {int, float} or not math.isfinite(value):
        raise _UnusualError
    setattr(message, name, float(value))


def _truth(message: Any, name: str, value: Any, _: int) -> None:
    if value.__class__ is not bool:
        raise _UnusualError
    setattr(message, name, value)


def _refused(_: Any, __: str, ___: Any, ____: int) -> None:
    raise _UnusualError


def _inner(message: Any, name: str, value: Any, depth: int, *, fields: _Fields) -> None:
    inner = getattr(message, name)
    inner.SetInParent()
    _fill(fields, inner, value, depth + 1)


def _list(message: Any, name: str, value: Any, depth: int, *, fields: _Fields) -> None:
    if value.__class__ is not list:
        raise _UnusualError
    items = getattr(message, name)
    for each in value:
        _fill(fields, items.add(), each, depth + 1)


_OF_TYPES: Final[Mapping[int, _Set]] = {
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_BYTES: _bytes,
    FieldDescriptor.TYPE_BOOL: _truth,
    FieldDescriptor.TYPE_DOUBLE: _number,
    FieldDescriptor.TYPE_ENUM: _integer,
    FieldDescriptor.TYPE_INT32: _integer,
    FieldDescriptor.TYPE_INT64: _integer,
    FieldDescriptor.TYPE_UINT32: _integer,
    FieldDescriptor.TYPE_UINT64: _integer,
    FieldDescriptor.TYPE_FIXED32: _integer,
    FieldDescriptor.TYPE_FIXED64: _integer,
    FieldDescriptor.TYPE_SFIXED64: _integer,
}
_ONE_OF: Final = ""
"""Marks messages that may have one field at most; no field has this name."""
_KNOWN: Final[dict[str, _Fields]] = {}


def _fields_of(descriptor: Any) -> _Fields:
    """Return the fields of a message; threads that convert requests at once may each make them."""
    found = _KNOWN.get(descriptor.full_name)
    if found is not None:
        return found
    made: dict[str, _Fields] = {}
    found = _make_fields(descriptor, made)
    _KNOWN.update(made)  # all of them whole: another thread that met half a table would skip its fields
    return found


def forget_fields() -> None:
    """Make the fields anew at the next message, as after a start."""
    _KNOWN.clear()


def _make_fields(descriptor: Any, made: dict[str, _Fields]) -> _Fields:
    """Make the fields of a message and of those within it, and add them to ``made``."""
    if descriptor.full_name in made:
        return made[descriptor.full_name]
    # Added before it is complete: values of attributes hold values.
    fields = made[descriptor.full_name] = {}
    for field in descriptor.fields:
        fields[field.name] = (_refused, field.name)
    is_one_of = all(field.containing_oneof is not None for field in descriptor.fields)
    for field in descriptor.fields:
        setter = _setter(field, made)
        if field.containing_oneof is not None and not is_one_of:
            setter = partial(_alone, one_of=field.containing_oneof.name, setter=setter)
        fields[field.json_name] = (setter, field.name)
    if is_one_of:
        fields[_ONE_OF] = (_refused, "")
    return fields


def _alone(message: Any, name: str, value: Any, depth: int, *, one_of: str, setter: _Set) -> None:
    """Set one of several fields that exclude each other."""
    if message.WhichOneof(one_of) is not None:
        raise _UnusualError
    setter(message, name, value, depth)


def _setter(field: FieldDescriptor, made: dict[str, _Fields]) -> _Set:
    is_list = isinstance(field.default_value, list)  # ``is_repeated`` is not in all versions of protobuf 6
    if field.message_type is not None:
        return partial(_list if is_list else _inner, fields=_make_fields(field.message_type, made))
    return _refused if is_list else _OF_TYPES.get(field.type, _refused)
