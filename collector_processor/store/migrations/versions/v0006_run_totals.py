"""One row per run, for listing, filtering and sorting; totals of older runs stay null."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from alembic import op
from sqlalchemy import Column, Double, text

from collector_processor.store.columns import create_table, int_, key, text_, texts

revision = "0006"
down_revision = "0005"

_BATCH: Final = 1_000
_CURRENT: Final = """
SELECT tenant, run_id, version, decided_ns, status, agent, service, document FROM verdict
WHERE NOT EXISTS (
  SELECT 1 FROM verdict AS later
  WHERE later.tenant = verdict.tenant AND later.run_id = verdict.run_id AND later.version > verdict.version
) AND (tenant, run_id) > (:tenant, :run_id) ORDER BY tenant, run_id LIMIT :most
"""
_WRITE: Final = """
INSERT INTO run_totals (tenant, run_id, version, decided_ns, status, agent, service, confidence)
VALUES (:tenant, :run_id, :version, :decided_ns, :status, :agent, :service, :confidence)
"""


def upgrade() -> None:
    """Create the table, and fill it from the current verdicts."""
    create_table(
        "run_totals",
        *key("tenant", "run_id"),
        int_("version"),
        int_("decided_ns"),
        *texts("status"),
        text_("agent", nullable=True),
        text_("service"),
        Column("confidence", Double),
        text_("workflow", nullable=True),
        int_("steps", nullable=True),
        int_("started_ns", nullable=True),
        int_("duration_ns", nullable=True),
        int_("input_tokens", nullable=True),
        int_("output_tokens", nullable=True),
        int_("tokens", nullable=True),
        Column("cost_usd", Double),
    )
    _fill()
    for name, columns in (
        ("time", ("decided_ns", "tenant", "run_id", "status")),
        ("confidence", ("confidence", "tenant", "run_id")),
        ("steps", ("steps", "tenant", "run_id")),
        ("duration", ("duration_ns", "tenant", "run_id")),
        ("tokens", ("tokens", "tenant", "run_id")),
        ("cost", ("cost_usd", "tenant", "run_id")),
        ("workflow", ("tenant", "service", "workflow", "decided_ns")),
    ):
        op.create_index(f"run_totals_by_{name}", "run_totals", list(columns))


def _fill() -> None:
    db, place = op.get_bind(), {"tenant": "", "run_id": ""}
    while rows := db.execute(text(_CURRENT), {**place, "most": _BATCH}).mappings().all():
        told = [{**row, "confidence": _confidence(row["document"])} for row in rows]
        db.execute(text(_WRITE), [{name: one[name] for name in one if name != "document"} for one in told])
        place = {"tenant": rows[-1]["tenant"], "run_id": rows[-1]["run_id"]}


def _confidence(document: str) -> float | None:
    try:
        found: Any = json.loads(document)
    except ValueError:
        return None
    sure = found.get("confidence") if isinstance(found, dict) else None
    return float(sure) if isinstance(sure, int | float) and math.isfinite(sure) else None
