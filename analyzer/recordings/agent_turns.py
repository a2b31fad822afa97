"""Reader of sessions that tools keep in shapes of their own: turns, calls and results, an entry each. Pure.

``_SHAPES`` lists them: how the entries of each are told by their keys, and what they say. An entry that says
nothing (settings, tokens, starts of steps) is left out.
Source: block/goose ``message.rs``; GitHub Copilot CLI ``events.jsonl``; Cursor CLI ``--output-format
stream-json``; cline ``api_conversation_history.json``; letta ``LettaMessage``; harbor's ATIF 1.4 to 1.6; Dify
``GET /messages``; Flowise ``IReactFlowObject`` and ``/chatmessage``; ag-ui ``EventType``; llama-index
``workflow_events``; DSPy ``ReAct``; agno ``RunOutput.to_dict``; n8n ``IRunExecutionData`` (2026).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import SPEAKERS, Message, Speaker, dialogue_spans, joined_answers
from analyzer.recordings.fields import (
    all_have,
    in_order,
    json_text,
    nanoseconds,
    object_at,
    objects,
    text_at,
    unwrapped,
)
from analyzer.recordings.message_parts import call_of, error_text, nested_call, text_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.dialects.reading.values import structured
from semconv.record import record, replace

_Object = Mapping[str, Any]
_USER, _AGENT, _TOOL, _SYSTEM = Speaker.USER, Speaker.AGENT, Speaker.TOOL, Speaker.SYSTEM


@record
class _Shape:
    name: str
    entries: Callable[[Records], Records]
    """Returns the entries of one session; none if the records are of another tool."""
    messages: Callable[[Records], Iterable[Message]]


def _asked(name: Any, arguments: Any, call_id: Any, agent: str = "", time: Any = None) -> Message:
    """Return the message of an agent that calls one tool."""
    call = call_of(name, arguments, call_id)
    return Message(speaker=_AGENT, agent=agent, calls=(call,), time_ns=nanoseconds(time))


def _got(result: Any, call_id: Any, *, error: Any = None, failed: bool = False, time: Any = None) -> Message:
    """Return the message of a tool; an error stands for its result."""
    said = error_text(error) or json_text(error)
    text = said or text_of(result)
    is_failed = bool(said) or failed
    return Message(
        speaker=_TOOL, text=text, call_id=json_text(call_id), failed=is_failed, time_ns=nanoseconds(time)
    )


def _said(speaker: Speaker, text: Any, agent: str = "", time: Any = None) -> Iterator[Message]:
    """Yield a message, if it says anything."""
    if found := text_of(text):
        yield Message(speaker=speaker, text=found, agent=agent, time_ns=nanoseconds(time))


def _only(records: Records) -> _Object:
    return records[0] if len(records) == 1 and isinstance(records[0], dict) else {}


# --- Goose ---


def _goose_entries(records: Records) -> Records:
    held = unwrapped(records, "conversation")
    if not all(map(_is_of_goose, held)):
        return ()
    found = [one for one in held if text_at(one, "role")]
    parts = (part for one in found for part in objects(one.get("content")))
    return found if any(text_at(part, "type") == "toolRequest" for part in parts) else ()


def _is_of_goose(one: Any) -> bool:
    """Tell whether it may be a message, or the head of a session."""
    return isinstance(one, dict) and ("role" not in one or isinstance(one.get("content"), list))


def _goose(entries: Records) -> Iterator[Message]:
    for one in entries:
        speaker = _AGENT if one["role"] == "assistant" else _USER
        for part in objects(one["content"]):
            call_id = part.get("id")
            if part.get("type") == "toolRequest":
                asked = object_at(part, "toolCall")
                value = object_at(asked, "value") or asked
                yield _asked(value.get("name"), value.get("arguments"), call_id)
            elif part.get("type") == "toolResponse":
                got = object_at(part, "toolResult")
                value = got.get("value", got)
                content = value.get("content") if isinstance(value, dict) else value
                failed = isinstance(value, dict) and value.get("isError") is True
                yield _got(_goose_heard(content), call_id, error=got.get("error"), failed=failed)
            elif part.get("type") == "text":
                yield from _said(speaker, part.get("text"))


def _goose_heard(content: Any) -> Any:
    """Return a result without the parts that only the person sees, which mostly say the same again."""
    if not isinstance(content, list):
        return content
    audiences = [object_at(part, "annotations").get("audience") for part in content]
    return [part for part, told in zip(content, audiences, strict=True) if not told or "assistant" in told]


# --- GitHub Copilot CLI ---


def _copilot_entries(records: Records) -> Records:
    is_log = all_have(records, "type", "data", "timestamp") and all(
        isinstance(one["data"], dict) for one in records
    )
    kinds = {text_at(one, "type") for one in records} if is_log else set()
    return records if {"user.message", "assistant.message"} & kinds else ()


def _copilot(entries: Records) -> Iterator[Message]:
    for one in entries:
        kind, data, time = one["type"], one["data"], one["timestamp"]
        call_id = data.get("toolCallId")
        if kind == "user.message":
            yield from _said(_USER, data.get("content"), time=time)
        elif kind == "assistant.message":
            yield from _said(_AGENT, data.get("content"), time=time)
        elif kind == "tool.execution_start":
            yield _asked(data.get("toolName"), data.get("arguments"), call_id, time=time)
        elif kind == "tool.execution_complete":
            result, failed = object_at(data, "result").get("content"), data.get("success") is False
            yield _got(result, call_id, error=data.get("error"), failed=failed, time=time)


# --- Cursor CLI ---


def _cursor_entries(records: Records) -> Records:
    is_stream = all_have(records, "type", "session_id")
    return records if is_stream and any(map(_is_call_of_cursor, records)) else ()


def _is_call_of_cursor(one: _Object) -> bool:
    """Tell whether an entry names a tool and holds its arguments below; other logs name them side by side."""
    held = list(object_at(one, "tool_call").values())
    return one["type"] == "tool_call" and bool(held) and isinstance(held[0], dict)


def _cursor(entries: Records) -> Iterator[Message]:
    for one in entries:
        kind = one["type"]
        if kind in {"user", "assistant"}:
            yield from _said(
                _AGENT if kind == "assistant" else _USER, object_at(one, "message").get("content")
            )
        elif kind == "tool_call" and one.get("subtype") == "completed":
            yield from _cursor_call(one)


def _cursor_call(one: _Object) -> Iterator[Message]:
    name, held = next(iter(object_at(one, "tool_call").items()), ("", None))
    result = object_at(held, "result")
    yield _asked(name.removesuffix("ToolCall"), object_at(held, "args"), one.get("call_id"))
    error = next((result[key] for key in ("error", "failure", "rejected") if key in result), None)
    told = object_at(result, "error").get("errorMessage") or error
    got = result.get("success")
    only = got.get("content", got) if isinstance(got, dict) else got
    yield _got(only, one.get("call_id"), error=told)


# --- Cline and Roo Code ---

_CLINE_END: Final = re.compile(r"</([a-z_]{3,40})>\Z")
_CLINE_TAG: Final = re.compile(r"<(/?)([a-z_]{2,40})>")
_CLINE_RESULT: Final = re.compile(r"\[([a-z_]{3,40})\b[^\n]*\] Result:")
_CLINE_FAILED: Final = ("The tool execution failed", "Error", "MCP error")
_CLINE_TOLD: Final = re.compile(
    r"<(environment_details|thinking)>[^<]*+(?:<(?!/?\1>)[^<]*+)*+</\1>|</?task>"  # possessive: linear time
)


def _cline_entries(records: Records) -> Records:
    first = records[0] if records and isinstance(records[0], dict) else {}
    begins = text_of(first.get("content")).startswith("<task>")
    if not begins or not all_have(records, "role", "content"):
        return ()
    blocks = [block for one in records for block in objects(one["content"])]
    is_plain = all(text_at(block, "type") == "text" for block in blocks)  # else its calls are the API's
    return records if is_plain and any(map(_CLINE_RESULT.match, map(text_of, _contents(records)))) else ()


def _contents(records: Records) -> Iterator[Any]:
    return (one["content"] for one in records if one["role"] == "user")


def _cline(entries: Records) -> Iterator[Message]:
    waiting = ""
    for place, one in enumerate(entries):
        text = _CLINE_TOLD.sub("", text_of(one["content"])).strip()
        if one["role"] == "assistant":
            said, name, fields = _cline_call(text)
            yield from _said(_AGENT, said)
            waiting = f"call {place}" if name else ""
            if name == "attempt_completion":
                yield from _said(_AGENT, fields.get("result", "").strip())
            elif name:
                yield _asked(fields.get("tool_name") or name, fields.get("arguments", fields), waiting)
        elif waiting and (found := _CLINE_RESULT.match(text)):
            result = text[found.end() :].strip()
            yield _got(result, waiting, failed=result.startswith(_CLINE_FAILED))
        else:
            yield from _said(_USER, text)


def _cline_call(text: str) -> tuple[str, str, Mapping[str, str]]:
    """Return what stands before the call that ends a text, its tool and its fields; no tool without one."""
    closing = _CLINE_END.search(text, max(0, len(text) - 50))
    begun = re.search(rf"<{closing[1]}>\n(?=<[a-z_]{{2,40}}>)", text) if closing else None
    if closing is None or begun is None:
        return text, "", {}
    return text[: begun.start()].strip(), closing[1], _cline_fields(text[begun.end() : closing.start()])


def _cline_fields(text: str) -> dict[str, str]:
    """Return the outermost elements of a text; what they hold may be code with tags of its own."""
    tags = list(_CLINE_TAG.finditer(text))
    left = Counter(name for is_end, name in (tag.groups() for tag in tags) if is_end)
    fields: dict[str, str] = {}
    begun: re.Match[str] | None = None
    for tag in tags:
        is_end, name = tag.groups()
        left[name] -= bool(is_end)
        if begun is None and not is_end and left[name]:
            begun = tag
        elif begun is not None and is_end and name == begun[2]:
            fields[name], begun = text[begun.end() : tag.start()], None
    return fields


# --- Letta ---


def _letta_entries(records: Records) -> Records:
    kinds = {text_at(one, "message_type") for one in records} - _LETTA_ENDS
    return records if kinds and all(kind.endswith("_message") for kind in kinds) else ()


_LETTA_ENDS: Final = frozenset({"stop_reason", "usage_statistics", "ping"})
"""What a stream has beside messages."""


def _letta(entries: Records) -> Iterator[Message]:
    speakers = {"user_message": _USER, "assistant_message": _AGENT, "system_message": _SYSTEM}
    for one in in_order(objects(entries), "date"):
        kind, time = json_text(one["message_type"]), one.get("date")
        if kind in {"tool_call_message", "approval_request_message"}:
            call = object_at(one, "tool_call")
            name, agent = call.get("name"), text_at(one, "name")
            yield _asked(name, call.get("arguments"), call.get("tool_call_id"), agent, time)
        elif kind == "tool_return_message":
            failed = one.get("status") == "error"
            yield _got(one.get("tool_return"), one.get("tool_call_id"), failed=failed, time=time)
        elif kind in speakers:
            yield from _said(speakers[kind], one.get("content"), time=time)


# --- ATIF, the trajectories of Harbor and Terminal-Bench ---


_ATIF: Final = {"user": _USER, "agent": _AGENT, "system": _SYSTEM}


def _atif_entries(records: Records) -> Records:
    only = _only(records)
    sources = {json_text(one.get("source")) for one in objects(only.get("steps"))}
    is_known = bool(sources) and sources <= _ATIF.keys()
    return records if is_known and text_at(only, "schema_version").startswith("ATIF") else ()


def _atif(entries: Records) -> Iterator[Message]:
    agent = text_at(object_at(entries[0], "agent"), "name")
    for one in objects(entries[0]["steps"]):
        speaker, time = _ATIF[one["source"]], one.get("timestamp")
        yield from _said(speaker, one.get("message"), agent if speaker is _AGENT else "", time)
        for call in objects(one.get("tool_calls")):
            yield _asked(
                call.get("function_name"), call.get("arguments"), call.get("tool_call_id"), agent, time
            )
        for result in objects(object_at(one, "observation").get("results")):
            yield _got(result.get("content"), result.get("source_call_id"), time=time)


# --- Dify and Flowise ---


def _dify_entries(records: Records) -> Records:
    held = unwrapped(records, "data")
    return held if all_have(held, "id", "query", "answer", "conversation_id") else ()


def _dify(entries: Records) -> Iterator[Message]:
    for one in in_order(objects(entries), "created_at"):
        yield from _said(_USER, one["query"])
        for place, thought in enumerate(objects(one.get("agent_thoughts"))):
            yield from _dify_calls(thought, f"{one.get('id')} {place}")
        error = json_text(one.get("error"))
        if error:
            yield Message(speaker=_AGENT, text=error, failed=True)
        else:
            yield from _said(_AGENT, one["answer"])


def _dify_calls(thought: _Object, thought_id: str) -> Iterator[Message]:
    """Yield the calls of a thought, whose tools are listed as ``one;two``, each with its result."""
    for name in filter(None, text_at(thought, "tool").split(";")):
        call_id = f"{thought_id} {name}"
        yield _asked(name, _of_tool(thought.get("tool_input"), name), call_id)
        result = json_text(_of_tool(thought.get("observation"), name))
        yield _got(result, call_id, failed=result.startswith(("tool invoke error", "Error")))


def _of_tool(held: Any, name: str) -> Any:
    """Return a tool's own part of what Dify lists for each tool of a thought."""
    found = structured(held)
    return found[name] if isinstance(found, dict) and name in found else found


