"""Reader of OpenHands' events: a trajectory's list, its ``history``, or one event a line. Pure.

Before version 1 an event is an ``action`` with ``args`` or an ``observation`` with ``content`` and ``cause``,
the id of its action. ``delegate`` starts another agent, which acts until the ``delegate`` observation. The
agent's SDK of version 1 writes events with a ``kind``: messages, actions with a tool's call, observations.
Source: openhands-ai 0.62, ``openhands/events/serialization``; openhands-sdk 1.29, ``openhands/sdk/event``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans, joined_answers
from analyzer.recordings.fields import (
    in_order,
    json_text,
    nanoseconds,
    object_at,
    objects,
    text_at,
    unwrapped,
)
from analyzer.recordings.message_parts import text_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall

_NAME: Final = "openhands"
_FINISH: Final = "finish"
"""The tool whose argument is the answer; the SDK records it again as the tool's result."""
_SILENT: Final = frozenset(
    {"null", "change_agent_state", "pause", "resume", "stop", "start", "recall", "condensation"}
    | {"condensation_request", "loop_recovery"}
)
"""Actions that are no work: they steer the program or add to the prompt."""
_KINDS: Final = frozenset(
    {"MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "UserRejectObservation"}
    | {"SystemPromptEvent", "ConversationErrorEvent", "PauseEvent", "ConversationStateUpdateEvent"}
    | {"Condensation", "CondensationRequest", "CondensationSummaryEvent", "TokenEvent"}
    | {"LLMCompletionLogEvent"}
    | {"InterruptEvent", "HookExecutionEvent"}
)


def is_openhands(records: Records) -> bool:
    """Tell whether records are events of either form, one of them the agent's."""
    events = objects(unwrapped(records, "history", "trajectory", "events"))
    if not events:
        return False
    if all(text_at(event, "kind") in _KINDS for event in events):
        return True
    return all("source" in one and ("action" in one or "observation" in one) for one in events) and any(
        event["source"] == "agent" for event in events
    )


def read_openhands(records: Records) -> Spans:
    """Read one run, or several that were joined."""
    runs = _runs(objects(unwrapped(records, "history", "trajectory", "events")))
    return (span for events in runs for span in _read_run(events))


def _runs(events: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the events of each run: their numbers begin anew. Pages may repeat an event."""
    found: list[dict[Any, Mapping[str, Any]]] = [{}]
    for place, one in enumerate(events):
        key = json_text(one["id"]) if "id" in one else place
        before = found[-1].get(key)
        if before is not None and before != one:
            found.append({})
        found[-1][key] = one
    return [list(each.values()) for each in found]


def _read_run(events: list[Mapping[str, Any]]) -> Spans:
    of_sdk = "kind" in events[0]
    is_numbered = all(json_text(event.get("id")).isdecimal() for event in events)
    events = in_order(events, "id" if is_numbered else "timestamp")
    messages = [found for one in events for found in _of_event(one)] if of_sdk else list(_of_actions(events))
    return dialogue_spans(joined_answers(messages), name=_NAME, error=_error(events))


def _error(events: Sequence[Mapping[str, Any]]) -> str:
    """Return the error that ended the run: only if it is the last word."""
    for event in reversed(events):
        if event.get("kind") == "ConversationErrorEvent":
            return f"{json_text(event.get('code'))}: {json_text(event.get('detail'))}"
        extras = object_at(event, "extras")
        state = extras.get("agent_state")
        if state == "error":
            return json_text(extras.get("reason")) or "agent state: error"
        if state is None and event.get("kind") != "ConversationStateUpdateEvent":
            return ""
    return ""


# Version 0 -------------------------------------------------------------------


def _of_actions(events: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    agents = [_NAME]
    for event in events:
        time_ns = nanoseconds(event.get("timestamp"))
        if "observation" in event:
            if event["observation"] == "delegate" and len(agents) > 1:
                agents.pop()
            yield from _observed(event, time_ns)
            continue
        kind = json_text(event.get("action"))
        args = object_at(event, "args")
        if kind in {"message", "system"}:
            yield _said(event, args, agents[-1], time_ns)
        elif kind == "finish":
            text = json_text(args.get("final_thought") or args.get("thought") or event.get("message"))
            yield Message(speaker=Speaker.AGENT, text=text, agent=agents[-1], time_ns=time_ns)
        elif kind not in _SILENT:
            yield _asked(event, args, agents[-1], time_ns)
            if kind == "delegate":
                agents.append(json_text(args.get("agent")))


def _said(event: Mapping[str, Any], args: Mapping[str, Any], agent: str, time_ns: int) -> Message:
    speaker = Speaker.AGENT if event.get("source") == "agent" else Speaker.USER
    speaker = Speaker.SYSTEM if event.get("action") == "system" else speaker
    return Message(
        speaker=speaker,
        text=json_text(args.get("content")),
        agent=agent if speaker is Speaker.AGENT else "",
        time_ns=time_ns,
    )


def _asked(event: Mapping[str, Any], args: Mapping[str, Any], agent: str, time_ns: int) -> Message:
    is_mcp = event["action"] == "call_tool_mcp"
    given = {key: value for key, value in args.items() if key != "thought" and value not in ("", None)}
    call = ToolCall(
        name=json_text(args.get("name") if is_mcp else event["action"]),
        arguments=json_text(args.get("arguments") if is_mcp else given),
        call_id=json_text(event.get("id")),
    )
    thought = json_text(args.get("thought"))
    if event["action"] == "think":
        return Message(speaker=Speaker.AGENT, text=thought, agent=agent, time_ns=time_ns)
    return Message(speaker=Speaker.AGENT, text=thought, agent=agent, calls=(call,), time_ns=time_ns)


def _observed(event: Mapping[str, Any], time_ns: int) -> Iterator[Message]:
    kind, extras = event["observation"], object_at(event, "extras")
    if kind in {"agent_state_changed", "null", "recall", "think"} or event.get("cause") is None:
        return
    code = object_at(extras, "metadata").get("exit_code", extras.get("exit_code"))
    yield Message(
        speaker=Speaker.TOOL,
        text=json_text(event.get("content")) or json_text(extras.get("outputs")),
        call_id=json_text(event.get("cause")),
        tool=json_text(kind),
        failed=kind == "error" or (isinstance(code, int) and code > 0),
        time_ns=time_ns,
    )


# Version 1, the SDK ------------------------------------------------------------


def _of_event(event: Mapping[str, Any]) -> Iterator[Message]:
    time_ns, kind = nanoseconds(event.get("timestamp")), event["kind"]
    if kind == "SystemPromptEvent":
        yield Message(speaker=Speaker.SYSTEM, text=text_of([event.get("system_prompt")]))
    elif kind == "MessageEvent":
        text = text_of(object_at(event, "llm_message").get("content"))
        is_agent = event.get("source") == "agent"
        agent = (json_text(event.get("sender")) or _NAME) if is_agent else ""
        speaker = Speaker.AGENT if is_agent else Speaker.USER
        yield Message(speaker=speaker, text=text, agent=agent, time_ns=time_ns)
    elif kind == "ActionEvent":
        yield _action(event, time_ns)
    elif kind in {"ObservationEvent", "AgentErrorEvent", "UserRejectObservation"}:
        is_repeated = event.get("tool_name") == _FINISH and kind == "ObservationEvent"
        if not is_repeated:
            yield _observation(event, time_ns)


def _action(event: Mapping[str, Any], time_ns: int) -> Message:
    action = object_at(event, "action")
    thought = text_of(event.get("thought"))
    if event.get("tool_name") == _FINISH:
        text = json_text(action.get("message")) or thought
        return Message(speaker=Speaker.AGENT, text=text, agent=_NAME, time_ns=time_ns)
    arguments = object_at(event, "tool_call").get("arguments")
    given = {key: value for key, value in action.items() if key != "kind"}
    call = ToolCall(
        name=json_text(event.get("tool_name")),
        arguments=json_text(arguments or given),
        call_id=json_text(event.get("tool_call_id")),
    )
    return Message(speaker=Speaker.AGENT, text=thought, agent=_NAME, calls=(call,), time_ns=time_ns)


def _observation(event: Mapping[str, Any], time_ns: int) -> Message:
    seen = object_at(event, "observation")
    code = seen.get("exit_code")
    text = json_text(event.get("error") or event.get("rejection_reason"))
    return Message(
        speaker=Speaker.TOOL,
        text=text or text_of(seen.get("content")) or json_text(seen.get("output")),
        call_id=json_text(event.get("tool_call_id")),
        tool=json_text(event.get("tool_name")),
        failed=event["kind"] == "AgentErrorEvent"
        or seen.get("is_error") is True
        or (isinstance(code, int) and code > 0),
        time_ns=time_ns,
    )


OPENHANDS: Final = FileFormat(
    name="OpenHands events",
    example="openhands.json",
    source="openhands-ai 0.62, `events/serialization`; openhands-sdk 1.29, `sdk/event`",
    how=(
        "The trajectory that the page downloads or `save_trajectory_path` names; with the SDK, "
        "the files `events/*.json` of a conversation, joined"
    ),
    agent=_NAME,
    recognizes=is_openhands,
    read=read_openhands,
)
