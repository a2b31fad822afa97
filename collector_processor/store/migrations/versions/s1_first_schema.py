"""First schema of the store.

Written out, not taken from ``schema.py``: a released migration never changes, but the tables do.
"""

from __future__ import annotations

from sqlalchemy import Column, Double, Index, text

from collector_processor.store.schema import (
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

revision = "s1"
"""Not a number: stores made before the first release have the revisions 0001 to 0012."""
down_revision = None


def upgrade() -> None:
    """Create the tables."""
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
        Index("verdict_by_time", "decided_ns"),
        Index("verdict_by_run", "run_id"),
    )
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
        Index("run_totals_by_time", "decided_ns", "tenant", "run_id", "status"),
        Index("run_totals_by_tenant", "tenant", "decided_ns", "run_id", "status"),
        Index("run_totals_by_confidence", "confidence", "tenant", "run_id"),
        Index("run_totals_by_steps", "steps", "tenant", "run_id"),
        Index("run_totals_by_duration", "duration_ns", "tenant", "run_id"),
        Index("run_totals_by_tokens", "tokens", "tenant", "run_id"),
        Index("run_totals_by_cost", "cost_usd", "tenant", "run_id"),
        Index("run_totals_by_workflow", "tenant", "service", "workflow", "decided_ns"),
    )
    create_table(
        "run_history", *key("tenant", "run_id"), *texts("said", "version", "release"), blob("elements")
    )
    create_table(
        "analysed",
        *key("tenant", "trace_id"),
        *ints("analyses", "upto_seq"),
        Index("analysed_by_seq", "upto_seq"),
    )
    create_table(
        "run_key", *key("tenant", "key", "trace_id"), Index("run_key_by_trace", "tenant", "trace_id")
    )
    create_table("run_part", *key("tenant", "trace_id", "run_id"), blob("digest"))
    create_table(
        "outbox",
        id_(),
        *texts("tenant", "signal"),
        blob("body"),
        int_("ended_ns", server_default=text("0")),
        Index("outbox_by_signal", "signal", "id"),
    )
    create_table(
        "rewrite",
        key_int("seq"),
        blob("body"),
        text_("tenant", server_default=""),
        blob("late", nullable=True),
    )
    create_table(
        "place",
        id_(),
        *texts("tenant", "run_id"),
        int_("size"),
        blob("packed"),
        Index("place_by_run", "tenant", "run_id", unique=True),
        Index("place_by_age", "id", "size"),
    )
    create_table("heeded", int_("label"))
    create_table("spending", id_(), int_("at_ns"), Column("usd", Double, nullable=False))
    create_table(
        "absent_parent",
        *key("tenant"),
        key_int("kind"),
        *texts("service", "scope", "name"),
        int_("since_ns"),
        flag("has_arrived"),
    )
    create_table("trial", *key("tenant", "id"), int_("expires_ns"))
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
    create_table(
        "kept_run",
        id_(),
        *texts("tenant", "run_id"),
        flag("is_failure"),
        flag("is_labelled"),
        *ints("kept_ns", "size"),
        blob("packed"),
        Index("kept_run_by_id", "tenant", "run_id", unique=True),
        Index("kept_run_by_age", "is_labelled", "is_failure", "kept_ns", "size"),
    )
    create_table(
        "kept_spans",
        id_(),
        *texts("tenant", "run_id"),
        flag("is_failure"),
        *ints("kept_ns", "size"),
        blob("packed"),
        Index("kept_spans_by_id", "tenant", "run_id", unique=True),
        Index("kept_spans_by_age", "is_failure", "kept_ns", "size"),
    )
    create_table(
        "opinion",
        id_(),
        *texts("tenant", "run_id", "method", "model", "run_digest"),
        int_("given_ns"),
        text_("document"),
        Index("opinion_by_run", "tenant", "run_id", "id"),
        Index("opinion_by_time", "given_ns"),
    )
    create_table(
        "experiment",
        id_(),
        *texts("tenant", "run_id"),
        int_("given_ns"),
        text_("document"),
        Index("experiment_by_run", "tenant", "run_id"),
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
        "issue",
        *key("tenant", "id"),
        *texts("mark", "state"),
        *ints("since_ns", "first_ns", "last_ns", "count"),
        text_("runs"),
        int_("muted_until_ns"),
        Index("issue_by_time", "last_ns"),
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
        text_("rules", server_default=""),
        Index("counted_run_by_issue", "tenant", "issue", "decided_ns"),
        Index("counted_run_by_time", "decided_ns"),
        Index("counted_run_by_label", "tenant", "service", "label"),
    )
    create_table(
        "agent_day", *key("tenant", "service", "agent"), key_int("day"), *ints("took_part", "blamed")
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
    create_table(
        "notice",
        id_(),
        *texts("target", "issue"),
        int_("noted_ns"),
        text_("document"),
        sqlite_autoincrement=True,
    )
    create_table("target", *key("name"), *ints("attempts", "next_ns"))
    create_table("told", text_("target"), int_("at_ns"))
    create_table("cursor", *key("name"), int_("value"))
    create_table(
        "job",
        *key("id"),
        text_("choice"),
        blob("body"),
        int_("asked_ns"),
        int_("claims", server_default=text("0")),
        int_("returned", server_default=text("0")),
        int_("lease_ns", server_default=text("0")),
        blob("answer", nullable=True),
        int_("answered_ns", server_default=text("0")),
        text_("progress", server_default=text("''")),
        Index("job_by_age", "asked_ns"),
    )
    create_table(
        "spilled_part",
        *key("topic"),
        key_int("partition"),
        key_int("first_offset"),
        *key("tenant", "trace_id"),
        *ints("last_offset", "spilled_ns"),
        blob("packed"),
        Index("spilled_part_by_trace", "tenant", "trace_id"),
        Index("spilled_part_by_age", "spilled_ns"),
    )
    create_table(
        "replica", *key("id"), *texts("kind", "version"), *ints("clock_ns", "seen_ns"), text_("facts")
    )
