"""A verdict drafted ahead: what is committed of a trace if it turns out to be a run by itself, and new.

Most traces are just that: nothing of them was analysed before, no other trace belongs to
them, and no model is to be asked. All that is to be computed of such a trace follows from its
bytes, so it can be done in one go, on another thread or in another process. Whether the
draft holds is seen afterwards, in the store (``outright.py``); one that does not is thrown away,
and the trace examined as any other. Pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from collector_processor.assembler import TraceKey
from collector_processor.otlp import CollectorError, Tenant
from collector_processor.stored import Outgoing, Place, StoredVerdict, ToldRun
from collector_processor.writeback import Gist
from semconv.model import Completion


class AnalysisLostError(CollectorError):
    """Whoever analysed a trace died of it, more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneTrace:
    """A complete trace, as read back."""

    key: TraceKey
    completion: Completion
    bodies: tuple[bytes, ...]
    """Export requests with its spans."""
    now_ns: int
    """When its verdict is given."""
    logs: tuple[bytes, ...] = ()

    @property
    def byte_count(self) -> int:
        """Bytes of all of it."""
        return sum(map(len, (*self.bodies, *self.logs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepsake:
    """What is kept of a run beside its verdict; unread here."""

    run_id: str
    is_failure: bool
    packed: bytes | None
    """Its steps; ``None`` where they are too large."""
    noted: str
    """What is counted in issues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftedRun:
    """One run of the trace."""

    verdict: StoredVerdict
    outgoing: tuple[Outgoing, ...]
    gist: Gist
    keepsake: Keepsake
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is committed of the trace."""

    names: tuple[str, ...]
    """Its run keys, none of which names another trace."""
    told: tuple[ToldRun, ...] = ()
    runs: tuple[DraftedRun, ...] = ()
    """The same, in the same order."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    """How often something of each kind was taken out of the texts."""


Drafted: TypeAlias = Draft | AnalysisLostError | None
"""``None`` where the trace must be examined as any other: it has company, or a model is to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """Who drafts, and who keeps what comes of it."""

    write: Callable[[Sequence[LoneTrace]], Awaitable[Sequence[Drafted]]]
    """Returns a draft for each, in order; raises for nothing that a trace may do."""
    keep: Callable[[Sequence[tuple[Tenant, Draft]]], Awaitable[None]]
    """Keeps the runs of drafts whose verdicts are about to be committed; never raises for the disk's sake."""
