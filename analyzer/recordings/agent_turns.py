"""Reader of sessions that people's tools keep in shapes of their own: turns, calls and results. Pure.

``shapes`` says what a shape is, ``agent_runs`` has those of platforms.
Source: block/goose ``message.rs``; GitHub Copilot CLI ``events.jsonl``; Cursor CLI ``--output-format
stream-json``; cline ``api_conversation_history.json``; harbor's ATIF 1.4 to 1.6; VS Code
``chatModel.ts``; LibreChat ``useExportConversation``; Continue ``Session``; Zed ``DbThread``; ShareGPT as
LLaMA-Factory and Hermes write it (2026).
"""

from __future__ import annotations

import html
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from analyzer.recordings.dialogue import AGENT, SPEAKERS, SYSTEM, TOOL, USER, Message
from analyzer.recordings.fields import (
    Object,
    all_have,
    branch,
    json_text,
    object_at,
    objects,
    text_at,
    unwrapped,
)
from analyzer.recordings.message_parts import error_text, nested_call, text_of
from analyzer.recordings.recording import Records
from analyzer.recordings.shapes import Shape, answering, asking, each_alone, in_shapes, saying, sole
from semconv.dialects.reading.values import structured

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
    for entry in entries:
        speaker = AGENT if entry["role"] == "assistant" else USER
        for part in objects(entry["content"]):
            call_id = part.get("id")
            if part.get("type") == "toolRequest":
                asked = object_at(part, "toolCall")
                value = object_at(asked, "value") or asked
                yield asking(value.get("name"), value.get("arguments"), call_id)
            elif part.get("type") == "toolResponse":
                got = object_at(part, "toolResult")
                value = got.get("value", got)
                content = value.get("content") if isinstance(value, dict) else value
                failed = isinstance(value, dict) and value.get("isError") is True
                yield answering(_goose_heard(content), call_id, error=got.get("error"), failed=failed)
            elif part.get("type") == "text":
                yield from saying(speaker, part.get("text"))


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
    for entry in entries:
        kind, data, time = entry["type"], entry["data"], entry["timestamp"]
        call_id = data.get("toolCallId")
        if kind == "user.message":
            yield from saying(USER, data.get("content"), time=time)
        elif kind == "assistant.message":
            yield from saying(AGENT, data.get("content"), time=time)
        elif kind == "tool.execution_start":
            yield asking(data.get("toolName"), data.get("arguments"), call_id, time=time)
        elif kind == "tool.execution_complete":
            result, failed = object_at(data, "result").get("content"), data.get("success") is False
            yield answering(result, call_id, error=data.get("error"), failed=failed, time=time)


# --- Cursor CLI ---


def _cursor_entries(records: Records) -> Records:
    is_stream = all_have(records, "type", "session_id")
    return records if is_stream and any(map(_is_call_of_cursor, records)) else ()


def _is_call_of_cursor(one: Object) -> bool:
    """Tell whether an entry names a tool and holds its arguments below; other logs name them side by side."""
    held = list(object_at(one, "tool_call").values())
    return one["type"] == "tool_call" and bool(held) and isinstance(held[0], dict)


def _cursor(entries: Records) -> Iterator[Message]:
    for entry in entries:
        kind = entry["type"]
        if kind in {"user", "assistant"}:
            yield from saying(
                AGENT if kind == "assistant" else USER, object_at(entry, "message").get("content")
            )
        elif kind == "tool_call" and entry.get("subtype") == "completed":
            yield from _cursor_call(entry)


def _cursor_call(one: Object) -> Iterator[Message]:
    name, held = next(iter(object_at(one, "tool_call").items()), ("", None))
    result = object_at(held, "result")
    yield asking(name.removesuffix("ToolCall"), object_at(held, "args"), one.get("call_id"))
    error = next((result[key] for key in ("error", "failure", "rejected") if key in result), None)
    told = object_at(result, "error").get("errorMessage") or error
    got = result.get("success")
    only = got.get("content", got) if isinstance(got, dict) else got
    yield answering(only, one.get("call_id"), error=told)


# --- Cline and Roo Code ---

