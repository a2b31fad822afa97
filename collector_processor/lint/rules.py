"""The rules, each a small function over one run: what it lacks, on which spans.

A run is looked at as the trajectory has it, so that a finding is what really costs: an agent that
is found in another way is no error.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from collector_processor.lint import mends
from collector_processor.lint.finding import Finding, Severity
from collector_processor.rebuild import Run
from collector_processor.trajectory.acts import Act, Stage, stage
from semconv.attributes import TASK_OUTCOME
from semconv.dialects import ActionKind
from semconv.markers import ATTRIBUTE_PREFIXES, SCOPE_PREFIXES
from semconv.model import UNKNOWN_AGENT, AgentSource, ContentState, Span, Step, StepKind
from semconv.outcomes import read_outcome

_CALLS: Final = frozenset({StepKind.LLM, StepKind.TOOL})
_DOUBLED: Final = frozenset({ActionKind.LLM, ActionKind.TOOL})


@dataclass(frozen=True, slots=True)
class Look:
    """A run, and what its spans say."""

    run: Run
    scene: Stage

    @property
    def spans(self) -> Sequence[Span]:
        """The run's spans, parents first."""
        return self.scene.spans

    def acted(self, wanted: Callable[[Step], bool]) -> Iterator[tuple[Step, Act]]:
        """Yield the steps that are ``wanted``, with their acts."""
        acts = {(act.span.trace_id, act.span.span_id): act for act in self.scene.acts}
        for step in self.run.trajectory.steps:
            if wanted(step) and step.trace_id is not None and step.span_id is not None:
                act = acts.get((step.trace_id, step.span_id))
                if act is not None:
                    yield step, act


Rule: TypeAlias = Callable[[Look], Iterable[Finding]]


def lint(run: Run) -> tuple[Finding, ...]:
    """Return what ``run`` lacks, the worst first; empty for one that lacks nothing."""
    look = Look(run, stage(run.trace.spans))
    found = [finding for rule in RULES for finding in rule(look)]
    return tuple(sorted(found, key=lambda finding: list(Severity).index(finding.severity)))


def unknown_dialect(look: Look) -> Iterator[Finding]:
    """Say that agents' spans are in no dialect that we read, or that none are there."""
    if look.run.trajectory.steps or not look.spans:
        return
    strange = [
        span
        for span, action in zip(look.spans, look.scene.actions, strict=True)
        if action is None
        and (
            span.scope.name.startswith(SCOPE_PREFIXES)
            or any(name.startswith(ATTRIBUTE_PREFIXES) for name in span.attributes)
        )
    ]
    what = "spans of agents that no dialect reads" if strange else "no span of an agent, model call or tool"
    yield from _by_scope(
        "unknown-dialect",
        Severity.ERROR,
        f"{what}: there are no steps to blame",
        strange or look.spans[:1],
        of=len(look.spans),
        mend=lambda _: mends.UNKNOWN,
    )


def no_agent(look: Look) -> Iterator[Finding]:
    """Say that calls are nobody's."""
    calls = list(look.acted(lambda step: step.kind in _CALLS))
    nameless = [act.span for step, act in calls if step.agent == UNKNOWN_AGENT]
    yield from _by_scope(
        "no-agent",
        Severity.ERROR,
        "calls whose agent no span, ancestor or message names: blame says `unknown`",
        nameless,
        of=len(calls),
        mend=lambda span: mends.for_scope(mends.AGENT, span.scope.name),
    )


def agent_not_on_calls(look: Look) -> Iterator[Finding]:
    """Say that calls name no agent themselves: it is lost as soon as one span above is."""
    calls = list(look.acted(lambda step: step.kind in _CALLS))
    inherited = [act.span for step, act in calls if step.agent_source is AgentSource.ANCESTOR]
    yield from _by_scope(
        "agent-not-on-calls",
        Severity.INFO,
        "calls named only by a span above them: lost when that span is late, sampled out or dropped",
        inherited,
        of=len(calls),
        mend=lambda _: mends.AGENT[""],
    )


def no_task(look: Look) -> Iterator[Finding]:
    """Say that nobody knows what the run was asked."""
    trajectory = look.run.trajectory
    if trajectory.steps and not trajectory.task:
        yield from _by_scope(
            "no-task",
            Severity.ERROR,
            "nothing says what the run was asked: an answer cannot be held against the question",
            look.scene.surroundings.roots[:1],
            of=1,
            mend=lambda span: mends.for_scope(mends.TASK, span.scope.name),
        )


def unknown_outcome(look: Look) -> Iterator[Finding]:
    """Say that a run's outcome is stated in a word that means neither success nor failure."""
    stating = [span for span in look.spans if TASK_OUTCOME in span.attributes]
    yield from _by_scope(
        "unknown-outcome",
        Severity.WARNING,
        f"`{TASK_OUTCOME}` is neither `success` nor `failure`: whether the run failed is guessed",
        [span for span in stating if read_outcome(span.attributes[TASK_OUTCOME]) is None],
        of=len(stating),
        mend=lambda _: mends.OUTCOME,
    )


def content_off(look: Look) -> Iterator[Finding]:
    """Say that calls have no text."""
    calls = list(look.acted(lambda step: step.kind in _CALLS))
    silent = [(act.span, act.action.dialect) for step, act in calls if step.content is ContentState.ABSENT]
    dialects = {id(span): dialect for span, dialect in silent}
    yield from _by_scope(
        "content-off",
        Severity.ERROR,
        "calls without any text: who erred can only be told by errors and repetitions",
        [span for span, _ in silent],
        of=len(calls),
        mend=lambda span: mends.for_content(dialects[id(span)], span.scope.name),
    )


