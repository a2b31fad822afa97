"""Lint of traces: what a run lacks for good attribution, and the lines that add it. Pure.

Each rule finds the spans of one run that lack something. Rules check the trajectory, not the raw spans, so
that a finding has a real cost: an agent that is found in another way is not an error.

Fixes are lines of code or settings, by the framework and the language that wrote the spans.

What ``support.toml`` declares (``Support.switches``) comes first. The tables are for settings that several
frameworks share, by prefix of the scope's name; the empty prefix is for all others. They are Python's; for
spans of another language's SDK, Python's settings and code are left out or translated.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from collector_processor.core.runs import MAY_JOIN, Run
from collector_processor.trajectory.acts import Act, Ordering, read_acts
from semconv.attributes import (
    GEN_AI_AGENT_NAME,
    GEN_AI_TOOL_CALL_ID,
    HANDOFF_TARGET,
    TASK_INPUT,
    TASK_OUTCOME,
)
from semconv.dialects import USUAL, ActionKind, Reader
from semconv.dialects.reading.values import read_outcome
from semconv.dialects.support import lines_of
from semconv.emit.content import CAPTURE_VARIABLE
from semconv.markers import ATTRIBUTE_PREFIXES, SCOPE_PREFIXES
from semconv.model import UNKNOWN_AGENT, AgentSource, ContentState, Span, Step, StepKind

Lines: TypeAlias = tuple[str, ...]


def _everywhere(*lines: str) -> Mapping[str, Lines]:
    return {"": lines}


_ON_SPANS: Final = f"{CAPTURE_VARIABLE}=SPAN_ONLY"
_OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
_OPENINFERENCE: Final = "openinference.instrumentation."

CONTENT: Final[Mapping[str, Lines]] = {
    "blamespan.": (_ON_SPANS,),
    _OPENINFERENCE: ("OPENINFERENCE_HIDE_INPUTS=false", "OPENINFERENCE_HIDE_OUTPUTS=false"),
    "pydantic-ai": ("Agent.instrument_all(InstrumentationSettings(include_content=True))",),
    "agent_framework": ("configure_otel_providers(enable_sensitive_data=True)",),
    "strands": ("export span events: Strands writes its messages there",),
    "langfuse": ("@observe(capture_input=True, capture_output=True)",),
    "autogen": ("OpenAIInstrumentor().instrument()  # AutoGen has no spans of model calls itself",),
    "": (_OPT_IN, _ON_SPANS),
}
AGENT: Final[Mapping[str, Lines]] = {
    "blamespan.": ('with agent("researcher"):  # around the calls that are its own',),
    "pydantic-ai": ('Agent("openai:gpt-4o", name="researcher")',),
    "openinference.instrumentation.langchain": ('create_agent(model, tools, name="researcher")',),
    "opentelemetry.instrumentation.genai.langchain": ('create_agent(model, tools, name="researcher")',),
    _OPENINFERENCE: ('with tracer.start_as_current_span("researcher", openinference_span_kind="agent"):',),
    "": (f'span.set_attribute("{GEN_AI_AGENT_NAME}", "researcher")  # on agent, chat and tool spans',),
}
TASK: Final[Mapping[str, Lines]] = {
    "blamespan.": ('with run("trip", task=question) as attempt:',),
    "openinference.instrumentation.openai_agents": (
        'with run("trip", task=question):  # semconv.instrument, around Runner.run',
    ),
    "": (f'root.set_attribute("{TASK_INPUT}", question)',),
}
ROOT: Final = _everywhere(
    "from semconv.instrument import run",
    'with run("trip", task=question) as attempt:  # around all agents of one attempt',
)
CALL_ID: Final = _everywhere(f'span.set_attribute("{GEN_AI_TOOL_CALL_ID}", call.id)')
TARGET: Final = _everywhere(f'span.set_attribute("{HANDOFF_TARGET}", "writer")')
OUTCOME: Final = _everywhere(f'root.set_attribute("{TASK_OUTCOME}", "failure")  # or "success"')
CONTEXT: Final = _everywhere(
    "pool.submit(carry(research), topic)  # semconv.instrument.carry, for threads",
    "propagate.inject(headers)  # opentelemetry.propagate, for calls to other services",
)
CLOCK: Final = _everywhere("chronyc tracking  # on the hosts named; fix their time service")
DOUBLED: Final = _everywhere("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=<one of the two>")
UNKNOWN: Final = _everywhere(
    f'span.set_attribute("{GEN_AI_AGENT_NAME}", …)  # and gen_ai.operation.name: docs/convention.md'
)

MAPPING: Final = _everywhere(
    "blamespan map FILE  # writes blamespan.mapping.yaml: correct it, then …",
    "BLAMESPAN_MAPPINGS=blamespan.mapping.yaml",
)


def for_scope(lines: Mapping[str, Lines], scope: str) -> Lines:
    """Return the lines of the longest prefix of ``scope``."""
    return lines[max((prefix for prefix in lines if scope.startswith(prefix)), key=len)]


SDK_LANGUAGE: Final = "telemetry.sdk.language"

_SETTING: Final = re.compile(r"\w+\.set_attribute\((?P<key>[^,]+), (?P<value>[^)]+)\)(?:  # (?P<note>.*))?")
_VARIABLE: Final = re.compile(r"(?!OTEL_PYTHON_|OTEL_SEMCONV_)[A-Z][A-Z0-9_]+=")
_ANYWHERE: Final = ("chronyc", "export span events")
_SETTERS: Final = {
    "java": "span.setAttribute({key}, {value});",
    "dotnet": "activity?.SetTag({key}, {value});",
    "go": "span.SetAttributes(attribute.String({key}, {value}))",
    "nodejs": "span.setAttribute({key}, {value});",
    "webjs": "span.setAttribute({key}, {value});",
}
"""Code that sets an attribute, by language of the SDK."""
_ELSEWHERE: Final = "the attributes in docs/convention.md, set in your language"


def language_of(span: Span) -> str:
    """Return the language of the SDK that wrote the span, ``python`` if it is not recorded."""
    said = span.resource.attributes.get(SDK_LANGUAGE)
    return said if isinstance(said, str) and said else "python"


def in_language(lines: Lines, language: str) -> Lines:
    """Translate Python lines into another language; lines without a counterpart are left out."""
    if language == "python":
        return lines
    found = tuple(filter(None, (_translated(line, language) for line in lines)))
    return found or (_ELSEWHERE,)


def _translated(line: str, language: str) -> str:
    setting = _SETTING.match(line)
    if setting is None:
        return line if _VARIABLE.match(line) or line.startswith(_ANYWHERE) else ""
    setter = _SETTERS.get(language, "span attribute {key} = {value}")
    note = f"  // {setting['note']}" if setting["note"] else ""
    return setter.format(key=setting["key"], value=setting["value"]) + note


INFERRED: Final = "inferred"
"""The rule about runs that no dialect reads."""
_MOST_SHOWN: Final = 12
"""Attributes that a finding names."""


class Severity(StrEnum):
    """Severity of a finding, by its cost."""

    ERROR = "error"
    """A verdict cannot name the agent or the step, or has no evidence."""
    WARNING = "warning"
    """Verdicts are less certain, or some steps cannot be judged."""
    INFO = "info"
    """It works until something else goes wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something missing in a run: how often, where, and how to fix it."""

    rule: str
    """Stable name, for people and scripts: ``content-off``."""
    severity: Severity
    what: str
    """One sentence, without trace content: what is missing, and the cost."""
    spans: tuple[Span, ...]
    """The spans that lack it, in order; at least one."""
    of: int
    """Number of spans that could have had it."""
    framework: str
    """Scope name of the instrumentation that wrote them."""
    mend: tuple[str, ...]
    """Lines of code or settings that fix it."""


_CALLS: Final = frozenset({StepKind.LLM, StepKind.TOOL})
_DOUBLED: Final = frozenset({ActionKind.LLM, ActionKind.TOOL})


@dataclass(frozen=True)
class Look:
    """A run and its actions, as the rules see them."""

    run: Run
    ordering: Ordering

    @property
    def spans(self) -> Sequence[Span]:
        """The run's spans, parents first."""
        return self.ordering.spans

    @property
    def calls(self) -> Sequence[tuple[Step, Act]]:
        """The calls of models and tools."""
        return [(step, act) for step, act in self.steps if step.kind in _CALLS]

    @cached_property
    def steps(self) -> Sequence[tuple[Step, Act]]:
        """The steps that have a span, with their acts."""
        acts: dict[object, Act] = {(act.span.trace_id, act.span.span_id): act for act in self.ordering.acts}
        found = ((step, acts.get((step.trace_id, step.span_id))) for step in self.run.trajectory.steps)
        return [(step, act) for step, act in found if act is not None]


