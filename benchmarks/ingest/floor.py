"""Flush time of the disk alone: a lower bound for acknowledgements that mean "on disk"."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_BYTES: Final = 64 << 10
"""Compressed size of a group of requests on disk: about six with 16 spans."""


def flushes(folder: Path, seconds: float) -> Iterator[float]:
    """Append to a file and flush it repeatedly for a time; return the seconds of each flush."""
    until = time.perf_counter() + seconds
    with (folder / "floor").open("wb", buffering=0) as file:
        while (began := time.perf_counter()) < until:
            file.write(os.urandom(_BYTES))
            os.fdatasync(file.fileno())
            yield time.perf_counter() - began


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of the values lies; 0 for no values."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0
