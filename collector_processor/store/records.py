"""What an analysis leaves behind: verdicts, what must leave because of them, what is remembered of the runs.

Records alone, for whoever makes or reads them; how they are kept, ``runstore.py`` knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from collector_processor.assembler import TraceKey
from collector_processor.otlp import NO_TENANT, Signal, Tenant
from semconv.model import SpanId, TraceId

PERSON: Final = "person"
"""Method of a verdict that a person's label made."""
CONFIRMED: Final = "confirmed_by_person"
"""Key in a verdict's document: true if a person confirmed it. Used in the store only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """Bytes that must leave: an export request of carriers or of evaluation logs."""

    signal: Signal
    body: bytes
    id: int = 0
    """Given by the store."""
    tenant: Tenant = NO_TENANT
    ended_ns: int = 0
    """End of the run in Unix ns, for its first verdict; 0 for all other entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """One verdict of one run; the highest version is current."""

    tenant: Tenant
    run_id: str
    version: int
    failure_id: str
    status: str
    agent: str | None
    step: int | None
    span_id: SpanId | None
    trace_id: TraceId | None
    service: str
    is_provisional: bool
    """Given while nothing on top had ended: for the page only, replaced by the real one."""
    decided_ns: int
    document: str
    """The attribution as JSON, as the command line prints it."""

    def says_the_same_as(self, other: StoredVerdict) -> bool:
        """Whether status, agent and step agree; confidence and prose alone change nothing.

        A step is its span: late spans give it another number and make it no other step.
        """
        return (self.status, self.agent, self.span_id) == (other.status, other.agent, other.span_id)

    @property
    def is_by_person(self) -> bool:
        """Whether a person's label made it."""
        return self.told.get("method") == PERSON

    @property
    def is_persons_word(self) -> bool:
        """Whether a person made or confirmed it; no analysis supersedes it."""
        return self.is_by_person or self.told.get(CONFIRMED) is True

    @property
    def confidence(self) -> float:
        """Confidence of the blame, 0 to 1; 1 if the document has none."""
        confidence = self.told.get("confidence")
        return float(confidence) if isinstance(confidence, int | float) else 1.0

    @property
    def told(self) -> Mapping[str, Any]:
        """The parsed document; empty if it is not a JSON object."""
        try:
            document = json.loads(self.document)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Stored span positions of a run, for carriers written later; packed by ``places.py``."""

    tenant: Tenant
    run_id: str
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldRun:
    """A run that was analysed: the traces it was made of, and the digest of what was read of them."""

    run_id: str
    trace_ids: frozenset[TraceId]
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentParent:
    """A kind of span whose parent never arrives (``assembly.absent``), with readable names."""

    tenant: Tenant
    kind: int
    """``notes.kind_of`` the three names."""
    service: str
    scope: str
    """The instrumentation scope."""
    name: str
    """Names of the child span; those of its parent are unknown."""
    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one analysis leaves behind, all or nothing."""

    analysed: tuple[tuple[TraceKey, int], ...]
    """The traces it read, each with the highest journal row it saw."""
    times: int = 1
    """How often these traces were analysed by now: what is joined to a run counts as often as the run."""
    told: tuple[ToldRun, ...] = ()
    """The runs that ``analysed`` are, in place of those they were before; empty leaves those."""
    verdicts: tuple[StoredVerdict, ...] = ()
    outgoing: tuple[Outgoing, ...] = ()
    rewrites: tuple[tuple[int, bytes], ...] = ()
    """Held journal rows and the bytes that leave in their place (hold mode)."""
    late: tuple[tuple[int, Outgoing], ...] = ()
    """The same rows, and what goes after them where the disk refuses the replacement."""
    places: tuple[Place, ...] = ()
    """New span positions of the runs; they replace the stored ones."""
    heeded: int | None = None
    """Number of the last label applied to the verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of traces and runs."""

    seen: Mapping[TraceKey, tuple[int, int]]
    """How often each trace was analysed, and up to which row."""
    verdicts: Mapping[str, StoredVerdict]
    """The current ones of runs that have any."""
