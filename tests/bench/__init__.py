"""Alias of ``benchmarks``, so that ``python -m tests.bench.NAME`` still runs a benchmark."""

from pathlib import Path

__path__ = [str(Path(__file__).parents[2] / "benchmarks")]
