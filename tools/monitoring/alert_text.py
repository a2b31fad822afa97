"""Common parts of all alert rules: durations, links and texts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Durations in seconds; the defaults are shipped."""

    recent: int = 3600
    """Window over which failures are counted."""
    now: int = 900
    """Window that shows whether failures still occur."""
    day: int = 24 * 3600
    """Period of a daily rhythm."""
    usual: int = 7 * 24 * 3600
    """Window of an agent's usual share, and period of a weekly rhythm."""
    settling: int = 120
    """``for`` of alerts on agents: ``increase`` overestimates young series."""
    pending: int = 300
    """``for`` of alerts on the service itself."""
    keep_firing: int = 900
    """``keep_firing_for``: an alert outlives its cause, so that it does not flap."""
    brief: int = 900
    """Window of the alerts on lag and losses."""
    interval: int = 30
    """Evaluation interval of the rules."""

    def __post_init__(self) -> None:
        """Reject durations that Prometheus would misread."""
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise ValueError(f"{each.name}: expected whole seconds, at least 1")


SHIPPED: Final = Durations()


BASE: Final = "{{ or $externalLabels.blamespan_url `http://localhost:8500` }}"
"""Base address of links."""


def alert_texts(summary: str, description: str, path: str = "/health") -> dict[str, str]:
    """Return an alert's texts, and the page that its link leads to."""
    return {"summary": summary, "description": description, "link": BASE + path}


def span(seconds: int) -> str:
    """Write a duration as Prometheus does, in its largest whole unit."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
