"""A process that drafts, as the service holds it: started, asked, ended. A shell."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from analyzer.drafting.letters import LENGTH_BYTES, length_of, read_drafts, with_length, write_traces
from collector_processor.draft import Draft, LoneTrace
from collector_processor.otlp import CollectorError

logger = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "analyzer.drafting.worker")
_START_S: Final = 60.0
"""Importing takes a second; on a machine that does much else, many."""
_END_S: Final = 2.0
_PASSED_ON: Final = (
    "HOME",
    "LANG",
    "LC_",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHON",
    "TMPDIR",
    "TZ",
    "VIRTUAL_ENV",
)
"""Beginnings of the variables that it gets: it reads what anybody may send, and needs no key of ours."""


class WorkerLostError(CollectorError):
    """The process ended, or could not be started."""


class Worker:
    """One process; asked by one at a time."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process: Final = process
        self._inward: Final = process.stdin
        self._outward: Final = process.stdout

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
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, env=_environment(os.environ)
            )
        except OSError as error:
            raise WorkerLostError(f"no process can be started: {error.strerror}") from error
        worker = cls(process)
        try:
            async with asyncio.timeout(_START_S):
                await worker._exchange(told)
        except (TimeoutError, WorkerLostError) as error:
            await worker.end()
            raise WorkerLostError("the process ended before it was ready") from error
        except BaseException:
            process.kill()
            raise
        return worker

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    async def draft(self, traces: Sequence[LoneTrace]) -> list[Draft | None]:
        """Return a draft for each.

        Raises:
            WorkerLostError: it ended, or does not answer as it should.
        """
        answer = await self._exchange(write_traces(traces))
        try:
            drafts = read_drafts(answer)
        except ValueError as error:
            raise WorkerLostError(f"the process answers nonsense: {error}") from error
        if len(drafts) != len(traces):
            raise WorkerLostError(f"the process answers {len(drafts)} of {len(traces)} traces")
        return drafts

    async def end(self) -> None:
        """Let it go, and see that it went."""
        self._inward.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _exchange(self, letter: bytes) -> bytes:
        try:
            self._inward.write(with_length(letter))
            await self._inward.drain()
            length = length_of(await self._outward.readexactly(LENGTH_BYTES))
            return await self._outward.readexactly(length)
        except (OSError, EOFError, ValueError) as error:
            raise WorkerLostError(f"the process is gone: {error}") from error


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in ours.items() if name.startswith(_PASSED_ON)}
