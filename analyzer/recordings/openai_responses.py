"""Reader of OpenAI's Responses API: items, whole responses, and what the Agents SDK keeps of a run. Pure.

Items stand in a list, one a line, under ``data`` (``/v1/responses/{id}/input_items`` and conversations,
newest first), or as ``input`` and ``output`` of a response. Responses that name the one before, or whose
input begins with its input, are one dialogue. The Agents SDK's ``to_input_list()`` and ``SQLiteSession`` are
items; its ``RunState`` has each item as ``raw_item`` with the agent.
Source: OpenAI's API reference; openai-agents 0.24, ``items.py`` and ``run_state.py`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogues_spans, joined_answers
from analyzer.recordings.fields import json_text, object_at, text_at, unwrapped
from analyzer.recordings.message_parts import call_of, failures_of, finish_of, listed, text_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.record import replace

_PARTS: Final = frozenset({"input_text", "output_text"})


def is_openai_responses(records: Records) -> bool:
    """Tell whether records are items of the API, or documents that hold some."""
    found = unwrapped(records, "data", "items")
    if _are_items(found):
        return True
    documents = unwrapped(records, "data")
    return all(map(_is_document, documents))


def _is_document(one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    is_response = text_at(one, "object") == "response" and isinstance(one.get("output"), list)
    return is_response or _are_items(_all_items(one))


def _are_items(items: Sequence[Any]) -> bool:
    return all(map(_is_item, map(_raw, items))) and any(map(_is_of_this_api, map(_raw, items)))


def _raw(one: Any) -> Any:
    held = one.get("raw_item") if isinstance(one, dict) else None
    return held if isinstance(held, dict) else one


def _is_item(one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    kind = one.get("type")
    if kind is None or kind == "message":
        return isinstance(one.get("role"), str) and "content" in one and "tool_calls" not in one
    return isinstance(kind, str) and kind in ITEM_TYPES


def _is_of_this_api(item: Mapping[str, Any]) -> bool:
    content = item.get("content")
    if item.get("type") in ITEM_TYPES:
        return True
    return isinstance(content, list) and any(text_at(part, "type") in _PARTS for part in content)


def _all_items(document: Mapping[str, Any]) -> list[Any]:
    held = (document.get(key) for key in ("input", "output", "original_input", "generated_items"))
    return [item for one in held if isinstance(one, list) for item in one]


def read_openai_responses(records: Records) -> Spans:
    """Read one dialogue, or those of several responses."""
    items = unwrapped(records, "data", "items")
    if _are_items(items):
        return _spans([_messages(listed(list(items)))])
    dialogues: list[_Dialogue] = []
    by_id: dict[str, _Dialogue] = {}
    documents = unwrapped(records, "data")
    if all(isinstance(one.get("created_at"), int | float) for one in documents):
        documents = sorted(documents, key=lambda one: one["created_at"])
    for document in documents:
        before = by_id.get(json_text(document.get("previous_response_id")))
        if before is None:
            asked = _asked(document)
            is_repeated = bool(dialogues) and dialogues[-1].is_begun_by(asked)
            before = _Dialogue(asked, dialogues.pop() if is_repeated else None)
            dialogues.append(before)
            before.add([], document)
        else:
            before.add(_asked(document), document)
        if document.get("id"):
            by_id[json_text(document["id"])] = before
    return _spans(one.messages for one in dialogues)


class _Dialogue:
    """One dialogue of one or more responses."""

    def __init__(self, asked: Sequence[Mapping[str, Any]], before: _Dialogue | None) -> None:
        """Begin with a request, and the calls that failed or were cut off of the dialogue that it repeats."""
        self.asked: Final = asked
        self._instructions = ""
        self._is_failed = False
        self.failures: Final[list[tuple[int, Message]]] = before.failures if before else []
        self.failures.extend(before.cut if before and asked == before.asked else ())
        self.cut: list[tuple[int, Message]] = []
        """The last answer, if it was cut off, with its place."""
        self.messages: Final[list[Message]] = list(_messages(asked))
        for place, failure in self.failures:
            self.messages.insert(place, failure)

    def is_begun_by(self, asked: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether a later request repeats this one's input."""
        return (
            bool(self.asked)
            and len(asked) >= len(self.asked) + (not self._is_failed and not self.cut)
            and asked[: len(self.asked)] == self.asked
        )

    def add(self, asked: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> None:
        """Add a response with what it was asked."""
        instructions = document.get("instructions")
        said = list(_messages(listed(document.get("output", document.get("generated_items")))))
        reason = object_at(document, "incomplete_details").get("reason")
        if reason and not said:
            said = [Message(speaker=Speaker.AGENT)]
        if said and said[-1].speaker is Speaker.AGENT:
            said[-1] = replace(said[-1], finish=finish_of(reason))
        self.messages.extend([*_messages(asked), *(_of_model(one, document) for one in said)])
        last = len(self.messages) - 1
        self.cut = [(last, self.messages[last])] if said and said[-1].finish else []
        failures = failures_of(document)
        self._is_failed = bool(failures)
        self.failures.extend((len(self.messages) + place, one) for place, one in enumerate(failures))
        self.messages.extend(failures)
        if isinstance(instructions, str) and instructions != self._instructions:
            self._instructions = instructions
            self.messages.insert(0, Message(speaker=Speaker.SYSTEM, text=instructions))


def _of_model(one: Message, document: Mapping[str, Any]) -> Message:
    return replace(one, model=json_text(document.get("model"))) if one.speaker is Speaker.AGENT else one


def _asked(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = document.get("input", document.get("original_input"))
    return [{"role": "user", "content": given}] if isinstance(given, str) else listed(given)


def _messages(items: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Yield the messages of items, in order, with their agents where those are recorded."""
    for item in items:
        agent = item.get("agent") if "raw_item" in item else None
        name = text_at(agent, "name")
        for one in messages_of_items([_raw(item)]):
            yield replace(one, agent=name) if one.speaker is Speaker.AGENT else one


def _spans(dialogues: Iterable[Iterable[Message]]) -> Spans:
    return dialogues_spans(map(joined_answers, dialogues), name="openai")


# --- items ---
#
# Items of OpenAI's Responses API as messages.
#
# Source: OpenAI's API reference, ``POST /v1/responses``, as ``openai`` 2 types it (2026). Tools that OpenAI
# runs have call and result in one item. The result of a search is recorded only if the request includes it.


_ROLES: Final[Mapping[str, Speaker]] = {
    "assistant": Speaker.AGENT,
    "system": Speaker.SYSTEM,
    "developer": Speaker.SYSTEM,
}
_CALLS: Final[Mapping[str, str]] = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
    "computer_call": "action",
    "tool_search_call": "arguments",
}
"""Calls that the program answers, with the key of their arguments."""
_OUTPUTS: Final = frozenset(f"{kind}_output" for kind in _CALLS) | {"tool_search_output"}
_SERVED: Final[Mapping[str, tuple[str, str]]] = {
    "web_search_call": ("action", "results"),
    "file_search_call": ("queries", "results"),
    "code_interpreter_call": ("code", "outputs"),
    "image_generation_call": ("prompt", "revised_prompt"),
    "mcp_call": ("arguments", "output"),
}
"""Calls that OpenAI runs, with the keys of their arguments and their result."""
_UNSAID: Final = frozenset(
    {"reasoning", "item_reference", "compaction", "mcp_list_tools", "mcp_approval_request"}
    | {"mcp_approval_response", "additional_tools", "configuration_update", "program", "program_output"}
)
ITEM_TYPES: Final = _CALLS.keys() | _OUTPUTS | _SERVED.keys() | _UNSAID
"""Types of items other than ``message``."""


def messages_of_items(items: Iterable[Mapping[str, Any]]) -> Iterator[Message]:
    """Yield what items say, call and return; thoughts and lists of tools are left out.

    The parts of one answer are messages of their own: ``joined_answers`` joins them.
    """
    for item in items:
        kind = item.get("type") or "message"
        if kind == "message":
            speaker = _ROLES.get(json_text(item.get("role")), Speaker.USER)
            yield Message(speaker=speaker, text=text_of(item.get("content")))
        elif kind in _CALLS:
            name = item.get("name") or kind.removesuffix("_call")
            given = item.get(_CALLS[kind], item.get("actions"))
            yield Message(speaker=Speaker.AGENT, calls=(call_of(name, given, _call_id(item)),))
        elif kind in _OUTPUTS:
            yield _output(item)
        elif kind in _SERVED:
            yield from _served(item, kind)


def _call_id(item: Mapping[str, Any]) -> str:
    return json_text(item.get("call_id") or item.get("id"))


def _output(item: Mapping[str, Any]) -> Message:
    given, failed = item.get("output", item.get("tools")), item.get("status") == "failed"
    if isinstance(given, list) and given and all(isinstance(one, dict) and "stdout" in one for one in given):
        failed = failed or not all(map(_has_succeeded, given))
        given = "\n".join(filter(None, (json_text(one.get(key)) for one in given for key in _STREAMS)))
    elif isinstance(given, dict) and "type" in given:
        given = [given]
    return Message(speaker=Speaker.TOOL, text=text_of(given), call_id=_call_id(item), failed=failed)


_STREAMS: Final = ("stdout", "stderr")


def _has_succeeded(command: Mapping[str, Any]) -> bool:
    outcome = command.get("outcome")
    return not isinstance(outcome, dict) or outcome.get("exit_code") == 0


def _served(item: Mapping[str, Any], kind: str) -> Iterator[Message]:
    """Yield call and result; no result of a call that succeeded without recording one."""
    arguments, result = _SERVED[kind]
    call_id = _call_id(item)
    call = call_of(item.get("name") or kind.removesuffix("_call"), item.get(arguments), call_id)
    yield Message(speaker=Speaker.AGENT, calls=(call,))
    error, given = item.get("error"), item.get(result)
    failed = bool(error) or item.get("status") == "failed"
    if failed or given is not None:
        text = json_text(error.get("message", error) if isinstance(error, dict) else error)
        yield Message(speaker=Speaker.TOOL, text=text or _logs(given), call_id=call_id, failed=failed)


def _logs(given: Any) -> str:
    """Return a result's text; of the code interpreter's outputs what was printed."""
    is_printed = isinstance(given, list) and all(isinstance(one, dict) and "logs" in one for one in given)
    return "\n".join(json_text(one["logs"]) for one in given) if is_printed else text_of(given)


OPENAI_RESPONSES: Final = FileFormat(
    name="OpenAI Responses",
    example="openai-responses.json",
    source="OpenAI's API reference, responses; openai-agents",
    how=("`response.model_dump_json()`, one a line; Agents SDK: `json.dumps(result.to_input_list())`"),
    recognizes=is_openai_responses,
    read=read_openai_responses,
)
