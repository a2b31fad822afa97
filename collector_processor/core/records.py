"""Results of an analysis: verdicts, the bytes to send because of them, and stored facts about the runs.

This module only defines the records; the tables of ``store`` keep them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from collector_processor.core.scores import Lane
from collector_processor.otlp import NO_TENANT, Signal, Tenant, TraceKey
from semconv.model import Effort, ProofDecision, SpanId, TraceId, certainty_of
from semconv.record import record

PERSON: Final = "person"
"""Method of verdicts made by a person's label."""
EXPERIMENT: Final = "experiment"
"""Method of verdicts made by an experiment."""
CONFIRMED: Final = "confirmed_by_person"
"""Key in a verdict's document: true if a person confirmed it. Used in the store only."""

SECOND_OPINION: Final = "is_second_opinion"
"""Key in a verdict's document: true if a person asked for this analysis. Used in the store only."""
SAID_SUCCESS: Final = "is_said_success"
"""Key in a verdict's document: true if the run, an evaluation or a check said that the run succeeded. Used in
the store only."""
PROOF: Final = "proof"
"""Key in a verdict's document: the result of the experiment that made it. Absent from opinions."""

_MOST_REMEMBERED: Final = 1 << 16
"""Characters of the longest document whose fields are remembered; most have some thousands."""


def stated_certainty(document: Mapping[str, Any]) -> float | None:
    """Return ``Blame.certainty`` of a verdict's document; ``None`` if it blames no step."""
    confidence, failed = (_finite(document.get(name)) for name in ("confidence", "failed_probability"))
    return None if confidence is None else certainty_of(confidence, failed)


def _finite(number: object) -> float | None:
    return float(number) if isinstance(number, int | float) and math.isfinite(number) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """Bytes to send: an export request of carriers or of evaluation logs, or scores for a sink."""

    signal: Signal | Lane
    body: bytes
    id: int = 0
    """Assigned by the store."""
    tenant: Tenant = NO_TENANT
    ended_ns: int = 0
    """End of the run in Unix ns, for its first verdict; 0 for all other entries."""


OUTBOX_BATCH: Final = 64
"""Entries of the outbox read at once."""


