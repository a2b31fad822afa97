"""Grouping of traces into runs, and splitting of a trace that holds several.

Two traces form one run if a span of one links to the other and both hold agents' spans; traces that only link
to the same cron job's or queue's trace are separate runs. Without links, a framework's own id joins them:
AutoGen's team uuid in the ``gen_ai.agent.id`` of a root (a team gets many requests, so its id joins only
turns without links or parents), the call that Claude Code's background work reports on, the session that a
caller of LiteLLM's proxy sends along with each call's agent, or the task in which a LangGraph run waited for
a person and was resumed. Conversation and thread ids are not used: pydantic-ai has one for each agent, and
one chat has many runs.

Traces that only create agents are not runs. A run is incomplete if an AutoGen message was sent in a trace
that is not here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from collector_processor.core.runs import TRACE_KEY
from semconv.attributes import GEN_AI_OPERATION_NAME, GEN_AI_RESPONSE_ID
from semconv.dialects import DIALECTS, RUN_KEYS, USUAL, ActionKind, Reader, Surroundings
from semconv.dialects.conventions.otel_genai import MCP_METHOD
from semconv.dialects.reading.values import text
from semconv.markers import ATTRIBUTE_PREFIXES, SCOPE_PREFIXES
from semconv.model import Attributes, Event, LogRecord, Span, SpanId, Trace, TraceId
from semconv.record import replace

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
    """Return a key of bounded length: senders choose the length of their ids."""
    if len(key) <= MAX_KEY_CHARS:
        return key
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
        if len(trace.spans) == 1
        and isinstance(response_id := trace.spans[0].attributes.get(GEN_AI_RESPONSE_ID), str)
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
    for record in logs:
        if record.trace_id is not None and record.span_id is not None:
            found[record.trace_id, record.span_id].append(record.event)
    if not found:
        return trace
    spans = tuple(
        replace(span, logs=tuple(sorted((*span.logs, *events), key=lambda event: event.time_ns)))
        if (events := found.get((span.trace_id, span.span_id)))
        else span
        for span in trace.spans
    )
    return replace(trace, spans=spans)
