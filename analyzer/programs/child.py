"""A program in our terminal, with the variables that lead its telemetry here. Not pure."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from analyzer.programs.model_call import PassedCall
from semconv.record import record

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""Exit codes of shells."""
_MOST_OUTPUT: Final = 16 << 20
"""Bytes of standard output kept for the check; all of it passes."""
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_SIGNALS: Final = ("TRACES", "LOGS", "METRICS")
_UNLESS_SET: Final = {
    _CAPTURE: "true",
    "OTEL_BSP_SCHEDULE_DELAY": "200",
    "OTEL_BLRP_SCHEDULE_DELAY": "200",
    "TRACELOOP_TRACE_CONTENT": "true",
    "OTEL_SERVICE_NAME": "",
}


@record
class Ended:
    """How a child ended."""

    code: int
    """Its exit code, or 128 and the number of the signal that ended it, as shells say."""
    output: str = ""
    """The beginning of its standard output, if it was watched."""


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
    undelivered: int = 0
    """Requests that its own backend did not take."""
    why_undelivered: str = ""


def telemetry_variables(environ: Mapping[str, str], grpc: str, http: str, name: str) -> dict[str, str]:
    """Return the variables that lead a program's OpenTelemetry SDK to receivers at these URLs.

    The protocol that the user chose is kept; texts are recorded and spans sent soon, unless the user says
    otherwise.
    """
    found = {key: value or name for key, value in _UNLESS_SET.items() if not environ.get(key)}
    for signal_name in ("", *(f"{each}_" for each in _SIGNALS)):
        protocol = environ.get(f"OTEL_EXPORTER_OTLP_{signal_name}PROTOCOL") or environ.get(_PROTOCOL, "")
        is_grpc = protocol.strip().lower() == "grpc"
        path = f"/v1/{signal_name.rstrip('_').lower()}" if signal_name and not is_grpc else ""
        found[f"OTEL_EXPORTER_OTLP_{signal_name}ENDPOINT"] = (grpc if is_grpc else http) + path
        if not protocol:
            found[f"OTEL_EXPORTER_OTLP_{signal_name}PROTOCOL"] = "http/protobuf"
    return found


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
    process = await asyncio.create_subprocess_exec(
        *command, env=dict(environ), stdout=asyncio.subprocess.PIPE if watches_output else out.fileno()
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, process.terminate)
    try:
        output = await _passed_through(process.stdout, out.fileno()) if process.stdout is not None else b""
        code = await process.wait()
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
    return Ended(code=code if code >= 0 else 128 - code, output=output.decode("utf-8", "replace"))


async def _passed_through(stream: asyncio.StreamReader, out: int) -> bytes:
    """Write a stream to a descriptor as it comes, and return its beginning."""
    kept = bytearray()
    while piece := await stream.read(1 << 16):
        kept += piece[: _MOST_OUTPUT - len(kept)]
        await asyncio.to_thread(_write, out, piece)
    return bytes(kept)


def _write(descriptor: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(descriptor, left) :]
