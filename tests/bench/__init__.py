"""Alias of ``benchmarks``, so that ``python -m tests.bench.NAME`` still runs a benchmark."""

from benchmarks import __path__ as __path__
