"""Runners of the user's workflow (command, HTTP, function), and checks whether it succeeded. Not pure.

A command gets a process group of its own, which is killed when the trial ends: on its own, by the time limit
or by Ctrl-C. Children that left the group are found by their environment, which contains the trial's URL.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import aiohttp

from analyzer.inquiry.errors import AnalyzerError
from semconv.emit.tool_playback import TRIAL_VARIABLE
from semconv.record import record

TIMEOUT_S: Final = 600.0
_MAX_OUTPUT: Final = 16 << 20
"""Bytes of standard output kept for the check."""
_TAIL: Final = 2_000
_GRACE_S: Final = 2.0
"""Seconds between SIGTERM and SIGKILL."""
_PIPES_S: Final = 1.0
"""Seconds to read the output that was written before the end."""
_POLL_S: Final = 0.02
_PROC: Final = Path("/proc")


@record
class Ended:
    """Result of one run of the workflow."""

    output: str = ""
    code: int | None = 0
    """Exit code; ``None`` after the time limit."""
    tail: str = ""
    """The last part of its standard error, for messages."""

    @property
    def timed_out(self) -> bool:
        """Whether it exceeded the time limit."""
        return self.code is None


class Workflow(Protocol):
    """Runs the user's workflow once."""

    async def __call__(self, environment: Mapping[str, str], timeout_s: float) -> Ended:
        """Run it with these variables added to our environment; no process is left afterwards.

        Raises:
            OSError: it cannot be started.
        """
        ...


@record
class Command:
    """A command, started once for each trial."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to ours and to the trial's."""

    def __str__(self) -> str:
        """Return the command as a shell reads it."""
        return shlex.join(self.arguments)

    async def __call__(self, environment: Mapping[str, str], timeout_s: float) -> Ended:
        """Run the command to its end or to the time limit."""
        variables = {**os.environ, **self.environment, **environment}
        return await run_command(self.arguments, variables, b"", timeout_s)


@record
class Endpoint:
    """A workflow over HTTP; the request tells it the address of its model.

    It receives ``{"task": …, "environment": {…}}``, and its answer is the output. It must use the
    ``environment`` for this request only: trials may overlap, and users' requests continue.
    """

    url: str
    task: str = ""
    """The recorded run's task; empty if not recorded."""

    def __str__(self) -> str:
        """Return its address."""
        return f"POST {self.url}"

    async def __call__(self, environment: Mapping[str, str], timeout_s: float) -> Ended:
        """Post the trial to the workflow; its answer is the output.

        Raises:
            OSError: it cannot be reached.
        """
        body = {"task": self.task, "environment": dict(environment)}
        # A redirect would give the trial's address, which is a capability, to another server.
        try:
            async with (
                asyncio.timeout(timeout_s),
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
                session.post(self.url, json=body, allow_redirects=False) as answer,
            ):
                output = bytearray()
                async for chunk in answer.content.iter_any():
                    output += chunk[: _MAX_OUTPUT - len(output)]
                return _answered(answer, output.decode(errors="replace"))
        except TimeoutError:
            return Ended(code=None)
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise OSError(f"{self.url}: {error}") from error
        except aiohttp.ClientError as error:  # the connection broke, which counts as a crash
            return Ended(code=1, tail=f"{type(error).__name__}: {error}"[-_TAIL:])


def _answered(answer: aiohttp.ClientResponse, output: str) -> Ended:
    if 200 <= answer.status < 300:
        return Ended(output=output)
    location = f" to {answer.headers['Location']}" if "Location" in answer.headers else ""
    first = output.strip().partition("\n")[0]
    return Ended(
        output=output, code=answer.status, tail=f"HTTP {answer.status}{location} {first}"[:_TAIL].strip()
    )


@record
class Function:
    """A function in this process: takes the trial's environment, returns the workflow's output."""

    call: Callable[[Mapping[str, str]], Awaitable[str]]

    def __str__(self) -> str:
        """Return its name."""
        return getattr(self.call, "__qualname__", repr(self.call))

    async def __call__(self, environment: Mapping[str, str], timeout_s: float) -> Ended:
        """Call the function; an exception counts as exit code 1."""
        try:
            async with asyncio.timeout(timeout_s):
                return Ended(output=await self.call(environment))
        except TimeoutError:
            return Ended(code=None)
        except Exception as error:  # noqa: BLE001 - the workflow's failure is a result
            return Ended(code=1, tail=f"{type(error).__name__}: {error}"[-_TAIL:])


