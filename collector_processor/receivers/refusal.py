"""Refusals at the door: what a client is told, in the words of both transports.

One table for gRPC and HTTP, so that the same request is refused the same way
whichever door it knocks at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from collector_processor.otlp import Cause, CollectorError, MalformedRequestError, RefusedError
from collector_processor.otlp.answers import RpcCode

# OTLP lets a client retry after 429 and 503 alike, but earlier Python SDKs took 429
# for final (opentelemetry-python#5460).
_BUSY: Final = 503


_CAUSES: Final[Mapping[int, Cause]] = {
    400: Cause.MALFORMED,
    401: Cause.UNAUTHORIZED,
    403: Cause.UNAUTHORIZED,
    404: Cause.UNSUPPORTED,
    405: Cause.UNSUPPORTED,
    408: Cause.SLOW,
    413: Cause.TOO_LARGE,
    415: Cause.UNSUPPORTED,
    _BUSY: Cause.FULL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One answer that is not success."""

    code: RpcCode
    http_status: int
    reason: str
    retry_after_s: float | None = None
    """Come back after so many seconds; ``None`` tells the client not to come back with this."""
    http_headers: Mapping[str, str] = field(default_factory=dict)
    is_loop: bool = False

    @property
    def cause(self) -> Cause:
        """The cause by which refusals are counted."""
        return Cause.LOOP if self.is_loop else _CAUSES.get(self.http_status, Cause.BROKEN)

    @property
    def retry_after_header(self) -> dict[str, str]:
        """``Retry-After`` knows whole seconds only: rounded up, at least 1."""
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))}


class TurnedAwayError(CollectorError):
    """The door itself refuses: nothing reached the sink."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal: Final = refusal


BROKEN: Final = Refusal(
    code=RpcCode.INTERNAL, http_status=500, reason="the receiver failed; its log says why, nothing was kept"
)
"""A fault of ours. Says nothing of the request, whose text may stand in the exception's."""


def refusal_of(error: CollectorError) -> Refusal:
    """Return the answer for whatever the door or the sink raised."""
    match error:
        case TurnedAwayError():
            return error.refusal
        case RefusedError():
            return Refusal(
                code=RpcCode.RESOURCE_EXHAUSTED,
                http_status=_BUSY,
                reason=error.reason,
                retry_after_s=error.retry_after_s,
                is_loop=error.is_loop,
            )
        case MalformedRequestError():
            return Refusal(code=RpcCode.INVALID_ARGUMENT, http_status=400, reason=str(error))
        case _:
            return BROKEN


def unauthorized() -> TurnedAwayError:
    """No token, or not ours; which of them is not told."""
    return TurnedAwayError(
        Refusal(
            code=RpcCode.UNAUTHENTICATED,
            http_status=401,
            reason="expected the token, as 'Authorization: Bearer …' or 'x-blamespan-token'",
            http_headers={"WWW-Authenticate": "Bearer"},
        )
    )


def not_local() -> TurnedAwayError:
    """The Host header names another machine."""
    return TurnedAwayError(
        Refusal(
            code=RpcCode.PERMISSION_DENIED,
            http_status=403,
            reason="expected a Host header that names this machine, such as localhost"
            " (or one of BLAMESPAN_ALLOWED_HOSTS), or a token",
        )
    )


def too_large(limit: int) -> TurnedAwayError:
    """The body is, or becomes when decompressed, larger than ``limit`` bytes."""
    return TurnedAwayError(
        Refusal(
            code=RpcCode.RESOURCE_EXHAUSTED,
            http_status=413,
            reason=f"expected a request of at most {limit} bytes, before compression",
        )
    )
