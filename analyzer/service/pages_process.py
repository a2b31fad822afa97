"""Supervisor of the pages' process: starts it, answers its questions, and restarts it. Not pure.

The two processes hold the ends of one socket. Through it go the settings, then questions of the pages and
answers, each a line of JSON; and the service notices by it that the pages have ended, however they did. A
service that ends without stopping the pages ends them at once (``bound_process``). The sockets on which pages
are served belong to the service: connections wait in them while a process starts.

The event loop of the pages says every few seconds that it runs. A process that was ready and then says
nothing for a minute hangs, and is killed. It is not watched while it starts: that waits for the store.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Final, TypeAlias

from analyzer.analyses.worker_process import command_of
from analyzer.web.probes import Probe, ProbeAnswer
from collector_processor.settings import Settings

logger = logging.getLogger(__name__)

MODULE: Final = "analyzer.service.pages_alone"
_BINDING: Final = "analyzer.service.bound_process"
READY: Final = "ready"
"""Said by the pages once they serve."""
COMMANDS: Final = "commands"
"""Asks to carry out what the pages have written; answered when that is done."""
PROBE: Final = "probe"
ALIVE: Final = "alive"
BEAT_S: Final = 5.0
"""Seconds between two signs of life of the pages, and between two looks for them."""
SILENT_S: Final = 60.0
"""Seconds without a sign of life after which a process counts as hung. On the busiest machines an event loop
waits for some seconds."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
_LONG_LIFE_S: Final = 60.0
"""Seconds after which the end of a process counts as its first."""
_END_S: Final = 6.0
"""Seconds for the pages to end by themselves: responses in progress have 5 s."""
_ANSWER_S: Final = 5.0
_COMMANDS_S: Final = 20.0
_LONGEST_LINE: Final = 64 << 20
_GONE: Final = ProbeAnswer(status=503, body="the process that takes spans does not answer\n")

Question: TypeAlias = Mapping[str, Any]
Answering: TypeAlias = Callable[[Question], Awaitable[Mapping[str, Any]]]


def answering(probe: Probe, carry_out: Callable[[], Awaitable[None]]) -> Answering:
    """Return a function that answers the questions of the pages."""

    async def answer(question: Question) -> Mapping[str, Any]:
        match question["ask"]:
            case kind if kind == PROBE:
                return asdict(await probe(question["path"], question["accept"]))
            case kind if kind == COMMANDS:
                await carry_out()
        return {}

    return answer


@dataclass(slots=True)
class Silence:
    """For how long a process has given no sign of life, as seen by regular looks. Pure."""

    looked_s: float
    """Monotonic seconds of the last look."""
    heard: int = 0
    lasted_s: float = 0.0

    def is_too_long(self, now_s: float, heard: int) -> bool:
        """Look again, ``BEAT_S`` after the last look; ``heard`` is the number of signs so far.

        A late look begins anew: the machine was suspended, or so busy that this process did not run either.
        """
        passed_s, self.looked_s = now_s - self.looked_s, now_s
        is_broken = heard != self.heard or passed_s > 2 * BEAT_S
        self.heard, self.lasted_s = heard, 0.0 if is_broken else self.lasted_s + passed_s
        return self.lasted_s >= SILENT_S


