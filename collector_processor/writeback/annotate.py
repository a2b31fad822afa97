"""Attributes that carry a verdict into a trace, by the policy of the settings. Pure; knows no protobuf.

In *late* mode they are on carriers (``carriers``), in *hold* mode on the original spans.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote

from collector_processor.core.records import Carriers
from collector_processor.core.scores import Lane
from collector_processor.otlp import Tenant
from collector_processor.rebuild.redaction import Redact, redact
from semconv import attributes as names
from semconv.model import (
    Abstention,
    AttributeValue,
    Attribution,
    Blame,
    Change,
    Origin,
    Proof,
    SpanId,
    SpanStatus,
    Status,
    Step,
    TraceId,
    Trajectory,
)

MAX_TEXT_BYTES: Final = 2000
"""Longest attribute value in bytes; Tempo truncates at 2048."""
NONE: Final = "none"
"""Value of a required attribute that has no value."""
_PROSE: Final = (
    names.FAILURE_FIX,
    names.FAILURE_EXPLANATION,
    names.FAILURE_VALUE,
    names.FAILURE_VALUE_EXPECTED,
    names.EVALUATIONS_0_EVALUATION_EXPLANATION,
    names.GEN_AI_EVALUATION_EXPLANATION,
    names.ANNOTATIONS_0_ANNOTATION_EXPLANATION,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierPolicy:
    """Policy for carriers and evaluation logs."""

    clean: Redact = redact
    """Applied to every prose attribute; empty results are omitted."""
    status: SpanStatus = SpanStatus.UNSET
    """Status of carriers that blame; UNSET does not change error rates computed from spans."""
    logs: bool = True
    """Whether to write evaluation logs; false if logs are not forwarded."""
    carriers: Carriers = Carriers.FAILURES
    """Runs that get carriers."""
    marks_suspected: bool = False
    """Whether carriers of suspected failures get the error mark and the status of carriers that blame."""
    web_url: str = ""
    """Base URL of our pages, without a trailing slash; empty to write no links."""
    lanes: Mapping[Tenant, tuple[Lane, ...]] = field(default_factory=dict)
    """Sinks that get the scores of each tenant's runs."""

    def remembering(self) -> CarrierPolicy:
        """Return the same policy for one verdict: several of its attributes have the same text."""
        return replace(self, clean=functools.cache(self.clean))

    def run_url(self, run_id: str, step: int | None = None) -> str | None:
        """Return the URL of a run's page, at a step if given; ``None`` without ``web_url``."""
        part = quote(run_id, safe="", errors="replace")
        place = "" if step is None else f"?step={step}#step-{step}"
        return f"{self.web_url}/runs/{part}{place}" if self.web_url and run_id else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One version of one run's verdict."""

    trajectory: Trajectory
    attribution: Attribution
    version: int
    """Version number from 1; the highest is the current one."""
    supersedes: str | None
    """The failure id of the previous version."""
    names_step: bool = True
    """False if a person named an agent but no step; the blame's step is then meaningless."""

    @property
    def failure_id(self) -> str:
        """Identifier of this version, the same wherever it is written."""
        return digest(self.trajectory.run_id, str(self.version), size=16)

    @property
    def decisive(self) -> Step | None:
        """The blamed step, if there is one."""
        verdict = self.attribution.verdict
        if not isinstance(verdict, Blame) or not self.names_step:
            return None
        return self.trajectory.steps[verdict.step]

    def is_error(self, policy: CarrierPolicy) -> bool:
        """Return whether the carriers are marked as errors: an undetermined verdict accuses no span."""
        status = self.attribution.status
        is_suspicion = status is Status.SUSPECTED and policy.marks_suspected
        return is_suspicion or status is Status.ATTRIBUTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """An earlier blame that no longer holds."""

    agent: str
    version: int
    marked: tuple[TraceId, SpanId] | None
    """The span that it marked as decisive, if any."""


def root_attributes(judgement: Judgement, policy: CarrierPolicy) -> dict[str, AttributeValue]:
    """Attributes for the run's root: the run, and a summary of the verdict."""
    trajectory = judgement.trajectory
    run: dict[str, AttributeValue] = {
        names.RUN_ID: trajectory.run_id,
        names.RUN_URL: policy.run_url(trajectory.run_id),
        names.RUN_COMPLETE: trajectory.complete,
        names.RUN_STEP_COUNT: len(trajectory.steps) or None,
        names.RUN_AGENTS: trajectory.agents,
        names.RUN_DIALECTS: trajectory.dialects,
    }
    return finish(run | _verdict_attributes(judgement), policy)


