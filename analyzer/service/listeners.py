"""The doors: where spans come in, and where people look; opened when all behind them is there."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.serving.lifetime import Lifetime
from analyzer.serving.memory import give_back
from analyzer.web.app import WebParts, WebServer
from collector_processor.intake import Intake
from collector_processor.loops import own_listener
from collector_processor.origins import Cors
from collector_processor.otlp import Cause, Sink
from collector_processor.receivers import (
    DoorRules,
    GrpcReceiver,
    HttpReceiver,
    HttpRoom,
    Receiver,
    Trimmer,
)
from collector_processor.receivers.trimming import glibc
from collector_processor.settings import Address, Settings, SettingsError
from collector_processor.tls import TlsFiles

logger = logging.getLogger(__name__)

_DOORS_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Where they are: a port that was given as 0 is known only now."""

    grpc: Address
    http: Address
    web: Address


def refuse_own_endpoint(settings: Settings, listeners: Sequence[Address]) -> None:
    """Refuse settings that send spans to ourselves.

    Raises:
        SettingsError: they do.
    """
    for signal, destination in settings.endpoints.items():
        own = own_listener(destination.endpoint, listeners)
        if own is not None:
            raise SettingsError(
                f"the endpoint for {signal.value}, {destination.shown}, is our own listener {own}:"
                " spans would go round in circles; set BLAMESPAN_FORWARD_ENDPOINT to the backend"
            )


async def open_doors(
    settings: Settings, lifetime: Lifetime, intake: Intake, parts: WebParts, refusals: Counter[Cause]
) -> Doors:
    """Start the listeners; refused requests are counted in ``refusals``.

    Raises:
        SettingsError: an endpoint turns out to be one of our own ports.
        CollectorError: a port cannot be had.
    """
    grpc_listen, http_listen, web_listen = settings.listeners
    heap = glibc()
    lifetime.background(give_back(heap.trim))
    trimmer = Trimmer(heap)
    lifetime.stack.callback(trimmer.close)
    receivers = make_receivers(settings, intake, parts.tls, trimmer, refusals)
    _warn_of_clear_text(settings)
    web = WebServer(parts, web_listen)
    web_port = await web.start()
    lifetime.watched.push_async_callback(web.stop)
    ports: list[int] = []
    for receiver in receivers:
        ports.append(await receiver.start())
        lifetime.stack.push_async_callback(receiver.stop, _DOORS_GRACE_S)
    doors = Doors(
        grpc=replace(grpc_listen, port=ports[0]),
        http=replace(http_listen, port=ports[1]),
        web=replace(web_listen, port=web_port),
    )
    refuse_own_endpoint(settings, (doors.grpc, doors.http))
    return doors


def make_receivers(
    settings: Settings, sink: Sink, tls: TlsFiles | None, trimmer: Trimmer, refusals: Counter[Cause]
) -> tuple[Receiver, Receiver]:
    """Return the doors for spans, gRPC and HTTP, not open yet; they share the process's memory."""
    grpc_listen, http_listen, _ = settings.listeners

    def refused(cause: Cause) -> None:
        refusals[cause] += 1

    rules = DoorRules(
        token=settings.token,
        tenant_header_names=settings.tenant_header_names,
        max_bytes=settings.max_request_bytes,
        local_names=settings.allowed_host_names,
        cors=Cors(origins=settings.origins, tenant_headers=settings.tenant_header_names),
        refused=refused,
    )
    room = HttpRoom(bytes=settings.max_receiving_bytes, connections=settings.max_connections)
    return (
        GrpcReceiver(
            sink, grpc_listen, rules, tls, room_bytes=room.bytes, after_refusal=trimmer.after_refusal
        ),
        HttpReceiver(sink, http_listen, rules, tls, room=room, after_refusal=trimmer.after_refusal),
    )


def _warn_of_clear_text(settings: Settings) -> None:
    beyond = [str(listener) for listener in settings.listeners if not listener.is_loopback]
    if beyond and settings.tls_certificate is None:
        logger.warning(
            "listening beyond this machine without TLS: token and spans travel in clear text",
            extra={"listeners": beyond, "mend": "set BLAMESPAN_TLS_CERTIFICATE and BLAMESPAN_TLS_KEY"},
        )
