"""Where requests go on to, and the headers that go with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from collector_processor.otlp import HOP_HEADER, CollectorError, Tenant, tenant_headers

GRPC_MAX_BYTES: Final = 4 << 20
"""What a gRPC server takes unless told otherwise: gRPC's own default, which OTLP backends keep."""

_SHORTEST_SECRET: Final = 6
"""Shorter header values are flags and numbers; to hide them would garble the words around."""

HTTP_MAX_BYTES: Final = 20 << 20
"""What the Collector's HTTP receiver takes unless told otherwise."""


class Protocol(StrEnum):
    """OTLP transports we send by; the values of ``OTEL_EXPORTER_OTLP_PROTOCOL``."""

    GRPC = "grpc"
    HTTP_PROTOBUF = "http/protobuf"


class Compression(StrEnum):
    """The values of ``OTEL_EXPORTER_OTLP_COMPRESSION``."""

    NONE = "none"
    GZIP = "gzip"


class DestinationError(CollectorError):
    """A destination that cannot be: the message names what is wrong with it, never its headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One backend's OTLP endpoint."""

    endpoint: str = field(repr=False)
    """A URL, http or https; https means TLS. A signal's own may hold a key: show ``shown``."""
    protocol: Protocol = Protocol.GRPC
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; credentials are among them."""
    certificate: Path | None = None
    """PEM of the authorities to trust; ``None`` trusts the system's."""
    client_certificate: Path | None = None
    """PEM of what we show to a backend that asks who we are; ``None`` shows nothing."""
    client_key: Path | None = None
    """PEM of its key; ``None`` where it stands in the same file."""
    compression: Compression = Compression.NONE
    timeout_s: float = 10.0
    """For one attempt; OTel's default."""
    max_bytes: int = GRPC_MAX_BYTES
    """The largest request the backend takes, before compression."""
    is_exact: bool = False
    """HTTP only: the URL is one signal's own and used as it stands, without ``/v1/…``."""

    @property
    def shown(self) -> str:
        """The endpoint as people and logs may see it: some backends want a key in its query."""
        place, query, _ = self.endpoint.partition("?")
        return f"{place}?…" if query else place

    def hide(self, text: str) -> str:
        """Return a backend's words without our credentials: some quote what they refuse."""
        for value in self.headers.values():
            for secret in (value, value.rpartition(" ")[2]):  # "Bearer …" may be quoted without its scheme
                if len(secret) >= _SHORTEST_SECRET:
                    text = _without(text.replace(secret, "[hidden]"), secret)
        return text


def _without(text: str, secret: str) -> str:
    """Cut the beginning of a secret off the end of a text that was shortened in the middle of it."""
    ends = (size for size in range(len(secret) - 1, 3, -1) if text.endswith(secret[:size]))
    size = next(ends, 0)
    return text[:-size] + "[hidden]" if size else text


def outgoing_headers(
    destination: Destination, instance_id: str, tenant: Tenant, hops: tuple[str, ...]
) -> dict[str, str]:
    """Return the headers of one request, names in lower case.

    The request's own tenant goes before a fixed one in the destination's headers.
    """
    fixed = {name.lower(): value for name, value in destination.headers.items()}
    return {**fixed, **tenant_headers(tenant), HOP_HEADER: ",".join((*hops, instance_id))}
