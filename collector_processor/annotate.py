"""Verdict → what is written into the trace. Pure; knows spans, not protobuf.

Spans are immutable once exported: no backend takes attributes for a span it
already has (Tempo keeps the first copy, Jaeger and Elasticsearch show two). So
in *late* mode each verdict becomes *carriers*: one under the decisive span, one
under the root. A carrier copies its parent's Resource, because Jaeger searches
service and tag together; starts with its parent and lasts 1 µs, because a
longer one takes over the critical path and a zero-length one is drawn with a
warning; and has no link to its parent, because Jaeger would turn CHILD_OF into
FOLLOWS_FROM. In *hold* mode the same attributes go onto the originals instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from collector_processor.carrier_names import decisive_name, root_name, withdrawal_name
from collector_processor.redaction import Redact, redact
from collector_processor.stored import PERSON
from semconv import attributes as names
from semconv.model import (
    Abstention,
    Attributes,
    AttributeValue,
    Attribution,
    Blame,
    Event,
    Link,
    LogRecord,
    Scope,
    Span,
    SpanId,
    SpanStatus,
    Status,
    Step,
    Trace,
    TraceId,
    Trajectory,
)

MAX_TEXT_BYTES: Final = 2000
"""Tempo cuts attribute values at 2048 bytes."""
CARRIER_NS: Final = 1000
_LATEST_NS: Final = 2**64 - 1
"""OTLP's times are fixed64."""
SAMPLED: Final = 1
INTERNAL: Final = 1
WARN: Final = 13
"""OTLP's severity number."""
NONE: Final = "none"
"""Stands where a required attribute has nothing to say."""
EVALUATION_NAME: Final = "failure_attribution"
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
_SCOPE: Final = Scope(name=names.SCOPE_ANALYZER)
_UNBLAMED: Final = {
    Status.NO_FAILURE: "no failure found",
    Status.UNDETERMINED: "failure: undetermined",
    Status.ERROR: "not analysed",
}
"""Names of the root's carrier when no agent is blamed."""
_PROSE: Final = (
    names.FAILURE_FIX,
    names.FAILURE_EXPLANATION,
    names.EVALUATIONS_0_EVALUATION_EXPLANATION,
    names.GEN_AI_EVALUATION_EXPLANATION,
)


class Carriers(StrEnum):
    """Which runs get spans written into their traces."""

    FAILURES = "failures"
    """Runs that failed, and those that an earlier verdict said had failed."""
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierPolicy:
    """How carriers are written."""

    clean: Redact = redact
    """Applied to every prose field; empty results are left out."""
    status: SpanStatus = SpanStatus.UNSET
    """Status of carriers that blame; UNSET keeps error rates made from status true."""
    logs: bool = True
    """Whether to write evaluation logs; false if logs are not forwarded."""
    carriers: Carriers = Carriers.FAILURES
    """Which runs get carriers."""
    min_confidence: float = 0.0
    """0 to 1. Below it no span is marked as decisive; the root's carrier says "low confidence"."""
    web_url: str = ""
    """Base URL of our pages, without a trailing slash; empty to write no links."""

    def marks(self, confidence: float) -> bool:
        """Whether this confidence is high enough to mark the decisive span."""
        return confidence >= self.min_confidence

    def run_url(self, run_id: str) -> str | None:
        """Return the URL of a run's page; ``None`` without ``web_url``."""
        part = quote(run_id, safe="", errors="replace")
        return f"{self.web_url}/runs/{part}" if self.web_url and run_id else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One version of one run's verdict."""

    trajectory: Trajectory
    attribution: Attribution
    version: int
    """From 1; the highest is current."""
    supersedes: str | None = None
    """The failure id of the version before."""
    names_step: bool = True
    """False if a person named an agent but no step; the blame's step is then meaningless."""

    @property
    def failure_id(self) -> str:
        """The same wherever this version is written."""
        return _digest(self.trajectory.run_id, str(self.version), size=16)

    @property
    def decisive(self) -> Step | None:
        """The blamed step, if one is blamed."""
        verdict = self.attribution.verdict
        if not isinstance(verdict, Blame) or not self.names_step:
            return None
        return self.trajectory.steps[verdict.step]

    def marked(self, policy: CarrierPolicy) -> Step | None:
        """The blamed step, if the confidence is enough to mark its span."""
        verdict = self.attribution.verdict
        is_marked = isinstance(verdict, Blame) and policy.marks(verdict.confidence)
        return self.decisive if is_marked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """An earlier blame that no longer holds."""

    agent: str
    version: int
    marked: tuple[TraceId, SpanId] | None
    """The span that it marked as decisive, if it marked one."""


