"""Queries to the run store about a single trace."""

from __future__ import annotations

from collections.abc import Sequence

from collector_processor.otlp import TraceKey
from collector_processor.store.verdicts import RunStore
from semconv.model import TraceId


def analyses_of(store: RunStore, key: TraceKey) -> tuple[int, int]:
    """Return how often a trace was analysed, and the last row of its last analysis."""
    return store.seen([key])[key]


def joined(
    store: RunStore, key: TraceKey, names: Sequence[str], own: Sequence[TraceId] = ()
) -> frozenset[TraceId]:
    """Store a trace's run keys, and return the other traces of its run."""
    return store.join_all([(key, names, own)])[0]
