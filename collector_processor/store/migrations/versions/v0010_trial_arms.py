"""Trials of experiments that are kept to be compared on the page."""

from __future__ import annotations

from sqlalchemy import Index

from collector_processor.store.columns import blob, create_table, flag, int_, ints, key, texts

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table of kept trials."""
    create_table(
        "trial_arm",
        *key("id"),
        *texts("tenant", "run_id"),
        int_("step"),
        flag("is_changed"),
        flag("has_passed"),
        *ints("kept_ns", "size"),
        blob("packed"),
        Index("trial_arm_by_run", "tenant", "run_id"),
        Index("trial_arm_by_age", "kept_ns", "id", "size"),
    )