def root_attributes(judgement: Judgement, policy: CarrierPolicy) -> dict[str, AttributeValue]:
    """What stands on the run's root: the run, and the verdict in short."""
    trajectory = judgement.trajectory
    run: dict[str, AttributeValue] = {
        names.RUN_ID: trajectory.run_id,
        names.RUN_URL: policy.run_url(trajectory.run_id),
        names.RUN_COMPLETE: trajectory.complete,
        names.RUN_STEP_COUNT: len(trajectory.steps) or None,
        names.RUN_AGENTS: trajectory.agents,
        names.RUN_DIALECTS: trajectory.dialects,
    }
    verdict = judgement.attribution.verdict
    if isinstance(verdict, Blame) and not policy.marks(verdict.confidence):
        run[names.FAILURE_LOW_CONFIDENCE] = True
    return _finish(run | _verdict_attributes(judgement), policy)


def decisive_attributes(judgement: Judgement, policy: CarrierPolicy) -> dict[str, AttributeValue]:
    """Attributes for the decisive span, with Jaeger's error mark; empty if no step is marked."""
    step = judgement.marked(policy)
    if step is None:
        return {}
    own: dict[str, AttributeValue] = {
        names.ERROR: True,
        names.RUN_ID: judgement.trajectory.run_id,
        names.RUN_URL: policy.run_url(judgement.trajectory.run_id),
        names.FAILURE_DECISIVE: True,
        names.FAILURE_RANK: 1,
        names.STEP_INDEX: step.index,
        names.STEP_KIND: step.kind.value,
        names.STEP_AGENT_NAME: step.agent,
        names.STEP_AGENT_SOURCE: step.agent_source.value,
        names.STEP_CONTENT_STATE: step.content.value,
        names.STEP_GROUP: step.group,
    }
    return _finish(own | _verdict_attributes(judgement), policy)


def carriers(judgement: Judgement, trace: Trace, policy: CarrierPolicy) -> tuple[Span, ...]:
    """Return the spans that carry this version of the verdict: decisive first, then the root's."""
    spans = {(span.trace_id, span.span_id): span for span in trace.spans}
    made: list[Span] = []
    step, blame = judgement.marked(policy), judgement.attribution.verdict
    decisive = _find(spans, step.trace_id, step.span_id) if step else None
    if decisive is not None and isinstance(blame, Blame):
        attributes = decisive_attributes(judgement, policy) | _evaluator(judgement, policy)
        carrier = _carrier(decisive_name(blame.agent, blame.mode), decisive, judgement, attributes)
        made.append(replace(carrier, status=policy.status))
    root = _root(spans, judgement.trajectory, trace)
    if root is not None:
        failed = judgement.attribution.status in {Status.ATTRIBUTED, Status.UNDETERMINED}
        mark: dict[str, AttributeValue] = {names.ERROR: True} if failed else {}
        carrier = _carrier(
            _root_name(judgement, policy), root, judgement, mark | root_attributes(judgement, policy)
        )
        made.append(_linked(carrier, decisive))
    return tuple(made)


def withdrawal(
    judgement: Judgement, withdrawn: Withdrawn, trace: Trace, policy: CarrierPolicy
) -> tuple[Span, ...]:
    """Return the carriers that withdraw an earlier blame.

    One stands beside the old mark, where there was one, and one under the root, where the old
    verdict's other carrier is.

    Args:
        judgement: the new version.
        withdrawn: the old blame.
        trace: the run's spans.
        policy: how carriers are written.
    """
    spans = {(span.trace_id, span.span_id): span for span in trace.spans}
    verdict = judgement.attribution.verdict
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
    marked = _find(spans, *withdrawn.marked) if withdrawn.marked else None
    parents = dict.fromkeys(
        (span.trace_id, span.span_id)
        for span in (marked, _root(spans, judgement.trajectory, trace))
        if span is not None
    )
    name = withdrawal_name(withdrawn.agent, agent)
    return tuple(_carrier(name, spans[key], judgement, _finish(attributes, policy)) for key in parents)


