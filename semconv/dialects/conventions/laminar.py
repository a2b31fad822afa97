"""Laminar's SDK, with which browser-use traces itself.

Source: lmnr 0.8.2 on PyPI (``opentelemetry_lib/tracing/attributes.py``) and browser-use 0.13.14
(``agent/service.py``, ``tools/service.py``), both recorded. A span's type is ``lmnr.span.type``, its texts
are JSON in ``lmnr.span.input`` and ``lmnr.span.output``; ``DEFAULT`` is any traced function. Instrumented
model SDKs write ``gen_ai.input.messages`` and ``.output.messages`` instead, the latter as the provider's
choices.

browser-use names no agent: all its work is below ``agent.run``, a span without texts. The agent's name is
ours; the task is in the prompts, the answer in the action ``done``, and an action's failure in its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from semconv.attributes import GEN_AI_INPUT_MESSAGES, GEN_AI_OUTPUT_MESSAGES
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import Found
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.values import mapping, structured, text
from semconv.model import AgentSource, Span

NAME: Final = "laminar"

SPAN_TYPE: Final = "lmnr.span.type"
SPAN_INPUT: Final = "lmnr.span.input"
SPAN_OUTPUT: Final = "lmnr.span.output"

BROWSER_USE: Final = "browser-use"
"""Our name for browser-use's one agent."""
_RUN: Final = "agent.run"
_STEP: Final = "agent.step"
_DONE: Final = "done"
_REQUEST: Final = ("<user_request>", "</user_request>")

_KINDS: Final[Mapping[str, ActionKind]] = {
    "LLM": ActionKind.LLM,
    "TOOL": ActionKind.TOOL,
    "EVALUATOR": ActionKind.EVALUATION,
}
"""Kinds by span type; any other type is a function."""


def read_laminar(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span with one of Laminar's attributes."""
    if SPAN_TYPE not in span.attributes and SPAN_INPUT not in span.attributes:
        return None
    kind = _KINDS.get(text(span.attributes, SPAN_TYPE) or "", ActionKind.CONTAINER)
    if kind is ActionKind.CONTAINER and _is_browser_use(span, surroundings):
        return _read_browser_use(span, surroundings)
    above = surroundings.parent(span)
    is_top = above is None or above.scope.name != span.scope.name
    if kind is ActionKind.CONTAINER and is_top:
        kind = ActionKind.WORKFLOW
    got = _got(span)
    error = mapping(got).get("error") if kind is ActionKind.TOOL else None
    seen = Observation(
        dialect=NAME,
        kind=kind,
        given=span.attributes.get(SPAN_INPUT, span.attributes.get(GEN_AI_INPUT_MESSAGES)),
        got=got,
        tool=span.name,
        function="" if kind in _KINDS.values() else span.name,
        failed=isinstance(error, str) and bool(error),
        error=error if isinstance(error, str) else "",
    )
    return action_of(span, seen)


def _got(span: Span) -> Any:
    if SPAN_OUTPUT in span.attributes:
        return span.attributes[SPAN_OUTPUT]
    choices = structured(span.attributes.get(GEN_AI_OUTPUT_MESSAGES))
    if not isinstance(choices, (list, tuple)):
        return choices
    return [mapping(choice).get("message", choice) for choice in choices]


def _is_browser_use(span: Span, surroundings: Surroundings) -> bool:
    return span.name == _RUN and any(child.name == _STEP for child in surroundings.children(span))


def _read_browser_use(span: Span, surroundings: Surroundings) -> Action:
    """Read the span of the whole run; its task and answer come from the calls and actions below it."""
    asked, answered = "", ""
    for each in _below(span, surroundings):
        if not asked and (found := _request(each)):
            asked = found
        if each.name == _DONE:
            params = mapping(mapping(each.attributes.get(SPAN_INPUT)).get("params"))
            answered = str(params.get("text") or "")
    seen = Observation(
        dialect=NAME,
        kind=ActionKind.AGENT,
        agent=Found(BROWSER_USE, AgentSource.SPAN_NAME),
        given=span.attributes.get(SPAN_INPUT) or asked,
        got=span.attributes.get(SPAN_OUTPUT) or answered,
    )
    return action_of(span, seen)


def _request(call: Span) -> str:
    """Return the task in a call's messages."""
    inputs = structured(call.attributes.get(GEN_AI_INPUT_MESSAGES))
    for message in inputs if isinstance(inputs, (list, tuple)) else ():
        content = mapping(message).get("content")
        if mapping(message).get("role") == "user" and isinstance(content, str):
            request, is_closed, _ = content.partition(_REQUEST[0])[2].partition(_REQUEST[1])
            if is_closed:
                return request.strip()
    return ""


def _below(span: Span, surroundings: Surroundings) -> Iterator[Span]:
    """Yield the calls and actions of each step."""
    for step in surroundings.children(span):
        yield from surroundings.children(step)


LAMINAR: Final = Dialect(name=NAME, read=read_laminar, keys=frozenset({SPAN_TYPE, SPAN_INPUT}))