_FLOWISE: Final = {"userMessage": _USER, "apiMessage": _AGENT}


def _flowise_entries(records: Records) -> Records:
    return records if all(map(_is_of_flowise, records)) else ()


def _is_of_flowise(one: Any) -> bool:
    return isinstance(one, dict) and _flowise_role(one) in _FLOWISE and "content" in one


def _flowise_role(one: _Object) -> str:
    return text_at(one, "role") or text_at(one, "type")


def _flowise(entries: Records) -> Iterator[Message]:
    for one in in_order(objects(entries), "createdDate"):
        turns = objects(structured(one.get("agentReasoning"))) or [one]
        for turn in turns:
            agent = text_at(turn, "agentName")
            for place, used in enumerate(objects(structured(turn.get("usedTools")))):
                call_id = f"{one.get('id')} {agent} {place}"
                yield _asked(used.get("tool"), used.get("toolInput"), call_id, agent)
                yield _got(used.get("toolOutput"), call_id, error=used.get("error"))
        agent = text_at(turns[-1], "agentName")
        yield from _said(_FLOWISE[_flowise_role(one)], one["content"], agent)


# --- AG-UI ---


def _ag_ui_entries(records: Records) -> Records:
    is_stream = all_have(records, "type") and text_at(records[0], "runId")
    return records if is_stream and records[0]["type"] == "RUN_STARTED" else ()


