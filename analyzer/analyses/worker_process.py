"""The service's side of worker processes. Not pure.

They are started by ``subprocess``, which with ``vfork`` neither copies our memory nor runs gRPC's fork
handlers, and are used from a thread: an exchange is one write, and one read for each answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, Self

from analyzer.analyses.codec import LENGTH_BYTES, length_of, read_prepared, with_length, write_traces
from analyzer.analyses.prepared import Prepared, TraceBytes
from collector_processor.otlp import CollectorError
from collector_processor.settings import Settings

if TYPE_CHECKING:
    from analyzer.methods.ranker import Ranker

logger = logging.getLogger(__name__)

_START_S: Final = 60.0
"""Seconds to wait for the start; imports take one second, or many seconds on a busy machine."""
TRACE_CPU_S: Final = 10.0
"""CPU seconds for a trace (of 1 MiB at most), which usually takes less than one. A trace that takes longer
counts as endless. The kernel kills the process (``SIGPROF``): our code could not do so during a loop in a
C library, or once the service is gone."""
OVER_CPU_TIME: Final = f"the analysis was stopped: it used more than {TRACE_CPU_S:g} s of CPU time"
"""Reason of the ``error`` verdict of such a trace."""
_ANSWER_S: Final = 60.0
"""Seconds to wait for the next answer on a busy machine, and as many for each 2 MiB of the message; a stopped
process never answers."""
_LARGE_BYTES: Final = 1 << 18
"""Traces up to this size, in bytes, are written on the event loop: in less than a millisecond."""
_END_S: Final = 2.0
_PASSED_ON: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "VIRTUAL_ENV"}
)
_PASSED_ON_FROM: Final = ("LC_", "PYTHON")
"""Names and prefixes of the environment variables that a worker process gets. It reads untrusted input and
needs none of our keys (such as ``LANGFUSE_SECRET_KEY``)."""


NEEDED: Final = frozenset(
    {
        "asks_analyzers", "budget_usd_per_run", "export_text", "failure_pattern",
        "keep_failed_bytes", "keep_passed_bytes", "mappings", "method", "model", "notify_text", "precision",
        "redact", "redact_patterns", "suspect_false_alarms",
    }
)  # fmt: skip
"""Settings that worker processes get: none is a secret. Worker processes call no model, but must
know whether there is one."""


def command_of(module: str) -> tuple[str, ...]:
    """Return the command that runs a module; ``-P``: never import from the working directory."""
    return (sys.executable, "-P", "-m", module)


def worker_settings(settings: Settings, ranker: Ranker | None = None) -> bytes:
    """Return the settings for a worker process as JSON, with the ranker itself: its file may change."""
    if ranker is None:
        sent = None
    else:
        from analyzer.methods.ranker import write_model  # noqa: PLC0415 - all signals

        sent = write_model(ranker)
    needed = settings.model_dump(mode="json", include=set(NEEDED))
    return json.dumps([needed, sent]).encode()


class WorkerLostError(CollectorError):
    """The process ended, or could not be started."""

    def __init__(
        self, reason: str, answers: Sequence[Prepared | None] = (), *, used_up_cpu: bool = False
    ) -> None:
        """Describe the end of the process, and whether the kernel killed it for its CPU time."""
        super().__init__(reason)
        self.answers = tuple(answers)
        self.used_up_cpu = used_up_cpu


class WorkerProcess:
    """One process; it handles one exchange at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process: Final = process
        self._inward: Final[IO[bytes]] = process.stdin
        self._outward: Final[IO[bytes]] = process.stdout
        self._thread: Final = ThreadPoolExecutor(1)
        self._asked: asyncio.Future[None] | None = None
        """The exchange in progress, which may outlive its callers."""

    @classmethod
    async def start(cls, settings: bytes, command: Sequence[str]) -> Self:
        """Start a process.

        Raises:
            WorkerLostError: it cannot be started.
        """
        try:
            worker = cls(await asyncio.to_thread(_started, command))
        except OSError as error:
            raise WorkerLostError(f"cannot start a process: {error.strerror}") from error
        try:
            async with asyncio.timeout(_START_S):
                await asyncio.shield(worker._ask(settings, 1, _ready))
        except (TimeoutError, WorkerLostError) as error:
            await worker.end()
            raise WorkerLostError("the process ended before it was ready") from error
        except BaseException:
            worker._process.kill()
            raise
        return worker

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def prepare(self, traces: Sequence[TraceBytes]) -> list[Prepared | None]:
        """Prepare each trace; ``None`` for traces that must be prepared elsewhere.

        Raises:
            WorkerLostError: it ended, answered too late, or its answer is unreadable.
        """
        found: list[Prepared | None] = []
        is_large = sum(trace.byte_count for trace in traces) > _LARGE_BYTES
        message = await asyncio.to_thread(write_traces, traces) if is_large else write_traces(traces)
        asked = self._ask(message, len(traces), lambda answer: found.append(read_prepared(answer)))
        try:
            await self._answered(asked, found, _patience_s(max(len(message) // max(1, len(traces)), 1)))
        except WorkerLostError as error:
            raise WorkerLostError(str(error), found, used_up_cpu=self._used_up_cpu) from error
        return found

    async def exchange(self, message: bytes) -> bytes:
        """Send a message and return the answer.

        Raises:
            WorkerLostError: it ended, or answered too late.
        """
        found: list[bytes] = []
        try:
            asked = self._ask(message, 1, found.append)
            await self._answered(asked, found, _patience_s(len(message)))
        except WorkerLostError as error:
            raise WorkerLostError(str(error), used_up_cpu=self._used_up_cpu) from error
        return found[0]

    @property
    def _used_up_cpu(self) -> bool:
        return self._process.returncode == -signal.SIGPROF

    async def _answered(
        self, asked: asyncio.Future[None], found: Sequence[object], patience_s: float
    ) -> None:
        """Wait for all answers, as long as new ones arrive in time."""
        before = -1
        while len(found) > before:
            before = len(found)
            await asyncio.wait([asked], timeout=patience_s)
            if asked.done():
                asked.result()
                return
        self._process.kill()
        raise WorkerLostError(f"the process gave no answer within {patience_s:g} s")

    async def end(self) -> None:
        """Stop it and wait until it has ended; an exchange in progress has a moment to finish."""
        if self._asked is not None:
            _, unanswered = await asyncio.wait([self._asked], timeout=_END_S)
            if unanswered:
                self._process.kill()
                await asyncio.wait([self._asked])
        await asyncio.to_thread(self._end)
        self._thread.shutdown(wait=False)

    def _ask(self, message: bytes, answers: int, take: Callable[[bytes], None]) -> asyncio.Future[None]:
        """Begin an exchange; its answers are read in another thread."""
        loop = asyncio.get_running_loop()
        self._asked = loop.run_in_executor(self._thread, self._exchange, message, answers, take)
        self._asked.add_done_callback(_heed)
        return self._asked

    def _exchange(self, message: bytes, answers: int, take: Callable[[bytes], None]) -> None:
        try:
            self._inward.write(with_length(message))
            self._inward.flush()
            for _ in range(answers):
                take(self._read())
        except OSError as error:
            raise WorkerLostError(f"the process is gone: {error}") from error
        except ValueError as error:
            raise WorkerLostError(f"the process gave an unreadable answer: {error}") from error

    def _read(self) -> bytes:
        head = self._outward.read(LENGTH_BYTES)
        length = length_of(head)
        answer = self._outward.read(length)
        if len(head) < LENGTH_BYTES or len(answer) < length:
            with suppress(subprocess.TimeoutExpired):  # the cause of its end must be known
                self._process.wait(_END_S)
            raise WorkerLostError("the process is gone")
        return answer

    def _end(self) -> None:
        with suppress(OSError):  # unwritten data will never be read
            self._inward.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._outward.close()


def _patience_s(byte_count: int) -> float:
    """Return the seconds to wait for an answer to a message of this size."""
    return _ANSWER_S * (1 + (byte_count >> 21))


def _ready(_answer: bytes) -> None:
    """Check that it reports ready, and nothing else."""


def _heed(asked: asyncio.Future[None]) -> None:
    """Retrieve the outcome of an exchange, because its caller may be gone."""
    if not asked.cancelled():
        asked.exception()


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own program
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(os.environ, sys.path),
        process_group=0,  # Ctrl-C is for the service only, from the start
    )


def environment(ours: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that a worker process gets.

    Args:
        ours: this process's environment.
        path: the module path of this process, so that it finds the same modules.
    """
    passed = {
        name: value for name, value in ours.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_FROM)
    }
    return passed | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, path))}
