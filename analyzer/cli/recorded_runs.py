"""Recorded runs that commands read: from files, from standard input, or kept by the service."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from analyzer.cli.output import CommandFailed, WrongUsage, complain
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.recordings.file_bytes import read_bounded
from analyzer.recordings.read_files import Recording, read_recording
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import CollectorError, MalformedRequestError, Signal
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.stages import rebuild
from semconv.dialects import Reader
from semconv.model import Trace, Trajectory

LogsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--logs", metavar="FILE", help="OTLP logs of the same run: some frameworks put the content there."
    ),
]
FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="OTLP (JSON, JSON lines, protobuf), Jaeger JSON, Tempo JSON, a Langfuse export or a conversation"
        " log; detected by content, gzipped or not; `-` reads standard input. Or the id of a kept run.",
        show_default=False,
    ),
]


STANDARD_INPUT: Final = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run from a file."""

    trajectory: Trajectory
    trace: Trace | None = None
    """``None`` for a conversation log."""


@dataclass(slots=True)
class RecordedRuns:
    """The runs of several files, in order; unreadable files are reported and skipped."""

    files: Sequence[Path]
    logs: Sequence[Path]
    some_unreadable: bool = False
    """Complete only after all files have been read."""

    def __iter__(self) -> Iterator[tuple[Path, RecordedRun]]:
        """Read each file in turn.

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
    """Read one file, standard input for ``-``, or a kept run if no file has this name.

    Raises: WrongUsage: there is neither.
        CommandFailed: it cannot be read as a recording.
    """
    try:
        with nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else path.open("rb") as file:
            return read_recording(read_bounded(file))
    except FileNotFoundError:
        return _kept(path)
    except IsADirectoryError:
        raise WrongUsage(f"{path}: is a directory, expected a file") from None
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}") from error
    except UnreadableInput as error:
        raise CommandFailed(f"{path}: {error}") from error


def _kept(path: Path) -> Recording:
    """Return the kept run of this id.

    Raises:
        WrongUsage: there is no such run, and no such file either.
    """
    if path.name != str(path):
        raise WrongUsage(f"{path}: no such file")
    # Importing SQLAlchemy takes 0.2 s, which commands without a store should not pay.
    from analyzer.cli.kept_runs import open_kept  # noqa: PLC0415

    try:
        spans = open_kept(path.name).spans
    except (AnalyzerError, CollectorError) as error:
        raise WrongUsage(f"{path}: no such file, and no kept run: {error}") from error
    logs = ((Signal.LOGS, spans.logs),) if spans.logs else ()
    return Recording(requests=((Signal.TRACES, spans.traces), *logs))


def load_runs(path: Path, logs: Sequence[Path]) -> tuple[RecordedRun, ...]:
    """Read the runs of one file, with their content from log files.

    Raises:
        WrongUsage: there is no such file.
        CommandFailed: a file cannot be read, or holds no run of agents.
    """
    recording = load(path)
    log_bodies = [*recording.bodies(Signal.LOGS), *(body for path in logs for body in _logs(path))]
    try:
        rebuilt = rebuild(recording.bodies(Signal.TRACES), log_bodies, reader=reader_here())
    except MalformedRequestError as error:
        raise CommandFailed(f"{path}: {error}") from error
    runs = [RecordedRun(trajectory=run.trajectory, trace=run.trace) for run in rebuilt]
    runs += [RecordedRun(trajectory=conversation.trajectory) for conversation in recording.conversations]
    if not runs and recording.bodies(Signal.LOGS):
        raise CommandFailed(f"{path}: holds logs and no spans: give it with --logs, beside the run's spans")
    if not runs:
        raise CommandFailed(f"{path}: holds no run: {_missing(recording)}")
    return tuple(runs)


def _missing(recording: Recording) -> str:
    rejected = sum(decode(body).rejected for body in recording.bodies(Signal.TRACES))
    if not rejected:
        return "no spans and no conversation in it"
    return (
        f"{rejected} spans have no valid id: expected hex (32 digits for a trace, 16 for a span),"
        " or base64 of as many bytes"
    )


def reader_here() -> Reader:
    """Return the reader of spans, with the mappings of ``BLAMESPAN_MAPPINGS`` or of ``blamespan.toml``.

    Raises:
        MappingFileError: a mapping file cannot be read.
    """
    mappings = os.environ.get("BLAMESPAN_MAPPINGS", "").strip()
    if not mappings and Path("blamespan.toml").is_file():
        # The settings take 0.2 s to import, and most directories have none.
        from collector_processor.settings import load_settings  # noqa: PLC0415

        mappings = load_settings(os.environ, directory=Path()).mappings
    return open_reader(mappings)


def _logs(path: Path) -> tuple[bytes, ...]:
    bodies = load(path).bodies(Signal.LOGS)
    if not bodies:
        raise CommandFailed(f"{path}: holds no logs")
    return bodies