class Found(NamedTuple):
    """Result of a rule: the spans that lack something, and the number of spans that could have had it."""

    spans: Sequence[Span]
    of: int
    what: str = ""
    """Overrides the rule's text."""
    severity: Severity | None = None
    """Overrides the rule's severity."""


class Rule(NamedTuple):
    """One thing that a run may lack."""

    name: str
    severity: Severity
    what: str
    find: Callable[[Look], Found | None]
    mend: Mapping[str, Lines] | Callable[[Look, Sequence[Span]], Lines]
    """Fixes by prefix of the scope's name, or a function of the spans that one instrumentation wrote."""


def lint(run: Run, reader: Reader = USUAL) -> tuple[Finding, ...]:
    """Return the findings about ``run``, worst first; empty if nothing is missing.

    Args:
        run: its spans and steps.
        reader: the reader of its spans.
    """
    look = Look(run, read_acts(run.trace.spans, reader))
    findings = [finding for rule in RULES for finding in _findings(rule, look)]
    return tuple(sorted(findings, key=lambda finding: list(Severity).index(finding.severity)))


def _findings(rule: Rule, look: Look) -> Iterator[Finding]:
    """Yield one finding for each instrumentation that wrote some of the spans."""
    found = rule.find(look) or Found((), 0)
    written: defaultdict[str, list[Span]] = defaultdict(list)
    for span in found.spans:
        written[span.scope.name].append(span)
    for scope, spans in written.items():
        yield Finding(
            rule=rule.name,
            severity=found.severity or rule.severity,
            what=found.what or rule.what,
            spans=tuple(spans),
            of=found.of,
            framework=scope,
            mend=rule.mend(look, spans)
            if callable(rule.mend)
            else in_language(for_scope(rule.mend, scope), language_of(spans[0])),
        )


