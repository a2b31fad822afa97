"""Types of settings' values, and the parser of addresses. Pure."""

from __future__ import annotations

from enum import StrEnum

from collector_processor.otlp import Address


def address(text: str) -> Address:
    """Read ``host:port``; an IPv6 host is written in brackets.

    Raises:
        ValueError: it is not an address.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"expected host:port, such as 127.0.0.1:4317, got {text!r}")
    return Address(host=host.strip("[]") or "0.0.0.0", port=int(port))  # noqa: S104 - ":4317" is every interface


class WriteBack(StrEnum):
    """Time at which blame is written into the trace."""

    LATE = "late"
    HOLD = "hold"


class ExportText(StrEnum):
    """Prose on carriers and logs."""

    NONE = "none"
    REDACTED = "redacted"
    FULL = "full"
