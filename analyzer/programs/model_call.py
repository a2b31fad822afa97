"""One model call that passed on its way to a provider, read from the bytes of both sides. Pure.

Sources: the API references of OpenAI (``POST /v1/chat/completions``, ``POST /v1/responses``) and Anthropic
(``POST /v1/messages``), each with its streaming. All three are turned into the messages of chat completions.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from analyzer.programs.written_calls import Asked, remember, with_results
from analyzer.recordings.anthropic_messages import messages_of_blocks
from analyzer.recordings.dialogue import Message as Said
from analyzer.recordings.dialogue import Speaker, joined_answers
from analyzer.recordings.openai_responses import messages_of_items
from analyzer.recordings.streamed_answers import join_blocks, join_completion, join_responses
from semconv.json_text import read_json
from semconv.record import record, replace

Body: TypeAlias = Mapping[str, Any]
Message: TypeAlias = dict[str, Any]
_MOST_DECODED: Final = 64 << 20
_EVENT_STREAM: Final = "text/event-stream"
_SYSTEM: Final = frozenset({"system", "developer"})


@record
class PassedCall:
    """The bytes of one request and its answer."""

    path: str
    request: bytes
    answer: bytes
    """Empty if the provider did not answer."""
    content_type: str
    status: int
    """HTTP status; 0 if the provider did not answer."""
    start_ns: int
    end_ns: int
    failure: str = ""
    """``cut`` if the answer broke off, ``client_gone`` if the program did not wait for it."""
    encoding: str = ""
    """The answer's ``Content-Encoding``."""
    silent: str = ""
    """Scheme, host and port of the provider, if it did not answer."""


@record
class ModelCall:
    """What was asked and answered."""

    provider: str
    model: str
    instructions: str
    messages: tuple[Message, ...]
    """Without the instructions."""
    tools: tuple[Body, ...]
    """Definitions of the tools that the model was offered, as the request has them."""
    said: tuple[Message, ...]
    """The answer; empty if there is none."""
    answered_by: str = ""
    """The model that answered."""
    finish: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""
    """The provider's error, or why there is no answer."""
    follows: str = ""
    """Id of the answer, or of the conversation, whose messages the provider adds before these."""
    kept_as: tuple[str, ...] = ()
    """Ids under which the provider keeps these messages with the answer."""


def read_model_calls(calls: Iterable[PassedCall]) -> Iterator[tuple[PassedCall, ModelCall]]:
    """Yield the readable calls in the order of their start, each with all messages of its conversation.

    A request of the Responses API may name an earlier answer in place of the messages up to there.
    """
    kept: dict[str, tuple[Message, ...]] = {}
    asked: Asked = {}
    for passed in sorted(calls, key=lambda passed_call: passed_call.start_ns):
        call = read_model_call(passed)
        if call is None:
            continue
        messages = with_results((*kept.get(call.follows, ()), *call.messages), asked)
        whole = replace(call, messages=messages)
        remember(call.said, asked)
        kept |= dict.fromkeys(call.kept_as, (*whole.messages, *whole.said))
        yield passed, whole


def read_model_call(passed: PassedCall) -> ModelCall | None:
    """Return a call's content; ``None`` if it is no call of a chat model, or not in a known format.

    A request or an answer of another shape than its API's is as unreadable as one that is no JSON.
    """
    api = next((api for ending, api in _APIS.items() if passed.path.rstrip("/").endswith(ending)), None)
    asked = _object(passed.request)
    if api is None or asked is None or not isinstance(asked.get(api.messages_key), list | str):
        return None
    try:
        return _read(passed, api, asked, _answer(passed, api))
    except _ODD:
        pass
    try:
        return _read(passed, api, asked, {"error": _UNREADABLE})
    except _ODD:
        return None


