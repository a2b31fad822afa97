"""``python -m tools.jaeger_picture OUT.svg``: waterfall of a blamed trace from a real Jaeger.

Starts Jaeger, plays the demo into it, asks Jaeger's API for the trace, and draws the response. Nothing in the
picture is made up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from tests.backends import install
from tests.backends.jaeger_query import JaegerQuery, JaegerSpan, JaegerTrace, tags_of
from tests.backends.processes import start_jaeger

WIDTH: Final = 1180
ROW: Final = 26
LEFT: Final = 360
TOP: Final = 92
_FONT: Final = "font-family='ui-sans-serif,system-ui,Segoe UI,Helvetica,Arial,sans-serif'"
_TITLE: Final = "A failed run in Jaeger, blamed by blamespan"
_SUBTITLE: Final = (
    "Drawn from the answer of a real Jaeger's query API. The red rows are carriers; every other span is as"
    " the agents sent it."
)
_COLOURS: Final = {
    "invoke_workflow": "#64748b",
    "invoke_agent": "#3b82f6",
    "chat": "#0ea5e9",
    "execute_tool": "#f59e0b",
    "handoff": "#a855f7",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One span in the picture; times in microseconds from the trace's start."""

    name: str
    depth: int
    start: int
    duration: int
    tags: dict[str, Any]

    @property
    def is_carrier(self) -> bool:
        return bool(self.tags.get("blamespan.carrier"))

    @property
    def is_decisive(self) -> bool:
        return bool(self.tags.get("blamespan.failure.decisive"))


def main(out: Path) -> None:
    """Make the picture."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_jaeger(install.build("jaeger"), Path(folder)) as jaeger,
    ):
        played = subprocess.run(
            [
                sys.executable,
                "-m",
                "analyzer",
                "demo",
                "--format",
                "json",
                "--endpoint",
                jaeger.otlp_grpc_endpoint,
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        verdict = json.loads(played.stdout)
        trace = JaegerQuery(base_url=f"http://127.0.0.1:{jaeger.query_port}").trace(verdict["trace_id"])
    assert trace is not None
    out.write_text(draw(rows_of(trace)), encoding="utf-8")
    sys.stderr.write(
        f"{out}: {len(trace['spans'])} spans, blamed {verdict['agent']} at step {verdict['step']}\n"
    )


def rows_of(trace: JaegerTrace) -> list[Row]:
    """Return the trace's spans as a flattened tree, children ordered by start."""
    children: defaultdict[str | None, list[JaegerSpan]] = defaultdict(list)
    ids = {span["spanID"] for span in trace["spans"]}
    for span in trace["spans"]:
        links = [ref["spanID"] for ref in span["references"] if ref["refType"] == "CHILD_OF"]
        parents = [span_id for span_id in links if span_id in ids]
        children[parents[0] if parents else None].append(span)
    first = min(span["startTime"] for span in trace["spans"])
    stack = [(span, 0) for span in _latest_first(children[None])]
    rows: list[Row] = []
    while stack:
        span, depth = stack.pop()
        rows.append(
            Row(
                name=span["operationName"],
                depth=depth,
                start=span["startTime"] - first,
                duration=span["duration"],
                tags=tags_of(span),
            )
        )
        stack += [(child, depth + 1) for child in _latest_first(children[span["spanID"]])]
    return rows


def _latest_first(spans: list[JaegerSpan]) -> list[JaegerSpan]:
    return sorted(spans, key=lambda span: (span["startTime"], span["duration"]), reverse=True)


def draw(rows: list[Row]) -> str:
    """Return the waterfall as SVG."""
    whole = max(row.start + row.duration for row in rows)
    decisive = next(row for row in rows if row.is_decisive)
    height = TOP + ROW * len(rows) + 150
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' {_FONT} font-size='13'>",
        f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>",
        f"<text x='24' y='34' font-size='17' font-weight='600' fill='#0f172a'>{_TITLE}</text>",
        f"<text x='24' y='58' fill='#475569'>{_SUBTITLE}</text>",
    ]
    parts += [part for number, row in enumerate(rows) for part in _row(row, TOP + ROW * number, whole)]
    parts += _note(decisive, TOP + ROW * len(rows) + 16)
    return "\n".join([*parts, "</svg>\n"])


def _row(row: Row, top: int, whole: int) -> list[str]:
    scale = (WIDTH - LEFT - 110) / whole
    start, width = LEFT + row.start * scale, max(3.0, row.duration * scale)
    red = row.is_carrier and row.tags.get("error") is True
    colour = "#dc2626" if red else "#94a3b8" if row.is_carrier else _colour(row)
    parts = [f"<rect x='0' y='{top}' width='{WIDTH}' height='{ROW}' fill='#fef2f2'/>"] if red else []
    box = f"x='{start:.1f}' y='{top + 6}' width='{width:.1f}' height='{ROW - 12}' rx='3'"
    parts.append(f"<rect {box} fill='{colour}'/>")
    weight = "700" if red else "400"
    fill = "#b91c1c" if red else "#0f172a"
    label = f"! {row.name}" if red else row.name
    parts.append(
        f"<text x='{24 + 18 * row.depth}' y='{top + 17}' fill='{fill}' font-weight='{weight}'>"
        f"{escape(label)}</text>"
    )
    after = f"{row.duration / 1000:.1f} ms" if row.duration >= 1000 else f"{row.duration} µs"
    if row.tags.get("error") and not row.is_carrier:
        after += "   error"
    at = f"x='{start + width + 6:.1f}' y='{top + 17}'"
    parts.append(f"<text {at} fill='#64748b' font-size='11'>{escape(after)}</text>")
    return parts


def _colour(row: Row) -> str:
    return next((colour for word, colour in _COLOURS.items() if row.name.startswith(word)), "#94a3b8")


def _note(decisive: Row, top: int) -> list[str]:
    names = ("agent.name", "step.index", "confidence", "mode", "explanation")
    lines = [(f"blamespan.failure.{name}", str(decisive.tags[f"blamespan.failure.{name}"])) for name in names]
    parts = [
        f"<rect x='24' y='{top}' width='{WIDTH - 48}' height='118' rx='8' fill='#fef2f2' stroke='#fca5a5'/>",
    ]
    for number, (name, value) in enumerate(lines):
        y = top + 24 + 21 * number
        shown = value if len(value) <= 128 else value[:127] + "…"
        parts.append(f"<text x='40' y='{y}' fill='#7f1d1d' font-size='12'>{name}</text>")
        parts.append(f"<text x='270' y='{y}' fill='#0f172a' font-size='12'>{escape(shown)}</text>")
    return parts


if __name__ == "__main__":
    main(Path(sys.argv[1]))
