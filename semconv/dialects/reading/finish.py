"""Why a model stopped, where that means that it did not answer: a provider's filter, or the model's refusal.

Such a call ends without an error. Sources: OpenAI's ``finish_reason`` (``content_filter``) and refusal parts,
Anthropic's ``stop_reason`` (``refusal``), Gemini's ``FinishReason`` (``SAFETY``, ``PROHIBITED_CONTENT``, …),
Bedrock's ``stopReason`` (``content_filtered``), Vercel's ``content-filter``. A filter of the application
(Bedrock's ``guardrail_intervened``) is a guardrail: it did its job.
"""

from __future__ import annotations

import re
from typing import Final

from semconv.attributes import GEN_AI_RESPONSE_FINISH_REASONS
from semconv.dialects.reading.action import Action, ActionKind
from semconv.dialects.reading.values import words
from semconv.model import Attributes, Span
from semconv.record import replace

_REASONS: Final = (
    GEN_AI_RESPONSE_FINISH_REASONS,
    "gen_ai.completion.0.finish_reason",
    "gen_ai.response.finish_reason",
    "llm.finish_reason",
    "ai.response.finishReason",
)
_MESSAGES: Final = ("gen_ai.output.messages", "output.value", "ai.response.text")
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
_IN_MESSAGE: Final = re.compile(
    r'"(?:finish_reason|stop_reason|finishReason|stopReason)"\s*:\s*"([\w-]{1,40})"'
)
_REFUSAL: Final = re.compile(r'"type"\s*:\s*"refusal"|"refusal"\s*:\s*"\w')
_MOST: Final = 200_000
"""Characters of recorded messages that are searched."""


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
    for name in _MESSAGES:
        said = attributes.get(name)
        if not isinstance(said, str) or len(said) > _MOST:
            continue
        reason = next(filter(None, map(_stopped, _IN_MESSAGE.findall(said))), "")
        if reason or _REFUSAL.search(said):
            return _said(reason or "refusal")
    return ""


def _stopped(reasons: str) -> str:
    found = (word.replace("-", "_") for word in _WORD.findall(reasons.lower()))
    return next((word for word in found if word in _STOPPED), "")


def _said(reason: str) -> str:
    if reason == "refusal":
        return "the model refused to answer (refusal)"
    return f"the provider's filter stopped the answer ({reason})"
