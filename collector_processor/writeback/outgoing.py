"""Verdict → the exact bytes that leave, and the record beside them. Pure.

Decides the version: a verdict that says the same as the one before (status,
agent, step) is not written again; one that differs supersedes it, and the old
blame is withdrawn beside it, because backends keep old spans. A person's verdict
is superseded only by another person's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from collector_processor.annotate import (
    CarrierPolicy,
    Carriers,
    Judgement,
    Withdrawn,
    carriers,
    decisive_attributes,
    evaluation_log,
    root_attributes,
    withdrawal,
)
from collector_processor.encode import encode, encode_attributes, encode_logs
from collector_processor.otlp import Signal, Tenant
from collector_processor.places import pack_place
from collector_processor.rebuild import Run
from collector_processor.stored import PERSON, Outgoing, Place, StoredVerdict
from collector_processor.wire import append_attributes
from semconv.attributes import ERROR
from semconv.model import AttributeValue, Attribution, Blame, Effort, Span, SpanId, Status, TraceId

SERVICE_NAME: Final = "service.name"

_LATEST_NS: Final = 2**63 - 1
"""The year 2262; SQLite's integers end there."""
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
    place: Place | None = None
    """Stored span positions of the run, for later labels."""


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
    names_step: bool = True
    """False where a person named an agent and no step."""

    @property
    def told(self) -> StoredVerdict | None:
        """The previous verdict, unless it was provisional."""
        return None if self.previous is None or self.previous.is_provisional else self.previous


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
    is_carried: bool = False
    """Whether a carrier takes it to the backend; if so, its lag is counted on delivery."""


