"""From verdict to the bytes to send and the record to store. Pure.

Decides the version: a verdict equal to the previous one (status, agent, step) is not written again. One that
differs supersedes it and also withdraws the old blame, because backends keep old spans. A person's verdict is
superseded only by another person's, and an experiment's only by a person's or another experiment's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from collector_processor.core.records import (
    PERSON,
    SAID_SUCCESS,
    Carriers,
    Outgoing,
    Place,
    StoredVerdict,
    VerdictSummary,
)
from collector_processor.core.runs import Run
from collector_processor.otlp import Signal, Tenant
from collector_processor.rebuild.encode import encode, encode_attributes, encode_logs
from collector_processor.wire.split import append_attributes
from collector_processor.writeback.annotate import (
    CarrierPolicy,
    Judgement,
    Withdrawn,
    decisive_attributes,
    root_attributes,
)
from collector_processor.writeback.carriers import (
    carriers,
    evaluation_logs,
    pack_place,
    root_of,
    spans_of,
    withdrawal,
)
from collector_processor.writeback.evaluations import TASK_SUCCESS, annotation, evaluations, score_entries
from semconv.attributes import ERROR
from semconv.model import (
    BLAMELESS,
    AttributeValue,
    Attribution,
    Blame,
    Outcome,
    Span,
    SpanId,
    Status,
    TraceId,
)

SERVICE_NAME: Final = "service.name"

_NO_FAILURES: Final = BLAMELESS | {Status.UNREADABLE}
_LATEST_NS: Final = 2**63 - 1
"""Largest integer of SQLite; as a time in ns it is in the year 2262."""
SpanKey = tuple[TraceId, SpanId]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBack:
    """Everything that one verdict writes."""

    verdict: StoredVerdict
    outgoing: tuple[Outgoing, ...] = ()
    rewrites: tuple[tuple[int, bytes], ...] = ()
    """Held journal rows, and their replacement bytes."""
    late: tuple[tuple[int, Outgoing], ...] = ()
    """The same rows, and the carriers to send if those bytes cannot be stored."""
    place: Place | None
    """Stored span positions of the run, for later labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A run and its attribution, at a time."""

    run: Run
    attribution: Attribution
    document: str
    """The attribution as JSON."""
    previous: StoredVerdict | None
    tenant: Tenant
    now_ns: int
    names_step: bool = True
    """False if a person named an agent but no step."""
    place: Place | None = None
    """Stored span positions of the run, if they were packed before."""

    @property
    def published(self) -> StoredVerdict | None:
        """The previous verdict, unless it was provisional."""
        return None if self.previous is None or self.previous.is_provisional else self.previous


def summary_of(decision: Decision, back: WriteBack | None = None) -> VerdictSummary:
    """Return the counted parts of a decision; ``back`` tells whether a carrier is sent."""
    verdict = decision.attribution.verdict
    blame = verdict if isinstance(verdict, Blame) and verdict.status is Status.ATTRIBUTED else None
    return VerdictSummary(
        ended_ns=_ended_ns(decision.run),
        decided_ns=decision.now_ns,
        blamed=blame.agent if blame else None,
        confidence=blame.confidence if blame else 0.0,
        effort=decision.attribution.effort,
        model=decision.attribution.model,
        previous=decision.previous,
        is_carried=back is not None and any(out.ended_ns for out in back.outgoing),
    )


def write_back(
    decision: Decision, policy: CarrierPolicy, held: Mapping[int, bytes] | None = None
) -> WriteBack:
    """Return everything to be written for the verdict.

    Args:
        decision: the verdict and the previous one.
        policy: how carriers are written.
        held: held journal rows of this run (hold mode): attributes are added to the spans in
            them; for other spans carriers are written.
    """
    judgement = _judgement(decision)
    verdict = _stored(decision, judgement)
    place = decision.place or pack_place(decision.run, decision.tenant, (verdict.trace_id, verdict.span_id))
    before = _unchanged(decision, verdict)
    if before is not None:
        return WriteBack(verdict=before, place=place)
    made: tuple[Span, ...] = ()
    rewrites, reached = dict[int, bytes](), dict[int, set[SpanKey]]()
    if _is_written(decision, policy):
        if held:
            rewrites, reached = _onto_originals(judgement, decision, policy, held)
        made = carriers(judgement, decision.run.trace, policy)
    written = {key for keys in reached.values() for key in keys}
    spans = [span for span in made if _parent(span) not in written]
    spans += _withdrawn(judgement, decision, policy)
    logs = evaluation_logs(judgement, decision.run.trace, policy, decision.now_ns)
    outgoing = (
        [replace(_outgoing_spans(spans, decision), ended_ns=_measured_end_ns(decision))] if spans else []
    )
    if logs:
        outgoing.append(Outgoing(signal=Signal.LOGS, body=encode_logs(logs), tenant=decision.tenant))
    outgoing += score_entries(
        judgement,
        root_of(decision.run.trajectory, decision.run.trace),
        policy,
        tenant=decision.tenant,
        now_ns=decision.now_ns,
        published=decision.published,
    )
    late = {seq: [span for span in made if _parent(span) in keys] for seq, keys in reached.items()}
    return WriteBack(
        verdict=verdict,
        outgoing=tuple(outgoing),
        rewrites=tuple(rewrites.items()),
        late=tuple((seq, _outgoing_spans(spans, decision)) for seq, spans in late.items()),
        place=place,
    )


def _unchanged(decision: Decision, verdict: StoredVerdict) -> StoredVerdict | None:
    """Return the previous verdict, brought up to date, if the new one writes nothing into the trace."""
    published = decision.published
    if published is None:
        return None
    if _outranks(published, decision, verdict):
        return _with_current_step(published, decision.run)
    is_proved_now = decision.attribution.proof is not None and not published.proof
    if is_proved_now or not verdict.says_the_same_as(published) or _is_news(published, decision, verdict):
        return None
    return _updated(published, verdict)


def _is_news(published: StoredVerdict, decision: Decision, verdict: StoredVerdict) -> bool:
    """Return whether somebody says now that the run succeeded: its ``task_success`` becomes a pass."""
    if decision.attribution.status is not Status.NO_FAILURE:
        return False
    is_persons_now = decision.attribution.method == PERSON and not published.is_persons_word
    return is_persons_now or (verdict.is_said_success and not published.is_said_success)


def _outranks(published: StoredVerdict, decision: Decision, verdict: StoredVerdict) -> bool:
    """Return whether the previous verdict stands: persons outrank experiments, which outrank opinions."""
    attribution = decision.attribution
    if attribution.method == PERSON:
        return False
    is_opinion = attribution.proof is None
    return published.is_persons_word or (is_opinion and published.stands_against(verdict.span_id))


def _is_written(decision: Decision, policy: CarrierPolicy) -> bool:
    """Return whether this verdict is written into the run's trace."""
    if policy.carriers is not Carriers.FAILURES:
        return policy.carriers is Carriers.ALL
    was_failure = decision.published is not None and decision.published.status not in _NO_FAILURES
    return was_failure or decision.attribution.status not in _NO_FAILURES


