"""Spans of a program's model calls, for programs that emit none, and texts for spans without them. Pure.

A call becomes a ``chat`` span. Its agent is the one under whose name a later request repeats its answer, else
the one that its instructions name ("You are the analyst."), else a number for each beginning of instructions;
without instructions, of the first message. A tool that an answer asks for, and whose result stands in a later
request, becomes an ``execute_tool`` span between the two: when it really ran is not known.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.programs.model_call import ModelCall, PassedCall, read_model_calls
from analyzer.programs.written_calls import calls_of
from semconv import attributes as names
from semconv.attributes import GenAiOperationName
from semconv.dialects import Reader
from semconv.dialects.reading.action import Action, ActionKind, Key, Surroundings, key_of
from semconv.dialects.reading.agent_names import titled_in_prompt
from semconv.emit.content import instructions_of, messages_of, text_of
from semconv.model import AttributeValue, Resource, Scope, Span, SpanId, SpanStatus, TraceId
from semconv.record import record, replace

NewId = Callable[[int], str]
"""Returns a new id of so many bytes, in lower-case hex."""
Naming = Callable[[ModelCall], str]
"""Returns the agent of a call; empty if nothing names it."""
RUN_SCOPE: Final = Scope(name="blamespan.run")
"""Scope of the spans that are made here, and not by the program."""
_ALIKE: Final = 120
"""Characters of instructions that make an unnamed agent: what follows may hold today's date."""
_END_OF_PROMPT: Final = re.compile(r"[:\n]")
"""What separates a prompt without instructions from the texts that it is about."""
_AS_YOU_ARE: Final = re.compile(
    r"^\W*(?:(?:You.re|(?:You (?:will )?)?[Aa]ct as|(?:Your )?(?:[Rr]ole|ROLE|[Nn]ame)(?: is|:))"
    r"(?: (?:the|an?)\b)? |(?:Du bist|Sie sind) (?:der|die|das|eine?) |(?:Tu es|Vous êtes) (?:le|la|une?) "
    r"|Eres (?:el|la|una?) |Você é (?:o|a|uma?) |Sei (?:il|la|una?) |你是(?:一[名位个])?)(?=[^\W\d])"
)
"""Other beginnings of instructions that name an agent as "You are the" does."""
_STOPS: Final = str.maketrans({"。": ". ", "\uff0c": ", "})
"""The stops of Chinese, after which no space stands."""
_SPEAKING: Final = frozenset({"assistant", "user"})
"""Roles under which requests repeat answers: those of other agents are often a user's."""
_NOBODY: Final = -1
_NO_TRACE: Final = TraceId("")
_NO_SPAN: Final = SpanId("")
"""Ids until a span gets its place."""
_CLIENT: Final = 3
"""OTLP's number of the span kind ``CLIENT``."""


@record
class SeenCall:
    """A model call that was read, with its times."""

    passed: PassedCall
    call: ModelCall
    agent: str
    """Empty if nothing names it."""
    has_agent: bool = False
    """Whether the program's own spans name it."""


@record
class _Wanted:
    """A tool that an answer asked for."""

    call_id: str
    name: str
    arguments: str
    agent: str
    since_ns: int = 0


def spans_of_calls(calls: Iterable[PassedCall], program: str, new_id: NewId) -> tuple[Span, ...]:
    """Return one trace with a span for each model call and tool, below a root span for the program.

    Args:
        calls: the calls, in any order; those of other APIs are left out.
        program: the program's name.
        new_id: makes ids.

    Returns:
        Spans in the order of their start; empty without a model call.
    """
    return spans_of_seen(seen_calls(calls), program, new_id)