def limit_line(spans: Sequence[Span]) -> str:
    """Return the limit that would have kept every attribute, a power of two."""
    needed = max(len(span.attributes) + span.dropped_attributes for span in spans)
    return f"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT={1 << max(needed - 1, 1).bit_length()}"


def content_lines(act: Act) -> Lines:
    """Return how to record a call's content: as its dialect declares, else by the table."""
    scope = act.span.scope.name
    declared = lines_of(act.action.dialect, scope, lambda support: support.switches)
    return declared or in_language(for_scope(CONTENT, scope), language_of(act.span))


def _unknown_dialect(look: Look) -> Found | None:
    if look.run.trajectory.steps:
        return None
    strange = [
        span
        for span, action in zip(look.spans, look.ordering.actions, strict=True)
        if action is None
        and (
            span.scope.name.startswith(SCOPE_PREFIXES)
            or any(name.startswith(ATTRIBUTE_PREFIXES) for name in span.attributes)
        )
    ]
    if strange:
        return Found(
            strange, len(look.spans), "agents' spans in no known dialect: there are no steps to blame"
        )
    return Found(look.spans[:1], len(look.spans))


def _inferred(look: Look) -> Found | None:
    """Find a run whose steps are inferred, and name the attributes that were not understood."""
    inferred = look.ordering.inferred
    if inferred is None or not look.run.trajectory.steps:
        return None
    pairs = zip(look.spans, look.ordering.actions, strict=True)
    spans = [span for span, action in pairs if action is not None]
    unread = inferred.unread(spans)
    shown = ", ".join(unread[:_MOST_SHOWN]) + (", …" if len(unread) > _MOST_SHOWN else "")
    text = f"; not understood: {shown}" if unread else ""
    return Found(spans, len(look.spans), f"{inferred.summary}{text}")