@dataclass(slots=True, kw_only=True)
class PagesProcess:
    """One process at a time that serves the pages, until cancelled."""

    settings: Settings
    is_analysing: bool
    """Whether people may request analyses."""
    sockets: Sequence[socket.socket]
    """Sockets that listen; the caller closes them."""
    answer: Answering
    restarts: int = 0
    """Processes that ended by themselves, or hung."""
    pid: int | None = None
    """The process that serves now."""
    _is_ready: bool = False
    _heard: int = 0
    """Lines that processes have sent."""

    async def run(self) -> None:
        """Keep a process running; whatever ends it, it never ends the service."""
        pause_s = FIRST_PAUSE_S
        while True:
            began_s = time.monotonic()
            try:
                status: object = await self._live()
            except OSError as error:
                status = error.strerror
            if time.monotonic() - began_s > _LONG_LIFE_S:
                pause_s = FIRST_PAUSE_S
            self.restarts += 1
            logger.error("the pages' process ended", extra={"status": status, "started_again_in_s": pause_s})
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _live(self) -> int:
        """Start a process and answer it until it ends; return its status."""
        bond, bound = socket.socketpair()
        with bond:  # closed after the process has ended, or with this process
            with bound:
                process, kept = await self._connected(bound)
            await self._answer_until_end(process, kept)
        return process.returncode

    async def _connected(self, bound: socket.socket) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = await asyncio.to_thread(self._started, theirs, bound)
            return process, ours.dup()

    async def _answer_until_end(self, process: subprocess.Popen[bytes], kept: socket.socket) -> None:
        self.pid, self._is_ready = process.pid, False
        watch = asyncio.create_task(self._watch(process))
        try:
            reader, writer = await asyncio.open_connection(sock=kept, limit=_LONGEST_LINE)
            start = {"settings": self.settings.model_dump(mode="json"), "is_analysing": self.is_analysing}
            writer.write(_line(start))
            await self._answer_all(reader, writer)
        finally:
            self.pid = None
            watch.cancel()
            await asyncio.shield(asyncio.to_thread(_ended, process, _END_S if self._is_ready else 0.0))

    async def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process if it hangs."""
        silence = Silence(time.monotonic())
        while True:
            await asyncio.sleep(BEAT_S)
            if silence.is_too_long(time.monotonic(), self._heard) and self._is_ready:
                break
        context = {"pid": process.pid, "silent_s": round(silence.lasted_s)}
        logger.error("the pages' process does not answer: it is killed", extra=context)
        process.kill()

    def _started(self, theirs: socket.socket, bound: socket.socket) -> subprocess.Popen[bytes]:
        files = (theirs.fileno(), *(one.fileno() for one in self.sockets))
        return subprocess.Popen(  # noqa: S603 - our own program
            [*command_of(_BINDING), str(int(signal.SIGKILL)), str(bound.fileno()), MODULE, *map(str, files)],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            pass_fds=(bound.fileno(), *files),
            process_group=0,  # Ctrl-C is for the service only
        )

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers: set[asyncio.Task[None]] = set()
        try:
            with suppress(ConnectionError, ValueError):  # the process has ended, or is none of ours
                while line := await reader.readline():
                    self._heard += 1
                    question = json.loads(line)
                    self._is_ready = self._is_ready or question["ask"] == READY
                    task = asyncio.create_task(self._answer_one(question, writer))
                    answers.add(task)
                    task.add_done_callback(answers.discard)
        finally:
            writer.close()
            for task in answers:
                task.cancel()

    async def _answer_one(self, question: Question, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self.answer(question)
        except Exception:  # containment: a question of the pages must not end the service
            logger.exception("a question of the pages could not be answered")
            answer = {}
        writer.write(_line({**answer, "id": question["id"]}))


def _ended(process: subprocess.Popen[bytes], patience_s: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
        return
    process.kill()
    process.wait()


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


class Service:
    """The service, as the pages' process sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader: Final = reader
        self._writer: Final = writer
        self._asked: Final[dict[int, asyncio.Future[Question]]] = {}
        self._ids: Final = count()

    async def listen(self) -> None:
        """Take answers until the service ends."""
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                answer = json.loads(line)
                asked = self._asked.pop(answer.pop("id"), None)
                if asked is not None and not asked.done():
                    asked.set_result(answer)

    async def beat(self) -> None:
        """Say regularly that this process runs, until cancelled."""
        while True:
            self._send({"ask": ALIVE, "id": next(self._ids)})
            await asyncio.sleep(BEAT_S)

    async def ready(self) -> None:
        """Say that pages are served."""
        await self._ask({"ask": READY}, _ANSWER_S)

    async def carry_out(self) -> None:
        """Have commands and labels in the store carried out now; return when that is done, or too late."""
        await self._ask({"ask": COMMANDS}, _COMMANDS_S)

    async def probe(self, path: str, accept: str = "") -> ProbeAnswer:
        """Return the service's answer to a probe: 503 if it gives none."""
        found = await self._ask({"ask": PROBE, "path": path, "accept": accept}, _ANSWER_S)
        return ProbeAnswer(**found) if found else _GONE

    def _send(self, question: Mapping[str, Any]) -> None:
        """Send a question; a service that has ended, as ``listen`` will tell, gets none."""
        if not self._writer.is_closing():
            self._writer.write(_line(question))

    async def _ask(self, question: dict[str, Any], patience_s: float) -> Question | None:
        id_ = next(self._ids)
        asked: asyncio.Future[Question] = asyncio.get_running_loop().create_future()
        self._asked[id_] = asked
        self._send({**question, "id": id_})
        try:
            async with asyncio.timeout(patience_s):
                return await asked
        except TimeoutError:
            return None
        finally:
            self._asked.pop(id_, None)


async def connected(file: int) -> tuple[Mapping[str, Any] | None, Service]:
    """Connect to the service by an inherited socket; return what it says first, ``None`` if it is gone."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=file), limit=_LONGEST_LINE)
    said = await reader.readline()
    return (json.loads(said) if said else None), Service(reader, writer)
