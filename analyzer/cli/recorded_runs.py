"""Recorded runs that commands read: from files, from standard input, or kept by the service."""

from __future__ import annotations

import os
import shlex
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
from analyzer.recordings.read_files import read_recording
from analyzer.recordings.recording import Recording
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import CollectorError, MalformedRequestError, Signal
from collector_processor.rebuild.stages import rebuild
from collector_processor.wire.scan import scan_traces
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
        help="OTLP (JSON, JSON lines, protobuf), the export of a tracing tool, or messages of agents"
        " (docs/files.md lists all); detected by content; plain, gzip or zstd; `-` reads standard input."
        " Or the id of a kept run.",
        show_default=False,
    ),
]


STANDARD_INPUT: Final = Path("-")
_PROGRAMS: Final = {".py": "python", ".js": "node", ".mjs": "node"}
"""What runs a program that is given in place of its trace, by its suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run from a file."""

    trajectory: Trajectory
    trace: Trace | None = None
    """``None`` for a conversation log."""


@dataclass(slots=True)
class RecordedRuns:
    """The runs of several files, in order; missing and unreadable files are reported and skipped."""

    files: Sequence[Path]
    logs: Sequence[Path]
    exit_code: int = 0
    """2 if a file is missing, else 1 if one is unreadable; complete only after all have been read."""

    def __iter__(self) -> Iterator[tuple[Path, RecordedRun]]:
        """Read the logs, then each file in turn.

        Raises:
            WrongUsage, CommandFailed: the logs are missing or cannot be read.
        """
        logs = _bodies_of(self.logs)
        for path in self.files:
            try:
                runs = runs_of(load(path), name_of(path), logs)
            except (CommandFailed, WrongUsage) as error:
                complain(str(error))
                self.exit_code = max(self.exit_code, 2 if isinstance(error, WrongUsage) else 1)
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
            return read_recording(b"\n".join([read_bounded(file), *_beside(path)]))
    except FileNotFoundError:
        return _kept(path)
    except IsADirectoryError:
        raise WrongUsage(f"{path}: is a directory, expected files: {path / '*'}") from None
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}") from error
    except UnreadableInput as error:
        hint = (
            f"to run a program: blamespan run -- {runs} {shlex.quote(str(path))}; "
            if (runs := _PROGRAMS.get(path.suffix))
            else ""
        )
        raise CommandFailed(f"{name_of(path)}: {hint}{error}") from error


def name_of(path: Path) -> str:
    """Return what messages call a file."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def _beside(path: Path) -> Iterator[bytes]:
    """Yield the files of a coding agent's subagents, which lie beside its session."""
    for each in sorted(path.with_suffix("").glob("subagents/*.jsonl")) if path.suffix == ".jsonl" else ():
        with each.open("rb") as file:
            yield read_bounded(file)


def may_be_id(path: Path) -> bool:
    """Tell whether it may be a kept run's id, which has neither folders nor a suffix."""
    return path.name == str(path) and not path.suffix


def _kept(path: Path) -> Recording:
    """Return the kept run of this id.

    Raises:
        WrongUsage: there is no such run, and no such file either.
    """
    if not may_be_id(path):
        raise WrongUsage(f"{path}: no such file")
    # Importing SQLAlchemy takes 0.2 s, which commands without a store should not pay.
    from analyzer.cli.kept_runs import neither, open_kept  # noqa: PLC0415

    try:
        spans = open_kept(path.name).spans
    except (AnalyzerError, CollectorError) as error:
        raise neither(str(path), error) from error
    logs = ((Signal.LOGS, spans.logs),) if spans.logs else ()
    return Recording(requests=((Signal.TRACES, spans.traces), *logs))


def load_runs(path: Path, logs: Sequence[Path]) -> tuple[RecordedRun, ...]:
    """Read the runs of one file, with their content from log files.

    Raises:
        WrongUsage: there is no such file.
        CommandFailed: a file cannot be read, or holds no run of agents.
    """
    return runs_of(load(path), name_of(path), _bodies_of(logs))


def runs_of(recording: Recording, path: str, logs: Sequence[bytes] = ()) -> tuple[RecordedRun, ...]:
    """Return the runs of a recording, and report what of it was left out.

    Args:
        recording: what was read.
        path: where it was read, for messages.
        logs: requests with logs of the same runs, beside those of the recording.

    Raises:
        CommandFailed: it holds no run of agents.
    """
    for warning in recording.warnings:
        complain(f"{path}: {warning}")
    log_bodies = [*recording.bodies(Signal.LOGS), *logs]
    try:
        rebuilt = rebuild(recording.traces, log_bodies, reader=reader_here())
    except MalformedRequestError as error:
        raise CommandFailed(f"{path}: {error}") from error
    runs = [RecordedRun(trajectory=run.trajectory, trace=run.trace) for run in rebuilt]
    runs += [RecordedRun(trajectory=conversation.trajectory) for conversation in recording.conversations]
    if not runs and recording.bodies(Signal.LOGS):
        raise CommandFailed(f"{path}: holds logs and no spans: give it with --logs, beside the run's spans")
    if not runs:
        raise CommandFailed(f"{path}: holds no run: {_missing(recording)}")
    if rejected := _rejected(recording):
        complain(f"{path}: left out {rejected} of its spans, which have {_NO_ID}")
    return tuple(runs)


_NO_ID: Final = "no valid id: expected hex (32 digits for a trace, 16 for a span), or base64 of as many bytes"


def _missing(recording: Recording) -> str:
    rejected = _rejected(recording)
    return f"{rejected} spans have {_NO_ID}" if rejected else "no spans and no conversation in it"


def _rejected(recording: Recording) -> int:
    return sum(scan_traces(body).invalid for body in recording.traces if isinstance(body, bytes))


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


def _bodies_of(logs: Sequence[Path]) -> list[bytes]:
    return [body for log in logs for body in _logs(log)]


def _logs(path: Path) -> tuple[bytes, ...]:
    bodies = load(path).bodies(Signal.LOGS)
    if not bodies:
        raise CommandFailed(f"{name_of(path)}: holds no logs")
    return bodies
