"""Records that are made by the thousand: frozen for the type checker, plain at run time.

``dataclass(frozen=True)`` writes each field through ``object.__setattr__``, which makes a record of
twenty fields three to five times as dear to make; a run of agents makes one for each span, action, message
and step. ``mypy --strict`` is a gate and refuses to write to these, so the check at run time buys nothing.
Equality, hash, slots and ``dataclasses.replace`` are those of a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class a record: keyword arguments only, slots, compared and hashed by its fields."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
