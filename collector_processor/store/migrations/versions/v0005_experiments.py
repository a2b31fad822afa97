"""Results of experiments that the service has not yet turned into verdicts."""

from __future__ import annotations

from sqlalchemy import Index

from collector_processor.store.columns import create_table, id_, int_, text_, texts

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table of experiments' results."""
    create_table(
        "experiment",
        id_(),
        *texts("tenant", "run_id"),
        int_("given_ns"),
        text_("document"),
        Index("experiment_by_run", "tenant", "run_id"),
    )