_ODD: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a document of an unexpected shape raises."""
_UNREADABLE: Final = "its answer cannot be read"


def _read(passed: PassedCall, api: _Api, asked: Body, answer: Body) -> ModelCall:
    instructions, messages = api.asked(asked)
    said = tuple(api.said(answer))
    for message in (*messages, *said):
        _require_calls(message)
    return ModelCall(
        provider=api.provider,
        model=_text(asked.get("model")),
        instructions=instructions,
        messages=tuple(messages),
        tools=(*_dicts(asked.get("tools")), *map(_function, _dicts(asked.get("functions")))),
        said=said,
        answered_by=_text(answer.get("model")),
        finish=api.finish(answer),
        input_tokens=_tokens(answer, "prompt_tokens", "input_tokens"),
        output_tokens=_tokens(answer, "completion_tokens", "output_tokens"),
        error=_error(passed, answer),
        follows=_text(asked.get("previous_response_id")) or _conversation(asked),
        kept_as=tuple(filter(None, (_text(answer.get("id")), _conversation(asked)))),
    )


def _conversation(asked: Body) -> str:
    given = asked.get("conversation")
    return _text(given.get("id") if isinstance(given, dict) else given)


def _require_calls(message: Message) -> None:
    """Raise ``TypeError`` unless a message's calls have the shape that their readers expect."""
    for call in message.get("tool_calls") or ():
        if not isinstance(call, dict) or not isinstance(call.get("function") or {}, dict):
            raise TypeError("expected objects as tool calls")


@record
class _Api:
    provider: str
    messages_key: str
    asked: Callable[[Body], tuple[str, Sequence[Message]]]
    """Returns instructions and messages of a request."""
    said: Callable[[Body], Sequence[Message]]
    """Returns the messages of a whole answer."""
    joined: Callable[[Sequence[Body]], Sequence[Body]]
    """Returns the whole answer that the events of a stream amount to; nothing if they say none."""
    finish: Callable[[Body], str]


def _answer(passed: PassedCall, api: _Api) -> Body:
    body = _decoded(passed.answer, passed.encoding)
    if passed.content_type.partition(";")[0].strip().lower() == _EVENT_STREAM:
        return next(iter(api.joined(list(_events(body)))), {})
    return _object(body) or {}


def _decoded(body: bytes, encoding: str) -> bytes:
    """Return a body without its ``gzip`` or ``deflate``, as far as it goes and up to a bound."""
    if encoding.strip().lower() not in {"gzip", "deflate"}:
        return body
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, _MOST_DECODED)
    except zlib.error:
        return b""


