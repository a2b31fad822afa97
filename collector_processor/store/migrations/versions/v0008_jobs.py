"""Jobs for analyzers, and the replicas that share the store."""

from __future__ import annotations

from sqlalchemy import Index, text

from collector_processor.store.columns import blob, create_table, int_, ints, key, text_, texts

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the tables of jobs and of replicas."""
    create_table(
        "job",
        *key("id"),
        text_("choice"),
        blob("body"),
        int_("asked_ns"),
        int_("claims", server_default=text("0")),
        int_("returned", server_default=text("0")),
        int_("lease_ns", server_default=text("0")),
        blob("answer", nullable=True),
        int_("answered_ns", server_default=text("0")),
        Index("job_by_age", "asked_ns"),
    )
    create_table(
        "replica", *key("id"), *texts("kind", "version"), *ints("clock_ns", "seen_ns"), text_("facts")
    )