async def run_command(
    arguments: Sequence[str], variables: Mapping[str, str], stdin: bytes, timeout_s: float
) -> Ended:
    """Run a command in its own process group; the group is dead afterwards.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *arguments,
        env=dict(variables),
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    reading = asyncio.gather(
        _feed(process, stdin),
        _read(process.stdout, output, _MAX_OUTPUT, from_end=False),
        _read(process.stderr, errors, _TAIL, from_end=True),
    )
    code: int | None = None
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                code = await _exit_code(process)
                # A server started by it may hold its pipes open.
                await asyncio.wait({reading}, timeout=_PIPES_S)
    finally:
        await asyncio.shield(asyncio.ensure_future(_kill(process, variables.get(TRIAL_VARIABLE, ""))))
        await asyncio.wait({reading}, timeout=_PIPES_S)  # the pipes are closed now, unless a process escaped
        # asyncio has no public way to close the pipes of a process.
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        await reading
    return Ended(output=output.decode(errors="replace"), code=code, tail=errors.decode(errors="replace"))


async def _exit_code(process: asyncio.subprocess.Process) -> int:
    """Wait for the process itself; ``Process.wait`` may also wait for its pipes to close."""
    while process.returncode is None:  # noqa: ASYNC110 - asyncio reports the exit only when the pipes close
        await asyncio.sleep(_POLL_S)
    return process.returncode


async def _feed(process: asyncio.subprocess.Process, stdin: bytes) -> None:
    if process.stdin is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _read(stream: asyncio.StreamReader, kept: bytearray, most: int, *, from_end: bool) -> None:
    """Read to the end, keeping the first or the last ``most`` bytes."""
    while chunk := await stream.read(1 << 16):
        kept += chunk
        del kept[slice(0, -most) if from_end else slice(most, None)]


async def _kill(process: asyncio.subprocess.Process, trial: str) -> None:
    """Kill the process group and processes that left it."""
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await _exit_code(process)
    _signal_group(process.pid, signal.SIGKILL)
    for pid in _in_trial(trial) if trial else ():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    await _exit_code(process)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _in_trial(trial: str) -> list[int]:
    """Return the processes whose environment holds this trial's URL; none without ``/proc``."""
    wanted, own = f"{TRIAL_VARIABLE}={trial}".encode(), os.getpid()
    found = []
    for place in _PROC.glob("[0-9]*/environ"):
        pid = int(place.parent.name)
        with suppress(OSError):
            if pid != own and wanted in place.read_bytes().split(b"\0"):
                found.append(pid)
    return found


CHECK_TIMEOUT_S: Final = 60.0

Check: TypeAlias = Callable[[Ended], Awaitable[bool]]
"""Returns whether a run that ended on its own succeeded."""


class CheckFailed(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """The check itself could not be run."""


@record
class CommandCheck:
    """Check by a command that reads the output and exits with 0 for success."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to ours."""

    async def __call__(self, ended: Ended) -> bool:
        """Run the check.

        Raises:
            CheckFailed: it cannot be started, or does not end.
        """
        try:
            checked = await run_command(
                self.arguments, {**os.environ, **self.environment}, ended.output.encode(), CHECK_TIMEOUT_S
            )
        except OSError as error:
            raise CheckFailed(f"--check {self.arguments[0]}: {error.strerror or error}") from error
        if checked.timed_out:
            raise CheckFailed(f"--check {self.arguments[0]}: not done in {CHECK_TIMEOUT_S:g} s")
        return checked.code == 0


@record
class Contains:
    """Check that the output contains a text."""

    text: str

    async def __call__(self, ended: Ended) -> bool:
        """Look for the text."""
        return self.text in ended.output


def every(checks: Sequence[Check]) -> Check:
    """Return a check that passes if all of these pass."""

    async def check(ended: Ended) -> bool:
        for each in checks:
            if not await each(ended):
                return False
        return True

    return check
