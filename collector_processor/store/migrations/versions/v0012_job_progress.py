"""What a job has spent so far, for the person who waits for it."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from collector_processor.store.columns import text_

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column."""
    op.add_column("job", text_("progress", server_default=text("''")))
