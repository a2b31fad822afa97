"""Searched texts of runs."""

from __future__ import annotations

from sqlalchemy import Index

from collector_processor.store.schema import create_table, id_, text_, texts

revision = "s3"
down_revision = "s2"


def upgrade() -> None:
    """Create the table; ``blamespan runs index`` writes the texts of runs stored before."""
    create_table(
        "run_text",
        id_(),
        *texts("tenant", "run_id"),
        text_("text"),
        Index("run_text_by_run", "tenant", "run_id", unique=True),
    )
