"""First schema of the single store.

Written out, not taken from ``schema.py``: a released migration never changes, but the tables do.
"""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, text

from collector_processor.store.columns import (
    blob,
    create_table,
    flag,
    id_,
    int_,
    ints,
    key,
    key_int,
    text_,
    texts,
)

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    create_table(
        "absent_parent",
        *key("tenant"),
        key_int("kind"),
        *texts("service", "scope", "name"),
        int_("since_ns"),
        flag("has_arrived"),
    )
    create_table(
        "agent_day", *key("tenant", "service", "agent"), key_int("day"), *ints("took_part", "blamed")
    )
    create_table(
        "analysed",
        *key("tenant", "trace_id"),
        *ints("analyses", "upto_seq"),
        Index("analysed_by_seq", "upto_seq"),
    )
    create_table(
        "counted_run",
        *key("tenant", "run_id"),
        *texts("service", "agents"),
        text_("blamed", nullable=True),
        int_("step", nullable=True),
        *texts("mark", "issue", nullable=True),
        int_("decided_ns"),
        *texts("label", "label_agent", nullable=True),
        int_("label_step", nullable=True),
        text_("status", server_default=""),
        int_("settled_ns", server_default=text("0")),
        Index("counted_run_by_issue", "tenant", "issue", "decided_ns"),
        Index("counted_run_by_label", "tenant", "service", "label"),
        Index("counted_run_by_time", "decided_ns"),
    )
    create_table("cursor", *key("name"), int_("value"))
    create_table("heeded", int_("label"))
    create_table(
        "issue",
        *key("tenant", "id"),
        *texts("mark", "state"),
        *ints("since_ns", "first_ns", "last_ns", "count"),
        text_("runs"),
        int_("muted_until_ns"),
        Index("issue_by_time", "last_ns"),
    )
    create_table(
        "kept_run",
        id_(),
        *texts("tenant", "run_id"),
        flag("is_failure"),
        flag("is_labelled"),
        *ints("kept_ns", "size"),
        blob("packed"),
        Index("kept_run_by_age", "is_labelled", "is_failure", "kept_ns", "size"),
        Index("kept_run_by_id", "tenant", "run_id", unique=True),
    )
    create_table(
        "label",
        id_(),
        *texts("tenant", "run_id", "kind"),
        int_("version"),
        text_("service"),
        int_("labelled_ns"),
        text_("agent", nullable=True),
        int_("step", nullable=True),
        text_("span_id", nullable=True),
        Index("label_by_run", "tenant", "run_id", "id"),
    )
    create_table(
        "notice",
        id_(),
        *texts("target", "issue"),
        int_("noted_ns"),
        text_("document"),
        sqlite_autoincrement=True,
    )
    create_table(
        "outbox",
        id_(),
        *texts("tenant", "signal"),
        blob("body"),
        int_("ended_ns", server_default=text("0")),
        Index("outbox_by_signal", "signal", "id"),
    )
    create_table("pending", *key("tenant", "run_id"), int_("noted_ns"), text_("document"))
    create_table(
        "place",
        id_(),
        *texts("tenant", "run_id"),
        int_("size"),
        blob("packed"),
        Index("place_by_age", "id", "size"),
        Index("place_by_run", "tenant", "run_id", unique=True),
    )
    create_table(
        "rewrite",
        key_int("seq"),
        blob("body"),
        text_("tenant", server_default=""),
        blob("late", nullable=True),
    )
    create_table(
        "run_key", *key("tenant", "key", "trace_id"), Index("run_key_by_trace", "tenant", "trace_id")
    )
    create_table("run_part", *key("tenant", "trace_id", "run_id"), blob("digest"))
    create_table("spending", id_(), int_("at_ns"), Column("usd", Double, nullable=False))
    create_table("target", *key("name"), *ints("attempts", "next_ns"))
    create_table("told", text_("target"), int_("at_ns"))
    create_table(
        "verdict",
        *key("tenant", "run_id"),
        key_int("version"),
        *texts("failure_id", "status"),
        text_("agent", nullable=True),
        int_("step", nullable=True),
        *texts("span_id", "trace_id", nullable=True),
        text_("service"),
        flag("is_provisional"),
        int_("decided_ns"),
        text_("document"),
        Index("verdict_by_run", "run_id"),
        Index("verdict_by_time", "decided_ns"),
    )
    create_table(
        "watch",
        *key("tenant", "service", "agent"),
        *ints("begun_day", "last_day", "hits", "n"),
        text_("sums"),
        flag("is_alarm"),
        *ints("calm_runs", "alarm_ns"),
        text_("run_id"),
    )
