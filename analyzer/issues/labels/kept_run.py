"""What is kept of a run's steps: a compact encoding for labels and the ranker, and a text for searches.

The encoding contains only what the ranker reads: no instructions, no tools, no times, never the
correct answer. Every text passes through ``clean``, which applies the settings on kept
prose. A run that is too large is kept with shorter texts, then without texts, then not
at all. A run usually takes 1 to 30 KiB, at most ``MAX_PACKED``.

The searched text has at most ``MOST_CHARS`` characters: the task, the final answer and the run's error have
up to ``_HEAD`` each, the steps' outputs, errors and arguments of calls equal shares of the rest. What a step
repeats from another one takes no room: many agents hand texts on as they are.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from analyzer.inquiry.errors import UnreadableInput
from collector_processor.core.runs import Run
from collector_processor.rebuild.kept_spans import KeptSpans, both_ends
from collector_processor.rebuild.redaction import Redact
from semconv.model import Step, Trajectory

FORMAT: Final = 1
MAX_PACKED: Final = 256 << 10
"""Largest kept run, in compressed bytes."""
_LENGTHS: Final = (20_000, 5_000, 1_000, 0)
"""Characters kept of each text; the next limit is tried while the run is too large."""
MOST_END: Final = 1_000
"""Characters kept of the task and of the answer of a run whose other texts are not kept."""
_LEVEL: Final = 3
_BEFORE_TASK: Final = 1_000
"""Bytes before the task: the format and the run's id."""
_ESCAPED: Final = 12
"""Most bytes of a character: an escape takes six, a surrogate pair twelve."""
_ENDED: Final = re.compile(r'(?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*')
"""The inside of a JSON string, up to the last complete escape."""

_TEXTS: Final = 3
"""Number of leading text fields in each record."""
_RUN_FIELDS: Final = (
    "task", "output", "root_error", "root_status", "root_trace_id", "agents", "is_recorded_conversation",
    "stop", "failed_turn",
)  # fmt: skip
_STEP_FIELDS: Final = (
    "input", "output", "error", "agent", "kind", "agent_source", "span_id", "name", "status", "target",
    "group", "content", "causes", "stop", "failed_evaluations", "heard", "said", "calls", "call_id",
    "is_whole_turn",
)  # fmt: skip
_RUN: Final = TypeAdapter(Trajectory)