def content_hidden(look: Look) -> Iterator[Finding]:
    """Say that text was hidden on purpose."""
    calls = list(look.acted(lambda step: step.kind in _CALLS))
    yield from _by_scope(
        "content-hidden",
        Severity.WARNING,
        "calls whose text was hidden by a setting: those steps cannot be judged",
        [act.span for step, act in calls if step.content is ContentState.REDACTED],
        of=len(calls),
        mend=lambda span: mends.for_scope(mends.CONTENT, span.scope.name),
    )


def attributes_dropped(look: Look) -> Iterator[Finding]:
    """Say that limits took attributes."""
    yield from _by_scope(
        "attributes-dropped",
        Severity.WARNING,
        "spans lost attributes to the SDK's limit, the oldest first: kind, instructions and history go",
        [span for span in look.spans if span.dropped_attributes],
        of=len(look.spans),
        mend=None,
    )


def no_root(look: Look) -> Iterator[Finding]:
    """Say that agents stand side by side with nothing around them."""
    tops = [span for span, _ in look.scene.tops]
    roots = {span.span_id for span in look.scene.surroundings.roots}
    if len(tops) > 1 and all(span.span_id in roots for span in tops):
        yield from _by_scope(
            "no-root",
            Severity.WARNING,
            "several agents and no span around the run: its end, task and outcome are guessed",
            tops[:1],
            of=len(tops),
            mend=lambda _: mends.ROOT,
        )


def context_lost(look: Look) -> Iterator[Finding]:
    """Say that a part of the run is in another trace, or nowhere."""
    if look.run.trajectory.complete or not look.run.trajectory.steps:
        return
    roots = look.scene.surroundings.roots
    yield from _by_scope(
        "context-lost",
        Severity.ERROR,
        "the run is in pieces: spans whose parent or caller is nowhere in the trace",
        roots[1:] or roots,
        of=len(look.spans),
        mend=lambda _: mends.CONTEXT,
    )


def no_call_id(look: Look) -> Iterator[Finding]:
    """Say that tools are not tied to the call that asked; it matters where one name runs twice at a time."""
    tools = list(look.acted(lambda step: step.kind is StepKind.TOOL))
    loose = [(step, act.span) for step, act in tools if not act.action.call_id]
    at_once = Counter((step.group, step.target) for step, _ in loose if step.group is not None)
    is_ambiguous = any(count > 1 for count in at_once.values())
    yield from _by_scope(
        "no-call-id",
        Severity.WARNING if is_ambiguous else Severity.INFO,
        "tools without the id of the request for them: told apart by name, which parallel calls share",
        [span for _, span in loose],
        of=len(tools),
        mend=lambda _: mends.CALL_ID,
    )


def no_handoff_target(look: Look) -> Iterator[Finding]:
    """Say that it is not known who was handed to."""
    handoffs = list(look.acted(lambda step: step.kind is StepKind.HANDOFF))
    yield from _by_scope(
        "no-handoff-target",
        Severity.WARNING,
        "handoffs that do not say to whom",
        [act.span for step, act in handoffs if not step.target or step.target == UNKNOWN_AGENT],
        of=len(handoffs),
        mend=lambda _: mends.TARGET,
    )


def doubled_instrumentation(look: Look) -> Iterator[Finding]:
    """Say that two instrumentations wrote the same calls."""
    twice = [
        act
        for act in look.scene.acts
        if act.action.kind in _DOUBLED
        and act.above is not None
        and act.above.action.kind is act.action.kind
        and act.above.span.scope.name != act.span.scope.name
        and len(act.above.below) == 1
    ]
    yield from _by_scope(
        "doubled-instrumentation",
        Severity.WARNING,
        "calls that a second instrumentation wrote too: merged where it can be told, and paid for twice",
        [act.span for act in twice],
        of=len(look.scene.acts),
        mend=lambda _: mends.DOUBLED,
    )


def clock_skew(look: Look) -> Iterator[Finding]:
    """Say that services' clocks differ."""
    told = [each for each in look.run.trace.warnings if each.startswith("clock skew")]
    if told:
        yield from _by_scope(
            "clock-skew",
            Severity.INFO,
            "; ".join(told),
            look.spans[:1],
            of=len(look.spans),
            mend=lambda _: mends.CLOCK,
        )


def _by_scope(
    rule: str,
    severity: Severity,
    what: str,
    spans: Sequence[Span],
    *,
    of: int,
    mend: Callable[[Span], mends.Lines] | None,
) -> Iterator[Finding]:
    """Yield one finding for each instrumentation that wrote some of ``spans``."""
    written: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        written[span.scope.name].append(span)
    for scope, found in written.items():
        yield Finding(
            rule=rule,
            severity=severity,
            what=what,
            spans=tuple(found),
            of=of,
            framework=scope,
            mend=mends.limit_of(found) if mend is None else mend(found[0]),
        )


RULES: Final[tuple[Rule, ...]] = (
    unknown_dialect,
    context_lost,
    no_agent,
    no_task,
    content_off,
    content_hidden,
    attributes_dropped,
    no_root,
    unknown_outcome,
    no_handoff_target,
    no_call_id,
    doubled_instrumentation,
    clock_skew,
    agent_not_on_calls,
)
"""All rules; of one severity, in this order."""
