"""Commands of other processes to the one that commits verdicts; results of experiments are among them."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Index

from collector_processor.store.schema import create_table, int_, key, text_, texts

revision = "s5"
down_revision = "s4"


def upgrade() -> None:
    """Create the table, and move the results of experiments that wait."""
    create_table(
        "command",
        *key("id"),
        *texts("kind", "tenant", "run_id"),
        int_("given_ns"),
        text_("document"),
        text_("outcome", nullable=True),
        Index("command_by_run", "tenant", "run_id"),
    )
    op.execute(
        "INSERT INTO command (id, kind, tenant, run_id, given_ns, document)"
        " SELECT 'experiment ' || id, 'experiment', tenant, run_id, given_ns, document FROM experiment"
    )
    op.drop_table("experiment")
