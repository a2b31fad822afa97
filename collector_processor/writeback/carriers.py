"""Carriers and evaluation log: the spans and the log record that carry a verdict into a trace. Pure.

Spans are immutable once exported: no backend adds attributes to a span it already has (Tempo keeps the first
copy, Jaeger and Elasticsearch show two). So in *late* mode each verdict becomes *carriers*: one under the
decisive span, one under the root. A carrier copies its parent's Resource, because Jaeger searches service and
tag together. It starts with its parent and lasts 1 µs, because a longer span would become part of the
critical path, and a zero-length span is drawn with a warning. It has no link to its parent, because Jaeger
would turn CHILD_OF into FOLLOWS_FROM.

Carriers' names are short, with the most important word first: Jaeger's column shows the service name and
then as much of the span name as fits.

A carrier needs its parent's ids, start, Resource, trace state and flags. These are stored for the root and
for each step's span, with the step's agent, and without names, texts or attributes of spans, so that a later
label can still write carriers into the trace. If a run exceeds the size bound, only its root and blamed span
are stored, or nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from collector_processor.core.records import Place
from collector_processor.core.runs import Run
from collector_processor.otlp import Tenant
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.writeback.annotate import (
    CarrierPolicy,
    Judgement,
    Withdrawn,
    decisive_attributes,
    digest,
    finish,
    root_attributes,
    shorten,
)
from collector_processor.writeback.evaluations import (
    FAILURE_ATTRIBUTION,
    TASK_SUCCESS,
    Evaluation,
    evaluations,
    event_attributes,
    openinference_evaluation,
)
from semconv import attributes as names
from semconv.model import (
    Abstention,
    AgentSource,
    Attributes,
    AttributeValue,
    Blame,
    ContentState,
    Event,
    Link,
    LogRecord,
    Scope,
    Span,
    SpanId,
    Status,
    Step,
    StepKind,
    Trace,
    TraceId,
    Trajectory,
    agent_in_prose,
    agent_label,
)

CARRIER_NS: Final = 1000
_LATEST_NS: Final = 2**64 - 1
"""Largest OTLP time, a fixed64."""
SAMPLED: Final = 1
INTERNAL: Final = 1
SCOPE: Final = Scope(name=names.SCOPE_ANALYZER)
_UNBLAMED: Final = {
    Status.NO_FAILURE: "no failure found",
    Status.UNDETERMINED: "failure: undetermined",
    Status.WAITING: "waiting",
    Status.CANCELLED: "cancelled",
    Status.UNREADABLE: "steps unreadable",
    Status.ERROR: "not analysed",
}
"""Names of the root's carrier when no agent is blamed."""
INFO: Final = 9
WARN: Final = 13
"""OTLP severity numbers."""
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
MAX_NAME: Final = 44
"""Most characters of a carrier's name; agent names are truncated to fit, attributes have them in full."""
_LEAST_AGENT: Final = 12
"""Fewest characters kept of a long agent name; the failure mode is dropped before it gets shorter."""


def carriers(judgement: Judgement, trace: Trace, policy: CarrierPolicy) -> tuple[Span, ...]:
    """Return the carriers of this verdict: under the decisive span first, then under the root."""
    spans, made = spans_of(trace), list[Span]()
    step, blame = judgement.decisive, judgement.attribution.verdict
    decisive = spans.get((step.trace_id, step.span_id)) if step else None
    root = root_of(judgement.trajectory, trace)
    shown = {
        evaluation.name: finish(openinference_evaluation(evaluation, judgement.failure_id), policy)
        for evaluation in evaluations(judgement, root)
    }
    if decisive is not None and isinstance(blame, Blame):
        attributes = decisive_attributes(judgement, policy) | shown[FAILURE_ATTRIBUTION]
        carrier = _carrier(_decisive_name(blame), decisive, judgement, attributes)
        made.append(replace(carrier, status=policy.status if judgement.is_error(policy) else carrier.status))
    if root is not None:
        mark: dict[str, AttributeValue] = {names.ERROR: True} if judgement.is_error(policy) else {}
        attributes = mark | root_attributes(judgement, policy) | shown.get(TASK_SUCCESS, {})
        made.append(_linked(_carrier(_root_name(judgement), root, judgement, attributes), decisive))
    return tuple(made)


