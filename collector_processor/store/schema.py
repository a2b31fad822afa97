"""Tables of the store: verdicts and their outbox, labels and kept runs, issues, spending.

SQLAlchemy metadata, the same for SQLite and PostgreSQL, from which new stores are made. A change here needs
a migration in ``migrations/versions/`` that makes the same of an older store; a test compares the two. Times
are nanoseconds since the Unix epoch.

Text sorts by its bytes on both (collation C). No column may be null unless its definition says so. The
migrations build their columns with the functions here. A change of one would change migrations that were
released: add a new kind of column instead.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
_INT: Final = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits on both; SQLite assigns row numbers only if the type is INTEGER."""


def text_(name: str, **options: Any) -> Column[str]:
    """Return a column of text."""
    return Column(name, _TEXT, **({"nullable": False} | options))


def texts(*names: str, **options: Any) -> list[Column[str]]:
    """Return columns of text."""
    return [text_(name, **options) for name in names]


def key(*names: str) -> list[Column[str]]:
    """Return columns of text that form the primary key or its beginning."""
    return texts(*names, primary_key=True)


def int_(name: str, **options: Any) -> Column[int]:
    """Return a column of integers."""
    return Column(name, _INT, **({"nullable": False} | options))


def ints(*names: str) -> list[Column[int]]:
    """Return columns of integers."""
    return [int_(name) for name in names]


def key_int(name: str) -> Column[int]:
    """Return a column of integers that is the primary key or part of it; the caller numbers the rows."""
    return int_(name, primary_key=True, autoincrement=False)


def id_() -> Column[int]:
    """Return the primary key of rows that the database numbers."""
    return int_("id", primary_key=True, autoincrement=True)


def blob(name: str, **options: Any) -> Column[bytes]:
    """Return a column of bytes."""
    return Column(name, LargeBinary, **({"nullable": False} | options))


def flag(name: str) -> Column[bool]:
    """Return a column of truth values, false by default."""
    return Column(name, Boolean, nullable=False, server_default=false())


METADATA: Final = MetaData()


def _table(name: str, *columns: Column[Any] | Index, **options: Any) -> None:
    first = columns[0]
    # SQLite numbers the rows of a table; a key that begins with a text orders them instead.
    has_rowid = not (isinstance(first, Column) and first.primary_key and isinstance(first.type, Text))
    Table(name, METADATA, *columns, sqlite_with_rowid=has_rowid, **options)