def _no_task(look: Look) -> Found | None:
    trajectory = look.run.trajectory
    is_missing = trajectory.steps and not trajectory.task
    return Found(look.ordering.surroundings.roots[:1], 1) if is_missing else None


def _unknown_outcome(look: Look) -> Found:
    stating = [span for span in look.spans if TASK_OUTCOME in span.attributes]
    unread = [span for span in stating if read_outcome(span.attributes[TASK_OUTCOME]) is None]
    return Found(unread, len(stating))


def _calls_with(look: Look, lacks: Callable[[Step], bool]) -> Found:
    return Found([act.span for step, act in look.calls if lacks(step)], len(look.calls))


def _named_after_functions(look: Look) -> Found:
    """Find calls whose agent is only known by the name of a plain function around them."""
    named = [
        act.span
        for step, act in look.calls
        if step.agent_source is AgentSource.SPAN_NAME and act.action.agent is None
    ]
    return Found(named, len(look.calls))


def _no_root(look: Look) -> Found | None:
    """Find several agents without a span around them."""
    tops = [span for span, _ in look.ordering.tops]
    roots = {span.span_id for span in look.ordering.surroundings.roots}
    is_rootless = len(tops) > 1 and all(span.span_id in roots for span in tops)
    return Found(tops[:1], len(tops)) if is_rootless else None


def _context_lost(look: Look) -> Found | None:
    if look.run.trajectory.complete or not look.run.trajectory.steps:
        return None
    roots = look.ordering.surroundings.roots
    return Found(roots[1:] or roots, len(look.spans))


def _no_call_id(look: Look) -> Found:
    """Find tools without a call id, which matters when one tool runs several times in parallel."""
    tools = [(step, act) for step, act in look.steps if step.kind is StepKind.TOOL]
    loose = [(step, act.span) for step, act in tools if not act.action.call_id]
    at_once = Counter((step.group, step.target) for step, _ in loose if step.group is not None)
    is_ambiguous = any(count > 1 for count in at_once.values())
    severity = Severity.WARNING if is_ambiguous else Severity.INFO
    return Found([span for _, span in loose], len(tools), severity=severity)


def _no_handoff_target(look: Look) -> Found:
    handoffs = [(step, act.span) for step, act in look.steps if step.kind is StepKind.HANDOFF]
    lost = [span for step, span in handoffs if not step.target or step.target == UNKNOWN_AGENT]
    return Found(lost, len(handoffs))


def _doubled(look: Look) -> Found:
    """Find calls that two instrumentations recorded."""
    acts, below = look.ordering.acts, look.ordering.below
    twice = [
        act.span
        for act in acts
        if act.action.kind in _DOUBLED
        and act.above is not None
        and acts[act.above].action.kind is act.action.kind
        and acts[act.above].span.scope.name != act.span.scope.name
        and len(below[act.above]) == 1
    ]
    return Found(twice, len(acts))


