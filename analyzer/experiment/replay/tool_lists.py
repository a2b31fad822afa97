"""Lists of an MCP server's tools, without the schemas of results. Pure; standard library alone.

Clients check results against these schemas, and traces seldom hold the structured half of a result.
"""

from __future__ import annotations

import json
from typing import Final

_DATA: Final = b"data:"


def without_output_schemas(body: bytes) -> bytes:
    """Return a list of tools, as JSON or server-sent events, without the schemas; other bytes unchanged."""
    whole = _without_schemas(body)
    if whole is not None:
        return whole
    return b"\n".join(_event_without_schemas(line) for line in body.split(b"\n"))


def _event_without_schemas(line: bytes) -> bytes:
    found = _without_schemas(line.removeprefix(_DATA)) if line.startswith(_DATA) else None
    return line if found is None else _DATA + b" " + found


def _without_schemas(text: bytes) -> bytes | None:
    try:
        message = json.loads(text)
        for tool in message["result"]["tools"]:
            tool.pop("outputSchema", None)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    return json.dumps(message).encode()
