"""Questions and answers inside the input and output of runs, agents and tools.

Frameworks record their call's arguments or state as JSON. The question and the answer are looked up under the
keys that frameworks use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from semconv.dialects.reading.action import Message
from semconv.dialects.reading.messages import is_pair, last_answer, last_request, message_of, messages_of
from semconv.dialects.reading.python_repr import message_fields
from semconv.dialects.reading.values import structured, words

_ASK_KEYS: Final = (
    *("task", "query", "question", "user_input", "user_query", "prompt", "goal", "request", "topic"),
    *("messages", "new_message", "input", "inputs", "message", "parts", "content", "text", "kwargs", "data"),
)
_ANSWER_KEYS: Final = (
    *("final_output", "final_answer", "raw", "answer", "output", "result", "response", "return_value"),
    *("messages", "message", "chat_message", "parts", "content", "text", "generations", "data", "kwargs"),
    *("value", "update", "outputs"),
)
_ROLE_MARKS: Final = frozenset({"role", "source", "lc", "tool_calls"})
_STATE_KEYS: Final = frozenset(
    """
    task query question userinput userquery prompt goal request topic input inputs messages newmessage
    history chathistory context raw contexts documents sourcedocuments sourcenodes intermediatesteps
    trajectory lc kwargs usage usagemetadata tokenusage totalusage modelsusage responsemetadata finishreason
    stopreason donereason createdat totalduration toolcalls functioncall toolcallid additionalkwargs
    invocationid generations choices
    """.split()  # noqa: SIM905 - readable in this form
)
"""Keys of a framework's state, a provider's response or a stored message, without case and underscores."""
_MESSAGE_KEYS: Final = frozenset(
    """
    role type id name index object metadata agent agentname speaker sender source messageid runid threadid
    sessionid timestamp created reasoning rationale thought thoughts thinking refusal annotations logprobs
    contenttype outputtype
    """.split()  # noqa: SIM905 - as above
)
"""Keys that a message has beside its text, or a model beside its answer."""
_SPEAKERS: Final = frozenset(
    {"system", "developer", "user", "human", "assistant", "ai", "aimessagechunk", "model", "tool", "function"}
)
_FAILURE_MARKS: Final = ('"error"', '"is_error"', '"isError"', "[false,")
"""Texts without one of these report no failure and are not parsed."""
_OF_MESSAGES: Final = frozenset({"content", "output", "tool_call_id", "toolUseId"})
"""Keys of the messages that frameworks put around a result, whose ``status`` is that of the call."""
_MAX_LEVELS: Final = 8
_EMPTY: Final[tuple[object, ...]] = (None, "", [], {}, ())


def asked(value: Any) -> str:
    """Return the request in an input value; the whole value as text if no request is recognised."""
    return _inside(value, _ASK_KEYS, last_request)


def answered(value: Any) -> str:
    """Return the answer in an output value; the whole value as text if no answer is recognised."""
    return _inside(value, _ANSWER_KEYS, last_answer)


def is_record(value: Mapping[str, Any], key: str) -> bool:
    """Say whether an object is itself the answer, and the text under ``key`` at most one of its fields.

    ``{"message": "Booked.", "total": 148.18}`` is; a message, a state or a response around an answer is not.
    """
    is_typed = "type" in value and bool(value.keys() & _ROLE_MARKS)
    if is_typed or any(str(value.get(mark)).casefold() in _SPEAKERS for mark in ("role", "type")):
        return False
    text = structured(value.get(key))
    if isinstance(text, Mapping) or _is_message(text):
        return False
    if isinstance(text, (list, tuple)) and any(isinstance(one, (Mapping, list, tuple)) for one in text):
        return False
    beside = {
        str(name).replace("_", "").casefold()
        for name, one in value.items()
        if name != key and one not in _EMPTY
    }
    return beside.isdisjoint(_STATE_KEYS) and not beside <= _MESSAGE_KEYS


def content_of(value: Any) -> str:
    """Return a message's text; the value itself as text if it is not a message."""
    message = message_of(value)
    return message.text if message is not None else words(value)


