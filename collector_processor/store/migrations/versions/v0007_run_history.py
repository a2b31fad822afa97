"""How runs ended and facts about their steps, for comparisons within a workflow."""

from __future__ import annotations

from collector_processor.store.columns import blob, create_table, key, texts

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table; runs from before are not compared."""
    create_table(
        "run_history", *key("tenant", "run_id"), *texts("said", "version", "release"), blob("elements")
    )