def _ag_ui(entries: Records) -> Iterator[Message]:
    pieces: defaultdict[str, list[str]] = defaultdict(list)
    names = {
        json_text(one.get("toolCallId")): one["toolCallName"] for one in entries if "toolCallName" in one
    }
    snapshots = [one for one in entries if one["type"] == "MESSAGES_SNAPSHOT"]
    asked = objects(object_at(entries[0], "input").get("messages"))
    for each in asked or (objects(snapshots[0].get("messages")) if snapshots else ()):
        if each.get("role") == "user":
            yield from _said(_USER, each.get("content"))
    for one in _ended(entries):
        kind, key = one["type"], json_text(one.get("toolCallId") or one.get("messageId"))
        if "delta" in one:
            pieces[key].append(json_text(one["delta"]))
        elif kind == "TOOL_CALL_END":
            yield _asked(names.get(key), "".join(pieces.pop(key, ())), key)
        elif kind == "TOOL_CALL_RESULT":
            yield _got(one.get("content"), key, error=one.get("error"))
        elif kind == "TEXT_MESSAGE_END":
            yield from _said(_AGENT, "".join(pieces.pop(key, ())))
        elif kind == "RUN_ERROR":
            yield Message(speaker=_AGENT, text=json_text(one.get("message")), failed=True)


