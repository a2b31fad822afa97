"""Listeners for spans and pages, opened after everything behind them, and periodic memory trimming.

Without trimming, the C library keeps the memory of the largest burst so far (such as a backlog sent after an
outage of the backend), and each larger burst looks like a leak. The receivers trim memory themselves after
refusals (``receivers/overload.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from analyzer.service.lifetime import Lifetime
from analyzer.web.app import WebParts, web_server
from collector_processor.otlp import Address, Cause, Sink
from collector_processor.otlp.cors import Cors
from collector_processor.otlp.destination import own_listener
from collector_processor.otlp.tls import TlsFiles
from collector_processor.receivers import (
    AdmissionRules,
    GrpcReceiver,
    HttpLimits,
    HttpReceiver,
    Receiver,
    Trimmer,
)
from collector_processor.receivers.intake import Intake
from collector_processor.receivers.overload import glibc
from collector_processor.settings import Settings, SettingsError

logger = logging.getLogger(__name__)

_DOORS_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Addresses of the open listeners: for port 0, the actual port is known only now."""

    grpc: Address
    http: Address
    web: Address


def refuse_own_endpoint(settings: Settings, listeners: Sequence[Address]) -> None:
    """Refuse settings that forward spans to this service itself.

    Raises:
        SettingsError: an endpoint is one of the listeners.
    """
    for signal, destination in settings.endpoints.items():
        own = own_listener(destination.endpoint, listeners)
        if own is not None:
            raise SettingsError(
                f"the endpoint for {signal.value}, {destination.shown}, is our own listener {own}:"
                " spans would loop forever; set BLAMESPAN_FORWARD_ENDPOINT to the backend"
            )


async def open_listeners(
    settings: Settings, lifetime: Lifetime, intake: Intake, parts: WebParts, refusals: Counter[Cause]
) -> Listeners:
    """Start the listeners; refused requests are counted in ``refusals``.

    Raises:
        SettingsError: an endpoint turns out to be one of our own ports.
        CollectorError: a port is not available.
    """
    grpc_listen, http_listen, web_listen = settings.listeners
    heap = glibc()
    lifetime.background(trim_periodically(heap.trim))
    trimmer = Trimmer(heap)
    lifetime.stack.callback(trimmer.close)
    receivers = make_receivers(settings, intake, parts.tls, trimmer, refusals)
    _warn_of_clear_text(settings)
    web = web_server(parts, web_listen)
    web_port = await web.start()
    lifetime.watched.push_async_callback(web.stop)
    ports: list[int] = []
    for receiver in receivers:
        ports.append(await receiver.start())
        lifetime.stack.push_async_callback(receiver.stop, _DOORS_GRACE_S)
    opened = Listeners(
        grpc=replace(grpc_listen, port=ports[0]),
        http=replace(http_listen, port=ports[1]),
        web=replace(web_listen, port=web_port),
    )
    refuse_own_endpoint(settings, (opened.grpc, opened.http))
    return opened


def make_receivers(
    settings: Settings, sink: Sink, tls: TlsFiles | None, trimmer: Trimmer, refusals: Counter[Cause]
) -> tuple[Receiver, Receiver]:
    """Return the gRPC and HTTP receivers, not yet listening; they share one memory budget."""
    grpc_listen, http_listen, _ = settings.listeners

    def refused(cause: Cause) -> None:
        refusals[cause] += 1

    rules = AdmissionRules(
        token=settings.token,
        tenant_header_names=settings.tenant_header_names,
        local_names=settings.allowed_host_names,
        cors=Cors(origins=settings.origins, tenant_headers=settings.tenant_header_names),
        refused=refused,
    )
    limits = HttpLimits(bytes=settings.receiving_bytes)
    return (
        GrpcReceiver(sink, grpc_listen, rules, tls, buffer_bytes=limits.bytes, when_full=trimmer.when_full),
        HttpReceiver(sink, http_listen, rules, tls, limits=limits, when_full=trimmer.when_full),
    )


def _warn_of_clear_text(settings: Settings) -> None:
    beyond = [str(listener) for listener in settings.listeners if not listener.is_loopback]
    if beyond and settings.tls_certificate is None:
        logger.warning(
            "listening on a network address without TLS: token and spans are sent in clear text",
            extra={"listeners": beyond, "mend": "set BLAMESPAN_TLS_CERTIFICATE and BLAMESPAN_TLS_KEY"},
        )


_EVERY_S: Final = 60.0
"""Seconds between trims. Each takes some milliseconds in a thread and blocks memory allocations meanwhile."""


async def trim_periodically(trim: Callable[[], Any], every_s: float = _EVERY_S) -> None:
    """Return free memory to the system periodically until cancelled; ``trim`` blocks."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every_s)
        await loop.run_in_executor(None, trim)
