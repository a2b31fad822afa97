"""A run's steps as a few bytes, kept so that a person's label can be checked and learned from.

What the ranker reads of a run is kept and no more: no instructions, no tools, no
times, never the right answer. Every text goes through ``clean``: what the settings
let be kept of prose. A run too large for its place is kept with shorter texts, then
with none, then not at all.

A run takes 1 to 30 KiB of the place as a rule, ``MAX_PACKED`` at most.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from analyzer.errors import UnreadableInput
from semconv.model import AgentSource, ContentState, SpanId, SpanStatus, Step, StepKind, TraceId, Trajectory

FORMAT: Final = 1
MAX_PACKED: Final = 256 << 10
"""Bytes of one run, compressed."""
_LENGTHS: Final = (20_000, 5_000, 1_000, 0)
"""Characters of one text that are kept; the next where a run is too large with this."""
_HEAD: Final = 0.75
"""Share of what is kept of a text that is its beginning; the rest is its end."""
_LEVEL: Final = 3
_MARGIN: Final = 5_000
"""Characters beyond a cut that are cleaned too: a secret that the cut goes through is still known for one."""

_BEFORE_TASK: Final = 1_000
"""Bytes that stand before the task: the format, and the run's id."""
_ENDED: Final = re.compile(r'(?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*')
"""The inside of a JSON string, as far as it is whole."""

Clean = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run read back."""

    trajectory: Trajectory
    has_texts: bool
    """Whether what was said was kept; who acted in which order always is."""


def pack(trajectory: Trajectory, clean: Clean) -> bytes | None:
    """Return the run as bytes to keep; ``None`` where it is too large even without its texts."""
    for length in _LENGTHS:
        document = _document(trajectory, _shortener(clean, length))
        packed = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), _LEVEL)
        if len(packed) <= MAX_PACKED:
            return packed
    return None


def unpack(packed: bytes) -> KeptRun:
    """Read a run back.

    Raises:
        UnreadableInput: it was written by a newer version, or is damaged.
    """
    try:
        document = json.loads(zlib.decompress(packed))
        if document["format"] != FORMAT:
            raise UnreadableInput(f"a kept run of format {document['format']}, expected {FORMAT}")
        trajectory = _trajectory(document)
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise UnreadableInput(f"a kept run cannot be read: {type(error).__name__}: {error}") from error
    has_texts = any(step.output or step.input or step.error for step in trajectory.steps)
    return KeptRun(trajectory=trajectory, has_texts=has_texts)


def task_of(packed: bytes, limit: int) -> str:
    """Return the beginning of a run's task, without unpacking the run; empty for what cannot be read.

    Args:
        packed: what ``pack`` made.
        limit: characters of the task.
    """
    try:
        # The task stands before the steps; an escape takes six characters, a pair of them twelve.
        head = zlib.decompressobj().decompress(packed, _BEFORE_TASK + 12 * limit).decode("ascii", "ignore")
    except zlib.error:
        return ""
    _, found, text = head.partition('"task":"')
    ended = _ENDED.match(text)
    if not found or ended is None:
        return ""
    task: str = json.loads(f'"{ended[0]}"')
    return task[:limit].encode("utf-16", "surrogatepass").decode("utf-16", "ignore")


def _document(trajectory: Trajectory, shorten: Clean) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "run_id": trajectory.run_id,
        "task": shorten(trajectory.task),
        "output": shorten(trajectory.output),
        "root_error": shorten(trajectory.root_error),
        "root_status": trajectory.root_status,
        "root_trace_id": trajectory.root_trace_id,
        "agents": trajectory.agents,
        "is_recorded_conversation": trajectory.is_recorded_conversation,
        "steps": [_step_document(step, shorten) for step in trajectory.steps],
    }


def _step_document(step: Step, shorten: Clean) -> dict[str, Any]:
    return {
        "agent": step.agent,
        "kind": step.kind,
        "agent_source": step.agent_source,
        "span_id": step.span_id,
        "name": step.name,
        "status": step.status,
        "target": step.target,
        "group": step.group,
        "content": step.content,
        "causes": step.causes,
        "input": shorten(step.input),
        "output": shorten(step.output),
        "error": shorten(step.error),
    }


def _shortener(clean: Clean, length: int) -> Clean:
    """Return what cleans texts and cuts them to a length; one that comes again is cleaned once."""
    head = int(length * _HEAD)
    tail = length - head

    @cache
    def shorten(text: str) -> str:
        if not text or not length:
            return ""
        if len(text) <= length:
            return clean(text)
        first = clean(text[: head + _MARGIN])[:head]
        last = clean(text[-(tail + _MARGIN) :])[-tail:]
        return f"{first}\n[{len(text) - length} characters left out]\n{last}"

    return shorten


def _trajectory(document: Mapping[str, Any]) -> Trajectory:
    root = document["root_trace_id"]
    return Trajectory(
        run_id=str(document["run_id"]),
        steps=tuple(_step(index, step) for index, step in enumerate(document["steps"])),
        task=str(document["task"]),
        output=str(document["output"]),
        root_error=str(document["root_error"]),
        root_status=SpanStatus(document["root_status"]),
        root_trace_id=None if root is None else TraceId(root),
        agents=tuple(map(str, document["agents"])),
        is_recorded_conversation=bool(document["is_recorded_conversation"]),
    )


def _step(index: int, document: Mapping[str, Any]) -> Step:
    span_id = document["span_id"]
    return Step(
        index=index,
        agent=str(document["agent"]),
        kind=StepKind(document["kind"]),
        agent_source=AgentSource(document["agent_source"]),
        span_id=None if span_id is None else SpanId(span_id),
        name=str(document["name"]),
        status=SpanStatus(document["status"]),
        target=document["target"],
        group=document["group"],
        content=ContentState(document["content"]),
        causes=tuple(document["causes"]),
        input=str(document["input"]),
        output=str(document["output"]),
        error=str(document["error"]),
    )