def _measured_end_ns(decision: Decision) -> int:
    """Return the end of the run for its first verdict, whose delay is measured; else 0."""
    ended_ns = _ended_ns(decision.run)
    # Some hosts send times that the store cannot hold.
    return ended_ns if decision.published is None and ended_ns <= _LATEST_NS else 0


def _outgoing_spans(spans: Sequence[Span], decision: Decision) -> Outgoing:
    return Outgoing(signal=Signal.TRACES, body=encode(spans), tenant=decision.tenant)


def _updated(previous: StoredVerdict, verdict: StoredVerdict) -> StoredVerdict:
    """Return the stored verdict on an unchanged step, with its current number and service.

    Late spans may change the step's number, or bring a root with another service. Backends show the carrier
    under its span anyway; pages and labels use the number, so it must be current.
    """
    if (verdict.step, verdict.service) == (previous.step, previous.service):
        return previous
    return replace(
        verdict, version=previous.version, failure_id=previous.failure_id, decided_ns=previous.decided_ns
    )


def _with_current_step(previous: StoredVerdict, run: Run) -> StoredVerdict:
    """Return a person's verdict with the current number of its step."""
    places = [step.index for step in run.trajectory.steps if step.span_id == previous.span_id]
    if previous.span_id is None or previous.step in places or not places:
        return previous
    document = json.dumps({**previous.fields, "step": places[0]})
    return replace(previous, step=places[0], document=document)


def provisional(decision: Decision) -> StoredVerdict:
    """Return the record of a verdict on an unfinished run, shown on its page only."""
    return _stored(decision, _judgement(decision), is_provisional=True)


