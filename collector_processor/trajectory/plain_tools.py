"""Tools traced by hand: plain spans of tools that a model requested.

Users trace functions by hand (``logfire.instrument``, ``@observe``, ``openlit.trace``, a tracer's spans), and
an instrumentation of the model's SDK writes the calls. A span named like a requested tool, begun after the
request, with no model call below and no tool span of that name in the run, is the tool's span.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from semconv.dialects import Action, ActionKind, ToolCall
from semconv.dialects.generic.clues import clues_of, words_of
from semconv.dialects.reading.tools import delegation_target, transfer_target
from semconv.dialects.reading.values import error_of, is_failed, words
from semconv.model import Span
from semconv.record import replace

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
