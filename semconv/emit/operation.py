"""Operations: context managers that are also decorators, for sync and async code.

A decorated function gets a span per call; coroutines are awaited inside it. For generators, sync and async,
the span lasts from the first item to the end; between items their context is detached, so that the
consumer's work is not recorded inside it. Their body runs in a ``contextvars.Context`` of its own:
variables that it sets survive until the next item, whichever thread or task requests that.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from opentelemetry.context import Context, attach, detach, get_current

from semconv.emit.content import contained
from semconv.emit.handle import Handle
from semconv.emit.tool_playback import Played, ToolPlayback

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound=Handle)


class _Entry(Generic[H]):
    """One entered operation."""

    __slots__ = ("_token", "handle")

    def __init__(self, handle: H) -> None:
        self.handle: Final = handle
        self._token = attach(handle.context)

    def leave(self, error: BaseException | None) -> None:
        detach(self._token)
        self.handle.close(error)


@dataclass(slots=True, kw_only=True)
class Operation(Generic[H]):
    """An operation that is not yet running.

    ``with`` (or ``async with``) runs it and yields its handle; as a decorator it runs once per call. Use
    one object for one ``with`` at a time; calls of a decorated function may overlap.
    """

    begin: Callable[[str], H]
    """Starts the span; receives the decorated function's name, or an empty string."""
    accept: Callable[[H, Mapping[str, object]], None]
    """Records the arguments of a decorated function."""
    answer: Callable[[H, object], None]
    """Records the return value of a decorated function, or its yielded items."""
    playback: ToolPlayback | None = None
    """Tools only: where results come from in the rerun of a recorded run."""
    _entries: list[_Entry[H]] = field(default_factory=list)

    def __enter__(self) -> H:
        if self.playback is not None:
            self.playback.of_block()
        entry = _Entry(self.begin(""))
        self._entries.append(entry)
        return entry.handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entries.pop().leave(error)

    async def __aenter__(self) -> H:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def record(self) -> None:
        """Start the operation and end it at once, for operations without duration such as a handoff."""
        with self:
            pass

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` with a span around each call, that records its arguments and result."""
        call = _Call(operation=self, function=function, signature=_signature(function))
        kind = next((wrap for applies, wrap in _KINDS if applies(function)), _around_function)
        return cast("Callable[P, R]", kind(call))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call(Generic[H]):
    """A decorated function and its operation."""

    operation: Operation[H]
    function: Callable[..., Any]
    signature: inspect.Signature | None

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Entry[H]:
        entry = _Entry(self.operation.begin(getattr(self.function, "__name__", "")))
        if entry.handle.captures:
            self.operation.accept(entry.handle, self._arguments(args, kwargs))
        return entry

    def played(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Played | None:
        """Return the result to use instead of running the function, if there is one."""
        playback = self.operation.playback
        return None if playback is None else playback.of_call(self.function, self._arguments(args, kwargs))

    def succeed(self, entry: _Entry[H], result: object) -> None:
        if entry.handle.captures:
            self.operation.answer(entry.handle, result)
        entry.leave(None)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, object]:
        """Return the arguments by name, without ``self`` or ``cls``."""
        if self.signature is None:
            return {"arguments": args, **kwargs}
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError:  # the call's arguments are wrong; the function itself will raise
            return {"arguments": args, **kwargs}
        return {name: value for name, value in bound.items() if name not in ("self", "cls")}


def _around_function(call: _Call[Any]) -> Callable[..., Any]:
    @functools.wraps(call.function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        entry = call.enter(args, kwargs)
        try:
            played = call.played(args, kwargs)
            result = call.function(*args, **kwargs) if played is None else played.value
        except BaseException as error:
            entry.leave(error)
            raise
        call.succeed(entry, result)
        return result

    return wrapper


def _around_coroutine(call: _Call[Any]) -> Callable[..., Any]:
    @functools.wraps(call.function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        entry = call.enter(args, kwargs)
        try:
            played = call.played(args, kwargs)
            result = await call.function(*args, **kwargs) if played is None else played.value
        except BaseException as error:
            entry.leave(error)
            raise
        call.succeed(entry, result)
        return result

    return wrapper


def _around_generator(call: _Call[Any]) -> Callable[..., Any]:
    @functools.wraps(call.function)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        own = contextvars.copy_context()
        entry = own.run(call.enter, args, kwargs)
        stream = Stream()
        try:
            played = call.played(args, kwargs)
            source = call.function(*args, **kwargs) if played is None else _items(played)
            result = yield from Within(source, own, stream.see)
        except BaseException as error:
            own.run(entry.leave, error)
            raise
        own.run(call.succeed, entry, stream.result() if result is None else result)
        return result

    return wrapper


def _around_async_generator(call: _Call[Any]) -> Callable[..., Any]:
    @functools.wraps(call.function)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        own = contextvars.copy_context()
        entry = own.run(call.enter, args, kwargs)
        stream = Stream()
        try:
            played = call.played(args, kwargs)
            source: AsyncGenerator[Any, Any] = (
                call.function(*args, **kwargs) if played is None else _async_items(played)
            )
            step: Awaitable[Any] = source.asend(None)
            while True:
                try:
                    item = await Awaited(step, own)
                except StopAsyncIteration:
                    break
                stream.see(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    await Awaited(source.aclose(), own)
                    raise
                except BaseException as error:  # noqa: BLE001 - passed to the inner generator
                    step = source.athrow(error)
                else:
                    step = source.asend(sent)
        except BaseException as error:
            own.run(entry.leave, error)
            raise
        own.run(call.succeed, entry, stream.result())

    return wrapper


def _items(played: Played) -> Generator[Any, Any, None]:
    yield from played.value if isinstance(played.value, list) else (played.value,)


async def _async_items(played: Played) -> AsyncGenerator[Any, Any]:
    for item in _items(played):
        yield item


_KINDS: Final[tuple[tuple[Callable[[Any], bool], Callable[[_Call[Any]], Callable[..., Any]]], ...]] = (
    (inspect.isasyncgenfunction, _around_async_generator),
    (inspect.isgeneratorfunction, _around_generator),
    (inspect.iscoroutinefunction, _around_coroutine),
)


def carry(function: Callable[P, R], parent: Handle | Context | None = None) -> Callable[P, R]:
    """Return ``function`` bound to the current place in the trace, or to ``parent``.

    New threads start without a context, so their spans would begin traces of their own::

        with ThreadPoolExecutor() as pool:
            pool.map(carry(research), topics)

    ``asyncio`` tasks do not need this; they copy the context themselves.
    """
    context = context_of(parent)
    if inspect.iscoroutinefunction(function):
        return cast("Callable[P, R]", _carried_coroutine(function, context))

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        token = attach(context)
        try:
            return function(*args, **kwargs)
        finally:
            detach(token)

    return carried


def context_of(parent: Handle | Context | None) -> Context:
    """Return the context of ``parent``; the current one for ``None``."""
    if parent is None:
        return get_current()
    return parent.context if isinstance(parent, Handle) else parent


def _carried_coroutine(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    @functools.wraps(function)
    async def carried(*args: Any, **kwargs: Any) -> Any:
        token = attach(context)
        try:
            return await function(*args, **kwargs)
        finally:
            detach(token)

    return carried


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature; ``None`` for functions without one, such as those written in C."""
    return contained(lambda: inspect.signature(function), lambda: None)


_MAX_ITEMS: Final = 10_000
"""Items of a stream kept for its recorded result."""


class Stream:
    """The first items that a generator yielded."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: Final[list[object]] = []

    def see(self, item: object) -> None:
        """Keep ``item``, if there is room."""
        if len(self._items) < _MAX_ITEMS:
            self._items.append(item)

    def result(self) -> object:
        """Return the items as one result: a text if all are texts."""
        texts = [item for item in self._items if isinstance(item, str)]
        return "".join(texts) if len(texts) == len(self._items) else self._items


class Within(Generator[Any, Any, Any]):
    """A generator that runs each step in its own context."""

    __slots__ = ("_context", "_generator", "_see")

    def __init__(
        self, generator: Generator[Any, Any, Any], context: contextvars.Context, see: Callable[[object], None]
    ) -> None:
        self._generator: Final = generator
        self._context: Final = context
        self._see: Final = see

    def send(self, value: Any) -> Any:
        """Run one step, to the next item."""
        item = self._context.run(self._generator.send, value)
        self._see(item)
        return item

    def throw(self, *error: Any) -> Any:
        """Raise ``error`` at the generator's current yield, and run one step."""
        item = self._context.run(self._generator.throw, *error)
        self._see(item)
        return item

    def close(self) -> None:
        """Close the generator before its end."""
        self._context.run(self._generator.close)


class Awaited:
    """An awaitable that runs each step in a given context."""

    __slots__ = ("_awaitable", "_context")

    def __init__(self, awaitable: Awaitable[Any], context: contextvars.Context) -> None:
        self._awaitable: Final = awaitable
        self._context: Final = context

    def __await__(self) -> Generator[Any, Any, Any]:
        return Within(self._awaitable.__await__(), self._context, lambda _: None)