def _may_join(look: Look) -> Found | None:
    """Find a run that may continue another: no span encloses both."""
    notes = [warning for warning in look.run.trajectory.warnings if warning.startswith(MAY_JOIN)]
    return Found(look.ordering.surroundings.roots[:1], 1, "; ".join(notes)) if notes else None


def _clock_skew(look: Look) -> Found | None:
    skewed = [warning for warning in look.run.trace.warnings if warning.startswith("clock skew")]
    return Found(look.spans[:1], len(look.spans), "; ".join(skewed)) if skewed else None


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "unknown-dialect",
        Severity.ERROR,
        "no span of an agent, model call or tool: there are no steps to blame",
        _unknown_dialect,
        UNKNOWN,
    ),
    Rule(INFERRED, Severity.WARNING, "", _inferred, MAPPING),
    Rule(
        "context-lost",
        Severity.ERROR,
        "the run is in pieces: the parent or caller of some spans is missing from the trace",
        _context_lost,
        CONTEXT,
    ),
    Rule(
        "no-agent",
        Severity.ERROR,
        "calls without an agent's name on the span, an ancestor or a message: verdicts say “unnamed agent”",
        lambda look: _calls_with(look, lambda step: step.agent_source is AgentSource.UNKNOWN),
        AGENT,
    ),
    Rule(
        "no-task",
        Severity.ERROR,
        "the run's task is missing: its answer cannot be compared with the question",
        _no_task,
        TASK,
    ),
    Rule(
        "content-off",
        Severity.ERROR,
        "calls without any text: only errors and repetitions show which agent failed",
        lambda look: _calls_with(look, lambda step: step.content is ContentState.ABSENT),
        lambda look, spans: content_lines(next(act for act in look.ordering.acts if act.span is spans[0])),
    ),
    Rule(
        "content-hidden",
        Severity.WARNING,
        "calls whose text was hidden by a setting: those steps cannot be judged",
        lambda look: _calls_with(look, lambda step: step.content is ContentState.REDACTED),
        CONTENT,
    ),
    Rule(
        "attributes-dropped",
        Severity.WARNING,
        "spans lost attributes to the SDK's limit, the oldest first: kind, instructions and history",
        lambda look: Found([span for span in look.spans if span.dropped_attributes], len(look.spans)),
        lambda _, spans: (limit_line(spans),),
    ),
    Rule(
        "no-root",
        Severity.WARNING,
        "several agents and no span around the run: its end, task and outcome are guessed",
        _no_root,
        ROOT,
    ),
    Rule("may-be-one-run", Severity.WARNING, "", _may_join, ROOT),
    Rule(
        "unknown-outcome",
        Severity.WARNING,
        f"`{TASK_OUTCOME}` is neither `success` nor `failure`: whether the run failed is guessed",
        _unknown_outcome,
        OUTCOME,
    ),
    Rule(
        "no-handoff-target", Severity.WARNING, "handoffs without a target agent", _no_handoff_target, TARGET
    ),
    Rule(
        "no-call-id",
        Severity.INFO,
        "tools without the id of their call: matched by name, which parallel calls share",
        _no_call_id,
        CALL_ID,
    ),
    Rule(
        "doubled-instrumentation",
        Severity.WARNING,
        "calls that a second instrumentation recorded too: merged if recognised, but stored twice",
        _doubled,
        DOUBLED,
    ),
    Rule("clock-skew", Severity.INFO, "", _clock_skew, CLOCK),
    Rule(
        "agent-not-on-calls",
        Severity.INFO,
        "calls whose agent only an ancestor names: lost when that span is late, sampled out or dropped",
        lambda look: _calls_with(look, lambda step: step.agent_source is AgentSource.ANCESTOR),
        {"": AGENT[""]},
    ),
    Rule(
        "agent-from-function",
        Severity.INFO,
        "calls whose agent is the name of a function around them: a helper may pass for an agent",
        _named_after_functions,
        {"": AGENT[""]},
    ),
)
"""All rules; findings of one severity are in this order."""
