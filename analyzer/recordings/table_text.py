"""Tables as records, a row each: CSV, Parquet, and a data frame's JSON by columns or by index. Pure.

Cells of CSV are texts, and ``None`` where they are empty; Parquet keeps its types, moments as ISO texts.
Parquet is unpacked within bounds: a column of one repeated value takes a few bytes, whatever its length.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.recording import Records
from semconv.dialects.reading.python_repr import from_repr
from semconv.dialects.reading.values import structured

PARQUET: Final = b"PAR1"
MAX_PARQUET_BYTES: Final = 256 << 20
"""Largest Parquet file unpacked, in bytes; as Python's objects it takes several times as much."""
MOST_CELLS: Final = 5_000_000
"""Most values in a Parquet file, those inside of lists included."""
_PER_BATCH: Final = 1 << 26
"""Bytes that a batch of rows may take if each row holds its column's largest value."""
_HEADER: Final = re.compile(rb"(?:\xef\xbb\xbf)?\"?[A-Za-z_]?[\w.\- \"\[\]]*[,;\t][\w.\- \",;\t\[\]]*\r?\n")
_DELIMITERS: Final = ",;\t"
_FEWEST_COLUMNS: Final = 3
_ROW_KEYS: Final = frozenset({"name", "span_name", "op_name", "trace_id", "trace"})
"""Keys by which a row is told from a column."""
_NO_LITERAL: Final = re.compile(
    r"\b(?:datetime\.datetime|Timestamp)\((?:[^()]|\([^()]{0,99}\)){0,99}\)"
    r"|\bnan\b|\barray\(|, dtype=object\)"
)
"""What is no literal in the ``repr`` of a cell: moments, numbers that are absent, arrays around a list."""
_NAME: Final = re.compile(r"[A-Za-z_][\w.\- ]*(?: \[[A-Z]{3}\])?\Z")
"""Name of a column; Azure's portal adds the zone to that of a time: ``timestamp [UTC]``."""


def looks_like_csv(plain: bytes) -> bool:
    """Tell whether a file's first line may be the header of a table: names between delimiters."""
    return _HEADER.match(plain[: 1 << 16]) is not None


def read_csv(plain: bytes) -> tuple[tuple[dict[str, Any], ...], str] | None:
    """Return the rows of a CSV file, and a warning if its last row is cut short; ``None`` if it is none."""
    if not looks_like_csv(plain):
        return None
    try:
        text = plain.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    csv.field_size_limit(1 << 30)  # cells hold whole conversations; the limit is the process's
    header = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        names, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    except csv.Error:
        return None
    return _records(names, [row for row in rows if row])


def _records(names: Sequence[str], rows: list[list[str]]) -> tuple[tuple[dict[str, Any], ...], str] | None:
    first, *others = names  # pandas' index, whose name is empty or that of a column
    if len(names) < _FEWEST_COLUMNS or len(set(others)) < len(others) or not rows:
        return None
    if not all(map(_NAME.match, others)) or not (not first or _NAME.match(first)):
        return None
    warning = ""
    if len(rows) > 1 and len(rows[-1]) < len(names):
        warning = f"row {len(rows)}, the last one, is cut short and was left out"
        rows = rows[:-1]
    if any(len(row) != len(names) for row in rows):
        return None
    return tuple(dict(zip(names, (cell or None for cell in row), strict=True)) for row in rows), warning


def read_parquet(data: bytes) -> tuple[dict[str, Any], ...]:
    """Return the rows of a Parquet file.

    Raises:
        UnreadableInput: pyarrow is not installed, or the file is damaged or too large.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UnreadableInput(
            "Parquet, which needs pyarrow: it is in the extra history: pip install '.[server,history]'"
        ) from error
    try:
        return tuple(_parquet_rows(pq.ParquetFile(io.BytesIO(data))))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableInput(f"broken Parquet: {str(error).partition(chr(10))[0]}") from error


def _parquet_rows(file: Any) -> Iterator[dict[str, Any]]:
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    if sum(column.num_values for column in columns) > MOST_CELLS:
        raise UnreadableInput(f"Parquet with more than {MOST_CELLS:,} values")
    size, left = sum(column.total_uncompressed_size for column in columns), MAX_PARQUET_BYTES
    for batch in file.iter_batches(batch_size=max(1, min(1024, _PER_BATCH // max(1, size)))):
        for row in batch.to_pylist():
            left -= len(str(row))
            if left < 0:
                raise UnreadableInput(f"Parquet that unpacks to more than {MAX_PARQUET_BYTES >> 20} MiB")
            yield {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Return a value as JSON would have it; recursion is as deep as the file's schema."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def rows_of(records: Records) -> Records:
    """Return the rows of a data frame that is one document; otherwise the records themselves.

    pandas' ``to_json`` writes ``{column: {index: value}}``; with ``orient="index"`` it is the other way
    round, and with ``orient="split"`` columns and data are apart.
    Logfire's API lists columns, each with its ``values``; Azure's has ``rows`` beside the columns' names, and
    Elastic's ES|QL ``values``.
    """
    only = records[0] if len(records) == 1 else None
    if not isinstance(only, dict):
        return records
    columns = only.get("columns")
    data = next((only[key] for key in ("data", "rows", "values") if key in only), None)
    if isinstance(columns, list) and isinstance(data, list):
        columns = [column.get("name") if isinstance(column, dict) else column for column in columns]
        is_table = all(isinstance(row, list) and len(row) == len(columns) for row in data)
        return [dict(zip(map(str, columns), row, strict=True)) for row in data] if is_table else records
    if isinstance(columns, list) and all(isinstance(each, dict) and "values" in each for each in columns):
        only = {str(column.get("name")): column["values"] for column in columns}
    return _transposed(only) or records


def _transposed(columns: Mapping[str, Any]) -> Records:
    """Return rows: of columns of one length (lists, or objects by index), or listed by index; else none."""
    places = [
        range(len(each)) if isinstance(each, list) else each.keys() if isinstance(each, dict) else ()
        for each in columns.values()
    ]
    if not places or not places[0] or any(place != places[0] for place in places):
        return []
    if not _ROW_KEYS.isdisjoint(places[0]):
        return list(columns.values())
    if len(places) < _FEWEST_COLUMNS:
        return []
    return [{name: column[place] for name, column in columns.items()} for place in places[0]]


def cell_of(value: Any) -> Any:
    """Return the value of a cell: a list or an object also if it is JSON or Python's ``repr`` of one."""
    value = structured(value)
    if not isinstance(value, str) or value[:1] not in {"[", "{", "a"}:
        return value
    found = from_repr(value)
    if isinstance(found, str):
        found = from_repr(_NO_LITERAL.sub(_literal, value))
    return value if isinstance(found, str) else found


def _literal(found: re.Match[str]) -> str:
    return {"array(": "(", ", dtype=object)": ")"}.get(found[0], "None")