def decisive_attributes(judgement: Judgement, policy: CarrierPolicy) -> dict[str, AttributeValue]:
    """Attributes for the decisive span, with Jaeger's error mark; empty if no step is marked.

    The step of a suspected failure is not called decisive, so that searches for failures do not find it.
    """
    step = judgement.decisive
    if step is None:
        return {}
    is_suspicion = judgement.attribution.status is Status.SUSPECTED
    own: dict[str, AttributeValue] = {
        names.ERROR: True if judgement.is_error(policy) else None,
        names.RUN_ID: judgement.trajectory.run_id,
        names.RUN_URL: policy.run_url(judgement.trajectory.run_id, step.index),
        names.FAILURE_DECISIVE: None if is_suspicion else True,
        names.FAILURE_RANK: None if is_suspicion else 1,
        names.STEP_INDEX: step.index,
        names.STEP_KIND: step.kind.value,
        names.STEP_AGENT_NAME: step.agent,
        names.STEP_AGENT_SOURCE: step.agent_source.value,
        names.STEP_CONTENT_STATE: step.content.value,
        names.STEP_GROUP: step.group,
    }
    return finish(own | _wrong_value(judgement) | _verdict_attributes(judgement), policy)


def _wrong_value(judgement: Judgement) -> dict[str, AttributeValue]:
    """Attributes of the value that the reason is about: the decisive step changed it, or made it up."""
    step, reason = judgement.decisive, judgement.attribution.verdict.reason
    assert step is not None
    for origin in judgement.attribution.lineage:
        for before, link in zip((None, *origin.chain), origin.chain, strict=False):
            is_first = before is None and origin.origin is Origin.NOWHERE
            is_wrong = link.step == step.index and (is_first or link.change is Change.CHANGED)
            if not is_wrong or link.value not in reason:
                continue
            return {
                names.FAILURE_VALUE: link.value,
                names.FAILURE_VALUE_ORIGIN: origin.origin.value,
                names.FAILURE_VALUE_EXPECTED: before.value if before else None,
                names.FAILURE_VALUE_STEP_INDEX: before.step if before else None,
            }
    return {}


def _verdict_attributes(judgement: Judgement) -> dict[str, AttributeValue]:
    attribution, verdict = judgement.attribution, judgement.attribution.verdict
    shared: dict[str, AttributeValue] = {
        names.FAILURE_ID: judgement.failure_id,
        names.FAILURE_STATUS: attribution.status.value,
        names.FAILURE_VERSION: judgement.version,
        names.FAILURE_SUPERSEDES: judgement.supersedes,
        names.FAILURE_METHOD: attribution.method,
        names.FAILURE_RULES: attribution.rules or None,
        names.FAILURE_MODEL: attribution.model or NONE,
        # The text after the colon comes from a provider and may contain keys and addresses.
        names.FAILURE_FALLBACK: (attribution.fallback or NONE).partition(":")[0],
        names.FAILURE_EXPLANATION: verdict.reason,
    }
    shared |= _proof(attribution.proof)
    if isinstance(verdict, Abstention):
        return shared
    return (
        shared
        | _place(judgement)
        | {
            names.FAILURE_ACCUSED: True,
            names.FAILURE_AGENT_NAME: verdict.agent,
            names.FAILURE_MODE: verdict.mode or None,
            names.FAILURE_CONFIDENCE: verdict.confidence,
            names.FAILURE_PROBABILITY: verdict.failed_probability,
            names.FAILURE_FIX: verdict.fix or None,
        }
    )


def _proof(proof: Proof | None) -> dict[str, AttributeValue]:
    if proof is None:
        return {}
    low, high = proof.interval
    return {
        names.FAILURE_PROOF_DECISION: proof.decision.value,
        names.FAILURE_PROOF_STEP_INDEX: proof.step,
        names.FAILURE_PROOF_EFFECT: proof.effect,
        names.FAILURE_PROOF_INTERVAL_LOW: low,
        names.FAILURE_PROOF_INTERVAL_HIGH: high,
        names.FAILURE_PROOF_TRIALS: proof.trials,
        names.FAILURE_PROOF_CHANGE: proof.change,
    }


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


def finish(attributes: Mapping[str, AttributeValue], policy: CarrierPolicy) -> dict[str, AttributeValue]:
    """Omit absent values, redact prose, truncate strings for Tempo."""
    finished: dict[str, AttributeValue] = {}
    for name, value in attributes.items():
        clean = policy.clean(value) if name in _PROSE and isinstance(value, str) else value
        if clean is None or (name in _PROSE and not clean):
            continue
        finished[name] = shorten(clean) if isinstance(clean, str) else clean
    return finished


def shorten(text: str) -> str:
    """Truncate ``text`` to ``MAX_TEXT_BYTES``."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= MAX_TEXT_BYTES:
        return encoded.decode()
    return encoded[: MAX_TEXT_BYTES - 3].decode("utf-8", "ignore") + "…"


def digest(*parts: str, size: int) -> str:
    """Return a hash of the parts in hex; ``size`` is in bytes."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=size).hexdigest()
