"""What people write for the outcome of a run: two canonical values, and plain words for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.model import AttributeValue, Outcome

_WORDS: Final[Mapping[Outcome, tuple[str, ...]]] = {
    Outcome.SUCCESS: ("success", "succeeded", "successful", "pass", "passed", "ok"),
    Outcome.FAILURE: ("failure", "failed", "fail", "unsuccessful", "error"),
}
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    word: outcome for outcome, words in _WORDS.items() for word in words
}


def read_outcome(value: AttributeValue) -> Outcome | None:
    """Return the outcome that is meant, whatever the case; ``None`` for what is no such word."""
    return _OUTCOMES.get(value.strip().casefold()) if isinstance(value, str) else None
