"""Grouping of traces into runs, splitting of a trace that holds several, and totals of a run. Pure.

Two traces form one run if a span of one links to the other and both hold agents' spans; traces that only link
to the same cron job's or queue's trace are separate runs. Without links, a framework's own id joins them:
AutoGen's team uuid in the ``gen_ai.agent.id`` of a root (a team gets many requests, so its id joins only
turns without links or parents), the call that Claude Code's background work reports on, the session that a
caller of LiteLLM's proxy sends along with each call's agent, or the task in which a LangGraph run waited for
a person and was resumed. Conversation and thread ids are not used: pydantic-ai has one for each agent, and
one chat has many runs.

Traces that only create agents are not runs. A run is incomplete if an AutoGen message was sent in a trace
that is not here.

A program that calls one agent after another without a span around both leaves separate traces, and nothing
in them says that they are one run: nodes of a pydantic-graph without Logfire, AG2's chained chats under
OpenInference, the crews of a CrewAI flow under Traceloop. Such runs are never joined, because a person who
pastes an answer into a new question leaves the same traces; each gets a note on the run it may belong to,
if the task of the later quotes the answer of the earlier.

All totals are as recorded: nothing is estimated, and what no span says is ``None``.
"""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias, TypeVar
from zlib import crc32

from collector_processor.core.runs import MAY_JOIN, TRACE_KEY, Run, RunTotals, workflow_of
from semconv.attributes import GEN_AI_OPERATION_NAME, GEN_AI_RESPONSE_ID, OPENINFERENCE_SPAN_KIND
from semconv.dialects import DIALECTS, RUN_KEYS, USUAL, ActionKind, Reader, Surroundings
from semconv.dialects.conventions.otel_genai import MCP_METHOD
from semconv.dialects.reading.usage import ModelCall, model_call
from semconv.dialects.reading.values import structured, text
from semconv.markers import ATTRIBUTE_PREFIXES, SCOPE_PREFIXES
from semconv.model import Attributes, Event, LogRecord, Span, SpanId, StepKind, Trace, TraceId, Trajectory
from semconv.record import record, replace

_WORD: Final = re.compile(r"[\w-]{8,}")
"""A provider's response id within JSON."""
MAX_KEY_CHARS: Final = 200
"""Longest run key in characters; a longer one is replaced by its digest."""
_SETUP_OPERATIONS: Final = frozenset({"create_agent"})
_LOOKED_THROUGH: Final = frozenset({ActionKind.CONTAINER, ActionKind.SETUP, ActionKind.EVALUATION})
_SETUP_SPANS: Final = frozenset({"workflow.build"})
_KNOWN_SCOPES: Final = tuple(scope for dialect in DIALECTS for scope in dialect.scopes)
_MESSAGE_SCOPES: Final = tuple(scope for dialect in DIALECTS for scope in dialect.message_scopes)
_MCP_SCOPE: Final = "mcp"
_MCP_CALL: Final = "tools/call"


def run_keys(trace: Trace) -> frozenset[str]:
    """Return the keys of ``trace``: traces that share a key are one run.

    The keys are its own trace ids, those its spans link to, and, without links, framework ids of the run.
    """
    links = [link for span in trace.spans if span.links for link in span.links]
    traces = {span.trace_id for span in trace.spans}.union(link.trace_id for link in links)
    keys = {f"{TRACE_KEY}{trace_id}" for trace_id in traces}
    if not links:
        keys.update(_short(key) for keys_of in RUN_KEYS for key in keys_of(trace.spans))
    return frozenset(keys)


def keep_run_ids(runs: Sequence[Trace], given: Mapping[str, frozenset[TraceId]]) -> tuple[str, ...]:
    """Return each run's id: the id that its traces had before, else its own.

    A late trace may begin before the others, or turn one run into several; the earlier verdict then keeps the
    id under which people found it.

    Args:
        runs: in the order of their first spans.
        given: ids assigned before, each with the traces of its run.
    """
    own = [run.run_id or run.spans[0].trace_id for run in runs]
    taken = set(own)
    ids: list[str] = []
    for name, run in zip(own, runs, strict=True):
        traces = {span.trace_id for span in run.spans}
        known = [] if name in given else sorted(id_ for id_, parts in given.items() if parts & traces)
        ids.append(next((id_ for id_ in known if id_ not in taken), name))
        taken.add(ids[-1])
    return tuple(ids)