def withdrawal(
    judgement: Judgement, withdrawn: Withdrawn, trace: Trace, policy: CarrierPolicy
) -> tuple[Span, ...]:
    """Return the carriers that withdraw an earlier blame.

    The first is beside the old decisive carrier (if there was one), the second beside the old root carrier.
    """
    spans, verdict = spans_of(trace), judgement.attribution.verdict
    agent = verdict.agent if isinstance(verdict, Blame) else None
    attributes: dict[str, AttributeValue] = {
        names.RUN_ID: judgement.trajectory.run_id,
        names.RUN_URL: policy.run_url(judgement.trajectory.run_id),
        names.FAILURE_ID: judgement.failure_id,
        names.FAILURE_VERSION: judgement.version,
        names.FAILURE_STATUS: names.FailureStatus.WITHDRAWN.value,
        names.FAILURE_SUPERSEDES: judgement.supersedes,
        names.FAILURE_WITHDRAWN_AGENT_NAME: withdrawn.agent,
        names.FAILURE_WITHDRAWN_VERSION: withdrawn.version,
        names.FAILURE_AGENT_NAME: agent,
        names.FAILURE_METHOD: judgement.attribution.method,
    }
    marked = spans.get(withdrawn.marked) if withdrawn.marked else None
    parents = dict.fromkeys(
        (span.trace_id, span.span_id)
        for span in (marked, root_of(judgement.trajectory, trace))
        if span is not None
    )
    name = _withdrawal_name(withdrawn.agent, agent)
    return tuple(_carrier(name, spans[key], judgement, finish(attributes, policy)) for key in parents)


def evaluation_logs(
    judgement: Judgement, trace: Trace, policy: CarrierPolicy, now_ns: int
) -> tuple[LogRecord, ...]:
    """Return an event ``gen_ai.evaluation.result`` for each evaluation, parented to the span it is about.

    Its body is one sentence. The severity of a blame is WARN; that of a suspected failure and of the run's
    evaluation is INFO: ERROR is left to the run's own records.
    """
    if not policy.logs:
        return ()
    spans = spans_of(trace)
    made = evaluations(judgement, root_of(judgement.trajectory, trace))
    return tuple(
        LogRecord(
            trace_id=each.trace_id,
            span_id=each.span_id,
            event=Event(
                name=EVALUATION_EVENT,
                time_ns=now_ns,
                attributes=event_attributes(each, judgement, policy),
                body=shorten(_sentence(each, judgement)),
            ),
            severity=WARN if each.name == FAILURE_ATTRIBUTION and each.score is not None else INFO,
            scope=SCOPE,
            resource=spans[each.trace_id, each.span_id].resource,
        )
        for each in made
        if (each.trace_id, each.span_id) in spans
    )


def _sentence(evaluation: Evaluation, judgement: Judgement) -> str:
    """Return the body of an evaluation's event: one line that log viewers show."""
    blame = judgement.attribution.verdict
    if evaluation.name == FAILURE_ATTRIBUTION and isinstance(blame, Blame):
        return _blaming(blame)
    return f"run {judgement.trajectory.run_id}: {evaluation.name} {evaluation.label}"


def _blaming(blame: Blame) -> str:
    agent, mode = agent_in_prose(blame.agent), f" ({_words(blame.mode)})" if blame.mode else ""
    if blame.status is not Status.SUSPECTED:
        return f"{agent} broke the run at step {blame.step}{mode}, confidence {blame.confidence:.2f}"
    probability = "" if blame.failed_probability is None else f" ({blame.failed_probability:.2f})"
    accused = f"{agent} at step {blame.step}{mode}, confidence {blame.confidence:.2f}"
    return f"suspected failure{probability}: {accused}"


def _decisive_name(blame: Blame) -> str:
    """Return the name of the carrier under the decisive span, such as ``calculator: wrong computation``."""
    if blame.status is Status.SUSPECTED:
        return _summary_name(blame)
    return _fitted("", blame.agent, f": {_words(blame.mode) or 'decisive error'}")


