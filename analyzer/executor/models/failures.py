"""Failures of model calls: litellm's exceptions as ``ModelError``, without secrets."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from analyzer.inquiry.errors import ModelError, ModelFailure
from collector_processor.rebuild.redaction import redact

_RETRYABLE_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_RETRYABLE: Final = frozenset(
    {ModelFailure.TIMEOUT, ModelFailure.RATE_LIMITED, ModelFailure.CONNECTION, ModelFailure.UNAVAILABLE}
)
_DENIED_STATUS: Final = frozenset({401, 402, 403, 404})
_LAYERS: Final = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Timeout): |\w+Exception - )+")
"""Prefixes that litellm adds to a provider's message."""

_KEY_NAMES: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")
"""Name endings of environment variables with secrets for litellm and its providers."""
_SHORTEST_KEY: Final = 8


def translated(error: Exception, known: Any, timeout_s: float) -> ModelError:
    """Return our error for a litellm error, which may carry a status or a response.

    Args:
        error: what litellm raised.
        known: litellm's module of exceptions.
        timeout_s: the attempt's timeout.
    """
    kind = _kind(error, known, getattr(error, "status_code", None))
    first_part, _, _ = str(error).partition(
        "Traceback (most recent call last)"
    )  # litellm's own, with our paths
    message = _without_keys(_LAYERS.sub("", " ".join(first_part.split())))[:300]
    if kind is ModelFailure.TIMEOUT:
        message = f"no reply within {timeout_s:g} s"
    retryable = kind in _RETRYABLE
    after = _retry_after(error) if retryable else None
    return ModelError(message, kind=kind, retryable=retryable, retry_after_s=after)


def _without_keys(message: str) -> str:
    """Remove secrets from a message: providers quote rejected keys, and messages reach logs and pages."""
    for name, value in os.environ.items():
        if name.endswith(_KEY_NAMES) and len(value) >= _SHORTEST_KEY:
            message = message.replace(value, "[key]")
    return redact(message)


def _kind(error: Exception, known: Any, status: int | None) -> ModelFailure:
    if isinstance(error, known.ContextWindowExceededError):
        kind = ModelFailure.CONTEXT_TOO_LONG
    elif isinstance(error, known.Timeout):
        kind = ModelFailure.TIMEOUT
    elif status == 429:
        kind = ModelFailure.RATE_LIMITED
    elif status in _DENIED_STATUS:
        kind = ModelFailure.DENIED
    elif isinstance(error, known.APIConnectionError) or "Connection error" in str(error)[:200]:
        kind = ModelFailure.CONNECTION
    elif status in _RETRYABLE_STATUS:
        kind = ModelFailure.UNAVAILABLE
    else:
        kind = ModelFailure.REFUSED
    return kind


def _retry_after(error: Exception) -> float | None:
    """Return the seconds of a ``Retry-After`` header; dates are ignored (no model API sends them)."""
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None) or {}
    value = str(headers.get("retry-after", "")).strip()
    return float(value) if value.replace(".", "", 1).isdigit() else None
