"""Decides which acts are steps, and finds the acts that one model call's span hides.

Steps are the leaves: model calls, tools, handoffs; an agent only if no span below shows what it did. Not
steps: final-answer tools, tools that only enclose an agent, duplicate spans, guardrails that stopped nothing.
Source: the ordering rules of the convention, each from traces that frameworks emit.
Decided from the leaves upwards; the decision on an act depends only on the acts directly below it.

A client that runs the tools itself may show only the whole. .NET's ``FunctionInvokingChatClient`` does so
below a client that writes spans: the span's output is the request, the tools' results and the answer, one
message after the other, and no span shows a tool
(Microsoft.Extensions.AI; the GenAI conventions allow several messages in ``gen_ai.output.messages``).
A model never writes a tool's result. So a result among its output is a tool's, run between two calls, if it
answers a call requested before it. Each part becomes an act on the call's span: request, tool, next call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from collector_processor.trajectory.acts import (
    AGENT,
    GUARDRAIL,
    HANDOFF,
    LLM,
    MODEL_KINDS,
    TOOL,
    TOOL_KINDS,
    Act,
    Ordering,
    merge,
)
from collector_processor.trajectory.siblings import Delegates, Deliveries, lasting_calls
from semconv.dialects import Action, Message, ToolCall
from semconv.dialects.reading.agent_names import bare, plain
from semconv.dialects.reading.messages import body_of, last_answer
from semconv.dialects.reading.payloads import reported_failure, unwrapped
from semconv.dialects.reading.tools import FINAL_ANSWER_TOOLS, transfer_target
from semconv.model import SpanStatus
from semconv.record import replace

_Place: TypeAlias = tuple[int, bool, int, int]
"""Sort key of a step: closing steps before what starts as they end, inner before outer, then tree order."""


def choose_steps(ordering: Ordering) -> Ordering:
    """Find the steps among the acts, in order; two spans of one act become one."""
    return _Choice(ordering).made()


@dataclass(slots=True)
class _Shown:
    """Contents of the steps at and below an act."""

    count: int = 0
    only: int | None = None
    """The step, if there is exactly one."""
    has_agent: bool = False
    """Whether an agent's run with steps is at or below it."""
    has_call: bool = False
    """Whether a model call is at or below it."""
    latest: int | None = None
    latest_ns: int = 0
    """The latest step, and its sort key."""

    def add(self, other: _Shown) -> None:
        self.only = other.only if self.count == 0 else (self.only if other.count == 0 else None)
        self.count += other.count
        self.has_agent = self.has_agent or other.has_agent
        self.has_call = self.has_call or other.has_call
        if other.latest_ns >= self.latest_ns:
            self.latest, self.latest_ns = other.latest, other.latest_ns


