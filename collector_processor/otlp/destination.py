"""OTLP endpoint of a backend for each signal, from our settings and OpenTelemetry's variables. Pure.

Our variables take precedence over OpenTelemetry's, and a signal's own variable over the general one. One
exception: few trace backends accept logs and metrics, so OpenTelemetry's variables for these two signals take
precedence over ours and can send them elsewhere or nowhere (``none``).

``own_listener`` detects an endpoint that is our own receiver: in one shell, the same variable points agents
at us and us at our backend.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from collector_processor.otlp import HOP_HEADER, Address, CollectorError, Signal, Tenant, tenant_headers

GRPC_MAX_BYTES: Final = 4 << 20
"""Default request limit of gRPC servers, which OTLP backends keep."""

_SHORTEST_SECRET: Final = 6
"""Characters; shorter header values are flags and numbers, and hiding those would garble messages."""

HTTP_MAX_BYTES: Final = 20 << 20
"""Default request limit of the Collector's HTTP receiver."""


class Protocol(StrEnum):
    """OTLP transports to a backend; the values of ``OTEL_EXPORTER_OTLP_PROTOCOL``."""

    GRPC = "grpc"
    HTTP_PROTOBUF = "http/protobuf"


class Compression(StrEnum):
    """The values of ``OTEL_EXPORTER_OTLP_COMPRESSION``."""

    NONE = "none"
    GZIP = "gzip"


class DestinationError(CollectorError):
    """An invalid destination; the message says why, and never quotes its headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One backend's OTLP endpoint."""

    endpoint: str = field(repr=False)
    """A URL, http or https (TLS). Its query may hold a key: display ``shown`` instead."""
    protocol: Protocol = Protocol.GRPC
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; may include credentials."""
    certificate: Path | None = None
    """PEM of the trusted authorities; ``None`` for the system's authorities."""
    client_certificate: Path | None = None
    """PEM of our certificate for mutual TLS, or ``None``."""
    client_key: Path | None = None
    """PEM of its key; ``None`` if it is in the same file."""
    compression: Compression = Compression.NONE
    timeout_s: float = 10.0
    """Seconds for one attempt; OpenTelemetry's default."""
    max_bytes: int = GRPC_MAX_BYTES
    """Largest request the backend accepts, before compression."""
    is_exact: bool = False
    """HTTP only: use the URL as it is, without appending ``/v1/…``."""

    @property
    def shown(self) -> str:
        """The endpoint for logs and pages, without its query, because that may hold a key."""
        place, query, _ = self.endpoint.partition("?")
        return f"{place}?…" if query else place

    def hide(self, text: str) -> str:
        """Return a backend's message without our credentials, which some backends quote."""
        for value in self.headers.values():
            for secret in (value, value.rpartition(" ")[2]):  # "Bearer …" may be quoted without its scheme
                if len(secret) >= _SHORTEST_SECRET:
                    text = _without(text.replace(secret, "[hidden]"), secret)
        return text


def _without(text: str, secret: str) -> str:
    """Hide the beginning of a secret that was cut off at the end of a text."""
    ends = (size for size in range(len(secret) - 1, 3, -1) if text.endswith(secret[:size]))
    size = next(ends, 0)
    return text[:-size] + "[hidden]" if size else text


def outgoing_headers(
    destination: Destination, instance_id: str, tenant: Tenant, hops: tuple[str, ...]
) -> dict[str, str]:
    """Return the headers of one request, with names in lower case.

    The request's own tenant overrides one in the destination's headers.
    """
    fixed = {name.lower(): value for name, value in destination.headers.items()}
    return {**fixed, **tenant_headers(tenant), HOP_HEADER: ",".join((*hops, instance_id))}