def evaluation_log(
    judgement: Judgement, trace: Trace, policy: CarrierPolicy, now_ns: int
) -> tuple[LogRecord, ...]:
    """Return the ``gen_ai.evaluation.result`` event, parented to the decisive span; none without blame.

    Its body is one sentence with agent, step, mode and confidence. Its severity is WARN: ERROR is left to
    the run's own records.
    """
    step, blame = judgement.decisive, judgement.attribution.verdict
    if not policy.logs or step is None or step.span_id is None or not isinstance(blame, Blame):
        return ()
    spans = {(span.trace_id, span.span_id): span for span in trace.spans}
    span = _find(spans, step.trace_id, step.span_id)
    if span is None:
        return ()
    attributes: dict[str, AttributeValue] = {
        names.GEN_AI_EVALUATION_NAME: EVALUATION_NAME,
        names.GEN_AI_EVALUATION_SCORE_VALUE: blame.confidence,
        names.GEN_AI_EVALUATION_SCORE_LABEL: blame.agent,
        names.GEN_AI_EVALUATION_EXPLANATION: blame.reason,
        names.FAILURE_ID: judgement.failure_id,
        names.FAILURE_VERSION: judgement.version,
        names.STEP_INDEX: step.index,
    }
    event = Event(
        name=EVALUATION_EVENT,
        time_ns=now_ns,
        attributes=_finish(attributes, policy),
        body=_short(_sentence(blame)),
    )
    return (
        LogRecord(
            trace_id=span.trace_id,
            span_id=span.span_id,
            event=event,
            severity=WARN,
            scope=_SCOPE,
            resource=span.resource,
        ),
    )


def _sentence(blame: Blame) -> str:
    """Return the body of the evaluation log: one line that log viewers show."""
    mode = f" ({blame.mode.replace('_', ' ')})" if blame.mode else ""
    return f"{blame.agent} broke the run at step {blame.step}{mode}, confidence {blame.confidence:.2f}"


def _verdict_attributes(judgement: Judgement) -> dict[str, AttributeValue]:
    attribution, verdict = judgement.attribution, judgement.attribution.verdict
    shared: dict[str, AttributeValue] = {
        names.FAILURE_ID: judgement.failure_id,
        names.FAILURE_STATUS: attribution.status.value,
        names.FAILURE_VERSION: judgement.version,
        names.FAILURE_SUPERSEDES: judgement.supersedes,
        names.FAILURE_METHOD: attribution.method,
        names.FAILURE_MODEL: attribution.model or NONE,
        # The words behind the colon are a provider's, with keys and addresses in them.
        names.FAILURE_FALLBACK: (attribution.fallback or NONE).partition(":")[0],
        names.FAILURE_EXPLANATION: verdict.reason,
    }
    if isinstance(verdict, Abstention):
        return shared
    return (
        shared
        | _place(judgement)
        | {
            names.FAILURE_AGENT_NAME: verdict.agent,
            names.FAILURE_MODE: verdict.mode or None,
            names.FAILURE_CONFIDENCE: verdict.confidence,
            names.FAILURE_FIX: verdict.fix or None,
        }
    )


def _place(judgement: Judgement) -> dict[str, AttributeValue]:
    """Return the attributes that locate the decisive step; for a run of several traces, both trace ids."""
    step, root_id = judgement.decisive, judgement.trajectory.root_trace_id
    if step is None:
        return {}
    found: dict[str, AttributeValue] = {
        names.FAILURE_STEP_INDEX: step.index,
        names.FAILURE_STEP_SPAN_ID: step.span_id,
    }
    if step.trace_id and root_id and step.trace_id != root_id:
        found |= {names.FAILURE_STEP_TRACE_ID: step.trace_id, names.RUN_ROOT_TRACE_ID: root_id}
    return found


