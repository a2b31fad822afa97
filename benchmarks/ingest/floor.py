"""How long the disk alone takes to flush: no acknowledgement that means "on disk" comes sooner."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_BYTES: Final = 64 << 10
"""What a group of requests takes on the disk, compressed: some six of 16 spans."""


def flushes(folder: Path, seconds: float) -> Iterator[float]:
    """Append to a file and flush it, again and again for so long; give the seconds that each took."""
    until = time.perf_counter() + seconds
    with (folder / "floor").open("wb", buffering=0) as file:
        while (began := time.perf_counter()) < until:
            file.write(os.urandom(_BYTES))
            os.fdatasync(file.fileno())
            yield time.perf_counter() - began


def percentile(values: list[float], share: float) -> float:
    """Return the value below which that share of all values is; of none, 0."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0