def _events(stream: bytes) -> Iterator[Body]:
    """Yield the JSON documents of a stream of server-sent events; others are skipped."""
    for line in stream.splitlines():
        if line.startswith(b"data:") and (found := _object(line[5:])) is not None:
            yield found


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = read_json(body.decode("utf-8", "replace"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _error(passed: PassedCall, answer: Body) -> str:
    if not passed.status:
        return f"{passed.silent or 'the provider'} did not answer"
    if passed.failure in _BROKEN:
        return _BROKEN[passed.failure]
    if passed.status < 400 and not answer.get("error"):
        return ""
    error = answer.get("error")
    told = error.get("message") if isinstance(error, dict) else error
    return f"HTTP {passed.status}: {_text(told)}".removesuffix(": ")


_BROKEN: Final = {
    "cut": "the provider's answer broke off",
    "client_gone": "the program did not wait for the answer",
}


def _tokens(answer: Body, *names: str) -> int | None:
    usage = answer.get("usage")
    given = [usage.get(name) for name in names] if isinstance(usage, dict) else []
    return next((each for each in given if isinstance(each, int) and each), None)


def _text(value: Any) -> str:
    """Return a content as text: itself, or the texts of its parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = (each.get("text") if isinstance(each, dict) else each for each in value)
        return "\n".join(part for part in parts if isinstance(part, str))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _apart(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Return the instructions among messages, joined, and the other messages."""
    system = [_text(message.get("content")) for message in messages if message.get("role") in _SYSTEM]
    return "\n\n".join(system), [message for message in messages if message.get("role") not in _SYSTEM]


def _chat_message(said: Said) -> Message:
    """Return a message as chat completions has it."""
    if said.speaker is Speaker.TOOL:
        return {"role": "tool", "tool_call_id": said.call_id, "content": said.text}
    calls = [
        {"id": call.call_id, "function": {"name": call.name, "arguments": call.arguments}}
        for call in said.calls
    ]
    message = {"role": said.speaker.value, "content": said.text}
    return {**message, "tool_calls": calls} if calls else message


# Chat completions ------------------------------------------------------------


def _chat_asked(body: Body) -> tuple[str, Sequence[Message]]:
    return _apart([*map(_with_calls, _dicts(body.get("messages")))])


def _chat_said(answer: Body) -> Sequence[Message]:
    choices = _dicts(answer.get("choices"))[:1]
    return [_with_calls(choice["message"]) for choice in choices if isinstance(choice.get("message"), dict)]


def _with_calls(message: Body) -> Message:
    """Return a message whose calls, also custom tools' and the former ``function_call``, are tool calls."""
    found = dict(message)
    if legacy := found.pop("function_call", None):
        found["tool_calls"] = [_function(legacy)]
    if calls := found.get("tool_calls"):
        found["tool_calls"] = [
            {**call, "function": _of_custom(call["custom"])} if call.get("custom") else call for call in calls
        ]
    if found.get("role") == "function":
        found["role"] = "tool"
    return found


def _function(given: Body) -> Message:
    """Return a call, or a definition, of the former ``functions`` as one of ``tools``."""
    return {"type": "function", "function": given}


def _of_custom(custom: Body) -> Message:
    """Return the call of a custom tool, whose input is free text, as that of a function."""
    return {"name": custom.get("name"), "arguments": custom.get("input")}


def _chat_finish(answer: Body) -> str:
    return next((_text(each.get("finish_reason")) for each in _dicts(answer.get("choices"))), "")


# Responses -------------------------------------------------------------------


def _responses_asked(body: Body) -> tuple[str, Sequence[Message]]:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _dicts(given)
    system, messages = _apart(list(_items(items)))
    return "\n\n".join(filter(None, (_text(body.get("instructions")), system))), messages


def _items(items: Sequence[Body]) -> Iterator[Message]:
    """Yield the messages that items of the Responses API amount to; thoughts are left out."""
    return map(_chat_message, joined_answers(messages_of_items(items)))


def _responses_said(answer: Body) -> Sequence[Message]:
    said = list(_items(_dicts(answer.get("output"))))
    return [{**each, "content": _text(each.get("content"))} for each in said]


def _responses_finish(answer: Body) -> str:
    return _text(answer.get("status"))


# Anthropic -------------------------------------------------------------------


def _anthropic_asked(body: Body) -> tuple[str, Sequence[Message]]:
    return _text(body.get("system")), [
        one for each in _dicts(body.get("messages")) for one in _turns(each.get("role"), each.get("content"))
    ]


def _turns(role: Any, content: Any) -> Iterator[Message]:
    """Yield a message as chat completions has it: the result of each tool is a message of its own."""
    template = Said(speaker=Speaker.AGENT if role == "assistant" else Speaker.USER)
    return map(_chat_message, messages_of_blocks(template, content))


def _anthropic_said(answer: Body) -> Sequence[Message]:
    return list(_turns("assistant", answer.get("content")))


def _anthropic_finish(answer: Body) -> str:
    return _text(answer.get("stop_reason"))


_APIS: Final[Mapping[str, _Api]] = {
    "/chat/completions": _Api(
        provider="openai",
        messages_key="messages",
        asked=_chat_asked,
        said=_chat_said,
        joined=join_completion,
        finish=_chat_finish,
    ),
    "/responses": _Api(
        provider="openai",
        messages_key="input",
        asked=_responses_asked,
        said=_responses_said,
        joined=join_responses,
        finish=_responses_finish,
    ),
    "/messages": _Api(
        provider="anthropic",
        messages_key="messages",
        asked=_anthropic_asked,
        said=_anthropic_said,
        joined=join_blocks,
        finish=_anthropic_finish,
    ),
}
"""By the end of the path."""
