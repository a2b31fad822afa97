"""Client of a real Jaeger's query API: urllib and plain JSON.

``/api/traces`` is what Jaeger's own UI reads; ``/api/v3`` gives the same spans as OTLP/JSON. The types below
have only the fields that tests use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, TypedDict, cast
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

TIMEOUT_S: Final = 60.0
SEARCH_LIMIT: Final = 1000  # Jaeger's own default is 100 traces


class Tag(TypedDict):
    """An attribute. ``value`` is native JSON for bool, int64, float64; lists are JSON text."""

    key: str
    type: Literal["string", "bool", "int64", "float64", "binary"]
    value: Any


class Reference(TypedDict):
    """A parent or a link; the parent, if any, comes first."""

    refType: Literal["CHILD_OF", "FOLLOWS_FROM"]
    traceID: str
    spanID: str


class Log(TypedDict):
    """A span event; its name is the field ``event``."""

    timestamp: int
    fields: list[Tag]


class JaegerSpan(TypedDict):
    """A span; times in microseconds, ``warnings`` ``None`` when there is none."""

    traceID: str
    spanID: str
    operationName: str
    references: list[Reference]
    startTime: int
    duration: int
    tags: list[Tag]
    logs: list[Log]
    processID: str
    warnings: list[str] | None


class Process(TypedDict):
    """A Resource; ``service.name`` is separate from the other attributes."""

    serviceName: str
    tags: list[Tag]


class JaegerTrace(TypedDict):
    """A trace as the UI gets it."""

    traceID: str
    spans: list[JaegerSpan]
    processes: dict[str, Process]
    warnings: list[str] | None


def tags_of(spanlike: JaegerSpan | Process) -> dict[str, Any]:
    """Return the tags as a mapping, including those that Jaeger adds (``span.kind``, ``otel.*``)."""
    return {tag["key"]: tag["value"] for tag in spanlike["tags"]}


def canonical(trace: JaegerTrace) -> dict[str, dict[str, Any]]:
    """Return the spans by id, each with its ``process`` in place of ``processID``.

    Two answers about one trace differ in the order of spans and the numbering
    of processes; compare these instead.

    Raises:
        ValueError: two spans have one id.
    """
    spans: dict[str, dict[str, Any]] = {}
    for span in trace["spans"]:
        if span["spanID"] in spans:
            raise ValueError(f"two spans have the id {span['spanID']}")
        process = trace["processes"][span["processID"]]
        rest = {key: value for key, value in span.items() if key != "processID"}
        spans[span["spanID"]] = rest | {"process": process}
    return spans


@dataclass(frozen=True, slots=True, kw_only=True)
class JaegerQuery:
    """The query API of one Jaeger, at e.g. ``http://127.0.0.1:16686``."""

    base_url: str

    def services(self) -> list[str]:
        """Return the names of the services that sent spans."""
        return cast("list[str]", self._data("/api/services") or [])

    def find_traces(
        self, service: str, *, tags: Mapping[str, str] | None = None, lookback_s: float = 3600
    ) -> list[JaegerTrace]:
        """Return the whole traces in which one span of ``service`` has all ``tags``.

        Tags are compared as text; those of the Resource and of events count too.
        That span must have started within ``lookback_s`` before now.
        """
        now_us = time.time_ns() // 1000
        asked: dict[str, str | int] = {
            "service": service,
            "start": now_us - int(lookback_s * 1_000_000),
            "end": now_us,
            "limit": SEARCH_LIMIT,
        }
        if tags:
            asked["tags"] = json.dumps(dict(tags))
        return cast("list[JaegerTrace]", self._data(f"/api/traces?{urlencode(asked)}"))

    def trace(self, trace_id: str) -> JaegerTrace | None:
        """Return a trace by its hex id, or ``None`` if Jaeger has no span of it."""
        found = self._data(f"/api/traces/{trace_id}")
        return cast("JaegerTrace", found[0]) if found else None

    def otlp_trace(self, trace_id: str) -> dict[str, Any] | None:
        """Return a trace as OTLP/JSON (``resourceSpans``), as stored: nothing adjusted.

        Ids are in hex, 64-bit numbers are strings, enums are numbers.
        """
        reply = self._get(f"/api/v3/traces/{trace_id}?raw_traces=true")
        return None if reply is None else cast("dict[str, Any]", reply["result"])

    def _data(self, path: str) -> Any:
        reply = self._get(path)
        return None if reply is None else reply["data"]

    def _get(self, path: str) -> Any:
        """Return the parsed answer, or ``None`` for 404; other failures are raised."""
        direct = build_opener(ProxyHandler({}))  # loopback never goes by a proxy
        try:
            with direct.open(self.base_url + path, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as refusal:
            with refusal:
                if refusal.code == HTTPStatus.NOT_FOUND:
                    return None
            raise