def _judgement(decision: Decision) -> Judgement:
    published = decision.published
    return Judgement(
        trajectory=decision.run.trajectory,
        attribution=decision.attribution,
        version=published.version + 1 if published else 1,
        supersedes=published.failure_id if published else None,
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
        service=service_of(decision.run),
        is_provisional=is_provisional,
        decided_ns=decision.now_ns,
        document=_document(decision),
    )


def _document(decision: Decision) -> str:
    """Return the attribution as JSON, with the mark of a run that is said to have passed."""
    is_said = decision.run.trajectory.outcome is Outcome.SUCCESS
    if not is_said or decision.attribution.status is not Status.NO_FAILURE:
        return decision.document
    return json.dumps({**json.loads(decision.document), SAID_SUCCESS: True})


def _ended_ns(run: Run) -> int:
    return max((span.end_ns for span in run.trace.spans), default=0)


def service_of(run: Run) -> str:
    """Return the ``service.name`` of the run's root, or of its earliest span if the root never arrived."""
    span = root_of(run.trajectory, run.trace)
    return str(span.resource.attributes.get(SERVICE_NAME, "")) if span else ""


def _withdrawn(judgement: Judgement, decision: Decision, policy: CarrierPolicy) -> Iterable[Span]:
    """Return the spans that withdraw the previous blame; empty if the blame is unchanged."""
    published, step = decision.published, judgement.decisive
    if published is None or published.agent is None or policy.carriers is Carriers.NONE:
        return ()
    verdict = decision.attribution.verdict
    agent = verdict.agent if isinstance(verdict, Blame) else None
    if published.agent == agent and (
        published.span_id is None or (step and published.span_id == step.span_id)
    ):
        return ()
    trace_id, span_id = published.trace_id, published.span_id
    marked = (trace_id, span_id) if trace_id and span_id else None
    withdrawn = Withdrawn(agent=published.agent, version=published.version, marked=marked)
    return withdrawal(judgement, withdrawn, decision.run.trace, policy)


def _onto_originals(
    judgement: Judgement, decision: Decision, policy: CarrierPolicy, held: Mapping[int, bytes]
) -> tuple[dict[int, bytes], dict[int, set[SpanKey]]]:
    """Append attributes to held spans; return the changed rows, with the spans changed in each."""
    additions = _additions(judgement, decision, policy)
    rewrites, reached = dict[int, bytes](), defaultdict[int, set[SpanKey]](set)
    for seq, body in held.items():
        for (trace_id, span_id), attributes in additions.items():
            before = rewrites.get(seq, body)
            changed = append_attributes(before, trace_id, span_id, encode_attributes(attributes))
            if changed is not before:  # else the span is in another row, or was released before
                rewrites[seq] = changed
                reached[seq].add((trace_id, span_id))
    return rewrites, reached


def _additions(
    judgement: Judgement, decision: Decision, policy: CarrierPolicy
) -> dict[SpanKey, dict[str, AttributeValue]]:
    """Return the attributes to append, by span: the verdict's, and its evaluations as annotations."""
    added: dict[SpanKey, dict[str, AttributeValue]] = {}
    trajectory, step = decision.run.trajectory, judgement.decisive
    spans = spans_of(decision.run.trace)
    if trajectory.root_trace_id and trajectory.root_span_id:
        root = (trajectory.root_trace_id, trajectory.root_span_id)
        added[root] = root_attributes(judgement, policy)
    if step is not None and step.trace_id and step.span_id:
        key = (step.trace_id, step.span_id)
        added[key] = added.get(key, {}) | decisive_attributes(judgement, policy)
        if (
            key in spans and ERROR in spans[key].attributes
        ):  # the original has Jaeger's error mark, or a false one
            added[key].pop(ERROR, None)
    for evaluation in evaluations(judgement, root_of(trajectory, decision.run.trace)):
        key = (evaluation.trace_id, evaluation.span_id)
        is_shown = evaluation.name == TASK_SUCCESS or judgement.decisive is not None
        if is_shown and key in spans and key in added:
            taken = {**spans[key].attributes, **added[key]}
            added[key] |= annotation(evaluation, judgement, policy, taken)
    return added


def _parent(carrier: Span) -> tuple[TraceId, SpanId | None]:
    return carrier.trace_id, carrier.parent_id