_AG_UI_CHUNKS: Final = {"TOOL_CALL_CHUNK": "toolCallId", "TEXT_MESSAGE_CHUNK": "messageId"}
"""Events that stand for a start, contents and an end, by the keys of their ids; later ones may lack ids."""


def _ended(entries: Records) -> Iterator[_Object]:
    """Yield the events; of chunks, the deltas and an end before the next event of another kind or id."""
    last: _Object = {}
    for one in entries:
        key = _AG_UI_CHUNKS.get(one["type"], "")
        is_next = bool(last) and one["type"] == last["type"] and one.get(key) in (None, last.get(key))
        if last and not is_next:
            yield {**last, "type": last["type"].replace("CHUNK", "END")}
            last = {}
        if key:
            last = last or {name: one.get(name) for name in ("type", key)}
            yield {"delta": "", **one, **last}
        else:
            yield one


# --- LlamaIndex's workflows ---


def _workflow_entries(records: Records) -> Records:
    is_stream = all_have(records, "value", "qualified_name")
    return records if is_stream and all(isinstance(one["value"], dict) for one in records) else ()


def _workflow(entries: Records) -> Iterator[Message]:
    is_begun = False
    for one in entries:
        kind, value = text_at(one, "qualified_name").rpartition(".")[2], one["value"]
        agent = text_at(value, "current_agent_name")
        if kind == "AgentInput" and not is_begun:
            is_begun = True
            for each in objects(value.get("input")):
                yield from _said(_USER if each.get("role") == "user" else _SYSTEM, _blocks(each))
        elif kind == "AgentOutput":
            calls = (
                call_of(each.get("tool_name"), each.get("tool_kwargs"), each.get("tool_id"))
                for each in objects(value.get("tool_calls"))
            )
            text = _blocks(object_at(value, "response"))
            yield Message(speaker=_AGENT, text=text, agent=agent, calls=tuple(calls))
        elif kind == "ToolCallResult":
            output = object_at(value, "tool_output")
            failed = output.get("is_error") is True
            yield _got(output.get("content") or _blocks(output), value.get("tool_id"), failed=failed)


