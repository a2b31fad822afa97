"""The MCP server on streamable HTTP: the SDK's application behind a check of every request. Not pure.

The checks are those of the pages. If a token is set, every request must bear it. Without a token, the Host
header must name this machine: otherwise, a web page open in a browser here could reach us under a domain of
its own (DNS rebinding). Requests from other sites' pages are refused. The number of connections and the time
for sending a request are limited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import h11
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from collector_processor.core.headers import WRONG_TOKEN_S, bears, names_this_machine
from collector_processor.otlp import Address

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_SESSIONS: Final = 500
"""Sessions at a time, each a task and its memory; the SDK ends one that is idle for half an hour."""
IDLE_S: Final = 60.0
"""Seconds without a request after which a session makes room for a new one, if there is none."""
_SESSION: Final = b"mcp-session-id"
MOST_CONNECTIONS: Final = 800
"""Connections at a time: each session keeps one open to receive messages, and uses others for requests."""
MOST_BODY_BYTES: Final = 128 << 10
"""Largest request; ours take some names and numbers. The SDK reads it in the event loop: 4 MiB in 0.7 s."""
REQUEST_S: Final = 10.0
"""Seconds within which a request must arrive; checked at this interval."""
_OK: Final = 200
_UNAUTHORIZED: Final = 401
MCP_PATH: Final = "/mcp"
_WANTED: Final = "expected: Authorization: Bearer <BLAMESPAN_TOKEN>\n"
_NOT_LOCAL: Final = "expected a Host header that names this machine, such as localhost\n"
_FOREIGN: Final = "refused: this request comes from another site's page\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """An ASGI application that only admitted requests reach."""

    app: App
    token: str | None = field(repr=False)
    clock: Callable[[], float] = time.monotonic
    _used: dict[bytes, float] = field(default_factory=dict)
    """When each session was last used, the longest unused first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._pass_on(scope, receive, send)
            return
        status, text = refusal
        if status == _UNAUTHORIZED:
            await asyncio.sleep(WRONG_TOKEN_S)
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = dict(scope.get("headers", ())).get(_SESSION, b"")
        if session in self._used:
            del self._used[session]
            self._used[session] = self.clock()
        elif not session and len(self._used) >= MOST_SESSIONS and _may_open(scope):
            await self._make_room(scope)

        async def noting(message: Scope) -> None:
            opened = dict(message.get("headers", ())).get(_SESSION)
            if opened is not None and message["status"] == _OK:
                self._used.setdefault(opened, self.clock())
            await send(message)

        await self.app(scope, receive, noting)
        if scope["type"] == "http" and scope["method"] == "DELETE":
            self._used.pop(session, None)
        elif self._used.pop(session, None) is not None:  # a call may have taken long
            self._used[session] = self.clock()

    async def _make_room(self, scope: Scope) -> None:
        """End the session that has not been used for the longest time, as its client would."""
        session, used = next(iter(self._used.items()))
        if self.clock() - used < IDLE_S:
            return
        del self._used[session]
        headers = [
            (_SESSION, session),
            (b"host", b"localhost"),
            (b"accept", b"application/json, text/event-stream"),
        ]

        async def nothing() -> Scope:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def unheard(_: Scope) -> None:
            pass

        path = {"path": MCP_PATH, "raw_path": MCP_PATH.encode()}
        await self.app({**scope, **path, "method": "DELETE", "headers": headers}, nothing, unheard)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and text of a refusal; ``None`` for an admitted request."""
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        told = {name.lower(): value for name, value in headers}
        if self.token is not None and not bears(headers, self.token):
            return 401, _WANTED
        if self.token is None and not names_this_machine(told.get("host", "")):
            return 403, _NOT_LOCAL
        own = {f"{way}://{told.get('host', '')}".lower() for way in ("http", "https")}
        is_ours = told.get("origin", next(iter(own))).lower() in own
        if not is_ours or told.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
            return 403, _FOREIGN
        return None


def _may_open(scope: Scope) -> bool:
    asked: tuple[str, str, str] = scope["type"], scope["method"], scope["path"].rstrip("/")
    return asked == ("http", "POST", MCP_PATH)


def http_app(server: MCPServer, host: str, token: str | None) -> App:
    """Return the server's application behind the check; the SDK's own check does not support tokens."""
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(
        host=host,
        transport_security=security,
        max_sessions=MOST_SESSIONS,
        max_request_body_size=MOST_BODY_BYTES,
    )
    return Guarded(app=app, token=token)


class _Connection(H11Protocol):
    """A connection that is closed if no whole request arrives; uvicorn waits for one without a limit."""

    _looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start watching the connection, or refuse it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._look(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def _look(self, waiting_since: object) -> None:
        """Close the connection if it still waits for the same request as at the last look."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn declares it without None
        is_between = cycle is None or cycle.response_complete
        is_waiting = is_between or self.conn.their_state is h11.SEND_BODY
        if is_waiting and waiting_since is cycle:
            self.transport.abort()
            return
        self._looking = self.loop.call_later(REQUEST_S, self._look, cycle if is_waiting else self)


async def serve_http(server: MCPServer, listen: Address, token: str | None) -> None:
    """Serve until interrupted."""
    config = uvicorn.Config(
        http_app(server, listen.host, token),
        host=listen.host,
        port=listen.port,
        http=_Connection,
        log_level="warning",
        server_header=False,
    )
    await uvicorn.Server(config).serve()