def spans_of_seen(seen: Sequence[SeenCall], program: str, new_id: NewId) -> tuple[Span, ...]:
    """Return the same of calls that were read, in the order of their start."""
    if not seen:
        return ()
    trace_id, root_id = TraceId(new_id(16)), SpanId(new_id(8))
    resource = Resource(attributes={"service.name": program})
    inner = [*map(_chat, seen), *_tools(seen)]
    spans = [
        replace(
            span,
            trace_id=trace_id,
            span_id=SpanId(new_id(8)),
            parent_id=root_id,
            scope=RUN_SCOPE,
            resource=resource,
        )
        for span in sorted(inner, key=lambda span: span.start_ns)
    ]
    root = program_span(program, spans)
    return (replace(root, trace_id=trace_id, span_id=root_id, resource=resource), *spans)


def program_span(program: str, inner: Sequence[Span | PassedCall]) -> Span:
    """Return a span for the program around what happened in it; it has no ids yet."""
    return Span(
        trace_id=_NO_TRACE,
        span_id=_NO_SPAN,
        name=f"invoke_workflow {program}",
        start_ns=min(one.start_ns for one in inner) - 1,
        end_ns=max(one.end_ns for one in inner) + 1,
        attributes={
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.INVOKE_WORKFLOW.value,
            names.GEN_AI_WORKFLOW_NAME: program,
        },
        scope=RUN_SCOPE,
    )


def seen_calls(calls: Iterable[PassedCall]) -> list[SeenCall]:
    """Return the readable calls, each with its agent, in the order of their start."""
    return _seen(read_model_calls(calls), numbering())


def _seen(calls: Iterable[tuple[PassedCall, ModelCall]], name: Naming) -> list[SeenCall]:
    read = list(calls)
    speakers = _speakers([call for _, call in read])
    return [
        SeenCall(passed=passed, call=call, agent=speaker or name(call))
        for (passed, call), speaker in zip(read, speakers, strict=True)
    ]


def _speakers(calls: Sequence[ModelCall]) -> list[str]:
    """Return the agent of each call, by the ``name`` of messages that repeat its answer; empty without one.

    If all answers under the same instructions have one name, it is that of the other calls under them too.
    """
    said_by: dict[str, int] = {}
    found = [""] * len(calls)
    for place, call in enumerate(calls):
        for message in call.messages:
            name = message.get("name")
            if isinstance(name, str) and message.get("role") in _SPEAKING:
                speaker = said_by.get(_sign(message), _NOBODY)
                if speaker != _NOBODY:
                    found[speaker] = name
        for sign in {_sign(message) for message in call.said} - {""}:
            said_by[sign] = _NOBODY if sign in said_by else place  # two agents may say "Done."
    names_of: defaultdict[str, set[str]] = defaultdict(set)
    for name, call in zip(found, calls, strict=True):
        names_of[_prompt(call)[:_ALIKE]] |= {name} - {""}
    usual = {prompt: next(iter(own)) for prompt, own in names_of.items() if len(own) == 1}
    return [name or usual.get(_prompt(call)[:_ALIKE], "") for name, call in zip(found, calls, strict=True)]


def _sign(message: Mapping[str, Any]) -> str:
    """Return what tells a message from others: its text, else the ids of its tool calls."""
    calls = message.get("tool_calls") or ()
    return text_of(message.get("content")).strip() or " ".join(str(call.get("id") or "") for call in calls)


def conversations(seen: Iterable[SeenCall]) -> list[list[SeenCall]]:
    """Group calls into conversations, in the order of their start: one agent, with one first message."""
    found: defaultdict[tuple[str, str], list[SeenCall]] = defaultdict(list)
    for one in seen:
        found[one.agent, text_of(list(one.call.messages[:1]))].append(one)
    return list(found.values())


def numbering() -> Naming:
    """Return what names an agent by its instructions, else by a number for their beginning."""
    known: dict[str, str] = {}
    return lambda call: _title(call) or known.setdefault(_prompt(call)[:_ALIKE], f"agent {len(known) + 1}")


def _title(call: ModelCall) -> str:
    prompt = _prompt(call).translate(_STOPS)
    return titled_in_prompt(_AS_YOU_ARE.sub("You are the ", prompt, count=1))


