"""Parts of messages in the forms of all model APIs: texts, calls and results. Pure.

A content is a text or a list of parts. Thoughts are left out, as they are said to no one, and so are calls,
which readers take from elsewhere. Media are named, never dumped. A list in which anything is no part is a
tool's own result, and stays JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Final, TypeAlias

from analyzer.recordings.dialogue import Message, Speaker
from analyzer.recordings.fields import json_text, to_json
from semconv.emit.content import count_of
from semconv.model import ToolCall
from semconv.record import record, replace

_TEXTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})
_UNSAID: Final = frozenset(
    {
        "think",
        "thinking",
        "redacted_thinking",
        "reasoning",
        "reasoning_content",
        "reasoning_text",
        "summary_text",
    }
    | {"tool_use", "server_tool_use", "tool_call", "server_tool_call", "invalid_tool_call", "tool_call_chunk"}
    | {"function_call", "input_json_delta"}
)
"""Thoughts and calls."""
_MEDIA: Final = frozenset(
    {"image", "image_url", "input_image", "image_file", "audio", "input_audio", "output_audio", "video"}
    | {"file", "input_file", "document", "media", "computer_screenshot", "container_upload", "data", "uri"}
)
_MEDIA_KEYS: Final = frozenset({"image", "document", "video", "audio", "inlineData", "inline_data"}) | {
    "fileData",
    "file_data",
}
"""Keys of parts that have no ``type``: Bedrock's and Gemini's."""


_TEXT, _JSON = frozenset({"text"}), frozenset({"json"})
"""The only key of a part without a type that is a text, or a value."""


def text_of(content: Any) -> str:
    """Return a content's text; parts that are calls or results have none."""
    if content.__class__ is str:
        return str(content)
    if not isinstance(content, list):
        return json_text(content)
    texts = list(map(part_text, content))
    return json_text(content) if None in texts else "\n".join(filter(None, texts))


def part_text(part: Any) -> str | None:
    """Return the text of one part of a content; ``None`` if it is no part."""
    if not isinstance(part, dict):
        return part if isinstance(part, str) else None
    kind = part.get("type")
    if not isinstance(kind, str):
        if not (part.keys() <= _TEXT or part.keys() <= _JSON or not _MEDIA_KEYS.isdisjoint(part)):
            return None
    elif kind in _UNSAID:
        return ""
    elif kind in _MEDIA:
        return f"[{kind}]"
    elif kind not in _TEXTS:
        return None
    text = part.get("text", part.get("refusal", part.get("json")))
    if isinstance(text, dict) and "value" in text:  # the Assistants API
        text = text["value"]
    return json_text(text) or next((f"[{key}]" for key in part if key in _MEDIA_KEYS), "")


