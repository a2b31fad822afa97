"""Is the backend ourselves? Pure.

The same variable in one shell points agents at us and us at our backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collector_processor.settings import Address

_THIS_MACHINE: Final = frozenset({"localhost", "::1", "0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


def own_listener(endpoint: str, listeners: Iterable[Address]) -> Address | None:
    """Return the listener of ours that ``endpoint`` names, if it names one.

    Names that lead back to us through DNS or another process are not seen here;
    the hop header catches those.
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
