"""Which traces are one run, and which parts of a trace are runs of their own.

Traces belong together if a span of one links to the other and both hold agents' spans (traces that only
link to the same cron job's or queue's trace are separate runs), or, where there are
no links, where a framework's own id says so (AutoGen's team uuid in the
``gen_ai.agent.id`` of a root; a team is asked many times, so its id joins only
turns that have neither links nor anything above them; the call that Claude Code's
background work reports on). A conversation id is no such key: pydantic-ai has one
per agent, and a chat has many runs. Traces that only build agents are no runs. A
run is not complete where a message of AutoGen's was sent in a trace that is not
here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from semconv.attributes import GEN_AI_AGENT_ID, GEN_AI_OPERATION_NAME, GEN_AI_RESPONSE_ID
from semconv.dialects import ActionKind, Surroundings, read_action
from semconv.dialects.autogen_messages import RUNTIME_SCOPE
from semconv.dialects.claude_code import SCOPE as CLAUDE_CODE_SCOPE
from semconv.dialects.claude_code_background import background_keys
from semconv.dialects.langsmith import OPENAI_TRACE
from semconv.dialects.reading import text
from semconv.markers import ATTRIBUTE_PREFIXES, SCOPE_PREFIXES
from semconv.model import Event, LogRecord, Span, SpanId, Trace, TraceId

_WORD: Final = re.compile(r"[\w-]{8,}")
"""What an id of a provider's is, inside JSON."""
TRACE_KEY: Final = "trace:"
"""Begins the run keys that are trace ids."""
MAX_KEY_CHARS: Final = 200
"""Of a run key; a longer one stands by its digest."""
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_AUTOGEN_AGENT: Final = re.compile(rf"_(?P<team>{_UUID})/{_UUID}$")
"""AutoGen's agent id: ``<name>_<team uuid>/<run uuid>``. Other frameworks' ids outlive the run."""
_SETUP_OPERATIONS: Final = frozenset({"create_agent"})
_LOOKED_THROUGH: Final = frozenset({ActionKind.CONTAINER, ActionKind.SETUP, ActionKind.EVALUATION})
_SETUP_SPANS: Final = frozenset({"workflow.build"})


def run_keys(trace: Trace) -> frozenset[str]:
    """Return what joins ``trace`` to others: traces that share a key are one run.

    Its own trace ids, those its spans link to, and without links framework ids of the run.
    """
    links = [link for span in trace.spans for link in span.links]
    here = {span.trace_id for span in trace.spans}
    linked = frozenset(f"{TRACE_KEY}{trace_id}" for trace_id in here.union(link.trace_id for link in links))
    if links:
        return linked
    return linked.union(*(map(_short, _framework_ids(span)) for span in trace.spans))


def steady_ids(runs: Sequence[Trace], given: Mapping[str, frozenset[TraceId]]) -> tuple[str, ...]:
    """Return each run's id: one that its traces were given before, else its own.

    A trace that comes late may begin before the others, or turn a trace into several runs; what
    was said of the run until then stays where people found it.

    Args:
        runs: in the order of their first spans.
        given: the ids given before, each with traces of that run.
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


def _framework_ids(span: Span) -> Iterator[str]:
    workflow = span.attributes.get(OPENAI_TRACE)
    if isinstance(workflow, str) and workflow:  # LangSmith: agents asked as tools are traces of their own
        yield f"openai:{workflow}"
    if span.scope.name.startswith(CLAUDE_CODE_SCOPE):
        yield from (f"claude_code:{key}" for key in background_keys(span))
    agent_id = span.attributes.get(GEN_AI_AGENT_ID) if span.parent_id is None else None
    if isinstance(agent_id, str) and (found := _AUTOGEN_AGENT.search(agent_id)):
        yield f"autogen:{found['team']}"


def _short(key: str) -> str:
    """Return a key that is remembered in a few bytes: whoever sends ids makes them as long as they like."""
    if len(key) <= MAX_KEY_CHARS:
        return key
    kind, _, _ = key.partition(":")
    return f"{kind}:{blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=32).hexdigest()}"


def group_runs(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Return the runs that ``traces`` are, in the order of their first spans.

    Joins traces that share a run key, leaves out those that only set agents up, and splits a
    trace that holds nothing but several workflows side by side. That is all the splitting there
    is: agents side by side under a user's own span may well be one run.
    """
    running = [trace for trace in traces if trace.spans and not _only_sets_up(trace)]
    joined = [_with_losses(_join(members)) for members in _components(_without_echoes(running))]
    runs = [run for trace in joined for run in _split(trace)]
    return tuple(sorted(runs, key=lambda run: (_start_ns(run), run.run_id or run.spans[0].trace_id)))


