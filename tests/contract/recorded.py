"""Reads recorded OTLP/JSON runs for tests, and knows their folder."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from collector_processor.core.runs import Run
from collector_processor.otlp import Signal
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.rebuild.stages import rebuild

SHARED = Path(__file__).parents[3] / "shared"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the recorded runs are not beside the repository"
)


def runs_in(traces: Path, logs: Path | None = None) -> tuple[Run, ...]:
    bodies = [to_protobuf(Signal.TRACES, read(traces))]
    return rebuild(bodies, [to_protobuf(Signal.LOGS, read(logs))] if logs else ())


def read(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw
