"""What is measured: processes that take OTLP and pass it on, or store it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.bench.ingest.subjects.bare import passthrough
from tests.bench.ingest.subjects.collectors import collector, collector_durable
from tests.bench.ingest.subjects.line import blamespan, fast_lane
from tests.bench.ingest.subjects.phoenix import phoenix
from tests.bench.ingest.subjects.rotel import rotel
from tests.bench.ingest.subjects.running import Running, Start, announcing

__all__ = ["BASELINE", "SUBJECTS", "Running", "Start", "Subject", "announcing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """How to start it, and what its acknowledgement is worth."""

    start: Start
    acknowledges: str


SUBJECTS: Final[Mapping[str, Subject]] = {
    "blamespan": Subject(start=blamespan, acknowledges="on disk, flushed"),
    "fast lane": Subject(start=fast_lane, acknowledges="on disk, flushed"),
    "collector+fsync": Subject(start=collector_durable, acknowledges="on disk, flushed"),
    "collector": Subject(start=collector, acknowledges="in memory"),
    "rotel": Subject(start=rotel, acknowledges="in memory"),
    "phoenix": Subject(start=phoenix, acknowledges="in memory"),
    "passthrough": Subject(start=passthrough, acknowledges="at the backend"),
}
BASELINE: Final = "passthrough"
"""What all others are put in relation to: the bare proxy."""
