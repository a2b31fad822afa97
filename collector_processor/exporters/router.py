"""One exporter in front of several: each signal goes its own way."""

from __future__ import annotations

from collections.abc import Mapping

from collector_processor.otlp import Exporter, NoSuchService, SendOutcome, Signal, Tenant


class SignalRouter:
    """An ``Exporter`` that gives each signal to its own; a signal with none has no service."""

    def __init__(self, routes: Mapping[Signal, Exporter]) -> None:
        """Args: ``routes`` may hold one exporter several times; the router closes it once."""
        self.routes = dict(routes)
        # What every backend takes; a signal's own limit is its route's.
        self.max_bytes = min((exporter.max_bytes for exporter in routes.values()), default=0)

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` the signal's way."""
        exporter = self.routes.get(signal)
        if exporter is None:
            return NoSuchService(reason=f"no endpoint is set for {signal.value}")
        return await exporter.send(signal, body, tenant, hops)

    async def close(self) -> None:
        """Close every exporter once."""
        for exporter in {id(exporter): exporter for exporter in self.routes.values()}.values():
            await exporter.close()
