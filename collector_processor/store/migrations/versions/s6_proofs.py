"""The last experiment on each run, and the last backtest of each issue."""

from __future__ import annotations

from sqlalchemy import Index

from collector_processor.store.schema import create_table, int_, key, text_

revision = "s6"
down_revision = "s5"


def upgrade() -> None:
    """Create the table; experiments that ended before are not in it."""
    create_table(
        "proof",
        *key("tenant", "subject", "kind"),
        text_("service"),
        int_("ended_ns"),
        text_("document"),
        Index("proof_by_service", "tenant", "service", "ended_ns"),
        Index("proof_by_age", "ended_ns"),
    )
