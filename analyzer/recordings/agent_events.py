"""Reader of runs that frameworks and platforms stream as events, in shapes of their own. Pure.

``shapes`` says what a shape is. Source: ag-ui ``EventType``; llama-index ``workflow_events``; ag2
``events``; Bedrock's API reference, ``TracePart`` (2026).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from analyzer.recordings.ag2_chats import is_person
from analyzer.recordings.dialogue import AGENT, SYSTEM, TOOL, USER, Message
from analyzer.recordings.fields import (
    Object,
    all_have,
    json_text,
    nanoseconds,
    object_at,
    objects,
    text_at,
    unwrapped,
)
from analyzer.recordings.message_parts import call_of, nested_call, text_of
from analyzer.recordings.recording import Records
from analyzer.recordings.shapes import Shape, answering, asking, saying
from semconv.dialects.reading.values import structured
from semconv.record import replace

# --- AG-UI ---


def _ag_ui_entries(records: Records) -> Records:
    is_stream = all_have(records, "type") and {"runId", "threadId"} <= records[0].keys()
    return records if is_stream and records[0]["type"] == "RUN_STARTED" else ()


def _ag_ui(entries: Records) -> Iterator[Message]:
    pieces: defaultdict[str, list[str]] = defaultdict(list)
    names = {
        json_text(one.get("toolCallId")): one["toolCallName"] for one in entries if "toolCallName" in one
    }
    snapshots = [entry for entry in entries if entry["type"] == "MESSAGES_SNAPSHOT"]
    asked = objects(object_at(entries[0], "input").get("messages"))
    for each in asked or (objects(snapshots[0].get("messages")) if snapshots else ()):
        if each.get("role") == "user":
            yield from saying(USER, each.get("content"))
    for one in _ended(entries):
        kind, key = one["type"], json_text(one.get("toolCallId") or one.get("messageId"))
        if "delta" in one:
            pieces[key].append(json_text(one["delta"]))
        elif kind == "TOOL_CALL_END":
            yield asking(names.get(key), "".join(pieces.pop(key, ())), key)
        elif kind == "TOOL_CALL_RESULT":
            yield answering(one.get("content"), key, error=one.get("error"))
        elif kind == "TEXT_MESSAGE_END":
            yield from saying(AGENT, "".join(pieces.pop(key, ())))
        elif kind == "RUN_ERROR":
            yield Message(speaker=AGENT, text=json_text(one.get("message")), failed=True)


_AG_UI_CHUNKS: Final = {"TOOL_CALL_CHUNK": "toolCallId", "TEXT_MESSAGE_CHUNK": "messageId"}
"""Events that stand for a start, contents and an end, by the keys of their ids; later ones may lack ids."""


def _ended(entries: Records) -> Iterator[Object]:
    """Yield the events; of chunks, the deltas and an end before the next event of another kind or id."""
    last: Object = {}
    for entry in entries:
        key = _AG_UI_CHUNKS.get(entry["type"], "")
        is_next = bool(last) and entry["type"] == last["type"] and entry.get(key) in (None, last.get(key))
        if last and not is_next:
            yield {**last, "type": last["type"].replace("CHUNK", "END")}
            last = {}
        if key:
            last = last or {name: entry.get(name) for name in ("type", key)}
            yield {"delta": "", **entry, **last}
        else:
            yield entry


# --- LlamaIndex's workflows ---


def _workflow_entries(records: Records) -> Records:
    is_stream = all_have(records, "value", "qualified_name")
    return records if is_stream and all(isinstance(record["value"], dict) for record in records) else ()


def _workflow(entries: Records) -> Iterator[Message]:
    is_begun = False
    for entry in entries:
        kind, value = text_at(entry, "qualified_name").rpartition(".")[2], entry["value"]
        agent = text_at(value, "current_agent_name")
        if kind == "AgentInput" and not is_begun:
            is_begun = True
            for each in objects(value.get("input")):
                yield from saying(USER if each.get("role") == "user" else SYSTEM, _blocks(each))
        elif kind == "AgentOutput":
            calls = (
                call_of(each.get("tool_name"), each.get("tool_kwargs"), each.get("tool_id"))
                for each in objects(value.get("tool_calls"))
            )
            text = _blocks(object_at(value, "response"))
            yield Message(speaker=AGENT, text=text, agent=agent, calls=tuple(calls))
        elif kind == "ToolCallResult":
            output = object_at(value, "tool_output")
            failed = output.get("is_error") is True
            yield answering(output.get("content") or _blocks(output), value.get("tool_id"), failed=failed)


def _blocks(message: Object) -> str:
    said = (json_text(block.get("text")) for block in objects(message.get("blocks")))
    return "\n".join(filter(None, said)) or json_text(message.get("content"))


# --- events of AG2 ---

_AG2: Final = frozenset({"text", "tool_call", "tool_response", "function_call", "function_response"})


def _ag2_entries(records: Records) -> Records:
    """Return events; each has its fields under ``content``."""
    is_stream = all_have(records, "type", "content") and all(
        isinstance(record["content"], dict) for record in records
    )
    said = (record["content"] for record in records if text_at(record, "type") in _AG2) if is_stream else ()
    return records if any({"uuid", "sender", "recipient"} <= one.keys() for one in said) else ()


def _ag2(entries: Records) -> Iterator[Message]:
    failed = {
        json_text(entry["content"].get("call_id")): entry["content"].get("is_exec_success") is False
        for entry in entries
        if entry["type"] == "executed_function"
    }
    for one in entries:
        kind, held = one["type"], one["content"]
        name = text_at(held, "sender")
        speaker = USER if is_person(name) else AGENT
        if kind in {"text", "tool_call", "function_call"}:
            calls = [*objects(held.get("tool_calls")), *objects([held.get("function_call")])]
            text, agent = text_of(held.get("content")), name if speaker is AGENT else ""
            asked = tuple(map(nested_call, calls))
            yield Message(speaker=AGENT if asked else speaker, text=text, agent=agent, calls=asked)
        elif kind == "tool_response":
            for each in objects(held["tool_responses"]):
                call_id = json_text(each.get("tool_call_id"))
                yield answering(each.get("content"), call_id, failed=failed.get(call_id, False))
        elif kind == "function_response":
            yield replace(answering(held.get("content"), ""), tool=text_at(held, "name"))
        elif kind == "error":
            yield Message(speaker=AGENT, text=text_of(held.get("error")), failed=True)


# --- traces of Bedrock's agents ---

_BEDROCK: Final = frozenset(
    {"orchestrationTrace", "routingClassifierTrace", "preProcessingTrace", "postProcessingTrace"}
    | {"customOrchestrationTrace", "guardrailTrace", "failureTrace"}
)
_BEDROCK_INPUTS: Final = {
    "actionGroupInvocationInput": "actionGroupInvocationOutput",
    "knowledgeBaseLookupInput": "knowledgeBaseLookupOutput",
    "codeInterpreterInvocationInput": "codeInterpreterInvocationOutput",
    "agentCollaboratorInvocationInput": "agentCollaboratorInvocationOutput",
}
"""What an agent calls, with what comes back."""


def _bedrock_entries(records: Records) -> Records:
    held = unwrapped(records, "completion", "traces")
    if not all(map(_is_of_bedrock, held)):
        return ()
    return [one for one in held if _BEDROCK & _bedrock_trace(one)[1].keys()]


def _is_of_bedrock(one: Any) -> bool:
    """Tell whether it is an entry of a trace, or a part of the answer beside them."""
    if not isinstance(one, dict):
        return False
    return bool(_BEDROCK & _bedrock_trace(one)[1].keys() or one.keys() & {"chunk", "files", "returnControl"})


def _bedrock_trace(one: Object) -> tuple[Object, Object]:
    """Return what says whose trace it is, and the trace."""
    outer = object_at(one, "trace")
    inner = object_at(outer, "trace")
    return (outer, inner) if inner else (one, outer or one)


def _bedrock(entries: Records) -> Iterator[Message]:
    open_calls: list[tuple[str, str]] = []  # of collaborators: name and id
    for place, (part, trace) in enumerate(map(_bedrock_trace, entries)):
        kind = next(key for key in trace if key in _BEDROCK)
        held, agent, time = (
            trace[kind],
            json_text(part.get("collaboratorName") or part.get("agentId")),
            part.get("eventTime"),
        )
        inside = next((call for name, call in reversed(open_calls) if name == agent), "")
        if not place:
            given = structured(text_at(object_at(held, "modelInvocationInput"), "text"))
            for each in objects(object_at({"it": given}, "it").get("messages")):
                text = _BEDROCK_TEXT.sub(r"\1", text_of(each.get("content")))
                yield from saying(USER, text) if each.get("role") == "user" else ()
        for one in _bedrock_step(kind, held, agent):
            if one.speaker is TOOL and open_calls and one.call_id == open_calls[-1][1]:
                inside = "".join(call for _, call in open_calls[:-1][-1:])
                open_calls.pop()
            yield replace(one, inside=inside, time_ns=nanoseconds(time))
        begun = object_at(object_at(held, "invocationInput"), "agentCollaboratorInvocationInput")
        if begun:
            open_calls.append(
                (text_at(begun, "agentCollaboratorName"), _bedrock_id(agent, held["invocationInput"]))
            )


def _bedrock_id(agent: str, held: Object) -> str:
    return f"{agent} {json_text(held.get('traceId'))}"


def _bedrock_step(kind: str, held: Object, agent: str) -> Iterator[Message]:
    """Yield what one entry of a trace says, calls or returns."""
    if kind == "failureTrace":
        yield Message(speaker=AGENT, text=json_text(held.get("failureReason")), agent=agent, failed=True)
    given, got = object_at(held, "invocationInput"), object_at(held, "observation")
    for key, output in _BEDROCK_INPUTS.items():
        if call := object_at(given, key):
            names = ("function", "agentCollaboratorName", "apiPath", "actionGroupName")
            name = next(filter(None, (text_at(call, each) for each in names)), key.removesuffix("Input"))
            yield asking(name, _bedrock_arguments(call), _bedrock_id(agent, given), agent)
        if result := object_at(got, output):
            error = text_at(result, "executionError") or (
                "timed out" if result.get("executionTimeout") else ""
            )
            text = next((result[each] for each in _BEDROCK_RESULTS if each in result), result)
            text = text.get("text", text) if isinstance(text, dict) else text
            yield answering(text, _bedrock_id(agent, got), error=error)
    yield from saying(AGENT, object_at(got, "finalResponse").get("text"), agent)


_BEDROCK_TEXT: Final = re.compile(r"\A\[\{text=(.*)\}\]\Z", re.DOTALL)
"""A content as Bedrock prints it in a trace."""
_BEDROCK_RESULTS: Final = ("text", "output", "executionOutput", "retrievedReferences")


def _bedrock_arguments(call: Object) -> Any:
    parameters = objects(call.get("parameters"))
    if parameters:
        return {json_text(parameter.get("name")): parameter.get("value") for parameter in parameters}
    return (
        call.get("code")
        or call.get("text")
        or object_at(call, "input").get("text")
        or call.get("requestBody")
    )


EVENT_SHAPES: Final = (
    Shape(name="ag-ui", entries=_ag_ui_entries, messages=_ag_ui),
    Shape(name="llama_index", entries=_workflow_entries, messages=_workflow),
    Shape(name="ag2", entries=_ag2_entries, messages=_ag2),
    Shape(name="bedrock-agents", entries=_bedrock_entries, messages=_bedrock),
)
