"""Parts of traces that stay open for long, kept for a Kafka partition's next owner."""

from __future__ import annotations

from sqlalchemy import Index

from collector_processor.store.columns import blob, create_table, ints, key, key_int

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the table of spilled parts."""
    create_table(
        "spilled_part",
        *key("topic"),
        key_int("partition"),
        key_int("first_offset"),
        *key("tenant", "trace_id"),
        *ints("last_offset", "spilled_ns"),
        blob("packed"),
        Index("spilled_part_by_trace", "tenant", "trace_id"),
        Index("spilled_part_by_age", "spilled_ns"),
    )