def _prompt(call: ModelCall) -> str:
    """Return a call's instructions, else what its first message says before the text that it is about."""
    if call.instructions:
        return call.instructions
    first = str((call.messages[0].get("content") or "") if call.messages else "")
    return _END_OF_PROMPT.split(first.strip(), maxsplit=1)[0]


def _chat(seen: SeenCall) -> Span:
    call = seen.call
    return Span(
        trace_id=_NO_TRACE,
        span_id=_NO_SPAN,
        name=f"chat {call.model}",
        kind=_CLIENT,
        start_ns=seen.passed.start_ns,
        end_ns=seen.passed.end_ns,
        status=SpanStatus.ERROR if call.error else SpanStatus.UNSET,
        status_message=call.error,
        attributes={
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.CHAT.value,
            names.GEN_AI_PROVIDER_NAME: call.provider,
            names.GEN_AI_AGENT_NAME: seen.agent,
            names.GEN_AI_REQUEST_MODEL: call.model,
            **texts_of(call),
            **_known(
                {
                    names.GEN_AI_RESPONSE_MODEL: call.answered_by or None,
                    names.GEN_AI_USAGE_INPUT_TOKENS: call.input_tokens,
                    names.GEN_AI_USAGE_OUTPUT_TOKENS: call.output_tokens,
                    names.ERROR_TYPE: _error_type(seen.passed) if call.error else None,
                }
            ),
        },
    )


def _error_type(passed: PassedCall) -> str:
    return str(passed.status) if passed.status else "no_answer"


def texts_of(call: ModelCall) -> dict[str, AttributeValue]:
    """Return the attributes that hold a call's texts; only those that it has."""
    found: dict[str, AttributeValue | None] = {
        names.GEN_AI_SYSTEM_INSTRUCTIONS: instructions_of(call.instructions) if call.instructions else None,
        names.GEN_AI_INPUT_MESSAGES: messages_of(list(call.messages), "user"),
        names.GEN_AI_OUTPUT_MESSAGES: messages_of(list(call.said), "assistant") if call.said else None,
        names.GEN_AI_TOOL_DEFINITIONS: text_of(list(call.tools)) if call.tools else None,
        names.GEN_AI_RESPONSE_FINISH_REASONS: (call.finish,) if call.finish else None,
    }
    return _known(found)


def _known(values: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in values.items() if value is not None}


def _tools(seen: Sequence[SeenCall]) -> Iterator[Span]:
    """Yield a span for each tool whose call and whose result a request repeats, once.

    Both stand in the same conversation, so that servers which use an id again, or none, confuse nothing. A
    tool is of the agent whose answer asked for it: agents that share a conversation all repeat it.
    """
    shown: Counter[tuple[str, ...]] = Counter()
    asked: defaultdict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for one in seen:
        here: Counter[tuple[str, ...]] = Counter()
        for own, result in _answered(one):
            wanted = _asked_by(own, asked[_call_of(own)], one.passed.start_ns)
            sign = (wanted.agent, *_call_of(wanted), text_of(result))
            here[sign] += 1
            if here[sign] > shown[sign]:
                shown[sign] = here[sign]
                yield _tool(wanted, result, one.passed.start_ns)
        # Each a nanosecond after the one before, so that calls made together keep their order.
        calls = [call for said in one.call.said for call in calls_of(said)]
        for since_ns, call in enumerate(calls, one.passed.end_ns):
            asked[_call_of(_wanted(call, one))][one.agent] = since_ns


def _call_of(wanted: _Wanted) -> tuple[str, str, str]:
    return wanted.call_id, wanted.name, wanted.arguments


