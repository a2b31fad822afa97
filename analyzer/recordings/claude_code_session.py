"""Reader of Claude Code's sessions: ``~/.claude/projects/**.jsonl``, and its ``stream-json`` output. Pure.

Each line is an event. ``user`` and ``assistant`` events hold a message of Anthropic's API; an answer of
several blocks stands on several lines with one message id; the results of tools are in ``user`` events. The
first prompt may be edited: of two prompts with the same parent the later one counts. A subagent's events are
marked ``isSidechain`` and belong to the call whose result names their ``agentId``, else to the one whose
prompt they begin with or whose event is their ancestor; in ``stream-json`` they name it as
``parent_tool_use_id``. A file of a subagent alone (``agent-*.jsonl``) is a session of its own.
Source: sessions of Claude Code 1.0 to 2.1, and its SDK's reference for ``stream-json`` (2025-2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.anthropic_messages import is_result, messages_of_blocks
from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import json_text, nanoseconds, object_at, objects, text_at
from analyzer.recordings.message_parts import finish_of, text_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.dialects.reading.agent_names import titled_in_prompt
from semconv.json_text import read_json
from semconv.model import Span, ToolCall
from semconv.record import record, replace

_NAME: Final = "claude"
_SUBAGENT_TOOLS: Final = frozenset({"Task", "Agent"})
_INTERRUPTED: Final = "[Request interrupted by user"
_REJECTED: Final = "The user doesn't want to "
"""How a person's "no" to a call begins: it is marked as an error, but nothing failed."""
_NO_PROMPT: Final = (
    "<local-command", "<command-name>", "<command-message>", "<bash-", "<task-notification>", "Caveat: ",
)  # fmt: skip
"""Beginnings of user events that record the terminal, not a request."""


@record
class _Event:
    body: Mapping[str, Any]
    inside: str
    """Id of the call of the subagent that the event belongs to; empty for the main agent's."""


def is_claude_code(records: Records) -> bool:
    """Tell whether records are events of a session, with a message among them."""
    return all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in records) and any(
        _message(one) and ("sessionId" in one or "session_id" in one) for one in records
    )


def read_claude_code(records: Records) -> Spans:
    """Read one session, or the sessions of a file that holds several."""
    sessions: dict[str, list[Mapping[str, Any]]] = {}
    latest = ""
    for one in objects(records):
        latest = json_text(one.get("sessionId") or one.get("session_id")) or latest
        sessions.setdefault(latest, []).append(one)
    return (span for key, events in sessions.items() for span in _session(key, events))


def _session(key: str, events: list[Mapping[str, Any]]) -> tuple[Span, ...]:
    empty: Mapping[str, Any] = {}
    prompt = _system_prompt(events)
    titled = titled_in_prompt(prompt)
    agent = titled if titled and _NAME not in titled.casefold() else _NAME
    moments = _moments(events)
    kept = sorted(_kept(events), key=lambda event: moments[id(event)])
    messages = _joined(message for event in _placed(kept) for message in _messages(event, agent))
    results = [event for event in events if event.get("type") == "result"]
    result = results[-1] if results else empty
    error = json_text(result.get("result") or result.get("subtype")) if result.get("is_error") else ""
    if not error and messages and messages[-1].text.startswith(_INTERRUPTED):
        error = "KeyboardInterrupt: interrupted by the user"
    spoken = [message for message in messages if not message.text.startswith(_INTERRUPTED)]
    spoken = [Message(speaker=Speaker.SYSTEM, text=prompt), *spoken] if prompt else spoken
    return dialogue_spans(spoken, name="claude_code", key=f"claude_code {key}" if key else "", error=error)


def _system_prompt(events: Iterable[Mapping[str, Any]]) -> str:
    """Return the main agent's instructions, which newer sessions record."""
    for event in events:
        given = object_at(event, "attachment").get("systemPrompt")
        if given and not event.get("isSidechain"):
            return "\n\n".join(map(json_text, given)) if isinstance(given, list) else json_text(given)
    return ""


def _moments(events: Iterable[Mapping[str, Any]]) -> Mapping[int, int]:
    """Return the time of each event; one without takes that of the event before it."""
    found, latest = {}, 0
    for event in events:
        latest = nanoseconds(event.get("timestamp")) or latest
        found[id(event)] = latest
    return found


