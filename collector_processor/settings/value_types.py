"""Types of settings' values, the parser of addresses, and the timers that follow from settings. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from collector_processor.assembly.assembler import AssemblerLimits
from collector_processor.otlp import Address

_SILENCE: Final = 1.25
"""Longest silence as a multiple of ``max_age_s``: allows for batches, and for work around such a pause."""
_PAUSES: Final = 12
"""Longest run as a multiple of ``max_age_s``, several pauses included."""
_LONGEST_RUN_S: Final = 64_800.0
"""Bound on the longest run: 18 hours, less than the day that the journal keeps a run's first spans."""


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


def completion_timers(root_grace_s: float, idle_close_s: float, max_age_s: float) -> AssemblerLimits:
    """Return the assembler's timers; those without a setting of their own are multiples of these."""
    return AssemblerLimits(
        root_grace_s=root_grace_s,
        idle_close_s=idle_close_s,
        absent_idle_s=10 * idle_close_s,
        max_silence_s=_SILENCE * max_age_s,
        max_age_s=max(max_age_s, min(_PAUSES * max_age_s, _LONGEST_RUN_S)),
    )