def _blocks(message: _Object) -> str:
    said = (json_text(block.get("text")) for block in objects(message.get("blocks")))
    return "\n".join(filter(None, said)) or json_text(message.get("content"))


# --- DSPy's ReAct ---


def _react_entries(records: Records) -> Records:
    return records if text_at(object_at(_only(records), "trajectory"), "tool_name_0") else ()


def _react(entries: Records) -> Iterator[Message]:
    one, held = entries[0], entries[0]["trajectory"]
    asked = next((value for key, value in one.items() if key != "trajectory" and isinstance(value, str)), "")
    yield from _said(_USER, one.get("question", asked))
    place = 0
    while (name := held.get(f"tool_name_{place}")) and name != "finish":
        yield from _said(_AGENT, held.get(f"thought_{place}"))
        yield _asked(name, held.get(f"tool_args_{place}"), f"step {place}")
        result = json_text(held.get(f"observation_{place}"))
        yield _got(result, f"step {place}", failed=result.startswith("Execution error in "))
        place += 1
    yield from _said(_AGENT, one.get("answer", list(one.values())[-1]))


# --- n8n ---


def _n8n_entries(records: Records) -> Records:
    only = _only(records)
    return records if object_at(object_at(object_at(only, "data"), "resultData"), "runData") else ()


def _n8n(entries: Records) -> Iterator[Message]:
    """Yield what the nodes did in the order of their starts: triggers ask, tools answer, agents say."""
    one = entries[0]
    kinds = {
        text_at(node, "name"): text_at(node, "type")
        for node in objects(object_at(one, "workflowData").get("nodes"))
    }
    agents = [node for node, kind in kinds.items() if "agent" in kind.rpartition(".")[2].lower()]
    runs = [
        {**run, "node": node}
        for node, listed in object_at(object_at(one["data"], "resultData"), "runData").items()
        for run in objects(listed)
    ]
    for place, run in enumerate(sorted(runs, key=_n8n_place)):
        node, data, time = run["node"], object_at(run, "data"), run.get("startTime")
        error = object_at(run, "error")
        if "ai_tool" in data or "ai_tool" in object_at(run, "inputOverride"):
            given = _item(object_at(run, "inputOverride").get("ai_tool"))
            yield _asked(node, given.get("query", given), f"run {place}", _n8n_caller(run, agents), time)
            got = _item(data.get("ai_tool"))
            yield _got(got.get("response", got), f"run {place}", error=error or None, time=time)
        elif node in agents:
            said = _item(data.get("main"))
            text = json_text(error.get("message") or said.get("output", said))
            yield Message(
                speaker=_AGENT, text=text, agent=node, failed=bool(error), time_ns=nanoseconds(time)
            )
        elif asked := _item(data.get("main")).get("chatInput"):
            yield from _said(_USER, asked, time=time)


def _n8n_place(run: _Object) -> tuple[int, int]:
    return run.get("startTime") or 0, run.get("executionIndex") or 0


def _n8n_caller(run: _Object, agents: list[str]) -> str:
    """Return the agent that a tool ran for: the node before it, or the only one."""
    before = [text_at(one, "previousNode") for one in objects(run.get("source"))]
    return next((one for one in before if one in agents), agents[0] if len(agents) == 1 else "")


def _item(outputs: Any) -> _Object:
    """Return the JSON of the first item that a node put out."""
    items = outputs[0] if isinstance(outputs, list) and outputs else None
    return object_at(next(iter(objects(items)), None), "json")


# --- Agno ---


def _agno_entries(records: Records) -> Records:
    only = _only(records)
    is_run = "run_id" in only and ("agent_name" in only or "team_name" in only)
    return records if is_run and all(map(_is_of_agno, objects(only.get("messages")) or [{}])) else ()