def _root_name(judgement: Judgement) -> str:
    verdict = judgement.attribution.verdict
    replacing = f", replaces verdict {judgement.version - 1}" if judgement.supersedes else ""
    if isinstance(verdict, Abstention):
        return _UNBLAMED[verdict.status] + replacing
    return _summary_name(verdict, replacing)


def _summary_name(blame: Blame, replacing: str = "") -> str:
    """Return a name such as ``failure: calculator (wrong computation)`` or ``suspected: analyst (…)``."""
    before = "suspected: " if blame.status is Status.SUSPECTED else "failure: "
    return _fitted(before, blame.agent, f" ({_words(blame.mode)})" if blame.mode else "", replacing)


def _carrier(name: str, parent: Span, judgement: Judgement, attributes: Attributes) -> Span:
    start_ns = min(parent.start_ns, _LATEST_NS - CARRIER_NS)
    return Span(
        trace_id=parent.trace_id,
        span_id=SpanId(digest(parent.trace_id, parent.span_id, name, judgement.failure_id, size=8)),
        parent_id=parent.span_id,
        name=name,
        kind=INTERNAL,
        start_ns=start_ns,
        end_ns=start_ns + CARRIER_NS,
        attributes={names.CARRIER: True, **attributes},
        scope=SCOPE,
        resource=parent.resource,
        trace_state=parent.trace_state,
        flags=(parent.flags & 0xFF) | SAMPLED,
    )


def _linked(carrier: Span, decisive: Span | None) -> Span:
    """Link the root's carrier to the decisive span, unless that is its own parent."""
    if decisive is None or decisive.span_id == carrier.parent_id:
        return carrier
    link = Link(trace_id=decisive.trace_id, span_id=decisive.span_id)
    return replace(carrier, links=(link,))


def spans_of(trace: Trace) -> Mapping[tuple[TraceId | None, SpanId | None], Span]:
    """Return the spans by their trace's and their own id."""
    return {(span.trace_id, span.span_id): span for span in trace.spans}


def root_of(trajectory: Trajectory, trace: Trace) -> Span | None:
    """Return the run's root, or its earliest span if the root never arrived."""
    root = trajectory.root_trace_id, trajectory.root_span_id
    found = next((span for span in trace.spans if (span.trace_id, span.span_id) == root), None)
    return found or min(trace.spans, key=lambda span: (span.start_ns, span.span_id), default=None)


def _withdrawal_name(old: str, new: str | None) -> str:
    """Return the name of a withdrawal, such as ``withdrawn: researcher → calculator``."""
    if new is None:
        return _fitted("withdrawn: ", old, "")
    if new == old:
        return _fitted("withdrawn: ", old, " (another step)")
    room = (MAX_NAME - len("withdrawn:  → ")) // 2
    return f"withdrawn: {_cut(old, room)} → {_cut(new, room)}"


def _words(mode: str) -> str:
    return mode.replace("_", " ")


def _fitted(before: str, agent: str, after: str, replacing: str = "") -> str:
    """Return a name of at most ``MAX_NAME`` characters: truncate the agent's name, or drop ``after``."""
    room = MAX_NAME - len(before) - len(after) - len(replacing)
    if room < min(_LEAST_AGENT, len(agent)):
        room, after = MAX_NAME - len(before) - len(replacing), ""
    return f"{before}{_cut(agent, room)}{after}{replacing}"


def _cut(agent: str, room: int) -> str:
    agent = " ".join(agent_label(agent).split())
    return agent if len(agent) <= room else f"{agent[: room - 1]}…"


MAX_PLACE_BYTES: Final = 64 << 10
"""Bound on the compressed bytes of one run; a run of twenty steps takes about 1,000."""
_LEVEL: Final = 1
_LENGTH: Final = 4
"""Size in bytes of the length field before the JSON."""

_SpanKey = tuple[TraceId | None, SpanId | None]


