"""Exporter into memory, for tests and for running without a backend."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from collector_processor.otlp import Delivered, SendOutcome, Signal, Tenant
from collector_processor.otlp.destination import GRPC_MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A recorded request and its outcome."""

    signal: Signal
    body: bytes
    tenant: Tenant
    hops: tuple[str, ...]
    outcome: SendOutcome


class MemoryExporter:
    """An ``Exporter`` for tests and for running without a backend."""

    def __init__(
        self,
        outcomes: Iterable[SendOutcome] = (),
        *,
        otherwise: SendOutcome | None = None,
        max_bytes: int = GRPC_MAX_BYTES,
    ) -> None:
        """Return ``outcomes`` in order, then always ``otherwise`` (default: delivered)."""
        self.max_bytes = max_bytes
        self.requests: list[SentRequest] = []
        self._outcomes = deque(outcomes)
        self._otherwise = otherwise or Delivered()
        self._arrived = asyncio.Condition()

    @property
    def delivered(self) -> list[SentRequest]:
        """The successful requests, in order."""
        return [request for request in self.requests if isinstance(request.outcome, Delivered)]

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        """Record the request and return the next outcome."""
        outcome = self._outcomes.popleft() if self._outcomes else self._otherwise
        sent = SentRequest(signal=signal, body=body, tenant=tenant, hops=hops, outcome=outcome)
        async with self._arrived:
            self.requests.append(sent)
            self._arrived.notify_all()
        return outcome

    async def wait_for_requests(self, count: int) -> None:
        """Wait until ``count`` requests were sent in all."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def close(self) -> None:
        """Do nothing: the memory has no connection."""
