"""Uploaded files as runs without secrets, within bounds that hold before any object is made of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_bytes import TooLarge, unpack
from analyzer.recordings.table_text import PARQUET, looks_like_csv
from collector_processor.core.runs import CleanRun
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from semconv.dialects import USUAL, Reader
from semconv.model import Heard, Trajectory
from semconv.record import replace

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


def load_readers() -> None:
    """Import the readers of all formats, which the first file would wait for."""
    for name in ("read_files", "formats"):
        import_module(f"analyzer.recordings.{name}")


def unpacked(files: Sequence[bytes]) -> list[bytes | str]:
    """Decompress an upload's files; one that cannot be unpacked becomes the text that says why.

    Raises:
        UnreadableInput: the files are too large together, or have too many values.
    """
    left, values = MAX_UNPACKED, 0
    found: list[bytes | str] = []
    for data in files:
        try:
            plain = _unpacked(data, left)
        except TooLarge:
            raise
        except UnreadableInput as error:
            found.append(str(error))
            continue
        found.append(plain)
        left -= len(plain)
        values += json_values(plain)
    if values > MOST_VALUES:
        raise UnreadableInput(f"expected at most {MOST_VALUES:,} values and lines, found about {values:,}")
    return found


def _unpacked(data: bytes, most_bytes: int) -> bytes:
    plain = unpack(data, most_bytes)
    if plain.startswith(PARQUET):  # its parser in C++ is not for strangers' files
        raise UnreadableInput("Parquet is read by the command line; for this page, save it as JSON or CSV")
    return plain


def json_values(plain: bytes) -> int:
    """Return about how many values and lines a text of JSON or a table has; 0 for other formats."""
    if plain[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in {b"{", b"["}:
        return sum(map(plain.count, (b",", b"[", b"{", b"\n")))
    return sum(map(plain.count, (b",", b";", b"\t", b"\n"))) if looks_like_csv(plain) else 0


def read_runs(
    plain: Sequence[bytes | str], clean: CleanRun, reader: Reader = USUAL, reference: str = ""
) -> list[Trajectory]:
    """Read the runs of ``unpacked`` files, one more than ``MOST_RUNS`` at most, and remove their secrets.

    All files at once, because one file's logs may complete another's spans. Files that cannot be read are
    left out, as warnings of the runs say.

    Raises:
        UnreadableInput: there is no run in them, or none of them can be read.
    """
    recordings, left_out = _recordings(plain)
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


def _recordings(plain: Sequence[bytes | str]) -> tuple[list[Recording], list[str]]:
    """Return what the files hold, and why some were left out."""
    from analyzer.recordings.read_files import read_recording  # noqa: PLC0415 - fifty formats; in a thread

    recordings: list[Recording] = []
    left_out: list[str] = []
    only = ""
    for number, one in enumerate(plain, 1):
        try:
            recordings.append(read_recording(_whole(one)))
        except UnreadableInput as error:
            left_out.append(f"{LEFT_OUT}file {number} of {len(plain)}: {error}")
            only = str(error)
    if not recordings:
        raise UnreadableInput(only if len(plain) == 1 else "; ".join(left_out))
    return recordings, left_out


def _whole(unpacked: bytes | str) -> bytes:
    """Return a file's bytes.

    Raises:
        UnreadableInput: it could not be unpacked.
    """
    if isinstance(unpacked, str):
        raise UnreadableInput(unpacked)
    return unpacked


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