def _is_of_agno(one: _Object) -> bool:
    """Tell whether it may be a message of one agent; those of a chat of several bear their names."""
    speaker = SPEAKERS.get(text_at(one, "role"))
    return speaker is not None and not (speaker is _AGENT and text_at(one, "name"))


def _agno(entries: Records) -> Iterator[Message]:
    """Yield a run's messages; those of a team's members inside the calls that delegated to them, in order."""
    open_runs = [_agno_run(entries[0], "")]
    while open_runs:
        messages, members = open_runs[-1]
        message = next(messages, None)
        if message is None:
            open_runs.pop()
            continue
        yield message
        for call in message.calls:
            if members and call.name.startswith(_AGNO_DELEGATES):
                open_runs.append(_agno_run(members.pop(0), call.call_id))
                break


def _agno_run(one: _Object, inside: str) -> tuple[Iterator[Message], list[_Object]]:
    return _agno_messages(one, inside), objects(one.get("member_responses"))


_AGNO_DELEGATES: Final = ("delegate_task", "transfer_task")


def _agno_messages(one: _Object, inside: str) -> Iterator[Message]:
    agent = text_at(one, "agent_name") or text_at(one, "team_name")
    for each in objects(one["messages"]):
        speaker, text = SPEAKERS[each["role"]], text_of(each.get("content"))
        message = Message(
            speaker=speaker,
            text=text,
            inside=inside,
            call_id=json_text(each.get("tool_call_id")),
            tool=text_at(each, "tool_name"),
            failed=each.get("tool_call_error") is True,
            time_ns=nanoseconds(each.get("created_at")),
        )
        calls = tuple(map(nested_call, objects(each.get("tool_calls"))))
        yield replace(message, agent=agent, calls=calls) if speaker is _AGENT else message


_SHAPES: Final = (
    _Shape(name="agno", entries=_agno_entries, messages=_agno),
    _Shape(name="goose", entries=_goose_entries, messages=_goose),
    _Shape(name="copilot", entries=_copilot_entries, messages=_copilot),
    _Shape(name="cursor", entries=_cursor_entries, messages=_cursor),
    _Shape(name="cline", entries=_cline_entries, messages=_cline),
    _Shape(name="letta", entries=_letta_entries, messages=_letta),
    _Shape(name="atif", entries=_atif_entries, messages=_atif),
    _Shape(name="dify", entries=_dify_entries, messages=_dify),
    _Shape(name="flowise", entries=_flowise_entries, messages=_flowise),
    _Shape(name="ag-ui", entries=_ag_ui_entries, messages=_ag_ui),
    _Shape(name="llama_index", entries=_workflow_entries, messages=_workflow),
    _Shape(name="dspy", entries=_react_entries, messages=_react),
    _Shape(name="n8n", entries=_n8n_entries, messages=_n8n),
)


def is_agent_turns(records: Records) -> bool:
    """Tell whether records are the session of one of the tools."""
    return _shape_of(records) is not None


def _shape_of(records: Records) -> tuple[_Shape, Records] | None:
    held = unwrapped(records, "messages", "events")
    found = ((shape, shape.entries(held) or shape.entries(records)) for shape in _SHAPES)
    return next(((shape, entries) for shape, entries in found if entries), None)


def read_agent_turns(records: Records) -> Spans:
    """Read one session."""
    found = _shape_of(records)
    if found is None:
        return ()
    shape, entries = found
    return dialogue_spans(joined_answers(shape.messages(entries)), name=shape.name)


AGENT_TURNS: Final = FileFormat(
    name="sessions of Goose, Copilot CLI, Cursor CLI, Cline, Letta, Dify, Flowise, n8n, Agno, …",
    example="goose.jsonl",
    source="the tools' sources and API references, 2026",
    how=(
        "`goose session export --format json`; `~/.copilot/session-state/ID/events.jsonl`; `cursor-agent -p …"
        " --output-format stream-json`; `api_conversation_history.json` of Cline or Roo Code; Letta's and"
        " Dify's `GET …/messages`; Flowise's `GET /chatmessage/ID`; n8n's"
        " `GET /executions/ID?includeData=true`; Agno's `json.dumps(run.to_dict())`; events of AG-UI or of a"
        " LlamaIndex workflow; ATIF; DSPy's `ReAct` with its trajectory"
    ),
    recognizes=is_agent_turns,
    read=read_agent_turns,
    agent="assistant",
)
