"""Runs from files, for the commands that take them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analyzer.commands.output import CommandFailed, WrongUsage, complain
from analyzer.errors import UnreadableInput
from analyzer.recordings import Recording, read_recording
from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.rebuild import rebuild
from semconv.model import Trace, Trajectory

STANDARD_INPUT: Final = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run out of a file."""

    trajectory: Trajectory
    trace: Trace | None = None
    """``None`` for a conversation log."""


@dataclass(slots=True)
class RecordedRuns:
    """The runs of several files, one after the other; what cannot be read is said, and the rest goes on."""

    files: Sequence[Path]
    logs: Sequence[Path]
    some_unreadable: bool = False
    """Known once all were read."""

    def __iter__(self) -> Iterator[tuple[Path, RecordedRun]]:
        """Read each file when it is its turn.

        Raises:
            WrongUsage: there is no such file.
        """
        for path in self.files:
            try:
                runs = load_runs(path, self.logs)
            except CommandFailed as error:
                complain(str(error))
                self.some_unreadable = True
                continue
            for run in runs:
                yield path, run


def load(path: Path) -> Recording:
    """Read one file, or standard input for ``-``.

    Raises:
        WrongUsage: there is no such file.
        CommandFailed: it cannot be read as a recording.
    """
    try:
        data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    except FileNotFoundError:
        raise WrongUsage(f"{path}: no such file") from None
    except IsADirectoryError:
        raise WrongUsage(f"{path}: is a directory, expected a file") from None
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}") from error
    try:
        return read_recording(data)
    except UnreadableInput as error:
        raise CommandFailed(f"{path}: {error}") from error


def load_runs(path: Path, logs: Sequence[Path]) -> tuple[RecordedRun, ...]:
    """Read the runs of one file, with the content that log files hold for them.

    Raises:
        WrongUsage: there is no such file.
        CommandFailed: a file cannot be read, or holds no run of agents.
    """
    recording = load(path)
    log_bodies = [*recording.bodies(Signal.LOGS), *_log_bodies(logs)]
    try:
        rebuilt = rebuild(recording.bodies(Signal.TRACES), log_bodies)
    except MalformedRequestError as error:
        raise CommandFailed(f"{path}: {error}") from error
    runs = [RecordedRun(trajectory=run.trajectory, trace=run.trace) for run in rebuilt]
    runs += [RecordedRun(trajectory=conversation.trajectory) for conversation in recording.conversations]
    if not runs and recording.bodies(Signal.LOGS):
        raise CommandFailed(f"{path}: holds logs and no spans: give it with --logs, beside the run's spans")
    if not runs:
        raise CommandFailed(f"{path}: holds no run: no spans and no conversation in it")
    return tuple(runs)


def _log_bodies(paths: Iterable[Path]) -> list[bytes]:
    return [body for path in paths for body in _logs(path)]


def _logs(path: Path) -> tuple[bytes, ...]:
    bodies = load(path).bodies(Signal.LOGS)
    if not bodies:
        raise CommandFailed(f"{path}: holds no logs")
    return bodies
