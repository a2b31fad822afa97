"""Verdict → the exact bytes that leave, and the record beside them. Pure.

Decides the version: a verdict that says the same as the one before (status,
agent, step) is not written again; one that differs supersedes it, and the old
blame is withdrawn beside it, since backends keep what they have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from collector_processor.annotate import (
    CarrierPolicy,
    Judgement,
    carriers,
    decisive_attributes,
    evaluation_log,
    root_attributes,
    withdrawal,
)
from collector_processor.encode import encode, encode_attributes, encode_logs
from collector_processor.otlp import Signal, Tenant
from collector_processor.rebuild import Run
from collector_processor.stored import Outgoing, StoredVerdict
from collector_processor.wire import append_attributes
from semconv.model import AttributeValue, Attribution, Blame, Effort, Span, SpanId, TraceId

SERVICE_NAME: Final = "service.name"

SpanKey = tuple[TraceId, SpanId]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBack:
    """What one verdict leaves behind."""

    verdict: StoredVerdict
    outgoing: tuple[Outgoing, ...] = ()
    rewrites: tuple[tuple[int, bytes], ...] = ()
    """Held journal rows and the bytes that leave in their place."""
    late: tuple[tuple[int, Outgoing], ...] = ()
    """The same rows, and the carriers that follow the originals where those bytes cannot be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A run, what was found, and when."""

    run: Run
    attribution: Attribution
    document: str
    """The attribution as JSON."""
    previous: StoredVerdict | None
    tenant: Tenant
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gist:
    """What a verdict adds to counts, without the run."""

    acting: tuple[str, ...]
    """Agents of the run, each once."""
    ended_ns: int
    """When its last span ended; 0 where it has none."""
    decided_ns: int
    blamed: str | None = None
    """The agent."""
    mode: str = ""
    confidence: float = 0.0
    effort: Effort = field(default_factory=Effort)
    model: str | None = None
    previous: StoredVerdict | None = None


def gist_of(decision: Decision) -> Gist:
    """Return what of a decision is counted."""
    attribution, trajectory = decision.attribution, decision.run.trajectory
    verdict = attribution.verdict
    blame = verdict if isinstance(verdict, Blame) else None
    return Gist(
        acting=tuple(dict.fromkeys((*trajectory.agents, *(step.agent for step in trajectory.steps)))),
        ended_ns=max((span.end_ns for span in decision.run.trace.spans), default=0),
        decided_ns=decision.now_ns,
        blamed=blame.agent if blame else None,
        mode=blame.mode if blame else "",
        confidence=blame.confidence if blame else 0.0,
        effort=attribution.effort,
        model=attribution.model,
        previous=decision.previous,
    )


def write_back(
    decision: Decision, policy: CarrierPolicy, held: Mapping[int, bytes] | None = None
) -> WriteBack:
    """Return the bytes that carry the verdict into the trace.

    Args:
        decision: the verdict and what was said before.
        policy: how carriers are written.
        held: journal rows of this run still held back (hold mode): what can go onto
            the originals in them goes there, the rest the late way.
    """
    judgement = _judgement(decision)
    verdict = _stored(decision, judgement)
    previous = decision.previous
    if previous is not None and not previous.is_provisional and verdict.says_the_same_as(previous):
        return WriteBack(verdict=_told_again(previous, verdict))
    rewrites, reached = _onto_originals(judgement, decision, policy, held or {})
    written = {key for keys in reached.values() for key in keys}
    made = carriers(judgement, decision.run.trace, policy)
    spans = [span for span in made if _parent(span) not in written]
    spans += _withdrawn(judgement, decision)
    logs = evaluation_log(judgement, decision.run.trace, policy, decision.now_ns)
    outgoing = [_carrying(spans, decision)] if spans else []
    if logs:
        outgoing.append(Outgoing(signal=Signal.LOGS, body=encode_logs(logs), tenant=decision.tenant))
    late = {seq: [span for span in made if _parent(span) in keys] for seq, keys in reached.items()}
    return WriteBack(
        verdict=verdict,
        outgoing=tuple(outgoing),
        rewrites=tuple(rewrites.items()),
        late=tuple((seq, _carrying(spans, decision)) for seq, spans in late.items()),
    )


def _carrying(spans: Sequence[Span], decision: Decision) -> Outgoing:
    return Outgoing(signal=Signal.TRACES, body=encode(spans), tenant=decision.tenant)


def _told_again(previous: StoredVerdict, verdict: StoredVerdict) -> StoredVerdict:
    """Return what the store says of a step that stands: the same, or under its new number and service.

    Late spans may move the step, or bring the root with another service. Backends show the carrier
    under its span, wherever that stands; the page, and people who label, go by the number, which must
    be that of the run as it is known.
    """
    if (verdict.step, verdict.service) == (previous.step, previous.service):
        return previous
    return replace(
        verdict,
        version=previous.version,
        failure_id=previous.failure_id,
        decided_ns=previous.decided_ns,
    )


def provisional(decision: Decision) -> StoredVerdict:
    """Return the record of a verdict on a run that still goes on: for the page only."""
    return _stored(decision, _judgement(decision), is_provisional=True)


def _judgement(decision: Decision) -> Judgement:
    previous = decision.previous
    told = previous if previous is not None and not previous.is_provisional else None
    return Judgement(
        trajectory=decision.run.trajectory,
        attribution=decision.attribution,
        version=told.version + 1 if told else 1,
        supersedes=told.failure_id if told else None,
    )


def _stored(decision: Decision, judgement: Judgement, *, is_provisional: bool = False) -> StoredVerdict:
    verdict, step = decision.attribution.verdict, judgement.decisive
    return StoredVerdict(
        tenant=decision.tenant,
        run_id=decision.run.trajectory.run_id,
        version=judgement.version,
        failure_id=judgement.failure_id,
        status=decision.attribution.status.value,
        agent=verdict.agent if isinstance(verdict, Blame) else None,
        step=step.index if step else None,
        span_id=step.span_id if step else None,
        trace_id=step.trace_id if step else None,
        service=_service(decision.run),
        is_provisional=is_provisional,
        decided_ns=decision.now_ns,
        document=decision.document,
    )


def _service(run: Run) -> str:
    """Return the ``service.name`` of the run's root; of its earliest span where the root never came."""
    trajectory, spans = run.trajectory, run.trace.spans
    root = (trajectory.root_trace_id, trajectory.root_span_id)
    found = next((span for span in spans if (span.trace_id, span.span_id) == root), None)
    found = found or min(spans, key=lambda span: (span.start_ns, span.span_id), default=None)
    return str(found.resource.attributes.get(SERVICE_NAME, "")) if found else ""


