"""Acts of a run: the spans that are or may enclose a step, read through the dialects.

An *act* is a model call, tool call, handoff or agent. Containers between acts are skipped.
Records are immutable and refer to each other by index, so that a pass returns replacements.
Everything is one pass over the forest, parents first, so depth costs only memory.

Images and files in base64 are named, never dumped. A picture that a tool returns takes up to megabytes of a
step's text; what stands after it would be cut off. Base64 is told from words by its length without a space,
and from hashes, sequences and hex dumps by having capitals, small letters and digits. Lines of MIME's base64
(RFC 2045) have one length.

Users trace functions by hand (``logfire.instrument``, ``@observe``, ``openlit.trace``, a tracer's spans), and
an instrumentation of the model's SDK writes the calls. A span named like a requested tool, begun after the
request, with no model call below and no tool span of that name in the run, is the tool's span.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

from semconv.dialects import USUAL, Action, ActionKind, Inferred, Message, Reader, Surroundings, ToolCall
from semconv.dialects.generic.clues import clues_of, words_of
from semconv.dialects.reading.tools import delegation_target, transfer_target
from semconv.dialects.reading.values import error_of, is_failed, words
from semconv.model import AgentSource, Span, SpanStatus, Stop
from semconv.record import record, replace

# Members and sets of kinds are looked up once: an enum's attribute costs 0.1 to 0.3 µs in Python 3.11.
LLM: Final = ActionKind.LLM
TOOL: Final = ActionKind.TOOL
HANDOFF: Final = ActionKind.HANDOFF
AGENT: Final = ActionKind.AGENT
GUARDRAIL: Final = ActionKind.GUARDRAIL
_ERROR: Final = SpanStatus.ERROR
_UNKNOWN: Final = AgentSource.UNKNOWN
_ANCESTOR: Final = AgentSource.ANCESTOR
ACT_KINDS: Final = frozenset(
    {
        ActionKind.LLM,
        ActionKind.TOOL,
        ActionKind.HANDOFF,
        ActionKind.HUMAN,
        ActionKind.OTHER,
        ActionKind.GUARDRAIL,
        ActionKind.AGENT,
    }
)
MODEL_KINDS: Final = frozenset({ActionKind.LLM, ActionKind.AGENT})
"""Kinds whose steps are the model's own words."""
TOOL_KINDS: Final = frozenset({ActionKind.TOOL, ActionKind.HANDOFF})
_RUNS: Final = frozenset({ActionKind.AGENT, ActionKind.WORKFLOW})
_NAMELESS: Final = frozenset({ActionKind.WORKFLOW, ActionKind.SETUP, ActionKind.EVALUATION})
"""Kinds whose agent is not the agent of what they enclose."""
_UNENDED: Final = "no end of this call was sent, as happens when a call fails or its process dies"


@record
class Act:
    """One span with its action, its agent and its place among the acts."""

    index: int
    """Its place in ``Ordering.acts``."""
    position: int
    """The position of its span in ``Ordering.spans``; two acts share it if one has no span of its own."""
    span: Span
    action: Action
    agent: str | None = None
    agent_source: AgentSource = AgentSource.UNKNOWN
    above: int | None = None
    """Index of the nearest enclosing act."""
    runner: int | None = None
    """Index of the nearest enclosing agent's act."""
    is_duplicate: bool = False
    """True if another act represents the same call and has taken over the facts of this one."""

    @property
    def status(self) -> SpanStatus:
        """The span's status, or error if its dialect reports the failure elsewhere; unset after a stop."""
        if self.action.stop is not None:
            return SpanStatus.UNSET
        return _ERROR if self.action.failed else self.span.status

    @property
    def richness(self) -> int:
        """Whether it holds input and output: 0 for neither, 1 for one, 2 for both."""
        action = self.action
        return bool(action.input or action.input_messages) + bool(action.output or action.output_messages)


def merge(act: Act, other: Act) -> Act:
    """Return ``act`` completed with the facts that only ``other``, a second span of the same call, has.

    With double instrumentation, AutoGen's own span inside OpenInference's has the error and the call id, and
    the outer one has the texts.
    """
    mine, theirs = act.action, other.action
    action = replace(
        mine,
        input=mine.input or theirs.input,
        output=mine.output or theirs.output,
        input_messages=mine.input_messages or theirs.input_messages,
        output_messages=mine.output_messages or theirs.output_messages,
        instructions=mine.instructions or theirs.instructions,
        call_id=mine.call_id or theirs.call_id,
        target=mine.target or theirs.target,
        failed=mine.failed or theirs.failed,
        error=mine.error or theirs.error,
        stop=mine.stop or theirs.stop,
        judgements=mine.judgements + theirs.judgements,
    )
    named = act if act.agent is not None else other
    return replace(act, action=action, agent=named.agent, agent_source=named.agent_source)


