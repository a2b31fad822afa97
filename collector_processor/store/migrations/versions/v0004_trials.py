"""Trials of experiments, which are not production runs."""

from __future__ import annotations

from collector_processor.store.columns import create_table, int_, key

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table of trials."""
    create_table("trial", *key("tenant", "id"), int_("expires_ns"))