def _short(key: str) -> str:
    """Return a key of bounded length without lone surrogates: senders choose their ids."""
    if len(key) <= MAX_KEY_CHARS:
        return key if key.isascii() else key.encode("utf-8", "replace").decode()
    kind, _, _ = key.partition(":")
    return f"{kind}:{blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=32).hexdigest()}"


def group_runs(traces: Sequence[Trace], reader: Reader = USUAL) -> tuple[Trace, ...]:
    """Return ``traces`` grouped into runs, in the order of their first spans.

    Joins traces that share a run key, drops those that only set up agents, and splits a trace that consists
    of several workflows side by side. Agents side by side under a user's own span are not split: they may be
    one run.
    """
    running = [trace for trace in traces if trace.spans and not _only_sets_up(trace, reader)]
    joined = [_with_completeness(_join(members)) for members in _components(_without_duplicates(running))]
    runs = [run for trace in joined for run in _split(trace, reader)]
    return tuple(sorted(runs, key=lambda run: (_start_ns(run), run.run_id or run.spans[0].trace_id)))


def _without_duplicates(traces: Sequence[Trace]) -> Sequence[Trace]:
    """Drop traces of a single model call that another of the traces contains too.

    They come from double instrumentation: OpenInference's for langchain sets no context, so the model SDK's
    spans of the same calls are traces of their own. Recognised by the provider's response id.
    """
    duplicates = {
        response_id: trace
        for trace in traces
        if len(trace.spans) == 1 and (response_id := _response_id(trace.spans[0].attributes))
    }
    others = [trace for trace in traces if len(trace.spans) > 1]
    if not duplicates or not others:
        return traces
    shown = {
        found
        for trace in others
        for span in trace.spans
        for value in span.attributes.values()
        if isinstance(value, str)
        for found in _WORD.findall(value)
        if found in duplicates
    }
    left_out = {id(duplicates[response_id]) for response_id in shown}
    return [trace for trace in traces if id(trace) not in left_out]


def _response_id(attributes: Attributes) -> str:
    """Return the provider's id of a response, which OpenInference keeps only within the response itself."""
    found: object = attributes.get(GEN_AI_RESPONSE_ID)
    if found is None and attributes.get(OPENINFERENCE_SPAN_KIND) == "LLM":
        told = (
            structured(value) for value in attributes.values() if isinstance(value, str) and '"id"' in value
        )
        responses = (one for one in told if isinstance(one, dict) and not _ANSWERS.isdisjoint(one))
        found = next((response.get("id") for response in responses), None)
    return found if isinstance(found, str) else ""


_ANSWERS: Final = frozenset({"choices", "output", "content"})
"""Keys of a model API's response that hold the answer."""


def _only_sets_up(trace: Trace, reader: Reader) -> bool:
    """Return whether the trace only sets up agents; for a single span, its dialect decides too."""
    if all(map(_is_setup, trace.spans)):
        return True
    if len(trace.spans) > 1:
        return False
    action = reader.action(trace.spans[0], Surroundings(trace.spans))
    return action is not None and action.kind is ActionKind.SETUP


def _is_setup(span: Span) -> bool:
    return text(span.attributes, GEN_AI_OPERATION_NAME) in _SETUP_OPERATIONS or span.name in _SETUP_SPANS


