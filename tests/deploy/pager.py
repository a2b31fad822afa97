"""A web hook that records the messages of a real Alertmanager."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.backends.supervise import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of Alertmanager: alerts of one group that fire or have ended."""

    receiver: str
    status: str
    alerts: tuple[dict[str, Any], ...]

    @property
    def told(self) -> tuple[str, str, str]:
        """Return whether it fires, its alert, and the agent."""
        return self.status, self.name, self.alerts[0]["labels"].get("agent", "")

    @property
    def name(self) -> str:
        """Its alert; alerts are grouped by alert and agent."""
        return str(self.alerts[0]["labels"]["alertname"])


@dataclass(slots=True, kw_only=True)
class Pager:
    """The received messages, in order."""

    port: int
    messages: list[Message] = field(default_factory=list)

    def url(self, receiver: str) -> str:
        """The URL to which a receiver's messages are sent."""
        return f"http://{HOST}:{self.port}/{receiver}"

    def about(self, *alerts: str) -> list[Message]:
        """Return the messages about these alerts, in order."""
        return [message for message in self.messages if message.name in alerts]


@contextmanager
def pager() -> Iterator[Pager]:
    """Listen until the block ends."""
    pager = Pager(port=0)

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            pager.messages.append(
                Message(receiver=body["receiver"], status=body["status"], alerts=tuple(body["alerts"]))
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer((HOST, 0), Hook) as server:
        pager.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield pager
        finally:
            server.shutdown()
            thread.join()
