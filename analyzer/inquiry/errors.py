"""What can go wrong in the analyzer, as data. One base class for the package."""

from __future__ import annotations

from enum import StrEnum


class AnalyzerError(Exception):
    """Anything the analyzer raises on purpose."""


class UnreadableInput(AnalyzerError):  # noqa: N818 - a noun reads better where it is caught
    """A document that is not what it was taken for; the message says what was expected."""


class UnknownMethod(AnalyzerError):  # noqa: N818 - as above
    """A method name that is not in the registry."""


class ModelNeeded(AnalyzerError):  # noqa: N818 - as above
    """A method that asks a model was chosen, and there is no model."""


class ModelFailure(StrEnum):
    """Why a model gave no usable reply, in a few low-cardinality words."""

    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    DENIED = "denied"
    """No such model, no such key, or no money left."""
    REFUSED = "refused"
    """The model did not like the request itself."""
    CONTEXT_TOO_LONG = "context_too_long"
    TOO_LARGE = "too_large"
    OVER_BUDGET = "over_budget"
    """The hour's budget is used up; nothing was asked."""


class ModelError(AnalyzerError):
    """No reply from the model, after whatever retries there were.

    Attributes:
        kind: What happened.
        retryable: Whether the same call may succeed later.
        retry_after_s: Seconds the model asked us to wait; ``None`` if it did not say.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ModelFailure,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s