def gist_of(decision: Decision, back: WriteBack | None = None) -> Gist:
    """Return the counted parts of a decision, and whether ``back`` sends it on."""
    attribution, trajectory = decision.attribution, decision.run.trajectory
    verdict = attribution.verdict
    blame = verdict if isinstance(verdict, Blame) else None
    return Gist(
        acting=tuple(dict.fromkeys((*trajectory.agents, *(step.agent for step in trajectory.steps)))),
        ended_ns=_ended_ns(decision.run),
        decided_ns=decision.now_ns,
        blamed=blame.agent if blame else None,
        mode=blame.mode if blame else "",
        confidence=blame.confidence if blame else 0.0,
        effort=attribution.effort,
        model=attribution.model,
        previous=decision.previous,
        is_carried=back is not None and any(out.ended_ns for out in back.outgoing),
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
    place = pack_place(decision.run, decision.tenant, (verdict.trace_id, verdict.span_id))
    before = _stands(decision, verdict, policy)
    if before is not None:
        return WriteBack(verdict=before, place=place)
    made: tuple[Span, ...] = ()
    rewrites, reached = dict[int, bytes](), dict[int, set[SpanKey]]()
    if _is_written(decision, policy):
        rewrites, reached = _onto_originals(judgement, decision, policy, held or {})
        made = carriers(judgement, decision.run.trace, policy)
    written = {key for keys in reached.values() for key in keys}
    spans = [span for span in made if _parent(span) not in written]
    spans += _withdrawn(judgement, decision, policy)
    logs = evaluation_log(judgement, decision.run.trace, policy, decision.now_ns)
    outgoing = [replace(_carrying(spans, decision), ended_ns=_timed(decision))] if spans else []
    if logs:
        outgoing.append(Outgoing(signal=Signal.LOGS, body=encode_logs(logs), tenant=decision.tenant))
    late = {seq: [span for span in made if _parent(span) in keys] for seq, keys in reached.items()}
    return WriteBack(
        verdict=verdict,
        outgoing=tuple(outgoing),
        rewrites=tuple(rewrites.items()),
        late=tuple((seq, _carrying(spans, decision)) for seq, spans in late.items()),
        place=place,
    )


def _stands(decision: Decision, verdict: StoredVerdict, policy: CarrierPolicy) -> StoredVerdict | None:
    """Return the previous verdict, brought up to date, if the new one writes nothing into the trace."""
    told = decision.told
    if told is None:
        return None
    is_persons = decision.attribution.method == PERSON
    if told.is_persons_word and not is_persons:
        return _still_said(told, decision.run)
    if not verdict.says_the_same_as(told):
        return None
    if is_persons and verdict.agent and not policy.marks(told.confidence):
        return None  # confirmed: the span that was too uncertain to be marked gets its mark
    return _told_again(told, verdict)


def _is_written(decision: Decision, policy: CarrierPolicy) -> bool:
    """Whether this verdict is written into the run's trace."""
    if policy.carriers is not Carriers.FAILURES:
        return policy.carriers is Carriers.ALL
    was_failure = decision.told is not None and decision.told.status != Status.NO_FAILURE
    return was_failure or decision.attribution.status is not Status.NO_FAILURE


def _timed(decision: Decision) -> int:
    """Return the end of the run for its first verdict, whose lag is measured; else 0."""
    ended_ns = _ended_ns(decision.run)
    # Some hosts send absurd times that the store cannot hold.
    return ended_ns if decision.told is None and ended_ns <= _LATEST_NS else 0


def _carrying(spans: Sequence[Span], decision: Decision) -> Outgoing:
    return Outgoing(signal=Signal.TRACES, body=encode(spans), tenant=decision.tenant)


def _told_again(previous: StoredVerdict, verdict: StoredVerdict) -> StoredVerdict:
    """Return the stored verdict on an unchanged step, with its current number and service.

    Late spans may change the step's number, or bring the root with another service. Backends show the
    carrier under its span in any case; the page and labels use the number, so it must be the current one.
    """
    if (verdict.step, verdict.service) == (previous.step, previous.service):
        return previous
    return replace(
        verdict,
        version=previous.version,
        failure_id=previous.failure_id,
        decided_ns=previous.decided_ns,
    )


def _still_said(previous: StoredVerdict, run: Run) -> StoredVerdict:
    """Return a person's verdict with the current number of its step."""
    places = [step.index for step in run.trajectory.steps if step.span_id == previous.span_id]
    if previous.span_id is None or previous.step in places or not places:
        return previous
    document = json.dumps({**previous.told, "step": places[0]})
    return replace(previous, step=places[0], document=document)


def provisional(decision: Decision) -> StoredVerdict:
    """Return the record of a verdict on a run that still goes on: for the page only."""
    return _stored(decision, _judgement(decision), is_provisional=True)


def _judgement(decision: Decision) -> Judgement:
    told = decision.told
    return Judgement(
        trajectory=decision.run.trajectory,
        attribution=decision.attribution,
        version=told.version + 1 if told else 1,
        supersedes=told.failure_id if told else None,
        names_step=decision.names_step,
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


def _ended_ns(run: Run) -> int:
    return max((span.end_ns for span in run.trace.spans), default=0)


def _service(run: Run) -> str:
    """Return the ``service.name`` of the run's root, or of its earliest span if the root never arrived."""
    trajectory, spans = run.trajectory, run.trace.spans
    root = (trajectory.root_trace_id, trajectory.root_span_id)
    found = next((span for span in spans if (span.trace_id, span.span_id) == root), None)
    found = found or min(spans, key=lambda span: (span.start_ns, span.span_id), default=None)
    return str(found.resource.attributes.get(SERVICE_NAME, "")) if found else ""


def _withdrawn(judgement: Judgement, decision: Decision, policy: CarrierPolicy) -> Iterable[Span]:
    """Return the spans that withdraw the previous blame; none if the blame is unchanged."""
    told, step = decision.told, judgement.decisive
    if told is None or told.agent is None or policy.carriers is Carriers.NONE:
        return ()
    verdict = decision.attribution.verdict
    agent = verdict.agent if isinstance(verdict, Blame) else None
    if told.agent == agent and (told.span_id is None or (step and told.span_id == step.span_id)):
        return ()
    is_marked = told.trace_id and told.span_id and policy.marks(told.confidence)
    marked = (told.trace_id, told.span_id) if is_marked else None
    withdrawn = Withdrawn(agent=told.agent, version=told.version, marked=marked)  # type: ignore[arg-type]
    return withdrawal(judgement, withdrawn, decision.run.trace, policy)


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
        additions[key] = additions.get(key, {}) | _new_to(
            key, decisive_attributes(judgement, policy), decision
        )
    rewrites, reached = dict[int, bytes](), defaultdict[int, set[SpanKey]](set)
    for seq, body in held.items():
        for (trace_id, span_id), attributes in additions.items():
            before = rewrites.get(seq, body)
            changed = append_attributes(before, trace_id, span_id, encode_attributes(attributes))
            if changed is not before:  # else it stands in another row, or went on before the verdict
                rewrites[seq] = changed
                reached[seq].add((trace_id, span_id))
    return rewrites, reached


def _new_to(key: SpanKey, added: dict[str, AttributeValue], decision: Decision) -> dict[str, AttributeValue]:
    """Leave out Jaeger's error mark if the original has an attribute of that name."""
    spans = (span for span in decision.run.trace.spans if (span.trace_id, span.span_id) == key)
    if any(ERROR in span.attributes for span in spans):
        added.pop(ERROR, None)
    return added


def _parent(carrier: Span) -> tuple[TraceId, SpanId | None]:
    return carrier.trace_id, carrier.parent_id
