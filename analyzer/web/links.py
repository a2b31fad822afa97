"""Where a run's trace is shown by those who keep it: Jaeger and Grafana with Tempo. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

_RANGE: Final = {"from": "now-7d", "to": "now"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLinks:
    """The addresses of the users' own pages; ``None`` where they have none."""

    jaeger: str | None = None
    grafana: str | None = None
    tempo_uid: str = "tempo"
    """Grafana's id of the data source."""

    def to(self, trace_id: str | None, span_id: str | None) -> tuple[tuple[str, str], ...]:
        """Return names and addresses for a trace, the step's span shown where that can be said."""
        if not trace_id:
            return ()
        found = []
        if self.jaeger:
            found.append(("Jaeger", _jaeger(self.jaeger, trace_id, span_id)))
        if self.grafana:
            found.append(("Tempo", _explore(self.grafana, self.tempo_uid, trace_id)))
        return tuple(found)


def _jaeger(base: str, trace_id: str, span_id: str | None) -> str:
    shown = f"?{urlencode({'uiFind': span_id})}" if span_id else ""
    return f"{base.rstrip('/')}/trace/{quote(trace_id, safe='')}{shown}"


def _explore(base: str, uid: str, trace_id: str) -> str:
    """Grafana's Explore: its state is JSON in the address."""
    source = {"type": "tempo", "uid": uid}
    query = {"refId": "A", "datasource": source, "queryType": "traceql", "query": trace_id}
    panes = {"blamespan": {"datasource": uid, "queries": [query], "range": _RANGE}}
    asked = {"schemaVersion": "1", "orgId": "1", "panes": json.dumps(panes, separators=(",", ":"))}
    return f"{base.rstrip('/')}/explore?{urlencode(asked)}"
