"""``blamespan replay``: send a recorded run as OTLP, as if it were live."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from analyzer.cli.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    WrongUsage,
    optional,
    print_json,
    progress_bar,
)
from analyzer.cli.recorded_runs import FilesArgument, LogsOption, load
from analyzer.inquiry.present import counted
from analyzer.inquiry.terminal import console
from analyzer.recordings.recording import as_protobuf
from collector_processor.exporters import JsonExporter, open_exporter
from collector_processor.otlp import NO_TENANT, Delivered, Exporter, SendOutcome, Signal, TryLater
from collector_processor.otlp.destination import (
    Destination,
    Protocol,
    checked_endpoint,
    default_protocol,
    read_headers,
)
from collector_processor.otlp.otlp_json import newest_ns, shift_times
from collector_processor.rebuild.decode import decode, decode_logs
from collector_processor.rebuild.encode import encode, encode_logs
from collector_processor.wire.split import member_count, split_by_size
from semconv.model import Link, LogRecord, Span, SpanId, TraceId

_PIECE_BYTES: Final = 512 * 1024
_TRIES: Final = 30
_PAUSE_S: Final = 0.5


class ReplayProtocol(StrEnum):
    """OTLP transports a replay can speak."""

    GRPC = "grpc"
    HTTP_PROTOBUF = "http/protobuf"
    HTTP_JSON = "http/json"


@dataclass(slots=True)
class Sent:
    """Counts of a replay's requests and items so far."""

    requests: int = 0
    items: int = 0
    rejected: int = 0


