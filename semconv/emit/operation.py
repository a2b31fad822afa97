"""Operations: one thing that is a context manager and a decorator, for sync and async code.

A decorated function has a span for each call. Coroutines are awaited inside it. Generators, sync and
async, are inside it from their first item to their end; between two items their context is put away,
so that what the consumer does meanwhile is not taken for theirs.
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
from semconv.emit.stream import Awaited, Stream, Within

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound=Handle)


class _Entry(Generic[H]):
    """One pass through an operation."""

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

    ``with`` (or ``async with``) runs it and gives its handle; as a decorator it runs once a call.
    Use one object for one ``with`` at a time; a decorated function may run any number at once.
    """

    begin: Callable[[str], H]
    """Starts the span; is given the decorated function's name, or an empty string."""
    accept: Callable[[H, Mapping[str, object]], None]
    """Records the arguments of a decorated function."""
    answer: Callable[[H, object], None]
    """Records what a decorated function returned, or yielded."""
    _entries: list[_Entry[H]] = field(default_factory=list)

    def __enter__(self) -> H:
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
        """Run it and end it at once, for what has no duration, such as passing control on."""
        with self:
            pass

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` with a span around each call; its arguments and result are recorded."""
        call = _Call(operation=self, function=function, signature=_signature(function))
        kind = next((wrap for applies, wrap in _KINDS if applies(function)), _around_function)
        return cast("Callable[P, R]", kind(call))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call(Generic[H]):
    """A decorated function, with what is recorded of its calls."""

    operation: Operation[H]
    function: Callable[..., Any]
    signature: inspect.Signature | None

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Entry[H]:
        entry = _Entry(self.operation.begin(getattr(self.function, "__name__", "")))
        if entry.handle.captures:
            self.operation.accept(entry.handle, self._arguments(args, kwargs))
        return entry

    def succeed(self, entry: _Entry[H], result: object) -> None:
        if entry.handle.captures:
            self.operation.answer(entry.handle, result)
        entry.leave(None)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, object]:
        """Return the arguments by name, without the object whose method it is."""
        if self.signature is None:
            return {"arguments": args, **kwargs}
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError:  # a wrong call; the function itself will say so
            return {"arguments": args, **kwargs}
        return {name: value for name, value in bound.items() if name not in ("self", "cls")}


def _around_function(call: _Call[Any]) -> Callable[..., Any]:
    @functools.wraps(call.function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        entry = call.enter(args, kwargs)
        try:
            result = call.function(*args, **kwargs)
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
            result = await call.function(*args, **kwargs)
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
            result = yield from Within(call.function(*args, **kwargs), own, stream.see)
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
        source: AsyncGenerator[Any, Any] = call.function(*args, **kwargs)
        step: Awaitable[Any] = source.asend(None)
        try:
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
                except BaseException as error:  # noqa: BLE001 - it is the inner function's to handle
                    step = source.athrow(error)
                else:
                    step = source.asend(sent)
        except BaseException as error:
            own.run(entry.leave, error)
            raise
        own.run(call.succeed, entry, stream.result())

    return wrapper


_KINDS: Final[tuple[tuple[Callable[[Any], bool], Callable[[_Call[Any]], Callable[..., Any]]], ...]] = (
    (inspect.isasyncgenfunction, _around_async_generator),
    (inspect.isgeneratorfunction, _around_generator),
    (inspect.iscoroutinefunction, _around_coroutine),
)


def carry(function: Callable[P, R], parent: Handle | Context | None = None) -> Callable[P, R]:
    """Return ``function`` bound to the place in the trace where it is now, or to ``parent``.

    New threads start without a context, so spans made on them would begin traces of their own::

        with ThreadPoolExecutor() as pool:
            pool.map(carry(research), topics)

    ``asyncio`` tasks need none of this; they copy the context by themselves.
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
    """Return the context that ``parent`` stands for; the current one for ``None``."""
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
    """Return the signature; functions written in C may have none to show."""
    return contained(lambda: inspect.signature(function), lambda: None)
