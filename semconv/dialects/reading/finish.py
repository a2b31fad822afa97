"""Why a model stopped, where that means that it did not answer: a provider's filter, or the model's refusal.

Such a call ends without an error. Sources: OpenAI's ``finish_reason`` (``content_filter``) and refusal parts,
Anthropic's ``stop_reason`` (``refusal``), Gemini's ``FinishReason`` (``SAFETY``, ``PROHIBITED_CONTENT``, …),
Bedrock's ``stopReason`` (``content_filtered``), Vercel's ``content-filter``. A filter of the application
(Bedrock's ``guardrail_intervened``) is a guardrail: it did its job.

A model may write about filters and refusals, also in JSON: only the fields of a provider's response or of a
message count, never text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from semconv.attributes import GEN_AI_RESPONSE_FINISH_REASONS
from semconv.dialects.reading.action import Action, ActionKind
from semconv.dialects.reading.values import structured, words
from semconv.model import Attributes, Span
from semconv.record import replace

_REASONS: Final = (
    GEN_AI_RESPONSE_FINISH_REASONS,
    "gen_ai.completion.0.finish_reason",
    "gen_ai.response.finish_reason",
    "llm.finish_reason",
    "ai.response.finishReason",
)
_MESSAGES: Final = ("gen_ai.output.messages", "output.value")
_OWN_WORDS: Final = ("llm.output_messages.0.message.content", "gen_ai.completion.0.content")
"""What the model said: an ``output.value`` that is the same is no response, whatever JSON it shows."""
_STOPPED: Final = frozenset(
    [
        "content_filter",
        "content_filtered",
        "refusal",
        "safety",
        "prohibited_content",
        "blocklist",
        "spii",
        "recitation",
    ]
)
_WORD: Final = re.compile(r"[a-z]+(?:[_-][a-z]+)*")
_FINISHED: Final = ("finish_reason", "stop_reason", "finishReason")
_OF_RESPONSE: Final = frozenset({"choices", "candidates", "model", "id"})
"""What a provider's response has; the object that a model was told to write may name a reason too."""
_OF_MODEL: Final = ("assistant", "model", "ai")
_HINT: Final = re.compile(
    rf'(?:{"|".join(_FINISHED)})"\s*:\s*"[^"]{{0,40}}(?:{"|".join(_STOPPED)})'.replace("_", "[_-]")
    + r'|"refusal"\s*:\s*"|:\s*"refusal"',
    re.IGNORECASE,
)
"""What stands in the JSON of a stopped answer: nothing else is parsed."""
_MOST: Final = 200_000
"""Characters of recorded messages that are parsed."""


def with_refusal(action: Action, span: Span) -> Action:
    """Return a model call as failed if a filter stopped its answer, or the model refused to give one."""
    if action.kind is not ActionKind.LLM or action.failed:
        return action
    why = _why(span.attributes)
    return replace(action, failed=True, error=why) if why else action


def _why(attributes: Attributes) -> str:
    for name in _REASONS:
        if name in attributes and (reason := _stopped(words(attributes[name]))):
            return _said(reason)
    own = [attributes[name] for name in _OWN_WORDS if name in attributes]
    for name in _MESSAGES:
        said = attributes.get(name)
        if not isinstance(said, str) or len(said) > _MOST or said in own or not _HINT.search(said):
            continue
        if reason := next(filter(None, _reasons(structured(said))), ""):
            return _said(reason)
    return ""


def _reasons(recorded: Any) -> Iterator[str]:
    """Yield why the answers of a response, or of a list of messages or choices, ended."""
    for response in _objects(recorded):
        message = response.get("message")
        if not _OF_RESPONSE.isdisjoint(response) or any(map(_is_models, _objects(message))):
            yield _finished(response)
        for each in (response, *_objects(message), *_objects(response.get("output"))):
            yield _in_message(each)
        for name in ("choices", "candidates"):
            for choice in _objects(response.get(name)):
                yield _finished(choice)
                for each in (*_objects(choice.get("message")), *_objects(choice.get("content"))):
                    yield _in_message(each)


def _in_message(message: Mapping[str, Any]) -> str:
    if not _is_models(message):
        return ""
    if reason := _finished(message):
        return reason
    parts = (*_objects(message.get("parts")), *_objects(message.get("content")))
    refusal = message.get("refusal")
    refused = (isinstance(refusal, str) and refusal) or any(part.get("type") == "refusal" for part in parts)
    return "refusal" if refused else ""


def _is_models(message: Mapping[str, Any]) -> bool:
    return message.get("role") in _OF_MODEL


def _finished(ended: Mapping[str, Any]) -> str:
    return next(filter(None, (_stopped(words(ended[name])) for name in _FINISHED if name in ended)), "")


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the object that a value is, or those that it lists."""
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, dict)]


def _stopped(reasons: str) -> str:
    found = (word.replace("-", "_") for word in _WORD.findall(reasons.lower()))
    return next((word for word in found if word in _STOPPED), "")


def _said(reason: str) -> str:
    if reason == "refusal":
        return "the model refused to answer (refusal)"
    return f"the provider's filter stopped the answer ({reason})"
