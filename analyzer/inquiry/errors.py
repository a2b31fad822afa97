"""The analyzer's exceptions, with data instead of prose and one base class."""

from __future__ import annotations

from enum import StrEnum


class AnalyzerError(Exception):
    """Base of all exceptions that the analyzer raises on purpose."""


class UnreadableInput(AnalyzerError):  # noqa: N818 - a noun reads better at the ``except``
    """A document in an unexpected format; the message says what was expected."""


class UnknownMethod(AnalyzerError):  # noqa: N818 - as above
    """A method name that is not in the registry."""


class ModelNeeded(AnalyzerError):  # noqa: N818 - as above
    """A model is to be asked, and none is set, or litellm is not installed."""


class ModelFailure(StrEnum):
    """Reason why a model gave no usable reply; low cardinality."""

    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    DENIED = "denied"
    """Unknown model, invalid key, or exhausted quota."""
    REFUSED = "refused"
    """The provider rejected the request itself."""
    CONTEXT_TOO_LONG = "context_too_long"
    TOO_LARGE = "too_large"
    OVER_BUDGET = "over_budget"
    """The hourly budget is used up; no call was made."""


class ModelError(AnalyzerError):
    """No reply from the model after all retries.

    Attributes:
        kind: What happened.
        retryable: Whether the same call may succeed later.
        retry_after_s: Seconds the provider asked us to wait; ``None`` if it gave none.
    """

    def __init__(
        self, message: str, *, kind: ModelFailure, retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s
