"""Generators stepped in a context of their own, so that theirs and their consumer's stay apart.

A ``contextvars.Context`` remembers what the body set between two items, on whichever thread or task
the next one is asked for.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

_MAX_ITEMS: Final = 10_000
"""Items of a stream that are remembered for its recorded result."""


class Stream:
    """What a generator yielded, as far as it is remembered."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: Final[list[object]] = []

    def see(self, item: object) -> None:
        """Remember ``item``, if there is room."""
        if len(self._items) < _MAX_ITEMS:
            self._items.append(item)

    def result(self) -> object:
        """Return the items as one result: a text if all are texts."""
        texts = [item for item in self._items if isinstance(item, str)]
        return "".join(texts) if len(texts) == len(self._items) else self._items


class Within(Generator[Any, Any, Any]):
    """A generator that does each of its steps in a context of its own."""

    __slots__ = ("_context", "_generator", "_see")

    def __init__(
        self, generator: Generator[Any, Any, Any], context: contextvars.Context, see: Callable[[object], None]
    ) -> None:
        self._generator: Final = generator
        self._context: Final = context
        self._see: Final = see

    def send(self, value: Any) -> Any:
        """Do one step, to the next item."""
        item = self._context.run(self._generator.send, value)
        self._see(item)
        return item

    def throw(self, *error: Any) -> Any:
        """Raise ``error`` where the generator waits, and do one step."""
        item = self._context.run(self._generator.throw, *error)
        self._see(item)
        return item

    def close(self) -> None:
        """End the generator early."""
        self._context.run(self._generator.close)


class Awaited:
    """An awaitable each of whose steps runs in a given context."""

    __slots__ = ("_awaitable", "_context")

    def __init__(self, awaitable: Awaitable[Any], context: contextvars.Context) -> None:
        self._awaitable: Final = awaitable
        self._context: Final = context

    def __await__(self) -> Generator[Any, Any, Any]:
        return Within(self._awaitable.__await__(), self._context, lambda _: None)