def _asked_by(wanted: _Wanted, asked: Mapping[str, int], sent_ns: int) -> _Wanted:
    """Return a tool with the agent that asked for it, and when; by default when its result was sent.

    Args:
        wanted: the tool, of the agent in whose conversation it stands.
        asked: when each agent last asked for it.
        sent_ns: when its result was sent.
    """
    if wanted.agent in asked or not asked:
        return replace(wanted, since_ns=asked.get(wanted.agent, sent_ns))
    agent = max(asked, key=asked.__getitem__)
    return replace(wanted, agent=agent, since_ns=asked[agent])


def _answered(one: SeenCall) -> Iterator[tuple[_Wanted, Any]]:
    """Yield the tools of a conversation with their results, in order."""
    waiting: defaultdict[str, deque[_Wanted]] = defaultdict(deque)
    for message in one.call.messages:
        for call in message.get("tool_calls") or ():
            wanted = _wanted(call, one)
            waiting[wanted.call_id].append(wanted)
        call_id = str(message.get("tool_call_id") or "")
        if message.get("role") == "tool" and waiting[call_id]:
            yield waiting[call_id].popleft(), message.get("content")


def _wanted(call: Mapping[str, Any], one: SeenCall) -> _Wanted:
    function = call.get("function") or {}
    return _Wanted(
        call_id=str(call.get("id") or ""),
        name=str(function.get("name") or "unknown"),
        arguments=str(function.get("arguments") or "{}"),
        agent=one.agent,
    )


def _tool(asked: _Wanted, result: Any, until_ns: int) -> Span:
    return Span(
        trace_id=_NO_TRACE,
        span_id=_NO_SPAN,
        name=f"execute_tool {asked.name}",
        start_ns=asked.since_ns,
        end_ns=max(asked.since_ns, until_ns),
        attributes={
            names.GEN_AI_OPERATION_NAME: GenAiOperationName.EXECUTE_TOOL.value,
            **({names.GEN_AI_AGENT_NAME: asked.agent} if asked.agent else {}),
            names.GEN_AI_TOOL_NAME: asked.name,
            names.GEN_AI_TOOL_CALL_ID: asked.call_id,
            names.GEN_AI_TOOL_CALL_ARGUMENTS: asked.arguments,
            names.GEN_AI_TOOL_CALL_RESULT: text_of(result),
        },
    )


def joined_with(
    spans: Sequence[Span],
    calls: Sequence[PassedCall],
    reader: Reader,
    new_id: NewId,
    name: Naming | None = None,
) -> tuple[tuple[Span, ...], tuple[PassedCall, ...]]:
    """Return a run's own spans with the calls that passed while it went on, and the other calls.

    A call belongs to the span of a model call that encloses it most closely, and gives it its texts if it has
    none: most instrumentation records none by default. A call that began in no such span becomes a child of
    the innermost span around it. Tools are added too if the program's own spans show none.

    Args:
        spans: the run's, after ``rebuild.repair``.
        calls: the calls, in any order.
        reader: reader of the spans.
        new_id: makes ids.
        name: names the agents that no span names; by default, only instructions name those of spans, which
            the functions around them may name, and numbers those of the other calls.
    """
    around = Surroundings(spans)
    actions = {key_of(span): reader.action(span, around) for span in spans}
    chats = [span for span in spans if _kind(actions[key_of(span)]) is ActionKind.LLM]
    shown: dict[Key, SeenCall] = {}
    inside: list[tuple[PassedCall, ModelCall]] = []
    others: list[PassedCall] = []
    read = list(read_model_calls(calls))
    for (passed, call), speaker in zip(read, _speakers([call for _, call in read]), strict=True):
        chat = _closest(passed, chats, shown)
        if chat is not None:
            agent = _agent_around(chat, around, actions)
            named = agent or speaker or (name or _title)(call)
            # Of several calls in one span the last counts: clients repeat what failed or did not parse.
            # A tool begins after the span, so that it is neither inside it nor beside it.
            timed = replace(passed, start_ns=chat.start_ns, end_ns=chat.end_ns + 1)
            shown[key_of(chat)] = SeenCall(passed=timed, call=call, agent=named, has_agent=bool(agent))
        elif _innermost(passed, spans):
            inside.append((passed, call))
        else:
            others.append(passed)
    own = tuple(_told(span, actions[key_of(span)], shown.get(key_of(span))) for span in spans)
    has_tools = any(_kind(action) is ActionKind.TOOL for action in actions.values())
    tools = () if has_tools else _tools(sorted(shown.values(), key=lambda one: one.passed.start_ns))
    added = _placed((*_of_calls(inside, name or numbering()), *tools), own, new_id)
    placed = (
        _without_agent(span) if _agent_around(parent, around, actions) else span for span, parent in added
    )
    return (*own, *placed), tuple(others)


