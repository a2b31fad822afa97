"""Stored positions of a run's spans, so that a later label can still write carriers into its trace. Pure.

A carrier needs its parent's ids, start, Resource, trace state and flags. These are stored for the root and
for each step's span, with the step's agent, and without names, texts or attributes of spans. If a run exceeds
the size bound, only its root and blamed span are stored, or nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any, Final

from collector_processor.core.records import Place
from collector_processor.core.runs import Run
from collector_processor.otlp import Tenant
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from semconv.model import AgentSource, ContentState, Span, SpanId, Step, StepKind, Trace, TraceId, Trajectory

MAX_PLACE_BYTES: Final = 64 << 10
"""Bound on the compressed bytes of one run; a run of twenty steps takes about 1,000."""
_LEVEL: Final = 1
_LENGTH: Final = 4
"""Size in bytes of the length field before the JSON."""

_SpanKey = tuple[TraceId | None, SpanId | None]


def pack_place(run: Run, tenant: Tenant, blamed: _SpanKey) -> Place | None:
    """Return the stored form of a run; ``None`` if it has no spans or is too large.

    Args:
        run: the run, with its spans.
        tenant: the run's tenant.
        blamed: the span that the verdict marks, if it marks one.
    """
    packed = pack_steps(run) or _pack(run, (), [blamed])
    return None if packed is None else Place(tenant=tenant, run_id=run.trajectory.run_id, packed=packed)


def pack_steps(run: Run) -> bytes | None:
    """Return the stored form with all steps, independent of the verdict; ``None`` as for ``pack_place``."""
    steps = run.trajectory.steps
    return _pack(run, steps, [(step.trace_id, step.span_id) for step in steps])


def _pack(run: Run, steps: Iterable[Step], keys: Iterable[_SpanKey]) -> bytes | None:
    spans: dict[_SpanKey, Span] = {(span.trace_id, span.span_id): span for span in run.trace.spans}
    if not spans:
        return None
    first = min(run.trace.spans, key=lambda span: (span.start_ns, span.span_id))
    root = (run.trajectory.root_trace_id, run.trajectory.root_span_id)
    top: _SpanKey = root if root in spans else (first.trace_id, first.span_id)
    bare = _bare(span for key in dict.fromkeys([top, *keys]) if (span := spans.get(key)))
    packed = _packed(run.trajectory, steps, bare)
    return packed if len(packed) <= MAX_PLACE_BYTES else None


def unpack_place(packed: bytes) -> Run:
    """Return the stored part of the run: bare spans, and steps without texts.

    Raises:
        ValueError: it is damaged, or from a newer version.
    """
    try:
        content = zlib.decompress(packed)
        length = int.from_bytes(content[:_LENGTH], "big")
        document = json.loads(content[_LENGTH : _LENGTH + length])
        trajectory = _trajectory(document)
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"a stored place of a run cannot be read: {error!r}") from error
    spans = decode(content[_LENGTH + length :]).spans
    return Run(trace=Trace(spans=tuple(spans), run_id=trajectory.run_id), trajectory=trajectory)


def _bare(spans: Iterable[Span]) -> list[Span]:
    """Return the parts of spans that carriers need, grouped so that each Resource is written once."""
    found = list(spans)
    order: dict[int, int] = {}
    for span in found:
        order.setdefault(id(span.resource), len(order))
    found.sort(key=lambda span: order[id(span.resource)])
    return [
        Span(
            trace_id=span.trace_id,
            span_id=span.span_id,
            start_ns=span.start_ns,
            end_ns=span.start_ns,
            resource=span.resource,
            trace_state=span.trace_state,
            flags=span.flags,
        )
        for span in found
    ]


def _packed(trajectory: Trajectory, steps: Iterable[Step], spans: Iterable[Span]) -> bytes:
    document = {
        "run_id": trajectory.run_id,
        "complete": trajectory.complete,
        "agents": trajectory.agents,
        "dialects": trajectory.dialects,
        "root": [trajectory.root_trace_id, trajectory.root_span_id],
        "steps": [
            [step.agent, step.kind, step.agent_source, step.content, step.group, step.trace_id, step.span_id]
            for step in steps
        ],
    }
    head = json.dumps(document, separators=(",", ":")).encode()
    return zlib.compress(len(head).to_bytes(_LENGTH, "big") + head + encode(spans), _LEVEL)


def _trajectory(document: Any) -> Trajectory:
    trace_id, span_id = document["root"]
    return Trajectory(
        run_id=document["run_id"],
        steps=tuple(_step(index, step) for index, step in enumerate(document["steps"])),
        complete=document["complete"],
        agents=tuple(document["agents"]),
        dialects=tuple(document["dialects"]),
        root_trace_id=trace_id,
        root_span_id=span_id,
    )


def _step(index: int, fields: Any) -> Step:
    agent, kind, source, content, group, trace_id, span_id = fields
    return Step(
        index=index,
        agent=agent,
        kind=StepKind(kind),
        agent_source=AgentSource(source),
        content=ContentState(content),
        group=group,
        trace_id=trace_id,
        span_id=span_id,
    )
