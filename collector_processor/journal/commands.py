"""What the journal's writer is told to do, and what it answers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from collector_processor.journal.chunks import Entry, State
from collector_processor.journal.segments import SegmentFile
from collector_processor.otlp import RefusedError
from semconv.model import TraceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Store these rows in one commit."""

    entries: tuple[Entry, ...]
    done: Callable[[tuple[int, ...] | RefusedError], None]
    """Told the rows' seqs once they are durable, or why they are not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Set the state of rows of one segment, soon."""

    segment: int
    seqs: tuple[int, ...]
    state: State
    done: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Replace a held row's body and let it go on, now."""

    seq: int
    body: bytes
    done: Callable[[RefusedError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Strike a trace out of the index of rows of one segment, soon."""

    segment: int
    seqs: tuple[int, ...]
    trace_id: TraceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """Let go of a segment that is to be deleted."""

    segment: int
    done: Callable[[SegmentFile | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Write the changes of state that were collected for a segment, now."""

    segment: int
    done: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relieve:
    """Take note that a segment's WAL was written back."""

    segment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Finish what is queued, and end."""


Command: TypeAlias = Append | Mark | Rewrite | Forget | Settle | Detach | Relieve | Stop