def pack_place(run: Run, tenant: Tenant, blamed: _SpanKey) -> Place | None:
    """Return the stored form of a run; ``None`` if it has no spans or is too large.

    Args:
        run: the run, with its spans.
        tenant: the run's tenant.
        blamed: the span that the verdict marks, if it marks one.
    """
    packed = pack_steps(run) or _pack(run, (), [blamed])
    return None if packed is None else Place(tenant=tenant, run_id=run.trajectory.run_id, packed=packed)


def pack_steps(run: Run) -> bytes | None:
    """Return the stored form with all steps, independent of the verdict; ``None`` as for ``pack_place``."""
    steps = run.trajectory.steps
    return _pack(run, steps, [(step.trace_id, step.span_id) for step in steps])


def _pack(run: Run, steps: Iterable[Step], keys: Iterable[_SpanKey]) -> bytes | None:
    spans: dict[_SpanKey, Span] = {(span.trace_id, span.span_id): span for span in run.trace.spans}
    if not spans:
        return None
    first = min(run.trace.spans, key=lambda span: (span.start_ns, span.span_id))
    root = (run.trajectory.root_trace_id, run.trajectory.root_span_id)
    top: _SpanKey = root if root in spans else (first.trace_id, first.span_id)
    bare = _bare(span for key in dict.fromkeys([top, *keys]) if (span := spans.get(key)))
    packed = _packed(run.trajectory, steps, bare)
    return packed if len(packed) <= MAX_PLACE_BYTES else None


def unpack_place(packed: bytes) -> Run:
    """Return the stored part of the run: bare spans, and steps without texts.

    Raises:
        ValueError: it is damaged, or from a newer version.
    """
    try:
        content = zlib.decompress(packed)
        length = int.from_bytes(content[:_LENGTH], "big")
        document = json.loads(content[_LENGTH : _LENGTH + length])
        trajectory = _trajectory(document)
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"a stored place of a run cannot be read: {error!r}") from error
    spans = decode(content[_LENGTH + length :]).spans
    return Run(trace=Trace(spans=tuple(spans), run_id=trajectory.run_id), trajectory=trajectory)


def _bare(spans: Iterable[Span]) -> list[Span]:
    """Return the parts of spans that carriers need, grouped so that each Resource is written once."""
    found = list(spans)
    order: dict[int, int] = {}
    for span in found:
        order.setdefault(id(span.resource), len(order))
    found.sort(key=lambda span: order[id(span.resource)])
    return [
        Span(
            trace_id=span.trace_id,
            span_id=span.span_id,
            start_ns=span.start_ns,
            end_ns=span.start_ns,
            resource=span.resource,
            trace_state=span.trace_state,
            flags=span.flags,
        )
        for span in found
    ]


def _packed(trajectory: Trajectory, steps: Iterable[Step], spans: Iterable[Span]) -> bytes:
    document = {
        "run_id": trajectory.run_id,
        "complete": trajectory.complete,
        "agents": trajectory.agents,
        "dialects": trajectory.dialects,
        "root": [trajectory.root_trace_id, trajectory.root_span_id],
        "steps": [
            [step.agent, step.kind, step.agent_source, step.content, step.group, step.trace_id, step.span_id]
            for step in steps
        ],
    }
    head = json.dumps(document, separators=(",", ":")).encode()
    return zlib.compress(len(head).to_bytes(_LENGTH, "big") + head + encode(spans), _LEVEL)


def _trajectory(document: Any) -> Trajectory:
    trace_id, span_id = document["root"]
    return Trajectory(
        run_id=document["run_id"],
        steps=tuple(_step(index, step) for index, step in enumerate(document["steps"])),
        complete=document["complete"],
        agents=tuple(document["agents"]),
        dialects=tuple(document["dialects"]),
        root_trace_id=trace_id,
        root_span_id=span_id,
    )


def _step(index: int, fields: Any) -> Step:
    agent, kind, source, content, group, trace_id, span_id = fields
    return Step(
        index=index,
        agent=agent,
        kind=StepKind(kind),
        agent_source=AgentSource(source),
        content=ContentState(content),
        group=group,
        trace_id=trace_id,
        span_id=span_id,
    )