def is_tool_message(value: Any) -> bool:
    """Say whether a tool's result is the message that LangChain or OpenAI puts around it.

    A result of the tool's own may have these keys too: ``{"data": {"orders": […]}}``, ``{"type": "tool"}``.
    """
    if not isinstance(value, Mapping):
        return False
    if value.get("role") == "tool":
        return True
    body = value.get("data") or value.get("kwargs") or value
    is_stored = "lc" in value or value.get("type") == "tool"
    return is_stored and isinstance(body, Mapping) and "content" in body


def _inside(value: Any, keys: Sequence[str], choose: Callable[[Sequence[Message]], str]) -> str:
    whole = value
    for _ in range(_MAX_LEVELS):
        value = structured(value)
        if isinstance(value, Mapping):
            key = next((one for one in keys if value.get(one) not in _EMPTY), None)
            if key is not None and choose is last_answer and is_record(value, key):
                return words(value)
            if _is_message(value):
                return choose(messages_of(value)) or words(whole)
            if key is None or is_table(value):
                break
            value = value[key]
        elif isinstance(value, (list, tuple)):
            conversation = messages_of(value) if any(map(_is_message, _flat(value))) else ()
            if conversation:
                return choose(conversation) or words(whole)
            if len(value) != 1:
                return words(value)
            value = value[0]
        else:
            return words(value)
    return words(whole)


def is_table(value: Mapping[str, Any]) -> bool:
    """Say whether an object is a table whose columns stand apart, as pandas' ``orient="split"`` writes it."""
    return isinstance(value.get("columns"), (list, tuple)) and isinstance(
        value.get("data", value.get("rows")), (list, tuple)
    )


def _flat(values: Sequence[Any]) -> Sequence[Any]:
    is_batch = len(values) == 1 and isinstance(values[0], (list, tuple)) and not is_pair(values[0])
    return values[0] if is_batch else values


def _is_message(value: Any) -> bool:
    if isinstance(value, str):
        return message_fields(value) is not None
    if is_pair(value):
        return True
    if not isinstance(value, Mapping):
        return False
    if value.keys() & _ROLE_MARKS:
        return True
    return "type" in value and isinstance(value.get("data"), Mapping)


def unwrapped(result: Any) -> str:
    """Return a tool's result as text, without ADK's ``{"result": …}`` or Bedrock's ``[{"text": …}]``."""
    value = structured(result)
    if isinstance(value, Mapping) and value.keys() <= {"result", "error", "output"}:
        return words(value.get("result") or value.get("output") or value.get("error"))
    if isinstance(value, (list, tuple)) and (message := message_of({"role": "tool", "content": value})):
        return message.text
    return words(result)


_DOTNETS: Final = ("Error: Function failed.", 'Error: Requested function "', "Error: Unknown error.")
"""Beginnings of what Microsoft.Extensions.AI's ``FunctionInvokingChatClient`` gives the model for a tool that
threw, is unknown, or could not be run."""


def reported_failure(value: Any) -> str:
    """Return the error that a tool's result reports, or an empty string.

    A handled error often looks like success: langgraph's tool message has ``"status": "error"`` under a
    span that is OK; ADK's result is ``{"error": …}``. In any other object, ``status`` may be that of a
    machine or a job which was looked up.
    """
    if isinstance(value, str) and not any(mark in value for mark in _FAILURE_MARKS):
        return value if value.startswith(_DOTNETS) else ""
    value = structured(value)
    if isinstance(value, list) and len(value) == 2 and value[0] is False:
        return content_of(value[1])  # AG2 returns (succeeded, message)
    for _ in range(2):
        if not isinstance(value, Mapping):
            return ""
        is_message = value.get("status") == "error" and not _OF_MESSAGES.isdisjoint(value)
        if is_message or value.get("is_error") is True or value.get("isError") is True:
            return answered(value.get("content") or value.get("output") or value)
        if value.get("error") and value.keys() <= {"error", "result", "status", "message", "code"}:
            return words(value["error"])
        value = value.get("data") or value.get("kwargs")
    return ""
