"""OpenAI's responses. Source: OpenAI API reference, ``POST /v1/responses`` and its streaming events. Pure.

A request may continue an earlier response instead of repeating the conversation
(``previous_response_id``). The provider does not have the responses that a tape served, so such a request is
*expanded*: the conversation so far is put before its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from analyzer.experiment.replay.tape import Answer
from analyzer.experiment.replay.trial import Edit
from analyzer.experiment.replay.wire.chat_completions import openai_error
from analyzer.experiment.replay.wire.format import (
    Asked,
    Body,
    Provider,
    UnreadableRequest,
    Wire,
    arguments_text,
    call_ids,
    is_one_of,
    named_event,
    pieces,
    read_tools,
)
from semconv.dialects.reading.action import Message
from semconv.dialects.reading.messages import messages_of

_SYSTEM: Final = frozenset({"system", "developer"})
_FUNCTIONS: Final = frozenset({"function", "custom"})


def read_responses(body: Body) -> Asked:
    """Read a request."""
    if body.get("background") is True:
        raise UnreadableRequest("a response in the background cannot be replayed: send background=false")
    if body.get("conversation") is not None:
        raise UnreadableRequest(
            "a conversation that the provider keeps cannot be replayed: send the messages"
        )
    if not isinstance(body.get("input"), (str, list)):
        raise UnreadableRequest("expected `input`: a text or a list")
    instructions = body.get("instructions")
    system = (
        (Message(role="system", text=instructions),) if isinstance(instructions, str) and instructions else ()
    )
    offered = read_tools(body.get("tools"), _function_name)
    return Asked(
        messages=(*system, *messages_of(input_items(body))),
        model=str(body.get("model") or ""),
        tools=offered.functions,
        transfers=offered.transfers,
        provider_tools=offered.hosted,
        wants_stream=body.get("stream") is True,
    )


def input_items(body: Body) -> list[Any]:
    """Return a request's input as a list of items."""
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())


def expanded(body: Body, served: Mapping[str, Sequence[Any]]) -> Body:
    """Expand a request that continues a served response to the whole conversation; leave others unchanged.

    Args:
        body: the request.
        served: the conversation up to the end of each served response, by its id.
    """
    earlier = served.get(str(body.get("previous_response_id") or ""))
    if earlier is None:
        return body
    rest = {name: value for name, value in body.items() if name != "previous_response_id"}
    return {**rest, "input": [*earlier, *input_items(body)]}


def output_items(answer: Answer, number: int) -> list[dict[str, Any]]:
    """Return an answer's output items."""
    said = [_message(answer.text, number)] if answer.text or not answer.calls else []
    ids = call_ids(answer.calls, number)
    called = [
        {
            "id": f"fc_blamespan{number:06}_{place}",
            "type": "function_call",
            "status": "completed",
            "call_id": id_,
            "name": call.name,
            "arguments": arguments_text(call),
        }
        for place, (id_, call) in enumerate(zip(ids, answer.calls, strict=True))
    ]
    return [*said, *called]


def response_id(number: int) -> str:
    """Return the id of a served response."""
    return f"resp_blamespan{number:06}"


def _function_name(definition: Body) -> str:
    return str(definition.get("name") or "") if is_one_of(definition.get("type"), _FUNCTIONS) else ""


def _message(text: str, number: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {
        "id": f"msg_blamespan{number:06}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def _whole(asked: Asked, answer: Answer, number: int) -> Body:
    usage = {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    return {
        **_head(asked, answer, number),
        "status": "completed",
        "output": output_items(answer, number),
        "usage": usage,
    }


def _head(asked: Asked, answer: Answer, number: int) -> dict[str, Any]:
    return {
        "id": response_id(number),
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": answer.model or asked.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def _stream(asked: Asked, answer: Answer, number: int) -> Iterator[bytes]:
    numbers = count()
    for name, document in _events(asked, answer, number):
        yield named_event(name, {"sequence_number": next(numbers), **document})


def _events(asked: Asked, answer: Answer, number: int) -> Iterator[tuple[str, Body]]:
    begun = _head(asked, answer, number)
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for place, item in enumerate(output_items(answer, number)):
        tell = _message_events if item["type"] == "message" else _call_events
        yield from tell(item, place)
        yield "response.output_item.done", {"output_index": place, "item": item}
    yield "response.completed", {"response": _whole(asked, answer, number)}


def _message_events(item: Body, place: int) -> Iterator[tuple[str, Body]]:
    part = item["content"][0]
    where = {"item_id": item["id"], "output_index": place, "content_index": 0}
    empty = {**item, "status": "in_progress", "content": []}
    yield "response.output_item.added", {"output_index": place, "item": empty}
    yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "response.output_text.delta", {**where, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**where, "part": part}


def _call_events(item: Body, place: int) -> Iterator[tuple[str, Body]]:
    where = {"item_id": item["id"], "output_index": place}
    empty = {**item, "status": "in_progress", "arguments": ""}
    yield "response.output_item.added", {"output_index": place, "item": empty}
    for piece in pieces(item["arguments"]):
        yield "response.function_call_arguments.delta", {**where, "delta": piece}
    done = {**where, "arguments": item["arguments"], "name": item["name"]}
    yield "response.function_call_arguments.done", done


def _edited(body: Body, edit: Edit) -> Body:
    changed = dict(body)
    if edit.system:
        rest = [input_item for input_item in input_items(body) if not _is_system(input_item)]
        changed |= {"instructions": edit.system, "input": rest}
    if edit.hint:
        changed["input"] = [*input_items(changed), {"role": "user", "content": edit.hint}]
    if edit.model:
        changed["model"] = edit.model
    return changed


def _is_system(item: Any) -> bool:
    return isinstance(item, dict) and is_one_of(item.get("role"), _SYSTEM)


RESPONSES: Final = Wire(
    provider=Provider.OPENAI,
    read=read_responses,
    whole=_whole,
    stream=_stream,
    edited=_edited,
    error=openai_error,
)