_table(
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
    Index("verdict_by_run", "run_id"),  # runs are looked up by id or by its beginning, for all tenants
)
_table(
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
_table(
    "run_history",
    *key("tenant", "run_id"),
    *texts("said", "version", "release"),
    blob("elements"),
    blob("invariants", nullable=True),
)
_table(
    "analysed",
    *key("tenant", "trace_id"),
    *ints("analyses", "upto_seq"),
    Index("analysed_by_seq", "upto_seq"),
)
_table("run_key", *key("tenant", "key", "trace_id"), Index("run_key_by_trace", "tenant", "trace_id"))
_table("run_part", *key("tenant", "trace_id", "run_id"), blob("digest"))
_table(
    "outbox",
    id_(),
    *texts("tenant", "signal"),
    blob("body"),
    int_("ended_ns", server_default=text("0")),  # a verdict's lag is measured on delivery
    Index("outbox_by_signal", "signal", "id"),
)
_table(
    "rewrite", key_int("seq"), blob("body"), text_("tenant", server_default=""), blob("late", nullable=True)
)
_table(
    "place",
    id_(),
    *texts("tenant", "run_id"),
    int_("size"),
    blob("packed"),
    Index("place_by_run", "tenant", "run_id", unique=True),
    Index("place_by_age", "id", "size"),
)
_table("heeded", int_("label"))
_table("spending", id_(), int_("at_ns"), Column("usd", Double, nullable=False))
_table(
    "absent_parent",
    *key("tenant"),
    key_int("kind"),
    *texts("service", "scope", "name"),
    int_("since_ns"),
    flag("has_arrived"),
)
_table("trial", *key("tenant", "id"), int_("expires_ns"))
_table(
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
_table(
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
_table(
    "kept_spans",
    id_(),
    *texts("tenant", "run_id"),
    flag("is_failure"),
    *ints("kept_ns", "size"),
    blob("packed"),
    Index("kept_spans_by_id", "tenant", "run_id", unique=True),
    Index("kept_spans_by_age", "is_failure", "kept_ns", "size"),
)
_table(
    "run_text",
    id_(),
    *texts("tenant", "run_id"),
    text_("text"),
    Index("run_text_by_run", "tenant", "run_id", unique=True),
)
_table(
    "opinion",
    id_(),
    *texts("tenant", "run_id", "method", "model", "run_digest"),
    int_("given_ns"),
    text_("document"),
    Index("opinion_by_run", "tenant", "run_id", "id"),
    Index("opinion_by_time", "given_ns"),
)
_table(
    "command",
    *key("id"),
    *texts("kind", "tenant", "run_id"),
    int_("given_ns"),
    text_("document"),
    text_("outcome", nullable=True),
    Index("command_by_run", "tenant", "run_id"),
)
_table(
    "proof",
    *key("tenant", "subject", "kind"),
    text_("service"),
    int_("ended_ns"),
    text_("document"),
    Index("proof_by_service", "tenant", "service", "ended_ns"),
    Index("proof_by_age", "ended_ns"),
)
_table(
    "label",
    id_(),
    *texts("tenant", "run_id", "kind"),
    int_("version"),
    text_("service"),
    int_("labelled_ns"),
    text_("agent", nullable=True),
    int_("step", nullable=True),
    *texts("span_id", "why", "author", nullable=True),
    Index("label_by_run", "tenant", "run_id", "id"),
)
_table(
    "issue",
    *key("tenant", "id"),
    *texts("mark", "state"),
    *ints("since_ns", "first_ns", "last_ns", "count"),
    text_("runs"),
    int_("muted_until_ns"),
    Index("issue_by_time", "last_ns"),
)
_table(
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
_table("agent_day", *key("tenant", "service", "agent"), key_int("day"), *ints("took_part", "blamed"))
_table(
    "watch",
    *key("tenant", "service", "agent"),
    *ints("begun_day", "last_day", "hits", "n"),
    text_("sums"),
    flag("is_alarm"),
    *ints("calm_runs", "alarm_ns"),
    text_("run_id"),
)
_table(
    "notice",
    id_(),
    *texts("target", "issue"),
    int_("noted_ns"),
    text_("document"),
    sqlite_autoincrement=True,  # receivers tell notices apart by number
)
_table("target", *key("name"), *ints("attempts", "next_ns"))
_table("told", text_("target"), int_("at_ns"))
_table("cursor", *key("name"), int_("value"))
_table(
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
_table(
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
_table("replica", *key("id"), *texts("kind", "version"), *ints("clock_ns", "seen_ns"), text_("facts"))


def sqlite_statements() -> str:
    """Return the statements that make a new SQLite store; ``database/new_store.sql`` holds them."""
    tables = METADATA.sorted_tables
    indexes = [index for table in tables for index in sorted(table.indexes, key=lambda each: str(each.name))]
    made: list[ExecutableDDLElement] = [*map(CreateTable, tables), *map(CreateIndex, indexes)]
    # As Alembic makes it, which upgrades this store one day.
    version = (
        "CREATE TABLE alembic_version (\n\tversion_num VARCHAR(32) NOT NULL, \n"
        "\tCONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)\n)"
    )
    written = [str(one.compile(dialect=sqlite.dialect())).strip() for one in made]
    return "".join(f"{one};\n" for one in [*written, version])


if __name__ == "__main__":
    sys.stdout.write(sqlite_statements())