Clean = Callable[[str], str]
Ends = Mapping[Literal["task", "output"], Clean]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A decoded kept run."""

    trajectory: Trajectory
    has_texts: bool
    """Whether texts were kept; agents and order always are."""
    spans: KeptSpans | None = None
    """The spans that the steps were read from; ``None`` if they came from the compact encoding."""
    run: Run | None = None
    """The run rebuilt from ``spans``, before redaction of what only decoding reveals."""
    digest: str = ""
    """Digest of the source of the steps, if known."""


def pack(trajectory: Trajectory, clean: Clean, ends: Ends | None = None) -> bytes | None:
    """Encode a run; ``None`` if it is too large even without its texts.

    Args:
        trajectory: the run.
        clean: removes secrets from a text.
        ends: what removes secrets from the task and from the answer, if they are kept in another way than
            the other texts.
    """
    kept: dict[str, str] = {
        name: _shortener(own, MOST_END)(getattr(trajectory, name)) for name, own in (ends or {}).items()
    }
    for length in _LENGTHS:
        document = _document(trajectory, _shortener(clean, length), kept)
        packed = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), _LEVEL)
        if len(packed) <= MAX_PACKED:
            return packed
    return None


def unpack(packed: bytes) -> KeptRun:
    """Decode a run.

    Raises:
        UnreadableInput: the bytes are of a newer version, or corrupt.
    """
    try:
        document = json.loads(zlib.decompress(packed))
        if document["format"] != FORMAT:
            raise UnreadableInput(f"a kept run of format {document['format']}, expected {FORMAT}")
        steps = [{**step, "index": index} for index, step in enumerate(document["steps"])]
        trajectory = _RUN.validate_python({**document, "steps": steps})
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise UnreadableInput(f"a kept run cannot be read: {type(error).__name__}: {error}") from error
    return KeptRun(trajectory=trajectory, has_texts=has_texts(trajectory))


def has_texts(trajectory: Trajectory) -> bool:
    """Return whether any step has a text."""
    return any(step.output or step.input or step.error for step in trajectory.steps)


def ends_of(packed: bytes, limit: int) -> tuple[str, str]:
    """Return the first characters of a run's task and answer without decoding the run.

    Empty if unreadable. The answer of a run with a long task is not looked for: ``pack`` shortens the task
    of every run that passed.

    Args:
        packed: the kept run, or the beginning of it.
        limit: most characters of each.
    """
    most = _BEFORE_TASK + _ESCAPED * 2 * MOST_END
    try:
        head = zlib.decompressobj().decompress(packed, most).decode("ascii", "ignore")
    except zlib.error:
        return "", ""
    task, after = _text_after('"task":"', head, limit)
    return task, _text_after('","output":"', after, limit)[0]


def _text_after(name: str, head: str, limit: int) -> tuple[str, str]:
    """Return the beginning of a field of a JSON text, and what follows all of it."""
    _, found, text = head.partition(name)
    ended = _ENDED.match(text)
    if not found or ended is None:
        return "", ""
    value: str = json.loads(f'"{ended[0]}"')
    return value[:limit].encode("utf-16", "surrogatepass").decode("utf-16", "ignore"), text[ended.end() :]


def _document(trajectory: Trajectory, shorten: Clean, ends: Mapping[str, str]) -> dict[str, Any]:
    run = {**_fields(trajectory, _RUN_FIELDS, shorten), **ends}
    steps = [_step(step, shorten) for step in trajectory.steps]
    return {"format": FORMAT, "run_id": trajectory.run_id, **run, "steps": steps}


def _step(step: Step, shorten: Clean) -> dict[str, Any]:
    """Return a step's kept fields; without messages whose places are no longer those of their text."""
    fields = _fields(step, _STEP_FIELDS, shorten)
    calls = [{**asdict(call), "arguments": shorten(call.arguments)} for call in step.calls]
    heard = [asdict(message) for message in step.heard] if fields["input"] == step.input else []
    said = [asdict(message) for message in step.said] if fields["output"] == step.output else []
    return fields | {"calls": calls, "heard": heard, "said": said}


def _fields(record: Trajectory | Step, names: Sequence[str], shorten: Clean) -> dict[str, Any]:
    values = attrgetter(*names)(record)
    return dict(zip(names, (*map(shorten, values[:_TEXTS]), *values[_TEXTS:]), strict=True))


def _shortener(clean: Clean, length: int) -> Clean:
    """Return a function that cleans and shortens texts; repeated texts are cleaned once."""

    @cache
    def shorten(text: str) -> str:
        if not text or not length:
            return ""
        return clean(text) if len(text) <= length else both_ends(text, length, clean)

    return shorten


MOST_CHARS: Final = 4_000
"""Characters of a run's texts; with the index, 6 KB in the store."""
_HEAD: Final = 700
_LEAST: Final = 60
"""Characters of a text, while there is room for any."""
_MARGIN: Final = 5_000
"""Characters beyond a cut that are also cleaned, so that a secret across the cut is recognised."""


def searched_text(trajectory: Trajectory, clean: Redact) -> str:
    """Return the searched text of a run; ``clean`` removes what may not be kept."""
    found = dict.fromkeys(filter(None, (trajectory.task, trajectory.output, trajectory.root_error)))
    parts = [_beginning(text, _HEAD, clean) for text in found]
    room = MOST_CHARS - sum(map(len, parts)) - len(parts)
    rest = [
        text
        for text in dict.fromkeys(text for step in trajectory.steps for text in _texts(step) if text)
        if text not in found
    ]
    for at, text in enumerate(sorted(rest, key=len)):  # short texts leave their room to long ones
        if room <= 0:
            break
        share = max(_LEAST, room // (len(rest) - at))
        parts.append(_beginning(text, min(share, room), clean))
        room -= len(parts[-1]) + 1
    return "\n".join(parts)


def task_alone(trajectory: Trajectory, clean: Redact) -> str:
    """Return the searched text of a run whose steps are not kept."""
    return _beginning(trajectory.task, _HEAD, clean)


def _texts(step: Step) -> Iterator[str]:
    yield step.output
    yield step.error
    yield from (call.arguments for call in step.calls)


def _beginning(text: str, length: int, clean: Redact) -> str:
    return clean(text[: length + _MARGIN])[:length]
