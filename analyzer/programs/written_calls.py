"""Tool calls that an answer writes as text or code, and whose results come back as text. Pure.

Agents whose model has no tool calls of its own, and those that act by code, write ``Action: sales`` or a
block of Python into their answer; the next request repeats that answer, and an observation follows. Here both
become a tool call and its result. Prompts show the same forms as examples, so that a call counts only if an
answer of the program wrote it before.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

Message: TypeAlias = dict[str, Any]
"""A message or a call, as chat completions has it."""
Asked: TypeAlias = dict[tuple[str, str], Message]
"""Calls that answers of a program asked for, by name and arguments."""

_INTERPRETER: Final = "python_interpreter"
"""The tool that runs an answer's code; smolagents gives it this name."""
_ACTION: Final = re.compile(
    r"^[ \t]*Action[ \t]*:[ \t]*(?P<name>[^\W\d][\w.-]{0,79}(?: [\w.-]{1,40}){0,4})[ \t]*\n"
    r"[ \t]*Action Input[ \t]*:(?P<arguments>.*?)(?=^[ \t]*(?:Observation|Thought|Action)[ \t]*:|\Z)",
    re.MULTILINE | re.DOTALL,
)
_JSON: Final = re.compile(
    r"(?:^[ \t]*Action[ \t]*:\s*(?:```(?:json)?\s*)?|<tool_call>\s*)(?=\{)", re.MULTILINE
)
_CODE: Final = re.compile(
    r"<code>((?:(?!<code>).)+?)</code>|^```(?:py|python)[ \t]*\n(.+?)^```", re.DOTALL | re.MULTILINE
)
_LIST: Final = re.compile(r"\s*Calling tools:\s*(?=\[)")
_RESULT: Final = re.compile(
    r"\s*(?:<(?:observation|tool_response|tool_result)>|(?:Observation|Execution logs|Code output"
    r"|Tool (?:result|output|response)s?)[ \t]*:|(?=exitcode:))\s*",
    re.IGNORECASE,
)
_RESULT_INSIDE: Final = re.compile(
    r"[ \t]*Observation[ \t]*:(?P<result>.*?)(?=^[ \t]*(?:Thought|Action)[ \t]*:|\Z)",
    re.MULTILINE | re.DOTALL,
)
_SIGNS: Final = ("Action", "<tool_call>", "<code>", "```", "Calling tools:")
"""Words of which a text with a call has one; most texts have none."""
_MOST_CHARS: Final = 50_000
"""Characters of a text in which calls are looked for."""


def calls_of(said: Message) -> Sequence[Message]:
    """Return the calls of an answer: its own, else those that it writes."""
    return said.get("tool_calls") or tuple(call for call, _ in _written(_text(said)))


def remember(said: Sequence[Message], asked: Asked) -> None:
    """Add the calls of an answer to those that were asked for."""
    for message in said:
        asked |= {_key(call): call for call in calls_of(message)}


def with_results(
    messages: Sequence[Message], asked: Mapping[tuple[str, str], Message]
) -> tuple[Message, ...]:
    """Return the messages of a request, in which written calls and observations are those of tools."""
    found: list[Message] = []
    waiting: tuple[Message, ...] = ()
    for message in messages if asked else ():
        text, role = _text(message), message.get("role")
        if waiting and role == "user" and (marker := _RESULT.match(text)):
            found[-1] = {**found[-1], "tool_calls": waiting}
            found += _results(waiting, text[marker.end() :])
            waiting = ()
            continue
        found.append(message)
        written = [] if message.get("tool_calls") or role == "tool" else [*_written(text)]
        known = [(asked[_key(call)], result) for call, result in written if _key(call) in asked]
        waiting = tuple(call for call, result in known if not result) if role == "assistant" else ()
        for call, result in known:
            if result:
                found += ({"role": "assistant", "tool_calls": [call]}, *_results((call,), result))
    return tuple(found) if asked else tuple(messages)


def _results(calls: Sequence[Message], text: str) -> Iterator[Message]:
    """Yield the result of each call: a line each, if there are as many, else the whole text."""
    lines = text.strip().splitlines()
    parts = lines if len(lines) == len(calls) else [text.strip()] * len(calls)
    for call, part in zip(calls, parts, strict=True):
        yield {"role": "tool", "tool_call_id": call.get("id") or "", "content": part}


def _written(text: str) -> Sequence[tuple[Message, str]]:
    """Return the calls that a text writes, each with the observation behind it; empty if there is none."""
    text = text[:_MOST_CHARS]
    return _read(text) if any(sign in text for sign in _SIGNS) else ()


@functools.lru_cache(maxsize=512)
def _read(text: str) -> tuple[tuple[Message, str], ...]:
    """Read a text once: each request repeats those of its conversation."""
    return tuple(_reading(text))


def _reading(text: str) -> Iterator[tuple[Message, str]]:
    if listed := _LIST.match(text):
        yield from ((call, "") for call in _listed(text[listed.end() :]))
        return
    for found in _ACTION.finditer(text):
        behind = _RESULT_INSIDE.match(text, found.end())
        yield _call(found["name"], found["arguments"].strip()), behind["result"].strip() if behind else ""
    for found in _JSON.finditer(text):
        if call := _from_json(text, found.end()):
            yield call, ""
    if code := "\n\n".join((found[1] or found[2]).strip() for found in _CODE.finditer(text)):
        yield _call(_INTERPRETER, json.dumps({"code": code}, ensure_ascii=False)), ""


def _listed(text: str) -> Iterator[Message]:
    """Yield the calls of a list in Python's notation, as smolagents repeats them."""
    try:
        calls = ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # TypeError: {[]: 1}
        return
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield _call(
                str(function.get("name")), _arguments(function.get("arguments")), str(call.get("id") or "")
            )


def _from_json(text: str, start: int) -> Message | None:
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    name = next((found[key] for key in ("name", "action", "tool") if isinstance(found.get(key), str)), "")
    given: Any = next(
        (found[key] for key in ("arguments", "action_input", "tool_input", "parameters") if key in found), {}
    )
    return _call(name, _arguments(given)) if name else None


def _arguments(given: Any) -> str:
    """Return arguments as JSON, without keys that JSON cannot have."""
    return (
        given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str, skipkeys=True)
    )


def _call(name: str, arguments: str, call_id: str = "") -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _key(call: Message) -> tuple[str, str]:
    """Return a call's name and arguments, without the differences of their notation."""
    function = call.get("function") or {}
    given = _arguments(function.get("arguments") or "{}")
    try:
        given = json.dumps(json.loads(given), sort_keys=True)
    except (ValueError, RecursionError):
        given = given.strip()
    return str(function.get("name")), given


def _text(message: Message) -> str:
    """Return a message's text; its parts in lines."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))
