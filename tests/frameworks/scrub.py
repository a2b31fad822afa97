"""Removes this machine's data from a recording: hosts, users, paths, ports, process ids. Pure.

The same recording always gives the same text; span ids and times stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

PORT: Final = 8080
"""Replaces the port of the scripted server, and of other servers that a run starts."""
_LOOPBACK: Final = re.compile(r"127\.0\.0\.1:\d+")
_OF_THE_MACHINE: Final = ("host.", "os.", "process.", "service.instance.id", "enduser.", "user.")
"""Resource attributes that identify the machine of a recording; they are removed."""


def scrub(document: dict[str, Any], *, port: int, names: Mapping[str, str]) -> str:
    """Return an export request in OTLP/JSON as one line without data of the machine.

    Args:
        document: the request; changed in place.
        port: of the scripted server.
        names: what stands for each folder of this machine, and for its system; longer ones first.
    """
    for kind in ("resourceSpans", "resourceLogs"):
        for group in document.get(kind, ()):
            resource = group.get("resource") or {}
            resource["attributes"] = [
                each for each in resource.get("attributes", ()) if not each["key"].startswith(_OF_THE_MACHINE)
            ]
    for value in _values(document):
        if value.get("intValue") == str(port):
            value["intValue"] = str(PORT)
        if value.get("stringValue") == str(port):
            value["stringValue"] = str(PORT)
    line = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    for own, name in names.items():
        line = line.replace(own, name)
    return _LOOPBACK.sub(f"127.0.0.1:{PORT}", line)


def _values(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    todo: list[Any] = [document]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            if "intValue" in node or "stringValue" in node:
                yield node
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
