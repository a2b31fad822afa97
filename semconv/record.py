"""Records created in large numbers: frozen for the type checker, plain at run time.

``dataclass(frozen=True)`` sets each field through ``object.__setattr__``, which makes creating a record of
twenty fields three to five times slower; a run creates one for each span, action, message and step. ``mypy
--strict``, a required check, rejects assignments to these fields, so no check at run time is needed.
Equality, hash and slots are those of a frozen dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Turn a class into a record: slotted, compared and hashed by its fields.

    Keyword-only for the type checker: at run time Python looks up each default of a keyword-only
    parameter by name, which takes a third of the time of creating an action.
    """
    # The functions that ``dataclass`` would compile for each class take a tenth of a command's start.
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
    names = tuple(each.name for each in fields(made))
    if len(names) > 1:  # for a single name, ``attrgetter`` returns the bare value
        made.__record__ = attrgetter(*names)
    own = vars(made)
    for name, function in _functions_of(tuple(each.name for each in fields(made) if each.compare)).items():
        if name not in own:
            setattr(made, name, function)
    return cast("type[T]", made)


def _functions_of(names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """Return the functions of a record that compares these fields."""
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _record: ()

    def is_equal(one: Any, other: Any) -> Any:
        return values(one) == values(other) if other.__class__ is one.__class__ else NotImplemented

    def hash_of(one: Any) -> int:
        return hash(values(one))

    return {"__eq__": is_equal, "__hash__": hash_of, "__repr__": _text_of}


@recursive_repr()
def _text_of(one: Any) -> str:
    shown = (f"{each.name}={getattr(one, each.name)!r}" for each in fields(one) if each.repr)
    return f"{type(one).__qualname__}({', '.join(shown)})"


if TYPE_CHECKING:  # so that the type checker knows the fields and their types
    from dataclasses import replace
else:

    def replace(record: Any, /, **changes: Any) -> Any:
        """Return a copy of a dataclass with some fields changed, as ``dataclasses.replace`` does.

        That function takes 10 µs for an action, since it visits each field in Python; this one takes 2 µs for
        a record. For other dataclasses the two are equivalent.

        Raises:
            AttributeError: the record has no such field.
        """
        known = getattr(record, "__record__", None)
        if known is None:
            return dataclasses.replace(record, **changes)
        copied = type(record)(*known(record))
        for name, value in changes.items():
            setattr(copied, name, value)
        return copied


__all__ = ["record", "replace"]