def listed(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list that may be absent.

    Raises:
        TypeError: it is another value, or holds one.
    """
    found = [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise TypeError(f"expected a list of objects, found {str(value)[:80]!r}")
    return found


def messages_in(found: Iterable[Any], messages_of: Callable[[Any], Iterable[Message]]) -> Iterator[Message]:
    """Yield the messages of a dialogue's entries, of which one may hold several, or be a message already."""
    return (
        message for one in found for message in ((one,) if one.__class__ is Message else messages_of(one))
    )


# --- requests that hold the dialogue so far ---


def continued(
    documents: Sequence[Mapping[str, Any]],
    asked_in: Callable[[Any], Sequence[Any]],
    answers_in: Callable[[Any], Sequence[Any]],
) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    """Yield each dialogue's last document and entries, in any order of the documents.

    A request repeats the dialogue so far. It continues another if it begins with what that asked and goes on
    with its answer; the one right after it in the file may have changed the answer. A call that failed, or
    whose answer was cut off, is an entry of the dialogue in which its request was repeated, and stands where
    the answer would.

    Args:
        documents: calls with their requests.
        asked_in: returns what the model was given.
        answers_in: returns the entry that it answered; none if the call failed.
    """
    calls = [_Call(document, asked_in(document), answers_in(document)) for document in documents]
    if len(calls) == 1:
        yield documents[0], calls[0].entries({})
        return
    next_keys: dict[int, set[int]] = {}
    for call in calls:
        for begun, key in zip(call.begun, call.keys, strict=False):
            next_keys.setdefault(begun, set()).add(key)
    answered = {call.begun[-1] for call in calls if call.answers}
    last_failed = {call.begun[-1]: call for call in calls if not call.answers and call.failures}
    whole = {call.begun[-1]: place for place, call in enumerate(calls) if call.answers and not call.is_cut}
    waiting: dict[int, list[_Call]] = {}
    kept: list[_Call] = []
    for place, (call, after) in enumerate(zip(calls, [*calls[1:], None], strict=True)):
        own = call.begun[-1]
        if call.asked and call.is_cut and whole.get(own, -1) > place:
            waiting.setdefault(own, []).append(call)
            continue
        follows = next_keys.get(own, set()) if call.asked else set()
        if call.failures and not call.answers:
            if call.asked and (follows or own in answered or last_failed[own] is not call):
                waiting.setdefault(own, []).append(call)
                continue
        elif (follows and (call.answer is None or call.answer in follows)) or (
            after is not None and after.repeats(call)
        ):
            continue
        kept.append(call)
    for call in kept:
        yield call.document, call.entries(waiting)


def dialogues_of(
    documents: Sequence[Mapping[str, Any]],
    asked_in: Callable[[Any], Sequence[Any]],
    answers_in: Callable[[Any], Sequence[Any]],
    messages_of: Callable[[Any], Iterable[Message]],
) -> Iterator[Iterator[Message]]:
    """Yield the messages of each dialogue that ``continued`` finds, after its system prompt."""
    for document, entries in continued(documents, asked_in, answers_in):
        yield chain(instructed(document.get("system")), messages_in(entries, messages_of))


class _Call:
    """One request with its answer, and how it begins."""

    def __init__(self, document: Mapping[str, Any], asked: Sequence[Any], answers: Sequence[Any]) -> None:
        self.document: Final = document
        self.asked: Final = asked
        self.answers: Final = answers
        is_answered = bool(asked) and not answers and _role(asked[-1]) in _ANSWERING
        self.failures: Final = [] if is_answered else failures_of(document)  # a judge's, say, not the model's

    @cached_property
    def keys(self) -> list[int]:
        """What identifies each entry of the request."""
        return list(map(_key, self.asked))

    @cached_property
    def begun(self) -> list[int]:
        """What identifies the first 0, 1, … entries of the request."""
        return list(accumulate(self.keys, lambda begun, key: hash((begun, key)), initial=0))

    @cached_property
    def answer(self) -> int | None:
        """What identifies the answer."""
        return _key(self.answers[0]) if self.answers else None

    @property
    def is_cut(self) -> bool:
        """Tell whether the API says that the model stopped before it was done."""
        last = self.answers[-1] if self.answers else None
        return isinstance(last, dict) and any(finish_of(last.get(key)) for key in _FINISHES)

    def repeats(self, other: _Call) -> bool:
        """Tell whether the request begins with the whole other one, and goes on."""
        place = len(other.keys)
        return len(self.keys) > place > 0 and self.begun[place] == other.begun[place]

    def entries(self, waiting: dict[int, list[_Call]]) -> list[Any]:
        """Return what was asked and answered; failed calls of the same dialogue that wait are taken."""
        found, taken = list[Any](), 0
        for place, begun in enumerate(self.begun if waiting else ()):
            if begun in waiting:
                found += self.asked[taken:place]
                found += [each for call in waiting.pop(begun) for each in (call.failures or call.answers)]
                taken = place
        return [*found, *self.asked[taken:], *self.answers, *self.failures]


def _key(entry: Any) -> int:
    """Return what identifies an entry: who says what and calls which tools, as text."""
    if not isinstance(entry, dict):
        return hash(to_json(entry))
    said, calls = entry.get("content", entry.get("parts")), entry.get("tool_calls")
    if not said and not calls:
        return hash(to_json({key: value for key, value in entry.items() if value}))
    text = said if isinstance(said, str) else to_json(said) if said else ""
    return hash((_role(entry), text, to_json(calls) if calls else ""))


_FINISHES: Final = ("finish_reason", "stop_reason", "finishReason", "stopReason")
_ANSWERING: Final = frozenset({"assistant", "model"})


def _role(entry: Any) -> str:
    return json_text(entry.get("role")) if isinstance(entry, dict) else ""


def failures_of(document: Mapping[str, Any]) -> list[Message]:
    """Return the error of a call in place of an answer, if it failed."""
    text = error_text(document.get("error"))
    return [Message(speaker=Speaker.AGENT, text=text, failed=True)] if text else []


def is_failed(document: Any) -> bool:
    """Tell whether a document says that its call failed."""
    return isinstance(document, dict) and bool(error_text(document.get("error")))


def error_text(error: Any) -> str:
    """Return what an API says of a call that failed: code and message; empty if it says nothing."""
    if not isinstance(error, dict):
        return error.strip() if isinstance(error, str) else ""
    inner = error.get("error")
    if isinstance(inner, dict | str):
        return error_text(inner)
    said = error.get("message", error.get("error_message"))
    code = error.get("code") or error.get("type") or error.get("error_class")
    return ": ".join(filter(None, (json_text(code), json_text(said))))


def instructed(content: Any) -> Iterator[Message]:
    """Yield a request's system prompt, if it has one."""
    if content:
        yield Message(speaker=Speaker.SYSTEM, text=text_of(content))


def nested_call(asked: Mapping[str, Any]) -> ToolCall:
    """Return a call as the model's API has it: OpenAI's nests it, Anthropic's and other programs' do not."""
    inner = asked.get("function") or asked.get("custom")
    function = inner if isinstance(inner, dict) else asked
    arguments = next((function[key] for key in _ARGUMENTS if key in function), None)
    return call_of(function.get("name", inner), arguments, asked.get("id"))


_ARGUMENTS: Final = ("arguments", "input", "args")


def call_of(name: Any, arguments: Any, call_id: Any) -> ToolCall:
    """Return a call with its arguments as text."""
    return ToolCall(name=json_text(name), arguments=json_text(arguments), call_id=json_text(call_id))


@record
class Result:
    """The part of a message that answers a call."""

    text: str
    call_id: str = ""
    tool: str = ""
    """The tool's name, if the result states it."""
    failed: bool = False


Part: TypeAlias = str | ToolCall | Result
"""What one part of a message says, calls or returns; empty for thoughts."""


def turn(template: Message, parts: Iterable[Part], *, joint: str = "\n") -> Iterator[Message]:
    """Yield one message of an API as messages of a dialogue: each result is a message of its own.

    Args:
        template: who speaks and when, without text and calls.
        parts: in order.
        joint: what stands between two texts.
    """
    texts: list[str] = []
    calls: list[ToolCall] = []
    is_silent = template.speaker is Speaker.AGENT
    for part in parts:
        match part:
            case str():
                texts += [part] if part else []
            case ToolCall():
                calls.append(part)
            case Result():
                if texts or calls:
                    yield replace(template, text=joint.join(texts), calls=tuple(calls))
                    texts, calls = [], []
                yield _answered(template, part)
                is_silent = False
    if texts or calls or is_silent:
        yield replace(template, text=joint.join(texts), calls=tuple(calls))


def _answered(template: Message, result: Result) -> Message:
    return Message(
        speaker=Speaker.TOOL,
        text=result.text,
        agent=template.agent,
        call_id=result.call_id,
        tool=result.tool,
        failed=result.failed,
        time_ns=template.time_ns,
        inside=template.inside,
    )


_DONE: Final = frozenset(
    {
        "stop",
        "end_turn",
        "stop_sequence",
        "completed",
        "complete",
        "eos",
        "eos_token",
        "finish_reason_unspecified",
    }
    | {
        "tool_calls",
        "tool_use",
        "tool_call",
        "function_call",
        "pause_turn",
        "load",
        "unload",
        "unknown",
        "other",
    }
)
"""Why models stop that are done, or have tools called; ``load`` is Ollama's."""


def finish_of(reason: Any) -> str:
    """Return why a model stopped, if an API says that it was not done; empty otherwise."""
    found = reason if isinstance(reason, str) else ""
    is_done = not found or found.rpartition(".")[2].lower().replace("-", "_") in _DONE
    return "" if is_done else found


def ended(answer: Any, reason: Any) -> Any:
    """Return an answer with why the model stopped as its ``finish_reason``, if it was not done."""
    found = finish_of(reason)
    return {**answer, "finish_reason": found} if found and isinstance(answer, dict) else answer


def tokens_of(
    usage: Any, asked: str = "input_tokens", answered: str = "output_tokens"
) -> tuple[int, int] | None:
    """Return input and output tokens that a usage counts under these keys; ``None`` if it does not."""
    if not isinstance(usage, dict):
        return None
    given, said = count_of(usage.get(asked)), count_of(usage.get(answered))
    return None if given is None or said is None else (given, said)
