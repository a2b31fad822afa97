"""Items of OpenAI's Responses API as messages. Pure.

Source: OpenAI's API reference, ``POST /v1/responses``, as ``openai`` 2 types it (2026). Tools that OpenAI
runs have call and result in one item. The result of a search is recorded only if the request includes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker
from analyzer.recordings.file_format import json_text
from analyzer.recordings.message_parts import call_of, text_of

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