HTTP_PORT: Final = 4318
"""IANA port of OTLP over HTTP; it implies HTTP if no protocol is set."""
NOWHERE: Final = "none"
"""Endpoint value: the signal is accepted, counted as kept, and not forwarded."""
_HEADER_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_THIS_MACHINE: Final = frozenset({"localhost", "::1", "0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """Values of the variables ``BLAMESPAN_FORWARD_…``; ``None`` means OpenTelemetry's variable."""

    endpoint: str | None = None
    protocol: Protocol | None = None
    headers: str | None = field(default=None, repr=False)
    max_bytes: int | None = None
    listeners: tuple[Address, ...]
    """Our own receivers, which are never a destination."""


def destination_of(ours: Forwarding, environ: Mapping[str, str], signal: Signal) -> Destination | None:
    """Return the destination of ``signal``, by the precedence of the OTLP exporter specification.

    Raises:
        ValueError: a value is invalid; the message names it, and quotes no secret.
    """

    def otel(option: str) -> tuple[str, bool]:
        own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.name}_{option}", "").strip()
        return (own, True) if own else (environ.get(f"OTEL_EXPORTER_OTLP_{option}", "").strip(), False)

    url, is_exact = otel("ENDPOINT")
    if ours.endpoint and not (is_exact and _is_elsewhere(ours, signal, url)):
        url, is_exact = ours.endpoint, False
    elif ours.endpoint:
        ours = Forwarding(listeners=ours.listeners)  # our credentials are for another backend
    if url in {"", NOWHERE}:
        return None
    protocol = _protocol(ours, otel("PROTOCOL")[0], url)
    authorities = _path(otel("CERTIFICATE")[0])
    shown = _path(otel("CLIENT_CERTIFICATE")[0])
    key = _path(otel("CLIENT_KEY")[0])
    if key and not shown:
        raise ValueError("OTEL_EXPORTER_OTLP_CLIENT_KEY without _CLIENT_CERTIFICATE: expected both")
    headers = ours.headers if ours.headers is not None else otel("HEADERS")[0]
    return Destination(
        endpoint=checked_endpoint(url),
        protocol=protocol,
        headers=read_headers(headers),
        compression=_compression(otel("COMPRESSION")[0]),
        certificate=authorities,
        client_certificate=shown,
        client_key=key,
        max_bytes=ours.max_bytes or (GRPC_MAX_BYTES if protocol is Protocol.GRPC else HTTP_MAX_BYTES),
        is_exact=is_exact,
    )


def _is_elsewhere(ours: Forwarding, signal: Signal, url: str) -> bool:
    """Return whether a signal's own variable overrides ``BLAMESPAN_FORWARD_ENDPOINT``.

    A variable that names our own receiver does not: it was set in this shell for the agents.
    """
    if signal is Signal.TRACES:
        return False
    return url == NOWHERE or own_listener(checked_endpoint(url), ours.listeners) is None


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _protocol(ours: Forwarding, otel_protocol: str, url: str) -> Protocol:
    if ours.protocol is not None:
        return ours.protocol
    if otel_protocol == "http/json":  # a valid OTel value that means HTTP; we send it as protobuf
        return Protocol.HTTP_PROTOBUF
    if otel_protocol:
        try:
            return Protocol(otel_protocol)
        except ValueError:
            expected = "grpc, http/protobuf or http/json"
            raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL={otel_protocol}: expected {expected}") from None
    # The Python SDK's default is gRPC.
    return default_protocol(url)


def default_protocol(url: str) -> Protocol:
    """Return the protocol of an endpoint without a protocol setting."""
    return Protocol.HTTP_PROTOBUF if urlsplit(url).port == HTTP_PORT else Protocol.GRPC


def _compression(text: str) -> Compression:
    try:
        return Compression(text or "none")
    except ValueError:
        raise ValueError(f"OTEL_EXPORTER_OTLP_COMPRESSION={text}: expected gzip or none") from None


def checked_endpoint(url: str) -> str:
    """Return the endpoint as ``checked_url`` does; also raises for an endpoint without scheme and port."""
    if "://" not in url and urlsplit(f"//{url}").netloc.rpartition(":")[0] == "":
        raise ValueError(f"endpoint {url!r}: expected http://host:port, https://host:port or host:port")
    return checked_url(url)


def checked_url(url: str) -> str:
    """Return an endpoint with a scheme and without a final slash; raises ``ValueError`` if it is not one."""
    full = url if "://" in url else f"http://{url}"
    scheme, _, rest = full.partition("://")
    if "@" in rest.partition("/")[0]:
        raise ValueError("endpoint: user and password in the URL are not supported; set a header instead")
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
        ValueError: a name is not a header name, or a value is not printable ASCII.
    """
    headers = {name.lower(): value for name, value in read_pairs(text).items()}
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            # Without the value, which may be a secret.
            raise ValueError("headers for the endpoint: expected name=value,… in printable ASCII")
    return headers


def read_pairs(text: str) -> dict[str, str]:
    """Read ``name=value,…``, percent-encoded; the last value of a name applies."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {unquote(name).strip(): unquote(value).strip() for name, _, value in pairs}


def own_listener(endpoint: str, listeners: Iterable[Address]) -> Address | None:
    """Return the listener of ours that ``endpoint`` names, if any.

    Names that lead back to us through DNS or another process are not detected here;
    the hop header detects those.
    """
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = (parts.hostname or "").lower()
    for listener in listeners:
        same_host = host == listener.host or (
            _is_here(host) and (listener.is_loopback or _is_here(listener.host))
        )
        if listener.port == port and same_host:
            return listener
    return None


def _is_here(host: str) -> bool:
    return host in _THIS_MACHINE or host.startswith("127.")
