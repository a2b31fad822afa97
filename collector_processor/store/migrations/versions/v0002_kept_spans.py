"""Spans and logs of runs, kept to be opened, checked and replayed later."""

from __future__ import annotations

from sqlalchemy import Index

from collector_processor.store.columns import blob, create_table, flag, id_, ints, texts

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table of kept spans."""
    create_table(
        "kept_spans",
        id_(),
        *texts("tenant", "run_id"),
        flag("is_failure"),
        *ints("kept_ns", "size"),
        blob("packed"),
        Index("kept_spans_by_age", "is_failure", "kept_ns", "size"),
        Index("kept_spans_by_id", "tenant", "run_id", unique=True),
    )
