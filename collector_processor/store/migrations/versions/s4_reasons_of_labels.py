"""Why a person labelled a run so, and who."""

from __future__ import annotations

from alembic import op

from collector_processor.store.schema import texts

revision = "s4"
down_revision = "s3"


def upgrade() -> None:
    """Add the columns; labels stored before have neither."""
    for column in texts("why", "author", nullable=True):
        op.add_column("label", column)