def _evaluator(judgement: Judgement, policy: CarrierPolicy) -> dict[str, AttributeValue]:
    """OpenInference's evaluator fields, so that tools of that family show the verdict too."""
    blame = judgement.attribution.verdict
    assert isinstance(blame, Blame)
    is_models_word = judgement.attribution.model and not judgement.attribution.fallback
    annotator = "LLM" if is_models_word else "CODE"
    if judgement.attribution.method == PERSON:
        annotator = "HUMAN"
    return _finish(
        {
            names.OPENINFERENCE_SPAN_KIND: "EVALUATOR",
            names.EVALUATIONS_0_EVALUATION_NAME: EVALUATION_NAME,
            names.EVALUATIONS_0_EVALUATION_SCORE: blame.confidence,
            names.EVALUATIONS_0_EVALUATION_LABEL: blame.agent,
            names.EVALUATIONS_0_EVALUATION_EXPLANATION: blame.reason,
            names.EVALUATIONS_0_EVALUATION_ANNOTATOR_KIND: annotator,
            names.EVALUATIONS_0_EVALUATION_IDENTIFIER: judgement.failure_id,
        },
        policy,
    )


def _root_name(judgement: Judgement, policy: CarrierPolicy) -> str:
    verdict = judgement.attribution.verdict
    if isinstance(verdict, Abstention):
        return _UNBLAMED[verdict.status]
    return root_name(verdict.agent, verdict.mode if policy.marks(verdict.confidence) else "low confidence")


def _finish(attributes: Mapping[str, AttributeValue], policy: CarrierPolicy) -> dict[str, AttributeValue]:
    """Leave out what is absent, clean prose, keep every string short enough for Tempo."""
    finished: dict[str, AttributeValue] = {}
    for name, value in attributes.items():
        clean = policy.clean(value) if name in _PROSE and isinstance(value, str) else value
        if clean is None or (name in _PROSE and not clean):
            continue
        finished[name] = _short(clean) if isinstance(clean, str) else clean
    return finished


def _short(text: str) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= MAX_TEXT_BYTES:
        return encoded.decode()
    return encoded[: MAX_TEXT_BYTES - 3].decode("utf-8", "ignore") + "…"


def _carrier(name: str, parent: Span, judgement: Judgement, attributes: Attributes) -> Span:
    start_ns = min(parent.start_ns, _LATEST_NS - CARRIER_NS)
    return Span(
        trace_id=parent.trace_id,
        span_id=SpanId(_digest(parent.trace_id, parent.span_id, name, judgement.failure_id, size=8)),
        parent_id=parent.span_id,
        name=name,
        kind=INTERNAL,
        start_ns=start_ns,
        end_ns=start_ns + CARRIER_NS,
        attributes={names.CARRIER: True, **attributes},
        scope=_SCOPE,
        resource=parent.resource,
        trace_state=parent.trace_state,
        flags=(parent.flags & 0xFF) | SAMPLED,
    )


def _linked(carrier: Span, decisive: Span | None) -> Span:
    """The root's carrier points at the decisive span, unless that is its own parent."""
    if decisive is None or decisive.span_id == carrier.parent_id:
        return carrier
    link = Link(trace_id=decisive.trace_id, span_id=decisive.span_id)
    return replace(carrier, links=(link,))


def _find(
    spans: Mapping[tuple[TraceId, SpanId], Span], trace_id: TraceId | None, span_id: SpanId | None
) -> Span | None:
    return spans.get((trace_id, span_id)) if trace_id and span_id else None


def _root(spans: Mapping[tuple[TraceId, SpanId], Span], trajectory: Trajectory, trace: Trace) -> Span | None:
    """The run's root, or the earliest span where the root never came."""
    found = _find(spans, trajectory.root_trace_id, trajectory.root_span_id)
    return found or min(trace.spans, key=lambda span: (span.start_ns, span.span_id), default=None)


def _digest(*parts: str, size: int) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=size).hexdigest()
