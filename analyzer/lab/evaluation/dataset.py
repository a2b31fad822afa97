"""Labelled runs from files, and their splits into folds without leaks between training and test data.

Files are JSON lines, one JSON document, or a folder of documents; plain, gzip or zstd. Not pure: the only
module of this package that reads files.

The splits for cross-validation are deterministic: they follow from the content of the runs and a salt, not
from their order or a clock. Related runs stay in one fold: runs with identical histories (duplicates in one
data set, one conversation labelled twice), and runs of one task, which share the correct answer and likely
mistakes. Every fold has about the same share of each subset.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.match_agents import normalise
from analyzer.recordings.conversation_log import read_conversation
from analyzer.recordings.file_bytes import read_bounded, unpack
from semconv.json_text import read_json
from semconv.model import Trajectory

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""Byte order mark that some editors and spreadsheets write."""


def read_dataset(path: Path) -> tuple[Conversation, ...]:
    """Read every run of a data set, in the order of its lines or file names.

    Raises:
        UnreadableInput: there is no such file, or it holds something other than
            conversation logs; the message says where.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in {".json", ".jsonl", ".gz", ".zst"})
        return tuple(run for file in files for run in _read_file(file, subset=file.parent.name))
    return tuple(_read_file(path, subset=path.name.split(".")[0]))


def _read_file(path: Path, subset: str) -> Iterator[Conversation]:
    try:
        with path.open("rb") as file:
            raw = unpack(read_bounded(file)).removeprefix(_BYTE_ORDER_MARK)
    except (OSError, UnreadableInput) as error:
        raise UnreadableInput(f"{path}: cannot be read as JSON, plain, gzip or zstd: {error}") from error
    for place, document in _documents(path, raw):
        try:
            run = _labelled(document)
        except UnreadableInput as error:
            raise UnreadableInput(f"{path}{place}: {error}") from error
        yield run if run.subset else replace(run, subset=subset)


def _labelled(document: object) -> Conversation:
    if isinstance(document, dict) and isinstance(document.get("resourceSpans"), list):
        # Importing the decoder of spans takes longer than reading most data sets.
        from analyzer.recordings.otlp_file import read_labelled_trace  # noqa: PLC0415

        return read_labelled_trace(document)
    return read_conversation(document)


def _documents(path: Path, raw: bytes) -> Iterator[tuple[str, object]]:
    """Yield each document with its location: one JSON value (an array's items), or one per line."""
    whole = None if _begins_with_a_line_of_json(raw) else _whole(raw)
    if whole is None:
        yield from _lines(path, raw)
    elif isinstance(whole, list):
        yield from ((f"[{number}]", document) for number, document in enumerate(whole))
    else:
        yield "", whole


def _lines(path: Path, raw: bytes) -> Iterator[tuple[str, object]]:
    """Yield one document per line, each decoded separately: together they need several times the memory."""
    for number, line in enumerate(io.BytesIO(raw), start=1):
        if line.strip():
            try:
                yield f":{number}", read_json(line.decode())
            except UnicodeDecodeError as error:
                raise UnreadableInput(f"{path}:{number}: cannot be read as UTF-8: {error}") from error
            except ValueError as error:
                raise UnreadableInput(f"{path}:{number}: not JSON: {error}") from error


def _begins_with_a_line_of_json(raw: bytes) -> bool:
    end = raw.find(b"\n")
    return end >= 0 and bool(raw[end:].strip()) and _whole(raw[:end]) is not None


def _whole(raw: bytes) -> object:
    """Return the text's single JSON value; ``None`` for anything else, and for ``null``."""
    try:
        return cast("object", read_json(raw.decode()))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKeys:
    """Keys that relate a run to others."""

    subset: str
    history: str
    """See ``history_key``."""
    task: str = ""
    """See ``task_key``; empty relates to no run."""


def keys_of(run: Conversation) -> RunKeys:
    """Return the keys that decide with which runs a run must share a fold."""
    return RunKeys(subset=run.subset, history=history_key(run.trajectory), task=task_key(run.trajectory))


def history_key(trajectory: Trajectory) -> str:
    """Return a digest of agents and texts in order; equal for one conversation from two sources."""
    digest = hashlib.sha256()
    for step in trajectory.steps:
        said = " ".join(step.output.split())
        digest.update(f"{normalise(step.agent)}\x00{said}\x01".encode(errors="replace"))
    return digest.hexdigest()


def task_key(trajectory: Trajectory) -> str:
    """Return a digest of the task's words; empty for a run without a task."""
    words = " ".join(trajectory.task.split()).casefold()
    return hashlib.sha256(words.encode(errors="replace")).hexdigest() if words else ""


def families(keys: Sequence[RunKeys], most: int | None = None) -> tuple[str, ...]:
    """Return the family of each run, named after its first history, independent of the runs' order.

    A task with more than ``most`` runs relates none of them: if all runs have the same task, future ones will
    have it too, so nothing leaks.
    """
    runs_of = Counter(one.task for one in keys)
    leader: dict[str, str] = {}

    def leader_of(key: str) -> str:
        while leader.setdefault(key, key) != key:
            key = leader[key]
        return key

    for one in keys:
        if one.task and (most is None or runs_of[one.task] <= most):
            first, other = sorted((leader_of(f"h{one.history}"), leader_of(f"t{one.task}")))
            leader[other] = first  # histories sort before tasks
    return tuple(leader_of(f"h{one.history}") for one in keys)


def split(runs: Sequence[Conversation], count: int) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the runs of each fold, at most ``count`` folds and none empty.

    Raises:
        ValueError: ``count`` is less than 2.
    """
    return split_by_keys([keys_of(run) for run in runs], count)


def split_by_keys(keys: Sequence[RunKeys], count: int, salt: int = 0) -> tuple[tuple[int, ...], ...]:
    """Split runs by their keys alone, as ``split`` does; another ``salt`` gives another split.

    Raises:
        ValueError: as ``split``.
    """
    if count < 2:
        raise ValueError(f"{count} folds: expected at least 2")
    members: dict[str, list[int]] = {}
    for index, family in enumerate(families(keys, most=max(1, len(keys) // count))):
        members.setdefault(family, []).append(index)

    def place(family: str) -> tuple[list[str], str]:
        return sorted(keys[index].subset for index in members[family]), _salted(family, salt)

    order = sorted(members, key=place)
    folds: list[list[int]] = [[] for _ in range(count)]
    for number, family in enumerate(order):
        folds[number % count] += members[family]
    return tuple(tuple(sorted(fold)) for fold in folds if fold)


def _salted(family: str, salt: int) -> str:
    return hashlib.sha256(f"{salt}:{family}".encode()).hexdigest() if salt else family