_CLINE_END: Final = re.compile(r"</([a-z_]{3,40})>\Z")
_CLINE_TAG: Final = re.compile(r"<(/?)([a-z_]{2,40})>")
_CLINE_RESULT: Final = re.compile(r"\[([a-z_]{3,40})\b[^\n]*\] Result:")
_CLINE_FAILED: Final = ("The tool execution failed", "Error", "MCP error")
# No group is possessive below: before Python 3.11.5, such a group may end too late (CPython issue 106052).
_CLINE_TOLD: Final = re.compile(
    r"<(environment_details|thinking)>[^<]*+(?:<(?!/?\1>)[^<]*+)*</\1>|</?task>"  # possessive: linear time
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
            yield from saying(AGENT, said)
            waiting = f"call {place}" if name else ""
            if name == "attempt_completion":
                yield from saying(AGENT, fields.get("result", "").strip())
            elif name:
                yield asking(fields.get("tool_name") or name, fields.get("arguments", fields), waiting)
        elif waiting and (found := _CLINE_RESULT.match(text)):
            result = text[found.end() :].strip()
            yield answering(result, waiting, failed=result.startswith(_CLINE_FAILED))
        else:
            yield from saying(USER, text)


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


# --- ATIF, the trajectories of Harbor and Terminal-Bench ---


_ATIF: Final = {"user": USER, "agent": AGENT, "system": SYSTEM}


def _atif_entries(records: Records) -> Records:
    only = sole(records)
    sources = {json_text(one.get("source")) for one in objects(only.get("steps"))}
    is_known = bool(sources) and sources <= _ATIF.keys()
    return records if is_known and text_at(only, "schema_version").startswith("ATIF") else ()


def _atif(entries: Records) -> Iterator[Message]:
    agent = text_at(object_at(entries[0], "agent"), "name")
    for one in objects(entries[0]["steps"]):
        speaker, time = _ATIF[one["source"]], one.get("timestamp")
        yield from saying(speaker, one.get("message"), agent if speaker is AGENT else "", time)
        for call in objects(one.get("tool_calls")):
            yield asking(
                call.get("function_name"), call.get("arguments"), call.get("tool_call_id"), agent, time
            )
        for result in objects(object_at(one, "observation").get("results")):
            yield answering(result.get("content"), result.get("source_call_id"), time=time)


# --- VS Code's chat ---


def _vs_code_entries(records: Records) -> Records:
    """Return sessions: documents, or the first value of a log and the changes to it."""
    first = records[0] if records and isinstance(records[0], dict) else {}
    begun = object_at(first, "v") if first.get("kind") == 0 else {}
    sessions = [begun] if begun else records
    return records if all(map(_is_of_vs_code, sessions)) else ()


def _is_of_vs_code(one: Any) -> bool:
    found = one.get("requests") if isinstance(one, dict) and "responderUsername" in one else None
    return isinstance(found, list) and all(map(_is_request, found))


def _is_request(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("message"), dict | str)


def _vs_code_sessions(entries: Records) -> list[Records]:
    if entries[0].get("kind") != 0:
        return each_alone(entries)
    first, *changes = deepcopy(entries)
    value = first["v"]
    for change in changes:
        *path, last = change["k"]
        inner = value
        for key in path:
            inner = inner[key]
        match change["kind"]:
            case 1:
                inner[last] = change.get("v")
            case 2:  # what follows place "i" is replaced
                kept = inner.get(last, [])[: change.get("i")] if isinstance(inner, dict) else inner[last]
                inner[last] = [*kept, *change.get("v", ())]
            case 3:
                del inner[last]
    return [[value]]


def _vs_code(entries: Records) -> Iterator[Message]:
    for one in objects(entries[0]["requests"]):
        asked, result, time = one["message"], object_at(one, "result"), one.get("timestamp")
        held = object_at(result, "metadata")
        yield from saying(USER, asked.get("text") if isinstance(asked, dict) else asked, time=time)
        rounds = objects(held.get("toolCallRounds"))
        for each in rounds:
            yield from saying(AGENT, each.get("response"))
            for call in objects(each.get("toolCalls")):
                yield asking(call.get("name"), call.get("arguments"), call.get("id"))
                result_of = object_at(object_at(held, "toolCallResults"), json_text(call.get("id")))
                parts = objects(result_of.get("content"))
                text = "\n".join(_vs_code_text(part.get("value")) for part in parts)
                yield answering(text, call.get("id"), failed=text.startswith(_VS_CODE_FAILED))
        shown = [text_at(part, "value") for part in objects(one.get("response")) if "kind" not in part]
        yield from () if rounds else saying(AGENT, "".join(shown))
        if error := text_at(object_at(result, "errorDetails"), "message"):
            yield Message(speaker=AGENT, text=error, failed=one.get("isCanceled") is not True)


def _vs_code_text(value: Any) -> str:
    """Return the text of a result, which may be a tree of nodes with texts at its leaves."""
    left, found = [value], list[str]()
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += [one.get("text"), one.get("node"), *reversed(objects(one.get("children")))]
        else:
            found += [json_text(one)]
    return "".join(found)


_VS_CODE_FAILED: Final = ("ERROR", "Error")


# --- LibreChat and Open WebUI ---


def _libre_entries(records: Records) -> Records:
    found = objects(sole(records).get("messages"))
    return found if all_have(found, "messageId", "isCreatedByUser", "sender") else ()


def _libre(entries: Records) -> Iterator[Message]:
    for one in _libre_branch(entries):
        time, agent = one.get("createdAt"), text_at(one, "sender")
        if one["isCreatedByUser"]:
            yield from saying(USER, one.get("text"), time=time)
            continue
        parts = objects(one.get("content"))
        for part in parts:
            call = object_at(part, "tool_call")
            if call:
                yield asking(call.get("name"), call.get("args"), call.get("id"), agent, time)
                yield answering(call.get("output"), call.get("id"), time=time)
            elif part.get("type") == "text":
                text = part.get("text")
                yield from saying(AGENT, text["value"] if isinstance(text, dict) else text, agent, time)
        if one.get("error") is True:
            yield Message(speaker=AGENT, text=text_of(one.get("text")), agent=agent, failed=True)
        elif not parts:
            yield from saying(AGENT, one.get("text"), agent, time)


def _libre_branch(entries: Records) -> Iterator[Object]:
    """Yield the messages of the newest branch: of a tree of ``children``, or of those that name parents."""
    if not any(isinstance(entry.get("children"), list) for entry in entries):
        nodes = {entry["messageId"]: entry for entry in entries}
        yield from branch(nodes, entries[-1]["messageId"], "parentMessageId")
        return
    level: Sequence[Object] = entries
    while level:
        yield level[-1]
        level = objects(level[-1].get("children"))


_WEB_UI_CALL: Final = re.compile(  # no part matches what another one begins with: linear time
    r'<details type="tool_calls"([^<>]*+)>[^<]*+(?:<summary>[^<]*+</summary>[^<]*+)?</details>'
)
_WEB_UI_THOUGHT: Final = re.compile(
    r'<details type="reasoning"[^<>]*+>[^<]*+(?:<(?!/?details)[^<]*+)*</details>\s?'
)
_WEB_UI_FIELD: Final = re.compile(r'([a-z_]{1,20})="([^"]*)"')


def _web_ui_entries(records: Records) -> Records:
    if not all(objects(object_at(one, "chat").get("messages")) for one in records):
        return ()
    messages = (each for one in records for each in objects(one["chat"]["messages"]))
    is_its_own = any('<details type="tool_calls"' in text_at(message, "content") for message in messages)
    return records if is_its_own else ()


def _web_ui(entries: Records) -> Iterator[Message]:
    """Yield the messages of a chat; calls of tools stand as elements in the text of their message."""
    for place, one in enumerate(objects(entries[0]["chat"]["messages"])):
        speaker, agent, time = SPEAKERS.get(text_at(one, "role"), USER), "", one.get("timestamp")
        *called, last = _WEB_UI_CALL.split(_WEB_UI_THOUGHT.sub("", text_at(one, "content")))
        for number, (text, fields) in enumerate(zip(called[::2], called[1::2], strict=True)):
            held = {key: html.unescape(value) for key, value in _WEB_UI_FIELD.findall(fields)}
            call_id = held.get("id") or f"{place} {number}"
            yield from saying(speaker, text.strip(), agent, time)
            yield asking(held.get("name"), structured(held.get("arguments")), call_id, agent, time)
            yield answering(structured(held.get("result")), call_id, time=time)
        yield from saying(speaker, last.strip(), agent, time)
        if error := error_text(one.get("error")) or text_at(object_at(one, "error"), "content"):
            yield Message(speaker=AGENT, text=error, failed=True)


# --- Continue and Zed ---


def _continue_entries(records: Records) -> Records:
    found = objects(sole(records).get("history"))
    is_session = all_have(found, "message", "contextItems")
    return found if is_session and all(map(_is_of_continue, found)) else ()


def _is_of_continue(one: Object) -> bool:
    return text_at(one["message"], "role") in {*SPEAKERS, "thinking"}


def _continue(entries: Records) -> Iterator[Message]:
    states = {
        json_text(state.get("toolCallId")): state
        for entry in entries
        for state in objects(entry.get("toolCallStates"))
    }
    answered = {json_text(entry["message"].get("toolCallId")) for entry in entries}
    for one in entries:
        message = one["message"]
        speaker, call_id = SPEAKERS.get(message["role"]), json_text(message.get("toolCallId"))
        if speaker is TOOL:
            failed = object_at(states, call_id).get("status") == "errored"
            yield answering(message.get("content"), call_id, failed=failed)
        elif speaker is not None:
            calls = tuple(map(nested_call, objects(message.get("toolCalls"))))
            yield Message(speaker=speaker, text=text_of(message.get("content")), calls=calls)
            for call in calls:
                if call.call_id not in answered and call.call_id in states:
                    yield _continue_result(states[call.call_id])


def _continue_result(state: Object) -> Message:
    shown = "\n".join(text_at(part, "content") for part in objects(state.get("output")))
    return answering(shown, state.get("toolCallId"), failed=state.get("status") == "errored")


def _zed_entries(records: Records) -> Records:
    found = objects(sole(records).get("messages"))
    is_thread = bool(found) and all(one.keys() <= {"User", "Agent"} and len(one) == 1 for one in found)
    return found if is_thread else ()


def _zed(entries: Records) -> Iterator[Message]:
    for entry in entries:
        ((kind, held),) = entry.items()
        results = object_at(held, "tool_results")
        for part in objects(held["content"]):
            call = object_at(part, "ToolUse")
            if call:
                yield asking(call.get("name"), call.get("input"), call.get("id"))
                result = object_at(results, json_text(call.get("id")))
                failed = result.get("is_error") is True
                yield answering(_zed_text(result.get("content")), call.get("id"), failed=failed)
            else:
                yield from saying(AGENT if kind == "Agent" else USER, part.get("Text"))


def _zed_text(content: Any) -> Any:
    return content["Text"] if isinstance(content, dict) and "Text" in content else content


# --- ShareGPT with tools ---

_SHARE_GPT: Final = {
    **dict.fromkeys(("human", "user"), USER),
    **dict.fromkeys(("gpt", "assistant", "function_call", "tool_call"), AGENT),
    **dict.fromkeys(("observation", "tool", "function_response", "tool_response"), TOOL),
    "system": SYSTEM,
}
_SHARE_GPT_CALL: Final = re.compile(r"<tool_call>([^<]*+(?:<(?!/?tool_call>)[^<]*+)*)</tool_call>")


def _share_gpt_entries(records: Records) -> Records:
    if not all(isinstance(one, dict) and objects(one.get("conversations")) for one in records):
        return ()
    senders = {text_at(each, "from") for one in records for each in one["conversations"]}
    has_tools = any(_SHARE_GPT.get(sender) is TOOL for sender in senders)
    return records if has_tools and senders <= _SHARE_GPT.keys() else ()


def _share_gpt(entries: Records) -> Iterator[Message]:
    waiting: deque[str] = deque()
    for place, one in enumerate(objects(entries[0]["conversations"])):
        speaker, text = _SHARE_GPT[one["from"]], json_text(one.get("value"))
        if speaker is TOOL:
            result = text.strip().removeprefix("<tool_response>").removesuffix("</tool_response>")
            yield answering(structured(result.strip()), waiting.popleft() if waiting else "")
            continue
        calls = text if one["from"] in {"function_call", "tool_call"} else _SHARE_GPT_CALL.findall(text)
        said = "" if isinstance(calls, str) else _SHARE_GPT_CALL.sub("", text).strip()
        yield from saying(speaker, said)
        for number, call in enumerate(_share_gpt_calls(calls) if speaker is AGENT else ()):
            waiting.append(f"call {place} {number}")
            yield asking(call.get("name"), call.get("arguments"), waiting[-1])


def _share_gpt_calls(calls: str | list[str]) -> list[Object]:
    given = structured(calls) if isinstance(calls, str) else [structured(call) for call in calls]
    return [given] if isinstance(given, dict) else objects(given)


_SHAPES: Final = (
    Shape(name="goose", entries=_goose_entries, messages=_goose),
    Shape(name="copilot", entries=_copilot_entries, messages=_copilot),
    Shape(name="cursor", entries=_cursor_entries, messages=_cursor),
    Shape(name="cline", entries=_cline_entries, messages=_cline),
    Shape(name="atif", entries=_atif_entries, messages=_atif),
    Shape(name="vscode", entries=_vs_code_entries, messages=_vs_code, dialogues=_vs_code_sessions),
    Shape(name="librechat", entries=_libre_entries, messages=_libre),
    Shape(name="open-webui", entries=_web_ui_entries, messages=_web_ui, dialogues=each_alone),
    Shape(name="continue", entries=_continue_entries, messages=_continue),
    Shape(name="zed", entries=_zed_entries, messages=_zed),
    Shape(name="sharegpt", entries=_share_gpt_entries, messages=_share_gpt, dialogues=each_alone),
)

AGENT_TURNS: Final = in_shapes(
    _SHAPES,
    name="sessions of Goose, Copilot CLI, Cursor CLI, Cline, VS Code, Zed, LibreChat, Open WebUI, …",
    example="goose.jsonl",
    source="the tools' sources, 2026",
    how=(
        "`goose session export --format json`; `~/.copilot/session-state/ID/events.jsonl`; `cursor-agent -p …"
        " --output-format stream-json`; `api_conversation_history.json` of Cline or Roo Code; *Chat: Export"
        " Chat* of VS Code; the exports of LibreChat and Open WebUI; sessions of Continue; threads of Zed;"
        " ATIF; ShareGPT with calls of tools"
    ),
    agent="assistant",
)
