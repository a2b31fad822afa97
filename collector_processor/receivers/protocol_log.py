"""What is said of a connection whose client breaks the protocol: one line, never its bytes."""

from __future__ import annotations

import logging
from typing import Any, Final

from aiohttp.http_exceptions import HttpProcessingError

logger = logging.getLogger(__name__)

_PREFACE: Final = "PRI/Upgrade"
"""Stands in what aiohttp says of HTTP/2's first line, ``PRI * HTTP/2.0``."""
_GRPC_MEND: Final = (
    "gRPC goes to BLAMESPAN_OTLP_GRPC_LISTEN (port 4317 by default);"
    " or let the sender speak HTTP: OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
)


class ProtocolLogger(logging.Logger):
    """aiohttp's logger, which would quote a bad request's bytes; our own faults keep their traceback."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._met_grpc = False

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_: Any) -> None:
        """Say what a connection ended by."""
        if isinstance(exc_info, Exception) and not isinstance(exc_info, HttpProcessingError):
            logger.error(str(msg), *args, exc_info=exc_info)
            return
        if _PREFACE in str(exc_info) and not self._met_grpc:  # once: such a sender comes again and again
            self._met_grpc = True
            logger.warning("gRPC was sent to an HTTP port", extra={"mend": _GRPC_MEND})
            return
        kind = type(exc_info).__name__ if isinstance(exc_info, BaseException) else "unknown"
        logger.info("connection ended by a protocol error", extra={"error": kind})
