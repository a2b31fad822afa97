"""Columns of the store's tables and of their migrations, the same for SQLite and PostgreSQL.

Text sorts by its bytes on both (collation C). No column may be null unless its definition says so. A change
here would change migrations that were released: add a new kind of column instead.
"""

from __future__ import annotations

from typing import Any, Final

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, Text, false

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


def has_rowid(*columns: Column[Any] | Index) -> bool:
    """Return whether SQLite numbers a table's rows; a key that begins with a text orders them instead."""
    first = columns[0]
    return not (isinstance(first, Column) and first.primary_key and isinstance(first.type, Text))


def create_table(name: str, *columns: Column[Any] | Index, **options: Any) -> None:
    """Create a table and its indexes, as a step of a migration."""
    op.create_table(name, *columns, sqlite_with_rowid=has_rowid(*columns), **options)
