"""Results of an analysis: verdicts, the bytes to send because of them, and stored facts about the runs.

This module only defines the records; ``verdicts.py`` stores them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from collector_processor.otlp import NO_TENANT, Signal, Tenant, TraceKey
from semconv.model import ProofDecision, SpanId, TraceId, certainty_of
from semconv.record import record

PERSON: Final = "person"
"""Method of verdicts made by a person's label."""
EXPERIMENT: Final = "experiment"
"""Method of verdicts made by an experiment."""
CONFIRMED: Final = "confirmed_by_person"
"""Key in a verdict's document: true if a person confirmed it. Used in the store only."""

SECOND_OPINION: Final = "is_second_opinion"
"""Key in a verdict's document: true if a person asked for this analysis. Used in the store only."""
PROOF: Final = "proof"
"""Key in a verdict's document: the result of the experiment that made it. Absent from opinions."""


def stated_certainty(document: Mapping[str, Any]) -> float | None:
    """Return ``Blame.certainty`` of a verdict's document; ``None`` if it blames no step."""
    confidence, failed = (_finite(document.get(name)) for name in ("confidence", "failed_probability"))
    return None if confidence is None else certainty_of(confidence, failed)


def _finite(number: object) -> float | None:
    return float(number) if isinstance(number, int | float) and math.isfinite(number) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """Bytes to send: an export request of carriers or of evaluation logs."""

    signal: Signal
    body: bytes
    id: int = 0
    """Assigned by the store."""
    tenant: Tenant = NO_TENANT
    ended_ns: int = 0
    """End of the run in Unix ns, for its first verdict; 0 for all other entries."""


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
    def certainty(self) -> float:
        """The probability that thresholds compare (``Blame.certainty``); 1 if the document has none."""
        stated = stated_certainty(self.fields)
        return 1.0 if stated is None else stated

    @property
    def fields(self) -> Mapping[str, Any]:
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
