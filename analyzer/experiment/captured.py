"""Receiver of the telemetry of trials; each trial has an address of its own. Not pure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from collector_processor.otlp import MalformedRequestError, Signal
from collector_processor.otlp.otlp_json import to_protobuf
from semconv.record import record

_MAX_BYTES: Final = 64 << 20
"""Largest telemetry of a trial, and largest request."""
_SIGNALS: Final[Mapping[str, Signal]] = {"traces": Signal.TRACES, "logs": Signal.LOGS}


@record
class Telemetry:
    """Telemetry of one trial, as protobuf requests in the order of their arrival."""

    spans: tuple[bytes, ...] = ()
    logs: tuple[bytes, ...] = ()


class Capture:
    """A running receiver on loopback. Call its methods in its event loop."""

    def __init__(self) -> None:
        """Start with no trial."""
        self._port = 0
        self._bodies: Final[dict[str, list[tuple[Signal, bytes]]]] = {}

    def bound(self, port: int) -> None:
        """Set the port it listens on."""
        self._port = port

    def environment(self, trial: str) -> Mapping[str, str]:
        """Expect a trial, and return the variables that lead its OpenTelemetry SDK here."""
        self._bodies[trial] = []
        base = f"http://127.0.0.1:{self._port}/{trial}"
        found = {"OTEL_EXPORTER_OTLP_ENDPOINT": base, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        for name in ("traces", "logs", "metrics"):
            found[f"OTEL_EXPORTER_OTLP_{name.upper()}_ENDPOINT"] = f"{base}/v1/{name}"
            found[f"OTEL_EXPORTER_OTLP_{name.upper()}_PROTOCOL"] = "http/protobuf"
        return {**found, "OTEL_TRACES_SAMPLER": "always_on", "OTEL_SDK_DISABLED": "false"}

    def take(self, trial: str) -> Telemetry:
        """Return a trial's telemetry, and expect no more of it."""
        bodies = self._bodies.pop(trial, [])
        spans, logs = (
            tuple(body for kind, body in bodies if kind is signal) for signal in (Signal.TRACES, Signal.LOGS)
        )
        return Telemetry(spans=spans, logs=logs)

    async def receive(self, request: web.Request) -> web.Response:
        """Keep one request of an expected trial; metrics are acknowledged and not kept."""
        bodies = self._bodies.get(request.match_info["trial"])
        if bodies is None:
            raise web.HTTPNotFound(text="no such trial\n")
        signal = _SIGNALS.get(request.match_info["signal"])
        body = await request.read()
        if signal is not None and sum(len(each) for _, each in bodies) + len(body) <= _MAX_BYTES:
            bodies.append((signal, _as_protobuf(signal, request, body)))
        return web.Response(body=b"", content_type=request.content_type)


def _as_protobuf(signal: Signal, request: web.Request, body: bytes) -> bytes:
    if request.content_type == "application/x-protobuf":
        return body
    try:
        return to_protobuf(signal, body)
    except MalformedRequestError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None


@asynccontextmanager
async def capturing() -> AsyncIterator[Capture]:
    """Run a receiver on a free port of loopback until the block ends."""
    capture = Capture()
    app = web.Application(client_max_size=_MAX_BYTES)
    app.router.add_post("/{trial}/v1/{signal}", capture.receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        capture.bound(runner.addresses[0][1])
        yield capture
    finally:
        await runner.cleanup()
