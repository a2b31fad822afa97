"""What every receiver is to its owner: something that starts, has a port, and stops."""

from __future__ import annotations

from typing import Protocol

from collector_processor.otlp import CollectorError
from collector_processor.settings import Address


class ListenError(CollectorError):
    """The address cannot be listened on; the message names it."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"cannot listen on {address}: {why}")
        self.address = address


class Receiver(Protocol):
    """Takes OTLP requests from the network into a sink."""

    async def start(self) -> int:
        """Listen, and return the bound port.

        Raises:
            ListenError: the address is taken or not ours.
        """
        ...

    async def stop(self, grace_s: float) -> None:
        """Take no more requests; those under way have ``grace_s`` seconds to end."""
        ...