@record
class Ordering:
    """Intermediate state of a run that is being ordered: its spans, and the results of the passes so far."""

    surroundings: Surroundings
    spans: Sequence[Span]
    """Every span, parents first."""
    parents: Sequence[int]
    """Position of each span's parent; -1 for a root."""
    actions: Sequence[Action | None]
    """Each span's action, as its dialect reads it; ``None`` if no dialect does."""
    tops: Sequence[tuple[Span, Action]]
    """The topmost agents and workflows, earliest first."""
    acts: Sequence[Act]
    """The acts, parents first; then the handoffs without a span of their own."""
    below: Mapping[int, Sequence[int]]
    """The acts directly enclosed by an act, earliest first; acts that enclose none are left out."""
    steps: Sequence[int] = ()
    """The acts that are steps, in order."""
    closing_ns: Mapping[int, int] = field(default_factory=dict)
    """Time that orders a step after the steps it encloses; all other steps are ordered by their start."""
    groups: Mapping[int, int] = field(default_factory=dict)
    """Group number of steps that overlap in time, by the position of their span."""
    stops: Mapping[int, Stop] = field(default_factory=dict)
    """Why spans ended early on purpose, by position; dialects need not read them."""
    inferred: Inferred | None = None
    """Not ``None`` if no dialect reads the run and its actions were inferred."""

    def chosen(self) -> list[Act]:
        """Return the steps' acts, in order."""
        acts = self.acts
        return [acts[index] for index in self.steps]

    def with_acts(self, changed: Iterable[Act]) -> Ordering:
        """Return a copy in which ``changed`` replaces the acts of the same index."""
        acts = list(self.acts)
        for act in changed:
            acts[act.index] = act
        return replace(self, acts=tuple(acts))


Pass: TypeAlias = Callable[[Ordering], Ordering]
"""One transformation of a run that is being ordered. Pure, and linear in the spans."""


def read_acts(spans: Sequence[Span], reader: Reader = USUAL) -> Ordering:
    """Read all spans of a run, and find each act's enclosing act and agent."""
    surroundings = Surroundings(spans)
    walked, parents = surroundings.walked, surroundings.parents
    read, inferred = reader.actions(surroundings)
    actions = list(map(name_blobs, with_requested_tools(walked, parents, read)))
    acts = _acts(walked, actions, parents)
    return Ordering(
        surroundings=surroundings,
        spans=walked,
        parents=parents,
        actions=actions,
        tops=_tops(walked, actions, parents),
        acts=acts,
        below=_below(acts),
        inferred=inferred,
    )


def fail_unended(ordering: Ordering) -> Ordering:
    """Mark the acts of a finished run as failed whose end was never sent."""
    unended = [act for act in ordering.acts if act.action.is_unended]
    failed = (
        replace(act, action=replace(act.action, failed=True, error=act.action.error or _UNENDED))
        for act in unended
    )
    return ordering.with_acts(failed) if unended else ordering


def _tops(
    spans: Sequence[Span], actions: Sequence[Action | None], parents: Sequence[int]
) -> list[tuple[Span, Action]]:
    tops: list[tuple[Span, Action]] = []
    covered = [False] * len(spans)
    for position, action in enumerate(actions):
        parent = parents[position]
        covered[position] = parent >= 0 and covered[parent]
        if action is not None and action.kind in _RUNS:
            if not covered[position]:
                tops.append((spans[position], action))
            covered[position] = True
    return tops


def _below(acts: Sequence[Act]) -> Mapping[int, Sequence[int]]:
    below: defaultdict[int, list[int]] = defaultdict(list)
    for act in acts:
        if act.above is not None:
            below[act.above].append(act.index)
    return dict(below)