class _Choice:
    """Walks the acts, children first, and keeps the steps."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._acts = list(ordering.acts)
        self._places: dict[int, _Place] = {}
        """The steps so far."""
        self._closing_ns: dict[int, int] = {}
        self._shown: dict[int, _Shown] = {}
        self._has_own_words: set[int] = set()
        """Agents that have a model call of their own as a step below them."""
        self._delegates = Delegates(ordering)
        self._deliveries = Deliveries(ordering.acts)
        self._lasting = lasting_calls(ordering.acts)

    def made(self) -> Ordering:
        """Return the run with its steps chosen."""
        below = self._ordering.below
        for act in reversed(self._ordering.acts):
            shown = self._shown[act.index] = _Shown()
            for child in below.get(act.index, ()):
                shown.add(self._shown[child])
            self._decide(act, shown)
        return replace(
            self._ordering,
            acts=tuple(self._acts),
            steps=tuple(sorted(self._places, key=self._places.__getitem__)),
            closing_ns={index: at for index, at in self._closing_ns.items() if index in self._places},
        )

    def _decide(self, act: Act, shown: _Shown) -> None:
        kind = act.action.kind  # compared in turn: patterns would look up each enum member again
        if kind is LLM:
            if not act.is_duplicate:
                self._decide_llm(act, shown)
        elif kind in TOOL_KINDS:
            self._decide_tool(act, shown)
        elif kind is AGENT:
            self._decide_agent(act, shown)
        elif kind is not GUARDRAIL:
            if shown.count == 0:
                self._keep(act, shown)
        elif (act.action.failed or act.action.stop) and shown.count > 0:
            self._close(act, shown)
        elif act.action.failed or act.action.stop:
            self._keep(act, shown)

    def _keep(self, act: Act, shown: _Shown) -> None:
        """Make ``act`` a step, placed at its start."""
        start_ns = act.span.start_ns
        self._closing_ns.pop(act.index, None)
        self._places[act.index] = (start_ns, True, act.span.end_ns, act.index)
        self._show(act, shown, start_ns)

    def _close(self, act: Act, shown: _Shown, before: Act | None = None) -> None:
        """Make ``act`` a step, placed after all steps that it encloses, or right before one of them."""
        at_ns = max(self._end_ns(act), shown.latest_ns + 1) if before is None else before.span.start_ns
        self._closing_ns[act.index] = at_ns
        self._places[act.index] = (at_ns, False, act.span.end_ns, -act.index)
        self._show(act, shown, at_ns)

    def _show(self, act: Act, shown: _Shown, at_ns: int) -> None:
        kind = act.action.kind
        shown.only = act.index if shown.count == 0 else None
        shown.count += 1
        if at_ns >= shown.latest_ns:
            shown.latest, shown.latest_ns = act.index, at_ns
        if kind is LLM:
            shown.has_call = True
        if kind in MODEL_KINDS:
            owner = act.index if kind is AGENT else act.runner
            if owner is not None:
                self._has_own_words.add(owner)

    def _decide_llm(self, act: Act, shown: _Shown) -> None:
        enclosed = [self._acts[index] for index in self._ordering.below.get(act.index, ())]
        if not enclosed:
            self._close(act, shown) if act.index in self._lasting else self._keep(act, shown)
            return
        has_models = any(each.action.kind is LLM for each in enclosed)
        if not has_models and _is_several(act, enclosed):
            self._close(act, shown, before=_asked_below(act, enclosed))
        elif not has_models:
            self._keep(act, shown)
        elif len(enclosed) == 1 and shown.only is not None:
            inner = self._acts[shown.only]
            if inner.action.kind is LLM:
                self._merge(act, inner, shown)
        # otherwise it is a loop of calls (an SDK's generate with its tools), a container

    def _decide_tool(self, act: Act, shown: _Shown) -> None:
        inner = self._acts[shown.only] if shown.only is not None else None
        if act.action.kind is HANDOFF and shown.has_agent:
            self._keep(act, shown)
        elif shown.count == 0:
            if not self._is_told_elsewhere(act):
                self._keep(act, shown)
        elif inner is not None and inner.action.kind in TOOL_KINDS and _same_tool(act, inner):
            self._merge(act, inner, shown)
        elif not shown.has_agent and not self._is_others_work(act):
            self._close(act, shown)

    def _is_told_elsewhere(self, act: Act) -> bool:
        return (
            (act.action.tool in FINAL_ANSWER_TOOLS and not act.action.failed)
            or self._delegates.work_beside(act)
            or self._deliveries.is_shown_by_another(act)
        )

    def _is_others_work(self, act: Act) -> bool:
        """Say whether the tool encloses another agent's work (an agent as a tool, without a span)."""
        enclosed = (self._acts[index].agent for index in self._ordering.below.get(act.index, ()))
        return any(agent is not None and agent != act.agent for agent in enclosed)

    def _decide_agent(self, act: Act, shown: _Shown) -> None:
        is_covered = act.index in self._has_own_words
        if act.action.failed and shown.latest is not None:
            self._pass_failure_on(act, self._acts[shown.latest])
        if shown.count == 0:
            if not act.action.pseudo_agent:
                self._keep(act, shown)
                is_covered = True
        elif not is_covered and self._adds_words(act, shown):
            self._close(act, shown)
            is_covered = True
        shown.has_agent = shown.count > 0 or shown.has_agent
        if is_covered and act.runner is not None and self._acts[act.runner].agent in {None, act.agent}:
            self._has_own_words.add(act.runner)  # the same agent twice: double instrumentation

    def _adds_words(self, act: Act, shown: _Shown) -> bool:
        """Say whether the agent's answer or error is in no model call below.

        If model calls of the agents below are recorded, its own would be too: then it only wraps them.
        """
        if act.action.pseudo_agent or not (act.action.output or act.action.failed):
            return False
        if shown.has_call and not act.action.failed:
            return False
        if shown.latest is None:
            return True
        last = self._acts[shown.latest].action
        if last.kind in TOOL_KINDS and last.output == act.action.output:
            return False  # a function that returns its tool's result
        return (
            last.kind not in MODEL_KINDS
            or (last_answer(last.output_messages) or last.output) != act.action.output
        )

    def _pass_failure_on(self, act: Act, last: Act) -> None:
        """Give an agent's failure to its last model call, if that shows neither an output nor an error.

        Mastra's spans of a failed call say OK; only the agent's has the error.
        """
        call = last.action
        is_silent = call.kind is LLM and not call.output and not any(map(body_of, call.output_messages))
        if is_silent and not call.error and last.runner == act.index:
            failed = replace(call, failed=True, error=act.action.error)
            self._acts[last.index] = replace(last, action=failed)

    def _merge(self, outer: Act, inner: Act, shown: _Shown) -> None:
        """Keep one of two spans of the same act: the one with more content, else the outer one."""
        if inner.richness > outer.richness:
            self._acts[inner.index] = merge(inner, outer)
            return
        self._acts[outer.index] = merge(outer, inner)
        del self._places[inner.index]
        shown.count, shown.only = 0, None
        self._keep(outer, shown)

    def _end_ns(self, act: Act) -> int:
        """Return when an act ended: for an agent run by a tool, no later than the tool.

        The Claude Agent SDK's subagents end with the whole run (OpenInference 0.1.22).
        """
        above = self._acts[act.above] if act.above is not None else None
        if act.action.kind is AGENT and above is not None and above.action.kind in TOOL_KINDS:
            return min(act.span.end_ns, above.span.end_ns)
        return act.span.end_ns


