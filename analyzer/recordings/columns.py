"""Data sets kept by column, as rows. Pure.

Hugging Face's ``Dataset.to_dict()`` gives a list for each column, and a list of objects within a row may come
as an object of lists. The API of its data set viewer gives ``{"rows": [{"row": …}]}``.
Source: Hugging Face ``datasets``, ``Dataset.to_dict`` and ``Sequence`` of a dictionary; ``/rows`` (2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analyzer.recordings.file_format import Records, all_have


def rows_of(records: Records, lists: Sequence[str]) -> Records:
    """Return records as rows.

    Args:
        records: rows, or the only document that holds them by column.
        lists: keys of a row that hold a list of objects.
    """
    rows = _rows(records, lists)
    return [_row(one, lists) if isinstance(one, dict) else one for one in rows]


def _rows(records: Records, lists: Sequence[str]) -> Records:
    only = records[0] if len(records) == 1 and isinstance(records[0], dict) else {}
    held = only.get("rows")
    if isinstance(held, list) and all_have(held, "row"):
        return [one["row"] for one in held]
    columns = [only[key] for key in lists if isinstance(only.get(key), list)]
    is_by_column = any(column and all(map(_is_dialogue, column)) for column in columns)
    return _transposed(only) if is_by_column and _is_table(only) else records


def _is_dialogue(one: Any) -> bool:
    return _is_table(one) or (isinstance(one, list) and all(isinstance(each, dict) for each in one))


def _is_table(one: Any) -> bool:
    """Tell whether an object holds columns of one length."""
    if not isinstance(one, dict) or not all(isinstance(column, list) for column in one.values()):
        return False
    return len({len(column) for column in one.values()}) == 1


def _transposed(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _row(row: Mapping[str, Any], lists: Sequence[str]) -> Mapping[str, Any]:
    tables = {key: _transposed(row[key]) for key in lists if _is_table(row.get(key))}
    return {**row, **tables} if tables else row
