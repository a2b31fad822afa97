"""Second opinions on runs; kept, because they cost money."""

from __future__ import annotations

from sqlalchemy import Index

from collector_processor.store.columns import create_table, id_, int_, text_, texts

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table of second opinions."""
    create_table(
        "opinion",
        id_(),
        *texts("tenant", "run_id", "method", "model", "run_digest"),
        int_("given_ns"),
        text_("document"),
        Index("opinion_by_run", "tenant", "run_id", "id"),
        Index("opinion_by_time", "given_ns"),
    )