def _is_several(act: Act, enclosed: list[Act]) -> bool:
    """Say whether a model's span encloses tool calls it did not request; it then represents several calls.

    Its texts are those of the last call (ADK 2 under OpenInference 1.0.5 overwrites the agent's span with
    each; Google's client calls functions by itself, and has one span for all, whose answer requests nothing).
    """
    asked = {call.call_id for call in act.action.requested}
    called = {each.action.call_id for each in enclosed if each.action.kind in TOOL_KINDS}
    if called and not asked:
        return bool(last_answer(act.action.output_messages))
    return bool(act.action.output_messages) and "" not in called | asked and not called <= asked


def _asked_below(act: Act, enclosed: list[Act]) -> Act | None:
    asked = {call.call_id for call in act.action.requested}
    return next((each for each in enclosed if each.action.call_id and each.action.call_id in asked), None)


def _same_tool(outer: Act, inner: Act) -> bool:
    name = bare if inner.action.is_delivery else plain
    return name(outer.action.tool or "") == name(inner.action.tool or "")


_TOOL_ROLE: Final = "tool"
_MOST_ROUNDS: Final = 128
"""Rounds up to which a loop is split: each part repeats what was heard before it. Clients allow about 40."""


def add_unseen_tools(ordering: Ordering) -> Ordering:
    """Split each model call that holds a loop of calls and tools, unless spans show the tools."""
    steps = ordering.chosen()
    loops = {act.index for act in steps if act.action.kind is LLM and _is_loop(act.action.output_messages)}
    if not loops:
        return ordering
    shown = {act.action.call_id for act in steps if act.action.kind in TOOL_KINDS}
    acts, order = list(ordering.acts), list[int]()
    for act in steps:
        parts = [act]
        if act.index in loops and shown.isdisjoint(_answered(act)) and not _encloses_tools(act, ordering):
            parts = _parts(act, len(acts))
        acts[act.index] = parts[0]
        acts.extend(parts[1:])
        order.extend(part.index for part in parts)
    return replace(ordering, acts=tuple(acts), steps=tuple(order))


