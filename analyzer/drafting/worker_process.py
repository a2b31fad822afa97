"""A process that drafts, as the service holds it: started, asked, ended. A shell.

Started by ``subprocess``, which neither copies our memory nor asks gRPC to make ready for that
(``vfork``), and asked on a thread: an exchange is one write and one read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, Self

from analyzer.drafting.messages import LENGTH_BYTES, length_of, read_drafts, with_length, write_traces
from collector_processor.draft import Draft, LoneTrace
from collector_processor.otlp import CollectorError

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-P", "-m", "analyzer.drafting.worker")
"""Without the working directory: what lies there by the name of a module of ours is none."""
_START_S: Final = 60.0
"""Importing takes a second; on a machine that does much else, many."""
_ANSWER_S: Final = 120.0
"""Traces that it is given together take seconds; a process that was stopped never answers."""
_END_S: Final = 2.0
_PASSED_ON: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "VIRTUAL_ENV"}
)
_PASSED_ON_FROM: Final = ("LC_", "PYTHON")
"""Names of the variables that it gets, and how names begin: it reads what anybody may send, and needs no
key of ours (``LANGFUSE_SECRET_KEY`` is one)."""


class WorkerLostError(CollectorError):
    """The process ended, or could not be started."""


class WorkerProcess:
    """One process; asked by one at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process: Final = process
        self._inward: Final[IO[bytes]] = process.stdin
        self._outward: Final[IO[bytes]] = process.stdout
        self._asked: asyncio.Future[bytes] | None = None
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
                await worker._ask(told)
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
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await self._ask(write_traces(traces))
        except TimeoutError as error:
            self._process.kill()
            raise WorkerLostError(f"the process gave no answer within {_ANSWER_S:g} s") from error
        try:
            drafts = read_drafts(answer)
        except ValueError as error:
            raise WorkerLostError(f"the process answers nonsense: {error}") from error
        if len(drafts) != len(traces):
            raise WorkerLostError(f"the process answers {len(drafts)} of {len(traces)} traces")
        return drafts

    async def end(self) -> None:
        """Let it go, and see that it went; what is under way has a moment to end."""
        if self._asked is not None:
            _, unanswered = await asyncio.wait([self._asked], timeout=_END_S)
            if unanswered:
                self._process.kill()
                await asyncio.wait([self._asked])
        await asyncio.to_thread(self._end)

    async def _ask(self, message: bytes) -> bytes:
        self._asked = asyncio.get_running_loop().run_in_executor(None, self._exchange, message)
        return await asyncio.shield(self._asked)

    def _exchange(self, message: bytes) -> bytes:
        try:
            self._inward.write(with_length(message))
            self._inward.flush()
            head = self._outward.read(LENGTH_BYTES)
            length = length_of(head)
            answer = self._outward.read(length)
        except (OSError, ValueError) as error:
            raise WorkerLostError(f"the process is gone: {error}") from error
        if len(head) < LENGTH_BYTES or len(answer) < length:
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