def _acts(spans: Sequence[Span], actions: Sequence[Action | None], parents: Sequence[int]) -> list[Act]:
    passed: list[tuple[str | None, int | None, int | None]] = []
    """For each span, the facts its children inherit: agent, nearest act and nearest agent's act."""
    acts: list[Act] = []
    for position, action in enumerate(actions):
        parent = parents[position]
        agent, above, runner = passed[parent] if parent >= 0 else (None, None, None)
        if action is not None:
            kind = action.kind
            agent, source = _agent_of(action, agent)
            if kind in ACT_KINDS:
                index = len(acts)
                acts.append(
                    Act(
                        index=index,
                        position=position,
                        span=spans[position],
                        action=action,
                        agent=agent,
                        agent_source=source,
                        above=above,
                        runner=runner,
                    )
                )
                above = index
                if kind is AGENT:
                    runner = index
        passed.append((agent, above, runner))
    return acts


def _agent_of(action: Action, inherited: str | None) -> tuple[str | None, AgentSource]:
    if action.pseudo_agent:
        return None, _UNKNOWN
    if action.agent is not None and action.kind not in _NAMELESS:
        return action.agent, action.agent_source
    return inherited, _UNKNOWN if inherited is None else _ANCESTOR


LEAST_CHARS: Final = 500
"""Shortest base64 that is left out: 375 bytes. Ids, hashes and keys are shorter."""
_PART: Final = LEAST_CHARS // 2
PLACEHOLDER: Final = "[base64 data]"
_CHAR: Final = r"[A-Za-z0-9+/_-]"
_RUN: Final = re.compile(
    # Possessive, so that the time is linear. A full stop before it is that of a token or a host name.
    rf"(?<![A-Za-z0-9+/_.-])(?:{_CHAR}{{60,}}+(?:(?:\\r)?\\n|\r?\n)?)++(?:{_CHAR}{{1,59}}+)?={{0,2}}"
)
_BREAK: Final = re.compile(r"(?:\\r)?\\n|\r?\n")
_MIXED: Final = (re.compile("[A-Z]"), re.compile("[a-z]"), re.compile("[0-9]"))


def without_base64(text: str) -> str:
    """Return a text with ``PLACEHOLDER`` in place of each long base64; the text itself if there is none."""
    return _RUN.sub(_named, text) if len(text) >= LEAST_CHARS and _may_have(text) else text


def _may_have(text: str) -> bool:
    """Return whether an aligned part of a text has no space: every base64 that is long enough fills one.

    Most texts have no such part, and looking for one takes a hundredth of the expression's time.
    """
    starts = range(0, len(text) - _PART + 1, _PART)
    return any(" " not in (part := text[at : at + _PART]) and part.isascii() for at in starts)


def _named(found: re.Match[str]) -> str:
    whole = found[0]
    lines = _BREAK.split(whole)
    is_one_width = len({len(line) for line in lines[:-1]}) <= 1
    is_base64 = len(whole) >= LEAST_CHARS and is_one_width and all(each.search(lines[0]) for each in _MIXED)
    return PLACEHOLDER if is_base64 else whole


def name_blobs(action: Action | None) -> Action | None:
    """Return an action whose texts have no base64; the action itself if it has none."""
    if action is None:
        return None
    changed: dict[str, Any] = {}
    for name in ("input", "output", "error", "task", "answer", "instructions"):
        text: str = getattr(action, name)
        if text and (kept := without_base64(text)) is not text:
            changed[name] = kept
    for name in ("input_messages", "output_messages"):
        messages: Sequence[Message] = getattr(action, name)
        named = tuple(map(_named_message, messages))
        if any(one is not other for one, other in zip(named, messages, strict=True)):
            changed[name] = named
    return replace(action, **changed) if changed else action


def _named_message(message: Message) -> Message:
    text, results = without_base64(message.text), without_base64(message.results)
    calls = tuple(map(_named_call, message.calls)) if message.calls else ()
    is_same = text is message.text and results is message.results and calls == message.calls
    return message if is_same else replace(message, text=text, results=results, calls=calls)


def _named_call(call: ToolCall) -> ToolCall:
    arguments = without_base64(call.arguments)
    return call if arguments is call.arguments else replace(call, arguments=arguments)


_LLM: Final = ActionKind.LLM
_CONTAINER: Final = ActionKind.CONTAINER
_TOOLS: Final = frozenset({ActionKind.TOOL, ActionKind.HANDOFF})
_CALLED: Final = _TOOLS | {_LLM, ActionKind.AGENT, ActionKind.HUMAN}
_WORDS: Final = re.compile(r"[\s.:]+")

_Request: TypeAlias = tuple[int, ToolCall, str]
"""A request: start of the model call, the tool call, and the model call's dialect."""


