"""A program in our terminal, with the variables that lead its telemetry here. Not pure."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from analyzer.programs.model_call import PassedCall
from semconv.record import record

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""Exit codes of shells."""
_REST_S: Final = 1.0
"""Seconds after a program's end for what is left of its output."""
_MOST_OUTPUT: Final = 16 << 20
"""Bytes of standard output kept for the check; all of it passes."""
CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS: Final = ("TRACES", "LOGS", "METRICS")
_SOON: Final = {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_BLRP_SCHEDULE_DELAY": "200"}
TEXTS: Final = {CAPTURE: "true", "TRACELOOP_TRACE_CONTENT": "true"}
"""Variables that have instrumentations record texts."""
_SERVICE: Final = "OTEL_SERVICE_NAME"
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_HERE: Final = "127.0.0.1"


@record
class Ended:
    """How a child ended."""

    code: int
    """Its exit code, or 128 and the number of the signal that ended it, as shells say."""
    output: str = ""
    """The beginning of its standard output, if it was watched."""
    is_stopped: bool = False
    """Whether the user wanted an end: by Ctrl-C, or by SIGTERM."""


@record
class Wishes:
    """What the user wants to know of a program's run."""

    expect: str | None = None
    """A text that the output of a run that succeeded contains."""
    check: str | None = None
    """A command that gets the output, and exits with 0 for success."""
    failed: bool = False
    """Whether to take the run as failed."""
    save: Path | None = None
    """The file to write the run to."""
    as_json: bool = False
    opens: bool = False
    """Whether to serve the page of the runs afterwards."""

    @property
    def watches_output(self) -> bool:
        """Whether the program's standard output decides."""
        return self.expect is not None or self.check is not None


@record
class Seen:
    """What was seen of a program's run."""

    program: str
    ended: Ended
    traces: tuple[bytes, ...]
    """Its OTLP requests, in the order of their arrival."""
    logs: tuple[bytes, ...]
    calls: tuple[PassedCall, ...]
    has_gateway: bool
    left_out: int = 0
    """Calls that were not kept, because the others were too large."""
    undelivered: int = 0
    """Requests that its own backend did not take."""
    why_undelivered: str = ""
    advice: str = ""
    """What to install so that more is seen."""


def child_environment(environ: Mapping[str, str], here: str, name: str) -> dict[str, str]:
    """Return a program's environment, in which its OpenTelemetry SDK sends to a receiver here.

    The receiver takes gRPC and HTTP on one port, so that exporters of either kind reach it, whatever the
    variables say. Texts are recorded and spans sent soon, unless the user says otherwise.

    Args:
        environ: the environment without us.
        here: the receiver's URL, without a path.
        name: the program's name.
    """
    specific = {f"OTEL_EXPORTER_OTLP_{each}_ENDPOINT" for each in _SIGNALS}
    kept = {key: value for key, value in environ.items() if key not in specific}
    usual = {**_SOON, **TEXTS}
    if "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        usual[_SERVICE] = name
    direct = {key: ",".join(filter(None, (environ.get(key, ""), _HERE))) for key in _NO_PROXY}
    return {**usual, **{key: value for key, value in kept.items() if value}, **direct, _ENDPOINT: here}


async def run_child(
    command: Sequence[str], environ: Mapping[str, str], out: IO[str], *, watches_output: bool
) -> Ended:
    """Run a command with our standard streams until it ends.

    Ctrl-C reaches it from the terminal; we outlive it, to say what was seen. SIGTERM is passed on.

    Args:
        command: the program and its arguments.
        environ: all of its environment variables.
        out: the stream that its standard output goes to.
        watches_output: whether to keep its standard output while it passes.

    Raises:
        FileNotFoundError: there is no such program.
        PermissionError: it cannot be executed.
    """
    if not watches_output:
        return await _waited(await _start(command, environ, out.fileno()))
    # With a pipe of asyncio's, ``Process.wait`` would also wait for every process that holds it open.
    read, write = os.pipe()
    kept = bytearray()
    async with _reading(read) as stream:
        with os.fdopen(write, "wb") as theirs:
            process = await _start(command, environ, theirs.fileno())
        passing = asyncio.create_task(_pass_through(stream, out.fileno(), kept))
        try:
            ended = await _waited(process)
            # A process that the program leaves behind may hold its output open.
            await asyncio.wait([passing], timeout=_REST_S)
        finally:
            passing.cancel()
    return replace(ended, output=kept.decode("utf-8", "replace"))


async def _start(
    command: Sequence[str], environ: Mapping[str, str], stdout: int
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(*command, env=dict(environ), stdout=stdout)


async def _waited(process: asyncio.subprocess.Process) -> Ended:
    """Wait for a process; SIGTERM is passed on to it."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        stopped.set()
        if process.returncode is None:
            process.terminate()

    loop.add_signal_handler(signal.SIGINT, stopped.set)
    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        code = await process.wait()
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
    return Ended(code=code if code >= 0 else 128 - code, is_stopped=stopped.is_set())


@asynccontextmanager
async def _reading(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    """Read a pipe, and close it at the end of the block, whoever still writes to it."""
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        yield stream
    finally:
        transport.close()


async def _pass_through(stream: asyncio.StreamReader, out: int, kept: bytearray) -> None:
    """Write a stream to a descriptor as it comes, and add its beginning to ``kept``.

    What reads our output may end before the program, which goes on.
    """
    is_read = True
    while piece := await stream.read(1 << 16):
        kept += piece[: _MOST_OUTPUT - len(kept)]
        if is_read:
            is_read = await asyncio.to_thread(_write, out, piece)


def _write(descriptor: int, piece: bytes) -> bool:
    """Write all of a piece; return whether somebody reads it."""
    left = memoryview(piece)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            select.select([], [descriptor], [], 1.0)
        except BrokenPipeError:
            return False
    return True
