"""Bounds of the slow lane."""

from __future__ import annotations

from dataclasses import dataclass

from collector_processor.assembly.assembler import AssemblerLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLimits:
    """Parameters of the slow lane."""

    assembler: AssemblerLimits
    hold_max_s: float | None = None
    """Seconds an agent trace may wait for its verdict; ``None`` means late mode."""
    concurrency: int = 16
    rewrites_max_s: float = 2.0
    """Extra seconds at shutdown for committed replacements, which need the disk but no model."""
    releases_max_s: float = 10.0
    """The same for all other held rows, because on a full disk their release might never end."""
    max_inbox_bytes: int = 64 << 20
    """Bound on notes not looked up yet; enough for 250,000 spans."""