def _withdrawn(judgement: Judgement, decision: Decision) -> Iterable[Span]:
    previous = decision.previous
    if previous is None or previous.is_provisional or not previous.span_id or not previous.trace_id:
        return ()
    return withdrawal(judgement, (previous.trace_id, previous.span_id), decision.run.trace)


def _onto_originals(
    judgement: Judgement, decision: Decision, policy: CarrierPolicy, held: Mapping[int, bytes]
) -> tuple[dict[int, bytes], dict[int, set[SpanKey]]]:
    """Append the attributes to the held originals; say which spans were reached, in which rows."""
    additions: dict[SpanKey, dict[str, AttributeValue]] = {}
    trajectory, step = decision.run.trajectory, judgement.decisive
    if trajectory.root_trace_id and trajectory.root_span_id:
        root = (trajectory.root_trace_id, trajectory.root_span_id)
        additions[root] = root_attributes(judgement, policy)
    if step is not None and step.trace_id and step.span_id:
        key = (step.trace_id, step.span_id)
        additions[key] = additions.get(key, {}) | decisive_attributes(judgement, policy)
    rewrites, reached = dict[int, bytes](), defaultdict[int, set[SpanKey]](set)
    for seq, body in held.items():
        for (trace_id, span_id), attributes in additions.items():
            before = rewrites.get(seq, body)
            changed = append_attributes(before, trace_id, span_id, encode_attributes(attributes))
            if changed is not before:  # else it stands in another row, or went on before the verdict
                rewrites[seq] = changed
                reached[seq].add((trace_id, span_id))
    return rewrites, reached


def _parent(carrier: Span) -> tuple[TraceId, SpanId | None]:
    return carrier.trace_id, carrier.parent_id