@record
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
    """True if the run had not ended: shown on the page only, and replaced by the final verdict."""
    decided_ns: int
    document: str
    """The attribution as JSON, as the command line prints it."""

    def says_the_same_as(self, other: StoredVerdict) -> bool:
        """Return whether status, agent and step agree; confidence and prose alone change nothing.

        A step is identified by its span: late spans may change its number, but it remains the same step.
        """
        return (self.status, self.agent, self.span_id) == (other.status, other.agent, other.span_id)

    @property
    def is_by_person(self) -> bool:
        """Whether a person's label made it."""
        return self.fields.get("method") == PERSON

    @property
    def is_persons_word(self) -> bool:
        """Whether a person made or confirmed it; then no analysis supersedes it."""
        return self.is_by_person or self.fields.get(CONFIRMED) is True

    @property
    def is_said_success(self) -> bool:
        """Whether somebody said that the run succeeded; without that, a missing failure is no pass."""
        return self.is_persons_word or self.fields.get(SAID_SUCCESS) is True

    @property
    def proof(self) -> Mapping[str, Any]:
        """The result of the experiment that made it; empty for opinions."""
        proof = self.fields.get(PROOF)
        return proof if isinstance(proof, dict) else {}

    def stands_against(self, span_id: SpanId | None) -> bool:
        """Return whether an opinion that blames this span must give way to an experiment.

        A proof stands against every opinion, a refutation only against those that blame the refuted step.
        """
        decision = self.proof.get("decision")
        is_refuted_again = decision == ProofDecision.REFUTED and self.proof.get("span_id") == span_id
        return decision == ProofDecision.PROVED or (is_refuted_again and span_id is not None)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The parsed document; empty if it is not a JSON object."""
        return fields_of(self.document)


def fields_of(document: str) -> Mapping[str, Any]:
    """Return the fields of a stored JSON object; empty if the text is damaged or something else."""
    return _recent_fields(document) if len(document) <= _MOST_REMEMBERED else _parsed(document)


def _parsed(document: str) -> Mapping[str, Any]:
    try:
        found = json.loads(document)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_recent_fields: Final = lru_cache(maxsize=64)(_parsed)
"""A commit reads the fields of each of its verdicts several times."""


def forget_documents() -> None:
    """Drop the documents that this process remembers; called when a run is deleted."""
    _recent_fields.cache_clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSummary:
    """The parts of a verdict that metrics count, without the run."""

    ended_ns: int
    """End of its last span, Unix ns; 0 without spans."""
    decided_ns: int
    blamed: str | None = None
    """The blamed agent, if any; empty for a suspected failure."""
    confidence: float = 0.0
    effort: Effort = field(default_factory=Effort)
    model: str | None = None
    previous: StoredVerdict | None = None
    is_carried: bool = False
    """Whether a carrier is sent; if so, the verdict's delay is measured on delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Stored span positions of a run, for carriers written later; packed by ``writeback/carriers.py``."""

    tenant: Tenant
    run_id: str
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """A run that was analysed: its traces, and the digest of their content."""

    run_id: str
    trace_ids: frozenset[TraceId]
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentParent:
    """A kind of span whose parent never arrives (``assembly.learned``), with readable names."""

    tenant: Tenant
    kind: int
    """Checksum (``facts.kind_of``) of the three names."""
    service: str
    scope: str
    """The instrumentation scope."""
    name: str
    """Names of the child span; those of its parent are unknown."""
    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The result of one analysis, stored completely or not at all."""

    analysed: tuple[tuple[TraceKey, int], ...]
    """The traces that were read, each with the highest journal row it saw."""
    times: int = 1
    """Analyses of these traces so far; a trace that is joined to a run takes the run's number."""
    identities: tuple[RunIdentity, ...] = ()
    """The runs of the traces ``analysed``, replacing the earlier ones; if empty, these stay."""
    verdicts: tuple[StoredVerdict, ...] = ()
    outgoing: tuple[Outgoing, ...] = ()
    rewrites: tuple[tuple[int, bytes], ...] = ()
    """Held journal rows and their replacement bytes (hold mode)."""
    late: tuple[tuple[int, Outgoing], ...] = ()
    """The same rows, and the bytes to send after them if the disk refuses the replacement."""
    places: tuple[Place, ...] = ()
    """New span positions of the runs; they replace the stored ones."""
    heeded: int | None = None
    """Number of the last label applied to the verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Stored facts about traces and runs."""

    seen: Mapping[TraceKey, tuple[int, int]]
    """Each trace's number of analyses, and the last row they covered."""
    verdicts: Mapping[str, StoredVerdict]
    """The current verdicts of runs that have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts about a run that are known before its verdict."""

    version: str
    """Digest of its prompts, tools, models and release."""
    release: str
    """``service.version``; empty if its resource has none."""
    elements: bytes
    invariants: bytes = b""
    """Facts from which invariants are mined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One run of a workflow."""

    run_id: str
    service: str
    workflow: str
    decided_ns: int
    said: str
    """``passed``, ``failed`` or ``unsaid``."""
    version: str
    release: str
    elements: bytes
    invariants: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended, and the elements of the whole run."""

    run_id: str
    said: str
    """``passed``, ``failed`` or ``unsaid``."""
    elements: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRow:
    """A workflow that has runs."""

    tenant: Tenant
    service: str
    workflow: str
    runs: int


class Carriers(StrEnum):
    """The runs that get carriers in their traces."""

    FAILURES = "failures"
    """Runs that failed, now or by an earlier verdict."""
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledPart:
    """Part of one trace in neighbouring records of one partition."""

    topic: str
    partition: int
    first: int
    """Offset of the first record."""
    last: int
    """Offset of the last record."""
    key: TraceKey
    packed: bytes = field(repr=False)
    """An OTLP request with the trace's items, as ``kafka/spilling.py`` packs it."""
