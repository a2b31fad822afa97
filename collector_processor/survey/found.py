"""What a look through a request tells. A record."""

from __future__ import annotations

from collector_processor.notes import TraceNote
from semconv.record import record


@record
class Survey:
    """What a request holds."""

    item_count: int
    """Sound spans, log records or data points: the unit of OTLP's ``partial_success``."""
    traces: tuple[TraceNote, ...] = ()
    """Those with a mark of an agent's or of ours, and those known, in order of first appearance."""
    invalid: int = 0
    """Spans whose ids OTLP calls invalid; not in ``item_count``, and in no trace."""
    max_item_bytes: int = 0
    """The largest span, log record or metric."""
