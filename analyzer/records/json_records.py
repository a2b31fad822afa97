"""Records of what programs receive: the JSON of commands and API as types. Pure data.

The API's OpenAPI schemas are generated from these and from ``issue_records``, and the Python API and its
client return them. Field order and names are those of the JSON. A record that adds fields to another's JSON
object inherits from it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

from analyzer.inquiry.whole_run import RunOutline, WholeStep
from analyzer.issues.labels.queue import Why
from analyzer.issues.labels.run_label import LabelKind
from semconv.model import Change, Origin, ProofDecision, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A verbatim quote from a step."""

    step: int
    quote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A step that may be to blame."""

    step: int
    agent: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLink:
    """A step on the way of a value."""

    step: int
    value: str
    """As the step wrote it."""
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFound:
    """A value with its origin and its way through the run."""

    value: str
    origin: Origin
    step: int | None
    """The step that returned it, or said it first; null if it was given before the first step."""
    path: str | None
    """Its place in a JSON result, such as `flights[2].price`."""
    formula: str | None
    """How it follows from known values, such as `2 x 210`."""
    chain: tuple[ValueLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFound:
    """The result of `blamespan experiment`."""

    decision: ProofDecision
    step: int
    span_id: str | None
    effect: float
    """Rate of success with the changed answer, minus the recorded one's."""
    interval: tuple[float, float]
    trials: int
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedStep:
    """The step that one of two opinions named."""

    step: int
    agent: str
    span_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledOpinions:
    """What the model and signals or the ranker said, and how far the model was believed."""

    model: NamedStep
    without_model: NamedStep
    """The most probable step by signals or the ranker alone."""
    weight: float
    """Exponent of the model's opinion: 0.25 without labels, up to 1."""
    accuracy: float
    """How often the model was believed to name the right step."""
    right: float
    """How many of `labelled` the model had right."""
    labelled: float
    """Earlier runs on which labels or proofs say whether the model was right; a proof counts half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyWarned:
    """A warning before a run's end."""

    step: int
    """The step that looks least like runs that passed."""
    agent: str
    """`unknown` if the span that names it has not arrived."""
    text: str
    """The fact about the step as prose, after the agent's name."""
    as_high: int
    """Passing runs that looked at least as unusual before their end."""
    passing: int
    """Passing runs that this run was compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSet:
    """Steps that hold the decisive one with a stated coverage."""

    steps: tuple[int, ...]
    """Indices, ascending, counted from 0; the blamed step is among them."""
    coverage: float
    """The coverage that the set was made for, 0 to 1."""
    observed: float
    """Share of labelled runs of the system whose decisive step was in a set made without them."""
    interval: tuple[float, float]
    """The 95 % interval of `observed`."""
    n: int
    """Number of those labelled runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """The verdict on a run, as `blamespan attribute --format json` prints it."""

    run_id: str
    status: Status
    agent: str | None
    """The agent to blame."""
    step: int | None
    """The decisive step, counted from 0."""
    span_id: str | None
    """The span of the decisive step; null for conversation logs."""
    trace_id: str | None
    confidence: float | None
    """Probability that it is this step, 0 to 1."""
    reason: str
    """Reason for blaming this step."""
    fix: str | None
    """The proposed correction; null if there is none."""
    mode: str | None
    """The kind of failure."""
    evidence: tuple[Quote, ...]
    """Quotes, each found in that step's text."""
    ranking: tuple[Suspect, ...]
    """The suspects, the likeliest first."""
    method: str
    model: str | None
    fallback: str | None
    """The reason why another method than the requested one answered; null if it did not."""
    truncated: bool
    """Whether the method saw less than the whole run."""
    coverage: float
    """Share of the run's text that the method saw, 0 to 1."""
    calls: int
    """Model calls that were made."""
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """Cost of the analysis; null: the price is not known."""
    duration_s: float
    """Seconds that the analysis took."""
    error: str | None
    """The cause, if `status` is `error`."""
    checked: tuple[str, ...]
    """Sentences on what was checked and what could not be, if no step is blamed."""
    lineage: tuple[ValueFound, ...]
    """Values of the answer and of the decisive step, each with its origin and its way."""
    failed_probability: float | None
    """Probability that the run failed, 0 to 1, if `status` is `suspected`; `confidence` is of the step."""
    set: StepSet | None
    """Steps that hold the decisive one; null without a ranker trained on enough labels of this system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunVerdict):
    """A stored run's current verdict."""

    proof: ProofFound | None
    """The experiment that made the verdict, if one did."""
    pooled: PooledOpinions | None
    """The opinions that the verdict pools, if one is a model's."""
    notes: tuple[str, ...]
    """Notes for people, such as another run that this one may belong to."""
    early_warning: EarlyWarned | None
    """While the run goes on, the warning that it is likely to fail (`early_false_alarms`)."""
    tenant: str
    version: int
    """Version of the verdict, from 1."""
    failure_id: str
    """The verdict's own id, as in the trace."""
    service: str
    provisional: bool
    """Whether the run had not ended yet."""
    decided_ns: int
    """Time of the verdict, in nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A person's judgement of a verdict."""

    run_id: str
    label: LabelKind
    agent: str | None
    step: int | None
    span_id: str | None
    tenant: str
    service: str
    verdict_version: int
    """The version of the verdict that was labelled."""
    labelled_ns: int
    why: str | None
    """The person's reason, without secrets."""
    author: str | None
    """The person's name, as the command line, the proxy in front or the backend tells it; null if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLabel(Label):
    """A stored label."""

    can_be_learned: bool
    obstacle: str | None
    """The reason why a ranker cannot learn from it; null if it can."""
    trace_follows: bool
    """Whether the trace is corrected too, within seconds."""
    trace_obstacle: str | None
    """The reason why the run's trace cannot be corrected; null if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpinionChoice:
    """The method and model that were chosen; without a model, the operator's."""

    method: str
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """A second opinion on a run."""

    chosen: OpinionChoice
    given_ns: int
    verdict: RunVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictVersion:
    """One version of a run's verdict, in short."""

    version: int
    """From 1; `GET /api/runs/RUN?version=N` returns it whole."""
    status: Status
    agent: str | None
    step: int | None
    span_id: str | None
    confidence: float | None
    failed_probability: float | None
    reason: str
    method: str
    """The method that decided; `person` for a label, `experiment` for a proof."""
    model: str | None
    second_opinion: bool
    """Whether a person requested this analysis."""
    provisional: bool
    """Whether the run had not ended yet."""
    decided_ns: int
    """Time of the verdict, in nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRun(Run):
    """A run's verdict with its labels, second opinions and versions."""

    label: Label | None
    earlier_labels: tuple[Label, ...]
    opinions: tuple[Opinion, ...]
    """Newest first."""
    versions: tuple[VerdictVersion, ...]
    """The verdict's versions, newest first, at most 50."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A run's totals, as its spans record them; null where they do not say."""

    workflow: str
    """Name that all runs of the same workflow share."""
    steps: int
    started_ns: int | None
    """Start of the first step, nanoseconds since the epoch."""
    duration_s: float | None
    """From the start of the first step to the end of the last."""
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun(Run):
    """A run in a list."""

    totals: Totals | None
    """Null while the run is in progress, and for verdicts from before totals were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A page of runs."""

    runs: tuple[ListedRun, ...]
    next: str | None
    """Value of `after` for the next page; null if there are no more."""
    looked_at: int
    """Runs that a filter examined for this page; 0 if all that fit were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A run worth asking a person about; the verdict's fields are null if it is hidden until the answer."""

    run_id: str
    tenant: str
    service: str
    task: str
    """Beginning of the task; empty if the run is not kept."""
    why: Why
    """`random` questions compare rankers."""
    blind: bool
    status: Status | None
    agent: str | None
    step: int | None
    confidence: float | None
    failed_probability: float | None
    decided_ns: int
    """Time of the verdict, Unix ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRuns:
    """The next runs to ask about, and how many of the newest failed runs have an answer."""

    questions: tuple[QueuedRun, ...]
    answered: int
    proved: int
    """Those of them that an experiment answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSteps(RunOutline):
    """A stored run's task, answer and steps."""

    total: int
    """Number of steps of the run."""
    is_whole: bool
    """Whether the spans are kept; otherwise messages, models, tokens and times are missing."""
    steps: tuple[WholeStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An analysis that was requested."""

    id: str
    state: str
    """`waiting`, `reading`, `analysing`, `done`, `failed` or `cancelled`."""
    over: bool
    runs: int
    """Runs found in the trace so far."""
    calls: int
    """Model calls made so far."""
    cost_usd: float
    """Dollars for these calls; calls of unknown price count as free."""
    elapsed_s: float
    """Seconds since the request, until the end."""
    error: str
    """The reason why it failed; empty otherwise."""
    note: str
    """Note on what was left out; empty if nothing was."""
    verdicts: tuple[RunVerdict, ...]
    """The verdicts found so far, one per run, in the order of the trace."""


T = TypeVar("T")


def read_answer(kind: type[T], document: object) -> T:
    """Return a record from an answer's JSON.

    Unknown keys are ignored, so that a client reads the answers of a newer service.

    Raises:
        ValueError: the document is not such a record.
    """
    found: T = _reader(cast("Hashable", kind)).validate_python(document)
    return found


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