def is_stray(trace: Trace, reader: Reader = USUAL, *, beside_runs: bool) -> bool:
    """Say whether a trace without steps is a runtime's own work (a session, a start-up) and not a run.

    That is so if no dialect reads its spans, and no span has an agent's attributes unknown to the dialects,
    which would make it an unreadable run. Alone, only sessions and spans of known instrumentations are
    strays: others, including containers, may be the first part of a run.
    """
    forest = Surroundings(trace.spans)
    is_plain = not any(_has_agents_logs(span) or reader.action(span, forest) for span in trace.spans)
    if is_plain and not _is_agents(trace):
        # It is here because of a hint at a model call (``MODEL_HINTS``), but has no such call. Links change
        # nothing: traces without agents' spans are never joined.
        return True
    if not beside_runs and (any(span.links for span in trace.spans) or not any(map(_is_known, trace.spans))):
        return False
    looked_through = _LOOKED_THROUGH if beside_runs else frozenset()
    for span in forest.walked:
        action = reader.action(span, forest)
        is_run = _is_strange(span) if action is None else action.kind not in looked_through
        if is_run and not _is_session(span):
            return False
    return True


def _has_agents_logs(span: Span) -> bool:
    return any(
        _is_marked(record.attributes) or record.name.startswith(ATTRIBUTE_PREFIXES) for record in span.logs
    )


def _is_marked(attributes: Attributes) -> bool:
    return any(key.startswith(ATTRIBUTE_PREFIXES) for key in attributes)


def _is_session(span: Span) -> bool:
    """Say whether a span of the Model Context Protocol is not a tool call."""
    is_mcp = MCP_METHOD in span.attributes or span.scope.name.endswith(_MCP_SCOPE)
    return is_mcp and span.attributes.get(MCP_METHOD) != _MCP_CALL and not span.name.startswith(_MCP_CALL)


def _is_known(span: Span) -> bool:
    return _is_session(span) or span.scope.name.startswith(_KNOWN_SCOPES)


def _is_strange(span: Span) -> bool:
    """Say whether an unread span has an agent's attributes, and belongs to no known instrumentation."""
    return not _is_known(span) and _is_marked(span.attributes)


def _start_ns(trace: Trace) -> int:
    return min(span.start_ns for span in trace.spans)


