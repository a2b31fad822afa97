"""An index of each tenant's newest runs: a small tenant's list does not read the runs of all others."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the index."""
    op.create_index(
        "run_totals_by_tenant", "run_totals", ["tenant", "decided_ns", "run_id", "status"], if_not_exists=True
    )
