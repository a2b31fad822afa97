"""Facts of runs from which invariants of their workflow are mined."""

from __future__ import annotations

from alembic import op

from collector_processor.store.schema import blob

revision = "s2"
down_revision = "s1"


def upgrade() -> None:
    """Add the column; runs stored before have none."""
    op.add_column("run_history", blob("invariants", nullable=True))
