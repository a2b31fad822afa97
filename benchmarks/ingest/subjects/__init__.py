"""Subjects of the measurement: processes that receive OTLP and forward or store it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.ingest.subjects.bare import passthrough
from benchmarks.ingest.subjects.collectors import collector, collector_durable
from benchmarks.ingest.subjects.line import blamespan, fast_lane
from benchmarks.ingest.subjects.phoenix import phoenix
from benchmarks.ingest.subjects.rotel import rotel
from benchmarks.ingest.subjects.running import Running, Start, announcing

__all__ = ["BASELINE", "SUBJECTS", "Running", "Start", "Subject", "announcing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A program under load: its command, and the guarantee of its acknowledgement."""

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
"""The reference for all others: the bare proxy."""