def _message(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return object_at(event, "message") if text_at(event, "type") in {"user", "assistant"} else {}


def _kept(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events with messages, without prompts that were edited and what followed them."""
    found = [event for event in events if _message(event)]
    latest: dict[str, str] = {}
    for one in found:
        if _is_prompt(one) and one.get("parentUuid") and not one.get("isSidechain"):
            latest[json_text(one["parentUuid"])] = json_text(one.get("uuid"))
    dropped: set[str] = set()
    kept = []
    for one in found:
        parent, own = json_text(one.get("parentUuid")), json_text(one.get("uuid"))
        is_edited = _is_prompt(one) and latest.get(parent, own) != own
        if parent in dropped or is_edited:
            dropped.add(own)
        else:
            kept.append(one)
    return kept


def _is_prompt(event: Mapping[str, Any]) -> bool:
    content = _message(event).get("content")
    answers = isinstance(content, list) and any(map(is_result, objects(content)))
    return event.get("type") == "user" and not answers and not event.get("isMeta")


def _placed(events: list[Mapping[str, Any]]) -> Iterator[_Event]:
    """Yield each event with the call of the subagent that it belongs to."""
    if events and all(event.get("isSidechain") for event in events):
        yield from (_Event(body=event, inside="") for event in events)
        return
    calls = _subagent_calls(events)
    by_prompt = {json_text(call["input"].get("prompt")).strip(): call_id for call_id, call in calls.items()}
    by_agent = _calls_by_agent(events)
    by_event: dict[str, str] = {}
    latest = ""
    for one in events:
        own, parent = json_text(one.get("uuid")), json_text(one.get("parentUuid"))
        inside = json_text(one.get("parent_tool_use_id"))
        if one.get("isSidechain"):
            prompt = text_of(_message(one).get("content")).strip()
            inside = (
                by_agent.get(json_text(one.get("agentId")))
                or by_event.get(parent)
                or by_prompt.get(prompt)
                or latest
            )
            by_event[own] = inside
        else:
            asked = [block for block in objects(_message(one).get("content")) if block.get("id") in calls]
            latest = json_text(asked[-1]["id"]) if asked else latest
        yield _Event(body=one, inside=inside)


def _subagent_calls(events: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {
        json_text(block.get("id")): block
        for event in events
        for block in objects(_message(event).get("content"))
        if block.get("type") == "tool_use"
        and block.get("name") in _SUBAGENT_TOOLS
        and isinstance(block.get("input"), dict)
    }


def _calls_by_agent(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the call's id by the subagent's, from the results that name both."""
    found = {}
    for event in events:
        agent_id = json_text(object_at(event, "toolUseResult").get("agentId"))
        for block in objects(_message(event).get("content")) if agent_id else ():
            found[agent_id] = json_text(block.get("tool_use_id"))
    return found


def _messages(event: _Event, agent: str) -> Iterator[tuple[str, Message]]:
    """Yield an event's messages, each with the id of the API's message that it is a part of."""
    body, message = event.body, _message(event.body)
    is_agent, content = body["type"] == "assistant", message.get("content")
    template = Message(
        speaker=Speaker.AGENT if is_agent else Speaker.USER,
        agent=agent if is_agent and not event.inside else "",
        failed=bool(body.get("isApiErrorMessage")),
        time_ns=nanoseconds(body.get("timestamp")),
        model=json_text(message.get("model")).removeprefix("<synthetic>"),
        inside=event.inside,
        finish=finish_of(message.get("stop_reason")),
    )
    blocks = objects(content) if isinstance(content, list) else content
    for one in messages_of_blocks(template, blocks):
        match one.speaker:
            case Speaker.TOOL:
                is_stopped = one.text.startswith((_REJECTED, _INTERRUPTED))
                yield "", replace(one, failed=one.failed and not is_stopped)
            case Speaker.USER if body.get("isMeta") or one.text.startswith(_NO_PROMPT):
                pass
            case _:
                yield json_text(message.get("id")) if is_agent else "", one


def _joined(parts: Iterable[tuple[str, Message]]) -> list[Message]:
    """Return the messages, those of one answer as one, and each subagent under its type."""
    messages: list[Message] = []
    places: dict[tuple[str, str], int] = {}
    agents: dict[str, str] = {}
    for message_id, part in parts:
        agents |= {call.call_id: _subagent(call) for call in part.calls if call.name in _SUBAGENT_TOOLS}
        one = replace(part, agent=agents.get(part.inside, "subagent")) if part.inside else part
        place = places.get((message_id, one.inside)) if message_id else None
        if place is None:
            places[message_id, one.inside] = len(messages)
            messages.append(one)
        else:
            former = messages[place]
            text = "\n".join(filter(None, (former.text, one.text)))
            calls = (*former.calls, *one.calls)
            messages[place] = replace(former, text=text, calls=calls, finish=one.finish)
    return [
        message for message in messages if message.text or message.calls or message.speaker is Speaker.TOOL
    ]


def _subagent(call: ToolCall) -> str:
    asked = read_json(call.arguments) if call.arguments.startswith("{") else {}
    return json_text(asked.get("subagent_type") or asked.get("name")) or "subagent"


CLAUDE_CODE: Final = FileFormat(
    name="Claude Code sessions",
    example="claude-code.jsonl",
    source="sessions of Claude Code 1.0 to 2.1; its SDK's reference for `stream-json`",
    how=(
        "`~/.claude/projects/PROJECT/SESSION.jsonl`, or `claude -p … --output-format stream-json "
        "--verbose > session.jsonl`"
    ),
    recognizes=is_claude_code,
    read=read_claude_code,
)