def replay(
    files: FilesArgument,
    endpoint: Annotated[
        str | None, optional("URL", "Destination; default: OTEL_EXPORTER_OTLP_ENDPOINT.")
    ] = None,
    protocol: Annotated[
        ReplayProtocol | None,
        typer.Option(
            metavar="PROTOCOL",
            help="grpc, http/protobuf or http/json; default: http/protobuf for port 4318, else grpc.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="N", help="Spans a second; default: as fast as the receiver accepts them."
        ),
    ] = None,
    logs: LogsOption = None,
    fresh_ids: Annotated[
        bool, typer.Option("--fresh-ids", help="New trace and span ids, so that a run can be sent again.")
    ] = False,
    now: Annotated[
        bool,
        typer.Option(
            "--now/--keep-times",
            help="Shift all times so that the newest span ends now, where backends look; or keep them.",
        ),
    ] = True,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Send recorded runs as OTLP, as if they were live.

    Takes any file that [bold]steps[/bold] reads except conversation logs, which have no spans.
    Retries when the receiver asks for it; fails if something is not accepted.

    Example: [bold]blamespan replay trace.json --endpoint http://127.0.0.1:4317 --fresh-ids[/bold]
    """
    url = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not url:
        raise WrongUsage("replay: expected --endpoint URL, or OTEL_EXPORTER_OTLP_ENDPOINT to be set")
    try:
        url = checked_endpoint(url)
    except ValueError as error:
        raise WrongUsage(f"replay: {error}") from error
    chosen = protocol or ReplayProtocol(default_protocol(url))
    requests = _requests([*files, *(logs or [])])
    if now:
        requests = _moved(requests, time.time_ns())
    sent = asyncio.run(_send_all(_fresh(requests) if fresh_ids else requests, url, chosen, rate))
    _tell(sent, url, output)
    if sent.rejected:
        raise CommandFailed(f"{url} permanently rejected {sent.rejected} of {sent.items} items")


def _requests(paths: Sequence[Path]) -> list[tuple[Signal, bytes]]:
    loaded = [request for path in paths for request in load(path).requests]
    bodies = [(signal, as_protobuf(request)) for signal, request in loaded]
    requests = [(signal, body) for signal, body in bodies if member_count(body)]
    if not requests:
        raise CommandFailed(f"{paths[0]}: no spans to send (a conversation log has none)")
    return [(signal, piece) for signal, body in requests for piece in split_by_size(body, _PIECE_BYTES)]


async def _send_all(
    requests: Sequence[tuple[Signal, bytes]], url: str, protocol: ReplayProtocol, rate: float | None
) -> Sent:
    exporter = _open(url, protocol)
    sent = Sent()
    try:
        with progress_bar("sending", len(requests)) as advance:
            for signal, body in requests:
                await _send(exporter, signal, body, sent)
                advance()
                if rate is not None:
                    await asyncio.sleep(member_count(body) / rate)
    finally:
        await exporter.close()
    return sent


def _open(url: str, protocol: ReplayProtocol) -> Exporter:
    headers = read_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
    wire = Protocol.GRPC if protocol is ReplayProtocol.GRPC else Protocol.HTTP_PROTOBUF
    destination = Destination(endpoint=url, protocol=wire, headers=headers)
    if protocol is ReplayProtocol.HTTP_JSON:
        return JsonExporter(destination, "replay")
    return open_exporter(destination, "replay")


async def _send(exporter: Exporter, signal: Signal, body: bytes, sent: Sent) -> None:
    outcome: SendOutcome = TryLater(reason="not tried")
    for _ in range(_TRIES):
        outcome = await exporter.send(signal, body, NO_TENANT, ())
        if not isinstance(outcome, TryLater):
            break
        await asyncio.sleep(_PAUSE_S if outcome.requested_wait_s is None else outcome.requested_wait_s)
    if not isinstance(outcome, Delivered):
        raise CommandFailed(f"{signal.value} were not accepted: {outcome.reason}")
    sent.requests += 1
    sent.items += member_count(body)
    sent.rejected += outcome.rejected


def _moved(requests: Sequence[tuple[Signal, bytes]], now_ns: int) -> list[tuple[Signal, bytes]]:
    """Shift all times equally, so that the newest span (or item, without spans) ends at ``now_ns``."""
    newest = dict.fromkeys(Signal, 0)
    for signal, body in requests:
        newest[signal] = max(newest[signal], newest_ns(signal, body))
    latest = newest[Signal.TRACES] or max(newest.values())
    if not latest:
        return list(requests)
    return [(signal, shift_times(signal, body, now_ns - latest)) for signal, body in requests]


def _fresh(requests: Sequence[tuple[Signal, bytes]]) -> list[tuple[Signal, bytes]]:
    """Replace every trace and span id consistently by a new one."""
    traces = defaultdict[TraceId, TraceId](lambda: TraceId(secrets.token_hex(16)))
    spans = defaultdict[tuple[TraceId, SpanId], SpanId](lambda: SpanId(secrets.token_hex(8)))

    def link(old: Link) -> Link:
        return replace(old, trace_id=traces[old.trace_id], span_id=spans[old.trace_id, old.span_id])

    def span(old: Span) -> Span:
        return replace(
            old,
            trace_id=traces[old.trace_id],
            span_id=spans[old.trace_id, old.span_id],
            parent_id=spans[old.trace_id, old.parent_id] if old.parent_id else None,
            links=tuple(map(link, old.links)),
        )

    def record(old: LogRecord) -> LogRecord:
        if not old.trace_id:
            return old
        span_id = spans[old.trace_id, old.span_id] if old.span_id else None
        return replace(old, trace_id=traces[old.trace_id], span_id=span_id)

    def renamed(signal: Signal, body: bytes) -> bytes:
        match signal:
            case Signal.TRACES:
                return encode(map(span, decode(body).spans))
            case Signal.LOGS:
                return encode_logs(map(record, decode_logs(body)))
            case Signal.METRICS:
                return body

    return [(signal, renamed(signal, body)) for signal, body in requests]


def _tell(sent: Sent, url: str, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(
            {"endpoint": url, "requests": sent.requests, "items": sent.items, "rejected": sent.rejected}
        )
    else:
        console().print(f"sent {counted(sent.items, 'item')} in {counted(sent.requests, 'request')} to {url}")