def _without_echoes(traces: Sequence[Trace]) -> Sequence[Trace]:
    """Leave out traces that are one model call which another of the traces shows too.

    Doubled instrumentation: OpenInference's of langchain sets no context, so what the SDK of the
    model emits about the same calls are traces of their own. Told by the provider's id of the answer.
    """
    echoes = {
        said: trace
        for trace in traces
        if len(trace.spans) == 1
        and isinstance(said := trace.spans[0].attributes.get(GEN_AI_RESPONSE_ID), str)
    }
    others = [trace for trace in traces if len(trace.spans) > 1]
    if not echoes or not others:
        return traces
    shown = {
        found
        for trace in others
        for span in trace.spans
        for value in span.attributes.values()
        if isinstance(value, str)
        for found in _WORD.findall(value)
        if found in echoes
    }
    left_out = {id(echoes[said]) for said in shown}
    return [trace for trace in traces if id(trace) not in left_out]


def _only_sets_up(trace: Trace) -> bool:
    """Say whether the trace holds no run; a single span's dialect is asked too."""
    if all(map(_is_setup, trace.spans)):
        return True
    if len(trace.spans) > 1:
        return False
    action = read_action(trace.spans[0], Surroundings(trace.spans))
    return action is not None and action.kind is ActionKind.SETUP


def _is_setup(span: Span) -> bool:
    return text(span.attributes, GEN_AI_OPERATION_NAME) in _SETUP_OPERATIONS or span.name in _SETUP_SPANS


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

    here = {f"{TRACE_KEY}{span.trace_id}" for trace in traces if _is_agents(trace) for span in trace.spans}
    keys_of = [_joining(trace, here) for trace in traces]
    for keys in keys_of:
        for key in keys[1:]:
            leader[find(key)] = find(keys[0])
    members: defaultdict[str, list[Trace]] = defaultdict(list)
    for trace, keys in zip(traces, keys_of, strict=True):
        members[find(keys[0])].append(trace)
    return list(members.values())


def _joining(trace: Trace, agents: Container[str]) -> list[str]:
    """Return a trace's run keys, its own first, without links to traces that hold no agents' spans."""
    own = f"{TRACE_KEY}{trace.spans[0].trace_id}"
    others = (key for key in run_keys(trace) if key in agents or not key.startswith(TRACE_KEY))
    return [own, *sorted(key for key in others if key != own)]


def _is_agents(trace: Trace) -> bool:
    """Whether the fast lane would treat the trace as an agent's (``semconv.markers``)."""
    return any(
        span.scope.name.startswith(SCOPE_PREFIXES)
        or any(key.startswith(ATTRIBUTE_PREFIXES) for key in span.attributes)
        for span in trace.spans
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


def _with_losses(trace: Trace) -> Trace:
    """Say that ``trace`` is not complete where a message was sent in a trace that is not here."""
    here = {span.trace_id for span in trace.spans}
    lost = any(
        link.trace_id not in here
        for span in trace.spans
        if span.scope.name.startswith(RUNTIME_SCOPE)
        for link in span.links
    )
    return replace(trace, complete=False) if lost and trace.complete else trace


def _split(trace: Trace) -> list[Trace]:
    """Return the workflows of ``trace`` as runs, if it is several and nothing else, and was not joined."""
    named = [span for span in trace.spans if GEN_AI_OPERATION_NAME in span.attributes]
    if len(named) < 2 or len({span.trace_id for span in trace.spans}) > 1:
        return [trace]
    forest = Surroundings(trace.spans)
    heads = _workflows(forest)
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


def _workflows(forest: Surroundings) -> list[Span]:
    """Return the topmost spans that are declared to be whole runs; none where an agent stands beside them."""
    heads: list[Span] = []
    stack = list(reversed(forest.roots))
    while stack:
        span = stack.pop()
        action = read_action(span, forest)
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
    """Return ``trace`` with each log record at its span, in time order; others' records are ignored."""
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
