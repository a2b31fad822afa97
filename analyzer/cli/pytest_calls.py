"""pytest plugin: model calls of the tests' process, and spans and calls of its subprocesses. Not pure.

While the session runs, ``OPENAI_BASE_URL`` and the like lead through a recorder on this machine to where
they led before, and ``OTEL_EXPORTER_OTLP_ENDPOINT`` leads to a receiver here that passes all on to the user's
own backend. Both run on a thread of their own: tests may have any event loop. The variables are set before
the tests are imported: clients read them when they are made.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from analyzer.programs.child import child_environment
from analyzer.programs.collecting import Collecting, collecting, own_destinations
from analyzer.programs.model_call import PassedCall
from analyzer.programs.recording_gateway import RecordingGateway, recording
from collector_processor.otlp import Signal

T = TypeVar("T")
_PROGRAM: Final = "tests"
_LONGEST_S: Final = 60.0
"""Longest wait for the recorder, in seconds: a recorder that hangs must not block the suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What arrived during one test."""

    traces: Sequence[bytes] = ()
    """OTLP requests."""
    logs: Sequence[bytes] = ()
    calls: Sequence[PassedCall] = ()


class CallRecorder:
    """A receiver and a recording gateway on a thread."""

    def __init__(self) -> None:
        """Start both, and lead this process's clients and its subprocesses through them.

        Raises:
            OSError: no port is free.
        """
        self._pid: Final = os.getpid()
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._open: Final = _opened(os.environ.copy())
        self._collected, self._gateway = self._on_thread(self._open.__aenter__())
        self._before: Final = os.environ.copy()
        here = child_environment(os.environ, self._collected.url, _PROGRAM)
        self._lead({**here, **self._gateway.environment()})

    def take(self) -> Taken:
        """Return what has arrived since the last time; in a forked process, which has no thread, nothing."""
        return self._on_thread(self._take()) if os.getpid() == self._pid else Taken()

    def stop(self) -> None:
        """Set the variables as they were, and end the thread."""
        if os.getpid() != self._pid:
            return
        self._lead(self._before)
        self._on_thread(self._open.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _take(self) -> Taken:
        collected, calls = self._collected, tuple(self._gateway.calls)
        taken = Taken(traces=collected.bodies(Signal.TRACES), logs=collected.bodies(Signal.LOGS), calls=calls)
        collected.forget()
        self._gateway.forget()
        return taken

    def _on_thread(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LONGEST_S)

    @staticmethod
    def _lead(environ: Mapping[str, str]) -> None:
        for name in os.environ.keys() - environ.keys():
            del os.environ[name]
        os.environ.update(environ)


@asynccontextmanager
async def _opened(environ: Mapping[str, str]) -> AsyncIterator[tuple[Collecting, RecordingGateway]]:
    async with collecting(*own_destinations(environ)) as collected, recording(environ) as gateway:
        yield collected, gateway


__all__ = ["CallRecorder", "Taken"]
