"""A process that drafts, as the service holds it: started, asked, ended. A shell.

Started by ``subprocess``, which neither copies our memory nor asks gRPC to make ready for that
(``vfork``), and asked on a thread: an exchange is one write, and a read for each answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, Self

from analyzer.drafting.messages import LENGTH_BYTES, length_of, read_draft, with_length, write_traces
from collector_processor.draft import Draft, LoneTrace
from collector_processor.otlp import CollectorError

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-P", "-m", "analyzer.drafting.worker")
"""Without the working directory: what lies there by the name of a module of ours is none."""
_START_S: Final = 60.0
"""Importing takes a second; on a machine that does much else, many."""
TRACE_CPU_S: Final = 10.0
"""CPU time for a trace (1 MiB at most), which takes a second at most: what takes so long has no end, and is
ended by the kernel (``SIGPROF``), since nothing of ours runs in a loop of the C library's or when the
service is gone."""
_ANSWER_S: Final = 60.0
"""From one answer to the next, on a machine that does much else; a process that was stopped never answers."""
_END_S: Final = 2.0
_PASSED_ON: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "VIRTUAL_ENV"}
)
_PASSED_ON_FROM: Final = ("LC_", "PYTHON")
"""Names of the variables that it gets, and how names begin: it reads what anybody may send, and needs no
key of ours (``LANGFUSE_SECRET_KEY`` is one)."""


class WorkerLostError(CollectorError):
    """The process ended, or could not be started."""

    def __init__(
        self, reason: str, drafted: Sequence[Draft | None] = (), *, had_no_end: bool = False
    ) -> None:
        """Make it.

        Args:
            reason: in words.
            drafted: what had been answered before, in order.
            had_no_end: whether it was ended since the next trace took more time than any should.
        """
        super().__init__(reason)
        self.drafted = tuple(drafted)
        self.had_no_end = had_no_end


class WorkerProcess:
    """One process; asked by one at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process: Final = process
        self._inward: Final[IO[bytes]] = process.stdin
        self._outward: Final[IO[bytes]] = process.stdout
        self._asked: asyncio.Future[None] | None = None
        """What is under way, perhaps after all who wanted it have gone."""

    @classmethod
    async def start(cls, told: bytes, command: Sequence[str] = COMMAND) -> Self:
        """Start a process.

        Args:
            told: its settings, as JSON.
            command: what is run.

        Raises:
            WorkerLostError: it cannot be had.
        """
        try:
            worker = cls(await asyncio.to_thread(_started, command))
        except OSError as error:
            raise WorkerLostError(f"no process can be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(_START_S):
                await asyncio.shield(worker._ask(told, 1, _ready))
        except (TimeoutError, WorkerLostError) as error:
            await worker.end()
            raise WorkerLostError("the process ended before it was ready") from error
        except BaseException:
            worker._process.kill()
            raise
        return worker

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    async def draft(self, traces: Sequence[LoneTrace]) -> list[Draft | None]:
        """Return a draft for each.

        Raises:
            WorkerLostError: it ended, or does not answer as it should, or in time.
        """
        drafts: list[Draft | None] = []
        asked = self._ask(write_traces(traces), len(traces), lambda answer: drafts.append(read_draft(answer)))
        try:
            await self._answered(asked, drafts)
        except WorkerLostError as error:
            had_no_end = self._process.returncode == -signal.SIGPROF
            raise WorkerLostError(str(error), drafts, had_no_end=had_no_end) from error
        return drafts

    async def _answered(self, asked: asyncio.Future[None], drafts: Sequence[Draft | None]) -> None:
        """Wait for all answers, as long as there come any."""
        before = -1
        while len(drafts) > before:
            before = len(drafts)
            await asyncio.wait([asked], timeout=_ANSWER_S)
            if asked.done():
                asked.result()
                return
        self._process.kill()
        raise WorkerLostError(f"the process gave no answer within {_ANSWER_S:g} s")

    async def end(self) -> None:
        """Let it go, and see that it went; what is under way has a moment to end."""
        if self._asked is not None:
            _, unanswered = await asyncio.wait([self._asked], timeout=_END_S)
            if unanswered:
                self._process.kill()
                await asyncio.wait([self._asked])
        await asyncio.to_thread(self._end)

    def _ask(self, message: bytes, answers: int, take: Callable[[bytes], None]) -> asyncio.Future[None]:
        """Begin an exchange; what it is told is taken on another thread."""
        loop = asyncio.get_running_loop()
        self._asked = loop.run_in_executor(None, self._exchange, message, answers, take)
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
            raise WorkerLostError(f"the process answers nonsense: {error}") from error

    def _read(self) -> bytes:
        head = self._outward.read(LENGTH_BYTES)
        length = length_of(head)
        answer = self._outward.read(length)
        if len(head) < LENGTH_BYTES or len(answer) < length:
            with suppress(subprocess.TimeoutExpired):  # what it ended by is to be known
                self._process.wait(_END_S)
            raise WorkerLostError("the process is gone")
        return answer

    def _end(self) -> None:
        with suppress(OSError):  # what was not written yet, nobody reads
            self._inward.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._outward.close()


def _ready(_answer: bytes) -> None:
    """It says that it is ready, and nothing else."""


def _heed(asked: asyncio.Future[None]) -> None:
    """Look at what became of an exchange: perhaps nobody waits for it any more."""
    if not asked.cancelled():
        asked.exception()


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own program
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(os.environ, sys.path),
        process_group=0,  # Ctrl-C is for the service, from the first moment on
    )


def environment(ours: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """Return the variables that it gets.

    Args:
        ours: this process's.
        path: where this process finds modules; it shall find the same ones.
    """
    passed = {
        name: value for name, value in ours.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_FROM)
    }
    return passed | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, path))}