def _is_loop(messages: Sequence[Message]) -> bool:
    """Say whether a tool's result stands between messages, and answers a call made before it."""
    asked: set[str] = set()
    for message in messages:
        if message.role == _TOOL_ROLE and not asked.isdisjoint(message.answers):
            return True
        asked.update(call.call_id for call in message.calls if call.call_id)
    return False


def _answered(act: Act) -> set[str]:
    return {call_id for message in act.action.output_messages for call_id in message.answers}


def _encloses_tools(act: Act, ordering: Ordering) -> bool:
    below = (ordering.acts[index].action.kind for index in ordering.below.get(act.index, ()))
    return any(kind in TOOL_KINDS for kind in below)


def _parts(act: Act, free: int) -> list[Act]:
    """Return a loop's calls and tools in order: the first has the act's index, the others ``free`` and on."""
    asked: dict[str, ToolCall] = {}
    found: list[Act] = []
    rounds = _rounds(act.action.output_messages)
    if len(rounds) > _MOST_ROUNDS:
        return [act]
    heard = act.action.input_messages
    for messages in rounds:
        if messages[0].role == _TOOL_ROLE:
            found += [tool for message in messages for tool in _tools(act, message, asked)]
        else:
            is_last = messages is rounds[-1]
            found.append(_call(act, messages, heard, is_first=not found, is_last=is_last))
            asked |= {call.call_id: call for message in messages for call in message.calls if call.call_id}
        heard = (*heard, *messages)
    return [
        replace(part, index=act.index if place == 0 else free + place - 1) for place, part in enumerate(found)
    ]


def _rounds(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Return the messages in runs of tools' results and of the model's own."""
    found: list[list[Message]] = []
    for message in messages:
        if found and (found[-1][0].role == _TOOL_ROLE) is (message.role == _TOOL_ROLE):
            found[-1].append(message)
        else:
            found.append([message])
    return [tuple(each) for each in found]


def _call(
    act: Act,
    messages: tuple[Message, ...],
    heard: tuple[Message, ...],
    *,
    is_first: bool,
    is_last: bool,
) -> Act:
    """Return one call of a loop; the span's failure is the last one's, for the loop went on before it."""
    action = replace(act.action, input_messages=heard, output_messages=messages, output="")
    span = act.span if is_first else replace(act.span, start_ns=act.span.end_ns)
    if not is_last:
        action = replace(action, failed=False, error="", stop=None)
        span = replace(span, status=SpanStatus.UNSET)
    return replace(act, span=span, action=action)


def _tools(act: Act, message: Message, asked: Mapping[str, ToolCall]) -> Iterator[Act]:
    """Yield the tools whose results a message holds; a text that answers several calls is each one's."""
    span = replace(act.span, start_ns=act.span.end_ns, status=SpanStatus.UNSET)
    for call_id in message.answers:
        call = asked.get(call_id)
        if call is None:
            continue
        complaint = reported_failure(message.text)
        target = transfer_target(call.name, call.arguments)
        action = Action(
            dialect=act.action.dialect,
            kind=TOOL if target is None else HANDOFF,
            tool=call.name,
            target=target,
            call_id=call_id,
            input=call.arguments,
            output=unwrapped(message.text),
            failed=bool(complaint),
            error=complaint,
        )
        yield replace(act, span=replace(span, name=call.name), action=action)
