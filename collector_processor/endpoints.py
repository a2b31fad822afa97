"""Where each signal is forwarded: URLs and headers, as in OpenTelemetry's variables. Pure.

Our variables take precedence over OpenTelemetry's, and a signal's own variable over the general one. One
exception: few trace backends accept logs and metrics, so OpenTelemetry's variables for these two signals
take precedence over ours, and send them elsewhere or nowhere (``none``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from collector_processor.destination import (
    GRPC_MAX_BYTES,
    HTTP_MAX_BYTES,
    Compression,
    Destination,
    Protocol,
)
from collector_processor.loops import own_listener
from collector_processor.otlp import Signal

if TYPE_CHECKING:
    from collector_processor.settings import Settings

HTTP_PORT: Final = 4318
"""OTLP over HTTP by IANA; without a protocol it means HTTP to everybody."""
NOWHERE: Final = "none"
"""Endpoint value: the signal is accepted, counted as kept, and not forwarded."""
_HEADER_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")


def destination_of(settings: Settings, environ: Mapping[str, str], signal: Signal) -> Destination | None:
    """Return where ``signal`` goes on to, by the OTLP exporter specification's precedence.

    Raises:
        ValueError: a value cannot be; the message names it, and quotes no secret.
    """

    def otel(option: str) -> tuple[str, bool]:
        own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.name}_{option}", "").strip()
        return (own, True) if own else (environ.get(f"OTEL_EXPORTER_OTLP_{option}", "").strip(), False)

    url, is_exact = otel("ENDPOINT")
    if settings.forward_endpoint and not (is_exact and _is_elsewhere(settings, signal, url)):
        url, is_exact = settings.forward_endpoint, False
    elif settings.forward_endpoint:
        settings = settings.model_copy(update=dict.fromkeys(_OURS))  # credentials for another backend
    if url in {"", NOWHERE}:
        return None
    protocol = _protocol(settings, otel("PROTOCOL")[0], url)
    authorities = settings.forward_certificate or _path(otel("CERTIFICATE")[0])
    shown = settings.forward_client_certificate or _path(otel("CLIENT_CERTIFICATE")[0])
    key = settings.forward_client_key or _path(otel("CLIENT_KEY")[0])
    if key and not shown:
        raise ValueError("OTEL_EXPORTER_OTLP_CLIENT_KEY without _CLIENT_CERTIFICATE: expected both")
    headers = settings.forward_headers if settings.forward_headers is not None else otel("HEADERS")[0]
    return Destination(
        endpoint=checked_endpoint(url),
        protocol=protocol,
        headers=read_headers(headers),
        compression=_compression(otel("COMPRESSION")[0]),
        certificate=authorities,
        client_certificate=shown,
        client_key=key,
        max_bytes=settings.forward_max_bytes
        or (GRPC_MAX_BYTES if protocol is Protocol.GRPC else HTTP_MAX_BYTES),
        is_exact=is_exact,
    )


_OURS: Final = (
    "forward_protocol",
    "forward_headers",
    "forward_certificate",
    "forward_client_certificate",
    "forward_client_key",
    "forward_max_bytes",
)


def _is_elsewhere(settings: Settings, signal: Signal, url: str) -> bool:
    """Whether a signal's own variable overrides ``BLAMESPAN_FORWARD_ENDPOINT``.

    A variable that names our own receiver does not: it was set in this shell for the agents.
    """
    if signal is Signal.TRACES:
        return False
    return url == NOWHERE or own_listener(checked_endpoint(url), settings.listeners) is None


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _protocol(settings: Settings, otel_protocol: str, url: str) -> Protocol:
    if settings.forward_protocol is not None:
        return settings.forward_protocol
    if otel_protocol == "http/json":  # a valid OTel value that means HTTP; we send it as protobuf
        return Protocol.HTTP_PROTOBUF
    if otel_protocol:
        try:
            return Protocol(otel_protocol)
        except ValueError:
            expected = "grpc, http/protobuf or http/json"
            raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL={otel_protocol}: expected {expected}") from None
    # The Python SDK's default is gRPC.
    return usual_protocol(url)


def usual_protocol(url: str) -> Protocol:
    """Return what an endpoint is expected to speak, if nobody says."""
    return Protocol.HTTP_PROTOBUF if urlsplit(url).port == HTTP_PORT else Protocol.GRPC


def _compression(text: str) -> Compression:
    try:
        return Compression(text or "none")
    except ValueError:
        raise ValueError(f"OTEL_EXPORTER_OTLP_COMPRESSION={text}: expected gzip or none") from None


def checked_endpoint(url: str) -> str:
    """Return where OTLP goes, as ``checked_url`` does; a bare word, without scheme and port, is none."""
    if "://" not in url and urlsplit(f"//{url}").netloc.rpartition(":")[0] == "":
        raise ValueError(f"endpoint {url!r}: expected http://host:port, https://host:port or host:port")
    return checked_url(url)


def checked_url(url: str) -> str:
    """Return an endpoint with its scheme and no slash at its end; raises ``ValueError`` for none such."""
    full = url if "://" in url else f"http://{url}"
    scheme, _, rest = full.partition("://")
    if "@" in rest.partition("/")[0]:
        raise ValueError("endpoint: a user or password in the URL is not used; send a header instead")
    if scheme not in {"http", "https"} or not rest.strip("/") or not _has_sound_port(full):
        shown = url.partition("?")[0]
        raise ValueError(f"endpoint {shown!r}: expected http://host:port or https://host:port")
    return full.rstrip("/")


def _has_sound_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def read_headers(text: str) -> dict[str, str]:
    """Read ``key=value,…``, percent-encoded, as OTel's header variables are written.

    Raises:
        ValueError: a name is no header name, or a value would break out of its line.
    """
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    headers = {unquote(name).strip().lower(): unquote(value).strip() for name, _, value in pairs}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ValueError(
                "headers for the endpoint: expected name=value,… in printable ASCII"
            )  # no values
    return headers