def _components(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Return the traces grouped by shared keys (union-find over keys)."""
    leader: dict[str, str] = {}

    def find(key: str) -> str:
        while leader.setdefault(key, key) != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    agents = {span.trace_id for trace in traces if _is_agents(trace) for span in trace.spans}
    here = {f"{TRACE_KEY}{trace_id}" for trace_id in agents}
    keys_of = [_joining(trace, here) for trace in traces]
    for keys in keys_of:
        for key in keys[1:]:
            leader[find(key)] = find(keys[0])
    members: defaultdict[str, list[Trace]] = defaultdict(list)
    for trace, keys in zip(traces, keys_of, strict=True):
        members[find(keys[0])].append(trace)
    return list(members.values())


def _joining(trace: Trace, agents: Container[str]) -> list[str]:
    """Return a trace's run keys, its own first, leaving out links to traces that have no agents' spans."""
    own = f"{TRACE_KEY}{trace.spans[0].trace_id}"
    others = (key for key in run_keys(trace) if key in agents or not key.startswith(TRACE_KEY))
    return [own, *sorted(key for key in others if key != own)]


def _is_agents(trace: Trace) -> bool:
    """Return whether the fast lane would treat the trace as an agent's (``semconv.markers``)."""
    return any(
        span.scope.name.startswith(SCOPE_PREFIXES) or _is_marked(span.attributes) for span in trace.spans
    )


def _join(traces: Sequence[Trace]) -> Trace:
    if len(traces) == 1:
        return traces[0]
    first, *others = sorted(traces, key=lambda trace: (_start_ns(trace), trace.spans[0].trace_id))
    return replace(
        first,
        spans=tuple(span for trace in (first, *others) for span in trace.spans),
        warnings=tuple(dict.fromkeys(warning for trace in (first, *others) for warning in trace.warnings)),
        complete=all(trace.complete for trace in traces),
    )


def _with_completeness(trace: Trace) -> Trace:
    """Mark ``trace`` as incomplete if a message was sent in a trace that is not here (AutoGen's runtimes)."""
    here = {span.trace_id for span in trace.spans}
    lost = any(
        link.trace_id not in here
        for span in trace.spans
        if span.scope.name.startswith(_MESSAGE_SCOPES)
        for link in span.links
    )
    return replace(trace, complete=False) if lost and trace.complete else trace


def _split(trace: Trace, reader: Reader) -> list[Trace]:
    """Return the workflows of ``trace`` as runs, if it consists of several and was not joined."""
    named = [span for span in trace.spans if GEN_AI_OPERATION_NAME in span.attributes]
    if len(named) < 2 or len({span.trace_id for span in trace.spans}) > 1:
        return [trace]
    forest = Surroundings(trace.spans)
    heads = _workflows(forest, reader)
    if len(heads) < 2:
        return [trace]
    return [
        replace(
            trace,
            spans=(replace(head, parent_id=None), *_below(forest, head)),
            run_id=f"{head.trace_id}:{head.span_id}",
        )
        for head in heads
    ]


def _workflows(forest: Surroundings, reader: Reader) -> list[Span]:
    """Return the topmost spans declared as workflows; none if an agent is beside them."""
    heads: list[Span] = []
    stack = list(reversed(forest.roots))
    while stack:
        span = stack.pop()
        action = reader.action(span, forest)
        if action is None or action.kind in _LOOKED_THROUGH:
            stack.extend(reversed(forest.children(span)))
        elif action.kind is ActionKind.WORKFLOW and GEN_AI_OPERATION_NAME in span.attributes:
            heads.append(span)
        else:
            return []
    return heads


def _below(forest: Surroundings, head: Span) -> Iterator[Span]:
    stack = list(forest.children(head))
    while stack:
        span = stack.pop()
        yield span
        stack.extend(forest.children(span))


def join_logs(trace: Trace, logs: Sequence[LogRecord]) -> Trace:
    """Return ``trace`` with log records added to their spans, in time order; other records are ignored."""
    found: defaultdict[tuple[str, SpanId], list[Event]] = defaultdict(list)
    for log in logs:
        if log.trace_id is not None and log.span_id is not None:
            found[log.trace_id, log.span_id].append(log.event)
    if not found:
        return trace
    spans = tuple(
        replace(span, logs=tuple(sorted((*span.logs, *events), key=lambda event: event.time_ns)))
        if (events := found.get((span.trace_id, span.span_id)))
        else span
        for span in trace.spans
    )
    return replace(trace, spans=spans)


_WORDS: Final = 6
"""Words of the answer's beginning and end that the task must quote; shorter answers are no evidence."""
_MOST_QUOTES: Final = 500
"""Positions of a text that are compared, from its beginning."""
_MOST_CHARS: Final = 8_000
_LONGEST_PAUSE_NS: Final = 300 * 10**9
"""Longest pause between two runs: a program continues sooner, a person later."""
_MOST_REMEMBERED: Final = 4_096
_HISTORY: Final = re.compile(r"^assistant\b", re.MULTILINE)
_SERVICE_NAME: Final = "service.name"

Quote: TypeAlias = int
"""Checksum of consecutive words."""


@record
class Continuation:
    """Quotes of a run's answer, and of its inputs, by which one run may continue another."""

    run_id: str
    service: str
    start_ns: int
    end_ns: int
    said: tuple[Quote, ...] = ()
    """Beginning and end of its answer; empty if the answer is short or repeats the task."""
    heard: tuple[Quote, ...] = ()
    """Everything that its task, or its first step's input, may quote."""


def continuation_of(trace: Trace, trajectory: Trajectory) -> Continuation:
    """Return the quotes that may link a run to those before and after it."""
    heard = tuple(dict.fromkeys(quote for text in _given(trajectory) for quote in _quotes(text)))
    words = trajectory.output.split()
    ends = (words[:_WORDS], words[-_WORDS:]) if len(words) >= _WORDS else ()
    said = tuple(_checksum(end) for end in ends)
    return Continuation(
        run_id=trajectory.run_id,
        service=str(trace.spans[0].resource.attributes.get(_SERVICE_NAME, "")) if trace.spans else "",
        start_ns=min((span.start_ns for span in trace.spans), default=0),
        end_ns=max((span.end_ns for span in trace.spans), default=0),
        said=() if set(said) <= set(heard) else said,
        heard=heard if trajectory.steps else (),
    )


def _given(trajectory: Trajectory) -> Iterator[str]:
    """Yield the task and the first step's input, unless that is a chat with earlier answers in it."""
    yield trajectory.task
    first = trajectory.steps[0].input if trajectory.steps else ""
    if first != trajectory.task and not _HISTORY.search(first[:_MOST_CHARS]):
        yield first


def _quotes(text: str) -> Iterator[Quote]:
    words = text[:_MOST_CHARS].split()[: _MOST_QUOTES + _WORDS]
    return (_checksum(words[at : at + _WORDS]) for at in range(len(words) - _WORDS + 1))


def _checksum(words: Sequence[str]) -> Quote:
    return crc32(" ".join(words).encode("utf-8", "surrogatepass"))


class RecentRuns:
    """Answers of the most recent runs, up to a bound."""

    def __init__(self) -> None:
        self._said: Final[OrderedDict[tuple[str, str, Quote], Continuation]] = OrderedDict()

    def before(self, run: Continuation, tenant: str = "") -> str:
        """Return the id of the run that this one may continue, empty if there is none; remember this one.

        Args:
            run: the run to look up.
            tenant: the tenant of the run; runs of several tenants are never one.
        """
        continuations = (self._said.get((tenant, run.service, quote)) for quote in run.heard)
        ids = (one.run_id for one in continuations if one is not None and _continues(run, one))
        before = next(ids, "")
        if run.said:
            self._said[tenant, run.service, run.said[0]] = run
            if len(self._said) > _MOST_REMEMBERED:
                self._said.popitem(last=False)
        return before


def _continues(run: Continuation, before: Continuation) -> bool:
    """Say whether ``run`` began soon after ``before``, with the beginning and end of its answer as input."""
    is_soon = 0 <= run.start_ns - before.end_ns <= _LONGEST_PAUSE_NS
    return is_soon and run.run_id != before.run_id and set(before.said) <= set(run.heard)


def note(run_id: str) -> str:
    """Return the note on a run that may continue ``run_id``."""
    return f"{MAY_JOIN}{run_id}: its task quotes the answer of that run; a span around both would join them"


def note_possible_joins(runs: Iterable[tuple[Trace, Trajectory]]) -> tuple[Trajectory, ...]:
    """Return the trajectories, in the order of their starts, each with a note on the run it may continue."""
    recent, trajectories = RecentRuns(), []
    for trace, trajectory in runs:
        before = recent.before(continuation_of(trace, trajectory))
        warnings = (*trajectory.warnings, note(before)) if before else trajectory.warnings
        trajectories.append(replace(trajectory, warnings=warnings) if before else trajectory)
    return tuple(trajectories)


Number = TypeVar("Number", int, float)

_MOST: Final = (1 << 61) - 1
"""Largest count: spans may hold any, and their sums must fit into 64 bits."""
_LATEST_NS: Final = (1 << 63) - 1


def total_up(run: Run) -> RunTotals:
    """Return a run's totals; each span's tokens count once."""
    steps = run.trajectory.steps
    starts = [step.start_ns for step in steps if 0 < step.start_ns <= _LATEST_NS]
    ends = [step.end_ns for step in steps if 0 < step.end_ns <= _LATEST_NS]
    calls = list(_calls(run))
    return RunTotals(
        workflow=workflow_of(run.trace.spans),
        steps=len(steps),
        started_ns=min(starts, default=None),
        duration_ns=max(0, max(ends) - min(starts)) if starts and ends else None,
        input_tokens=_sum(call.input_tokens for call in calls),
        output_tokens=_sum(call.output_tokens for call in calls),
        cost_usd=_sum(call.cost_usd for call in calls),
    )


def _calls(run: Run) -> Iterator[ModelCall]:
    """Yield the model calls of a run, one a span."""
    asking: set[tuple[TraceId | None, SpanId | None]] = {
        (step.trace_id, step.span_id) for step in run.trajectory.steps if step.kind is StepKind.LLM
    }
    return (model_call(span) for span in run.trace.spans if (span.trace_id, span.span_id) in asking)


def _sum(numbers: Iterable[Number | None]) -> Number | None:
    known = [number for number in numbers if number is not None]
    return min(sum(known), _MOST) if known else None
