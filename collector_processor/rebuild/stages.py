"""Rebuilds runs as ordered steps from export requests: decode, repair, group, order. Pure.

Used for live traces and for files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.decode import Decoded, decode, decode_logs
from collector_processor.rebuild.repair import repair
from collector_processor.rebuild.runs import group_runs, is_stray, join_logs, note_possible_joins
from collector_processor.trajectory import order
from semconv.dialects import USUAL, Reader
from semconv.model import Completion, LogRecord, Span, Trace, TraceId

MENDED: Final = "text that is not UTF-8, or values nested too deeply, replaced"


def rebuild(
    requests: Iterable[bytes | tuple[Span, ...]],
    logs: Iterable[bytes] = (),
    *,
    completion: Completion = Completion.RECORDED,
    tenant: Tenant = NO_TENANT,
    reader: Reader = USUAL,
) -> tuple[Run, ...]:
    """Rebuild the runs in these requests, in the order of their first spans.

    Args:
        requests: ``ExportTraceServiceRequest`` bodies, or the spans of one, in any order.
        logs: ``ExportLogsServiceRequest`` bodies whose records may carry the spans' content.
        completion: why the traces were released.
        tenant: the tenant of the requests.
        reader: the reader of the spans; with a user's mappings, it reads spans that no dialect knows.

    Raises:
        MalformedRequestError: a body is not such a request.
    """
    traces = _traces(requests, completion, tenant)
    records = tuple(record for body in logs for record in decode_logs(body))
    joined = _with_logs(traces, records)
    runs = _without_strays([_run(trace, reader) for trace in group_runs(joined, reader)], completion)
    if len(runs) < 2:
        return tuple(runs)  # there is no other run whose answer its task could quote
    noted = note_possible_joins((run.trace, run.trajectory) for run in runs)
    return tuple(replace(run, trajectory=trajectory) for run, trajectory in zip(runs, noted, strict=True))


def _without_strays(runs: Sequence[Run], completion: Completion) -> tuple[Run, ...]:
    """Drop traces that are not runs; keep them if a file has nothing else, to explain the result."""
    has_steps = any(run.trajectory.steps for run in runs)
    if not has_steps and completion is Completion.RECORDED:
        return tuple(runs)
    return tuple(
        run
        for run in runs
        if run.trajectory.steps or not is_stray(run.trace, run.reader, beside_runs=has_steps)
    )


def _run(trace: Trace, reader: Reader) -> Run:
    sound = repair(trace)
    return Run(trace=sound, trajectory=order(sound, reader), reader=reader)


def _traces(
    requests: Iterable[bytes | tuple[Span, ...]], completion: Completion, tenant: Tenant
) -> list[Trace]:
    spans: defaultdict[TraceId, list[Span]] = defaultdict(list)
    mended: set[TraceId] = set()
    for body in requests:
        decoded = decode(body) if isinstance(body, bytes) else Decoded(spans=body)
        for span in decoded.spans:
            spans[span.trace_id].append(span)
        if decoded.was_mended:
            mended.update(span.trace_id for span in decoded.spans)
    return [
        Trace(
            spans=tuple(found),
            completion=completion,
            tenant=tenant,
            warnings=(MENDED,) if trace_id in mended else (),
        )
        for trace_id, found in spans.items()
    ]


def _with_logs(traces: Sequence[Trace], records: Sequence[LogRecord]) -> list[Trace]:
    if not records:
        return list(traces)
    by_trace: defaultdict[TraceId | None, list[LogRecord]] = defaultdict(list)
    for record in records:
        by_trace[record.trace_id].append(record)
    return [join_logs(trace, by_trace[trace.spans[0].trace_id]) for trace in traces]