def with_requested_tools(
    spans: Sequence[Span], parents: Sequence[int], actions: Sequence[Action | None]
) -> Sequence[Action | None]:
    """Return ``actions`` with the plain spans that are tools which a model requested."""
    actions = _with_tools_by_id(spans, actions)
    plain = [
        position for position, action in enumerate(actions) if action is None or action.kind is _CONTAINER
    ]
    requests = _requests(spans, actions) if plain else None
    if not requests:
        return actions
    named = [
        (spans[position].start_ns, position, tool)
        for position in plain
        if (tool := _WORDS.split(spans[position].name)[-1]) in requests
    ]
    if not named:
        return actions
    calling = _with_calls_below(parents, actions)
    found = list(actions)
    for start_ns, position, tool in sorted(named):
        if position not in calling and (asked := _asked(requests[tool], start_ns)) is not None:
            found[position] = _tool(spans[position], *asked)
    return found


def _with_tools_by_id(spans: Sequence[Span], actions: Sequence[Action | None]) -> Sequence[Action | None]:
    """Return ``actions`` with the unread spans that name a requested call by its id, the first of each call.

    A model's ids of calls are unique, so the span executes that call, whatever its dialect; another dialect
    reads the model calls, and inference is not asked.
    """
    unread = [at for at, action in enumerate(actions) if action is None]
    shown = {action.call_id for action in actions if action is not None and action.kind in _TOOLS}
    asked: dict[str, _Request] = {}
    for span, action in zip(spans, actions, strict=True) if unread else ():
        if action is not None and action.kind is _LLM:
            asked |= {
                call.call_id: (span.start_ns, call, action.dialect)
                for call in action.requested
                if call.call_id not in shown
            }
    found = list(actions)
    for at in sorted(unread if asked else (), key=lambda at: spans[at].start_ns):
        span = spans[at]
        call_id = next(
            (value for key, value in span.attributes.items() if _is_call_id(key, value, asked)), ""
        )
        if call_id and asked[str(call_id)][0] <= span.start_ns:
            _, call, dialect = asked.pop(str(call_id))
            got = clues_of(span).got
            found[at] = replace(_tool(span, call, dialect), output="" if got is None else words(got))
    return found


def _is_call_id(key: str, value: object, asked: Mapping[str, _Request]) -> bool:
    return isinstance(value, str) and value in asked and bool(value) and {"call", "id"} <= {*words_of(key)}


def _requests(spans: Sequence[Span], actions: Sequence[Action | None]) -> Mapping[str, deque[_Request]]:
    """Return the requests of each tool that has no span of its own, in order."""
    found: list[_Request] = []
    shown: set[str] = set()
    for span, action in zip(spans, actions, strict=True):
        if action is None:
            continue
        if action.kind is _LLM:
            found += [(span.start_ns, call, action.dialect) for call in action.requested]
        elif action.tool is not None and action.kind in _TOOLS:
            shown.add(action.tool)
    requests: defaultdict[str, deque[_Request]] = defaultdict(deque)
    for each in sorted(found, key=lambda request: request[0]):
        if each[1].name not in shown:
            requests[each[1].name].append(each)
    return requests


def _with_calls_below(parents: Sequence[int], actions: Sequence[Action | None]) -> set[int]:
    """Return the positions of the spans that have a call or an agent below."""
    found: set[int] = set()
    for position in range(len(parents) - 1, -1, -1):
        action = actions[position]
        if position in found or (action is not None and action.kind in _CALLED):
            found.add(parents[position])
    return found


def _asked(requests: deque[_Request], start_ns: int) -> tuple[ToolCall, str] | None:
    """Take the next request made before ``start_ns``; the last one stays, for a tool that is retried."""
    if not requests or requests[0][0] >= start_ns:
        return None
    _, call, dialect = requests[0] if len(requests) == 1 else requests.popleft()
    return call, dialect


def _tool(span: Span, call: ToolCall, dialect: str) -> Action:
    target = transfer_target(call.name, call.arguments)
    failed = is_failed(span)
    return Action(
        dialect=dialect,
        kind=ActionKind.TOOL if target is None else ActionKind.HANDOFF,
        tool=call.name,
        target=target or delegation_target(call.name, call.arguments),
        call_id=call.call_id,
        input="" if call.call_id else call.arguments,  # otherwise both texts come from the calls, by id
        failed=failed,
        error=error_of(span) if failed else "",
    )
