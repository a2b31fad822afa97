"""Reader of AutoGen's messages (0.4 and later): ``TaskResult``, its messages, and saved states. Pure.

Each message has a ``source``, the agent or ``user``, and a ``type``. A summary of a tool call repeats the
result, and a handoff's message the handoff's: neither is a step. A team's state holds the whole thread of its
group chat, an agent's state what its model is given.
Source: autogen-agentchat 0.7.5, ``messages.py`` and ``state/_states.py`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import dialogues_in, json_text, nanoseconds, text_at
from analyzer.recordings.message_parts import Result, call_of, listed, text_of, tokens_of, turn
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.record import replace

_USER: Final = "user"
_EVENTS: Final = frozenset(
    {"ToolCallRequestEvent", "ToolCallExecutionEvent", "CodeGenerationEvent", "CodeExecutionEvent"}
)
_REPEATED: Final = frozenset({"ToolCallSummaryMessage", "HandoffMessage"})
_UNSAID: Final = frozenset(
    {"ThoughtEvent", "ModelClientStreamingChunkEvent", "SelectSpeakerEvent", "SelectorEvent"}
    | {"UserInputRequestedEvent", "MemoryQueryEvent"}
)
_SAID: Final = frozenset({"TextMessage", "MultiModalMessage", "StopMessage", "StructuredMessage"})
_CONTEXT: Final = frozenset(
    {"UserMessage", "AssistantMessage", "FunctionExecutionResultMessage", "SystemMessage"}
)
"""Types in the context that one agent gives its model."""
_TYPES: Final = _CONTEXT | _EVENTS | _REPEATED | _UNSAID | _SAID


def is_autogen(records: Records) -> bool:
    """Tell whether records are messages, or results or states that hold some."""
    return bool(dialogues_in(records, _are_messages, _thread))


def _are_messages(found: Sequence[Any]) -> bool:
    said = [one for one in found if not _is_result(one)]
    return bool(said) and all(
        isinstance(one, dict) and _kind(one) in _TYPES and (text_at(one, "source") or _kind(one) in _CONTEXT)
        for one in said
    )


def _is_result(one: Any) -> bool:
    """Tell whether a record is the result that ends a stream of messages and repeats them."""
    return isinstance(one, dict) and "stop_reason" in one and isinstance(one.get("messages"), list)


def _kind(one: Mapping[str, Any]) -> str:
    """Return a message's type; a structured one has its content's type in brackets."""
    return text_at(one, "type").partition("[")[0]


def _thread(document: Any) -> Sequence[Any]:
    """Return the messages of a result, or of the group chat in a team's state."""
    if not isinstance(document, dict):
        return ()
    context = document.get("llm_context")
    for holder in (document, context if isinstance(context, dict) else {}):
        if isinstance(holder.get("messages"), list):
            return list(holder["messages"])
    states = document.get("agent_states")
    held = (
        [one.get("message_thread") for one in states.values() if isinstance(one, dict)]
        if isinstance(states, dict)
        else []
    )
    return next((one for one in held if isinstance(one, list)), ())


def read_autogen(records: Records) -> Spans:
    """Read one run, or one for each result or state."""
    for found in dialogues_in(records, _are_messages, _thread):
        said = [one for one in found if not _is_result(one)]
        answers = [one for one in said if _kind(one) in _SAID | _REPEATED and one["source"] != _USER]
        messages = (message for one in said for message in _of_message(one))
        answer = _content(answers[-1]) if answers else ""
        yield from dialogue_spans(messages, name="autogen", answer=answer)


def _of_message(one: Mapping[str, Any]) -> Iterator[Message]:
    source, kind = text_at(one, "source"), _kind(one)
    is_user = source.lower() in {_USER, "user_proxy"}
    template = Message(
        speaker=Speaker.USER if is_user else Speaker.AGENT,
        agent="" if is_user else source,
        time_ns=nanoseconds(one.get("created_at")),
        tokens=tokens_of(one.get("models_usage"), "prompt_tokens", "completion_tokens"),
    )
    match kind:
        case "SystemMessage":
            yield Message(speaker=Speaker.SYSTEM, text=_content(one))
        case "ToolCallRequestEvent" | "AssistantMessage" if not isinstance(one.get("content"), str):
            asked = listed(one.get("content"))
            calls = [call_of(call.get("name"), call.get("arguments"), call.get("id")) for call in asked]
            yield from turn(replace(template, speaker=Speaker.AGENT), calls)
        case "ToolCallExecutionEvent" | "FunctionExecutionResultMessage":
            yield from turn(template, map(_result, listed(one.get("content"))))
        case "CodeExecutionEvent":
            yield from turn(template, [_execution(one["result"])])
        case _ if kind not in _REPEATED | _UNSAID:
            yield from turn(template, [_content(one)])


def _content(one: Mapping[str, Any]) -> str:
    return text_of(one.get("content"))


def _result(one: Mapping[str, Any]) -> Result:
    return Result(
        text=json_text(one.get("content")),
        call_id=json_text(one.get("call_id")),
        tool=json_text(one.get("name")),
        failed=one.get("is_error") is True,
    )


def _execution(result: Mapping[str, Any]) -> Result:
    return Result(
        text=json_text(result.get("output")), tool="code_execution", failed=bool(result.get("exit_code"))
    )


AUTOGEN: Final = FileFormat(
    name="AutoGen messages or team states",
    example="autogen-messages.json",
    source="autogen-agentchat, `messages.py` and `state/_states.py`",
    how=("`result.model_dump_json()` of `await team.run(…)`, or `json.dumps(await team.save_state())`"),
    recognizes=is_autogen,
    read=read_autogen,
)
