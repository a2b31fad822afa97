"""OTLP out over HTTP/JSON: for playing recordings, and for trying a receiver; slower than the others."""

from __future__ import annotations

import asyncio

from collector_processor.destination import Destination
from collector_processor.exporters.http_exporter import HttpExporter
from collector_processor.otlp import MalformedRequestError, Rejected, SendOutcome, Signal, Tenant
from collector_processor.otlp.answers import MediaType
from collector_processor.otlp.to_json import to_json


class JsonExporter:
    """Sends protobuf requests as JSON to one HTTP backend. Made inside the running loop."""

    def __init__(self, destination: Destination, instance_id: str) -> None:
        self.max_bytes = destination.max_bytes
        self._http = HttpExporter(destination, instance_id, media=MediaType.JSON)

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Send ``body`` as JSON and return what the backend said; what is no such request is never sent."""
        try:
            text = await asyncio.to_thread(to_json, signal, body)
        except MalformedRequestError as error:
            return Rejected(reason=f"not sent: {error}")
        return await self._http.send(signal, text, tenant, hops)

    async def close(self) -> None:
        """Release the connections."""
        await self._http.close()
