"""A TCP proxy that gives a port a second address, as a load balancer or a second host name does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

HOST: Final = "127.0.0.1"


@dataclass(slots=True, kw_only=True)
class Alias:
    """Forwards to the ``target`` that is set when a client connects."""

    url: str = ""
    target: str = ""
    connections: int = 0
    _sockets: list[socket.socket] = field(default_factory=list)

    def join(self, client: socket.socket) -> None:
        self.connections += 1
        parts = urlsplit(self.target)
        try:
            far = socket.create_connection((parts.hostname or HOST, parts.port or 0), timeout=5)
        except OSError:
            client.close()
            return
        far.settimeout(None)
        self._sockets += (client, far)
        for source, sink in ((client, far), (far, client)):
            Thread(target=_pump, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        """Close every connection."""
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def alias() -> Iterator[Alias]:
    """Open one; set its ``target`` to a URL."""
    found = Alias()
    with socket.create_server((HOST, 0)) as door:
        found.url = f"http://{HOST}:{door.getsockname()[1]}"

        def take() -> None:
            with suppress(OSError):
                while True:
                    found.join(door.accept()[0])

        thread = Thread(target=take, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            found.cut()
            thread.join(5)
