"""Tables of the archive: their columns as Arrow schemas, and the folders of their partitions.

Columns hold names, numbers, ids and times; no column holds a text of a run. Types are those that every engine
reads alike: strings, integers, doubles, booleans, and times in microseconds, UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from collector_processor.otlp import Tenant

VERDICTS: Final = "verdicts"
STEPS: Final = "steps"
SPECTRA: Final = "spectra"

_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us")
_RUN: Final = {"run_id": _TEXT, "version": pa.int32(), "service": _TEXT, "workflow": _TEXT}
"""Columns of all tables. The version is that of the verdict which was current at the export."""

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    VERDICTS: pa.schema(
        _RUN
        | {
            "release": _TEXT,
            "workflow_version": _TEXT,
            "outcome": _TEXT,
            "status": _TEXT,
            "agent": _TEXT,
            "step": pa.int32(),
            "trace_id": _TEXT,
            "span_id": _TEXT,
            "failure_id": _TEXT,
            "mode": _TEXT,
            "confidence": pa.float64(),
            "method": _TEXT,
            "model": _TEXT,
            "is_by_person": pa.bool_(),
            "decided_at": _TIME,
            "calls": pa.int64(),
            "analysis_input_tokens": pa.int64(),
            "analysis_output_tokens": pa.int64(),
            "analysis_cost_usd": pa.float64(),
            "started_at": _TIME,
            "duration_s": pa.float64(),
            "steps": pa.int32(),
            "input_tokens": pa.int64(),
            "output_tokens": pa.int64(),
            "cost_usd": pa.float64(),
        }
    ),
    STEPS: pa.schema(
        _RUN
        | {
            "step": pa.int32(),
            "agent": _TEXT,
            "kind": _TEXT,
            "target": _TEXT,
            "status": _TEXT,
            "is_error": pa.bool_(),
            "is_decisive": pa.bool_(),
            "probability": pa.float64(),
            "trace_id": _TEXT,
            "span_id": _TEXT,
            "started_at": _TIME,
            "duration_s": pa.float64(),
            "input_chars": pa.int64(),
            "output_chars": pa.int64(),
        }
    ),
    SPECTRA: pa.schema(
        _RUN
        | {
            "workflow_version": _TEXT,
            "outcome": _TEXT,
            "element": pa.int32(),
            "name": _TEXT,
            "step": pa.int32(),
        }
    ),
}
"""Columns of each table; ``day`` and ``tenant`` are in the names of the folders."""

NO_TENANT_FOLDER: Final = "none"
"""Name of the partition of runs without a tenant; tenants are ``header=value``."""
_MOST_CHARACTERS: Final = 200
"""Of a quoted tenant; file systems allow names of 255 bytes."""
_KEPT_CHARACTERS: Final = 55
"""Characters of a longer tenant that are kept; each takes at most three when quoted."""


def partition(day: str, tenant: Tenant) -> str:
    """Return the folder of a day (``YYYY-MM-DD``) and a tenant below a table's, as Hive names it."""
    return f"day={day}/tenant={quote(tenant_name(tenant), safe='')}"


def tenant_name(tenant: Tenant) -> str:
    """Return the value of the column ``tenant``: of a very long one, its beginning and a digest."""
    if not tenant:
        return NO_TENANT_FOLDER
    if len(quote(tenant, safe="")) <= _MOST_CHARACTERS:
        return tenant
    return f"{tenant[:_KEPT_CHARACTERS]}~{blake2b(tenant.encode(), digest_size=8).hexdigest()}"