def _agent_around(span: Span, around: Surroundings, actions: Mapping[Key, Action | None]) -> str:
    """Return the agent that a span or the spans around it name; empty if none does."""
    owners = (actions[key_of(each)] for each in (span, *around.ancestors(span)))
    return next((owner.agent for owner in owners if owner is not None and owner.agent), "")


def _without_agent(span: Span) -> Span:
    kept = {key: value for key, value in span.attributes.items() if key != names.GEN_AI_AGENT_NAME}
    return replace(span, attributes=kept)


def _closest(passed: PassedCall, chats: Sequence[Span], taken: Container[Key]) -> Span | None:
    """Return the span of a model call that encloses a call most closely, one that has none before others."""
    around = [span for span in chats if span.start_ns <= passed.start_ns <= span.end_ns]
    return min(
        around,
        key=lambda span: (
            key_of(span) in taken,
            passed.start_ns - span.start_ns + abs(span.end_ns - passed.end_ns),
        ),
        default=None,
    )


def _kind(action: Action | None) -> ActionKind | None:
    return None if action is None else action.kind


def _told(span: Span, action: Action | None, seen: SeenCall | None) -> Span:
    """Return a span of a model call with the texts that it lacks, and the agent that they name."""
    if seen is None or action is None:
        return span
    named = {names.GEN_AI_AGENT_NAME: seen.agent} if seen.agent and not seen.has_agent else {}
    texts = {} if action.input_messages or action.input else texts_of(seen.call)
    return replace(span, attributes={**span.attributes, **named, **texts}) if named or texts else span


def _of_calls(calls: Iterable[tuple[PassedCall, ModelCall]], name: Naming) -> Iterator[Span]:
    seen = _seen(calls, name)
    yield from map(_chat, seen)
    yield from _tools(seen)


def _placed(inner: Iterable[Span], spans: Sequence[Span], new_id: NewId) -> Iterator[tuple[Span, Span]]:
    """Yield spans as children of the innermost spans that they began in, each with that span."""
    for span in inner:
        parent = _innermost(span, spans)
        if parent is not None:
            child = replace(
                span,
                trace_id=parent.trace_id,
                span_id=SpanId(new_id(8)),
                parent_id=parent.span_id,
                scope=RUN_SCOPE,
                resource=parent.resource,
            )
            yield child, parent


def _innermost(inner: Span | PassedCall, spans: Iterable[Span]) -> Span | None:
    """Return the span that began last of those in which something began."""
    around = (span for span in spans if span.start_ns <= inner.start_ns <= span.end_ns)
    return max(around, key=lambda span: (span.start_ns, -span.end_ns), default=None)


def owners_of(
    calls: Sequence[PassedCall], runs: Sequence[Sequence[Span]]
) -> tuple[list[list[PassedCall]], list[PassedCall]]:
    """Return the calls of each run, and the rest: a call is of the run whose span began last before it."""
    found: list[list[PassedCall]] = [[] for _ in runs]
    rest: list[PassedCall] = []
    for passed in calls:
        inner = [(_innermost(passed, spans), place) for place, spans in enumerate(runs)]
        own = [(span.start_ns, place) for span, place in inner if span is not None]
        (found[max(own)[1]] if own else rest).append(passed)
    return found, rest
