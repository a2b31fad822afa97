"""Uploaded files as runs without secrets, within bounds that hold before any object is made of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_bytes import unpack
from analyzer.recordings.table_text import PARQUET, looks_like_csv
from collector_processor.core.runs import CleanRun
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from semconv.dialects import USUAL, Reader
from semconv.model import Heard, Trajectory
from semconv.record import record, replace

if TYPE_CHECKING:
    from analyzer.recordings.recording import Recording

MOST_RUNS: Final = 10
"""Runs analysed per upload; the page says if there are more."""
LEFT_OUT: Final = "left out "
"""Begins the warning about a file that could not be read."""
MAX_UNPACKED: Final = 48 << 20
"""Bytes of an upload's files together, unpacked."""
MOST_HELD: Final = 64 << 20
"""Bytes of an upload's runs as JSON: runs go to other processes in this form."""
_STEP_BYTES: Final = 1_500
"""Memory of a step without its texts."""
_PART_BYTES: Final = 100
"""JSON of a message or call of a step, without its texts."""
MOST_VALUES: Final = 5_000_000
"""Values in JSON: text of 48 MiB has two million, and empty lists of that size would take gigabytes."""

ReadUpload: TypeAlias = Callable[[Sequence[bytes], str], Sequence[Trajectory]]
"""Reads files, given the expected answer of their runs if there is one; it takes long, so it is called in a
thread. Raises ``AnalyzerError`` or ``CollectorError`` for invalid input."""


@record
class Unpacked:
    """The files of an upload, decompressed."""

    plain: list[bytes]
    """All of them, in order; a refused one is empty."""
    refused: dict[int, str]
    """Why files cannot be decompressed, by their numbers from 1."""


def load_readers() -> None:
    """Import the readers of all formats, which the first file would wait for."""
    for name in ("read_files", "formats"):
        import_module(f"analyzer.recordings.{name}")


def unpacked(files: Sequence[bytes]) -> Unpacked:
    """Decompress an upload's files; of several, those that cannot be are empty, with the reason.

    Raises:
        UnreadableInput: the only one cannot be decompressed, or they have too many values.
    """
    left, found, values = MAX_UNPACKED, Unpacked(plain=[], refused={}), 0
    for number, data in enumerate(files, 1):
        try:
            plain = _unpacked(data, left)
        except UnreadableInput as error:
            if len(files) == 1:
                raise
            plain, found.refused[number] = b"", str(error)
        found.plain.append(plain)
        left -= len(plain)
        values += json_values(plain)
    if values > MOST_VALUES:
        raise UnreadableInput(f"expected at most {MOST_VALUES:,} values and lines, found about {values:,}")
    return found


def _unpacked(data: bytes, most_bytes: int) -> bytes:
    """Decompress a file.

    Raises:
        UnreadableInput: it is damaged, too large, or Parquet: its parser in C++ is not for strangers' files.
    """
    plain = unpack(data, most_bytes)
    if plain.startswith(PARQUET):
        raise UnreadableInput("Parquet is read by the command line; for this page, save it as JSON or CSV")
    return plain


def json_values(plain: bytes) -> int:
    """Return about how many values and lines a text of JSON or a table has; 0 for other formats."""
    if plain[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in {b"{", b"["}:
        return sum(map(plain.count, (b",", b"[", b"{", b"\n")))
    return sum(map(plain.count, (b",", b";", b"\t", b"\n"))) if looks_like_csv(plain) else 0


def read_runs(
    plain: Sequence[bytes],
    clean: CleanRun,
    reader: Reader = USUAL,
    reference: str = "",
    refused: Mapping[int, str] = MappingProxyType({}),
) -> list[Trajectory]:
    """Read the runs of unpacked files, one more than ``MOST_RUNS`` at most, and remove their secrets.

    All files at once, because one file's logs may complete another's spans. Files that cannot be read are
    left out, as warnings of the runs say.

    Raises:
        UnreadableInput: there is no run in them, or none of them can be read.
    """
    recordings, left_out = _recordings(plain, refused)
    traces = [request for recording in recordings for request in recording.traces]
    logs = [body for recording in recordings for body in recording.bodies(Signal.LOGS)]
    runs = rebuild(traces, logs, reader=reader)
    trajectories = [
        conversation.trajectory for recording in recordings for conversation in recording.conversations
    ]
    found = [run.trajectory for run in runs] + trajectories
    if not found:
        raise UnreadableInput("this holds no run: no spans of agents and no conversation in it")
    del found[MOST_RUNS + 1 :]
    if json_bytes(found) > MOST_HELD:
        raise UnreadableInput(f"its runs take more than {MOST_HELD >> 20} MiB: too many steps, or too long")
    warned = left_out + [warning for recording in recordings for warning in recording.warnings]
    return [clean(expecting(_warned(trajectory, warned), reference)) for trajectory in found]


def _recordings(plain: Sequence[bytes], refused: Mapping[int, str]) -> tuple[list[Recording], list[str]]:
    """Return what the files hold, and why some were left out."""
    from analyzer.recordings.read_files import read_recording  # noqa: PLC0415 - fifty formats; in a thread

    recordings: list[Recording] = []
    left_out: list[str] = []
    for number, one in enumerate(plain, 1):
        why = refused.get(number, "")
        try:
            if not why:
                recordings.append(read_recording(one))
        except UnreadableInput as error:
            if len(plain) == 1:
                raise
            why = str(error)
        if why:
            left_out.append(f"{LEFT_OUT}file {number} of {len(plain)}: {why}")
    if not recordings:
        raise UnreadableInput("; ".join(left_out))
    return recordings, left_out


def _warned(run: Trajectory, warnings: Sequence[str]) -> Trajectory:
    return replace(run, warnings=(*run.warnings, *warnings)) if warnings else run


def json_bytes(runs: Sequence[Trajectory]) -> int:
    """Return about how many bytes runs take as JSON, without making it.

    A text that many steps share, such as the name of the agent around them, is written for each of them.
    """
    length = cache(lambda text: len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")))
    steps = [step for run in runs for step in run.steps]
    parts = sum(len(step.heard) + len(step.said) + len(step.calls) for step in steps)
    texts = sum(length(text) for run in runs for text in _texts(run))
    return _STEP_BYTES * len(steps) + _PART_BYTES * parts + texts


def _texts(run: Trajectory) -> Iterator[str]:
    yield from (run.run_id, run.task, run.output, run.root_error, *run.agents, *run.warnings)
    for step in run.steps:
        yield from (step.agent, step.target or "", step.name, step.error)
        yield from (step.input, step.output, step.instructions, step.tools)
        yield from (text for call in step.calls for text in (call.name, call.arguments, call.call_id))
        yield from (text for one in (*step.heard, *step.said) for text in _names(one))
        yield from step.failed_evaluations


def _names(message: Heard) -> tuple[str, ...]:
    return (message.role, message.author, *message.answers)


def held_bytes(run: Trajectory) -> int:
    """Return about how many bytes a run takes in memory."""
    return sum(
        _STEP_BYTES
        + sum(map(len, (step.input, step.output, step.instructions, step.tools, step.error, step.name)))
        for step in run.steps
    )


def expecting(trajectory: Trajectory, reference: str) -> Trajectory:
    """Return a run with the expected answer that a person gave; without one, the run as it is."""
    return replace(trajectory, reference=reference) if reference else trajectory
