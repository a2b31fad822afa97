"""Sessions of the MCP server on a port: the longest unused makes room for a new one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from analyzer.api import mcp_http
from analyzer.api.mcp_http import IDLE_S, Guarded, Receive, Scope, Send


class Sessions:
    """An application with sessions, like the SDK's, and a clock."""

    def __init__(self) -> None:
        self.open: list[bytes] = []
        self.now = 0.0
        self._names = map(str.encode, map(str, itertools.count(1)))
        self.guarded = Guarded(app=self.app, token=None, clock=lambda: self.now)

    async def app(self, scope: Scope, _receive: Receive, send: Send) -> None:
        session = dict(scope["headers"]).get(b"mcp-session-id")
        status, headers = 200, []
        if session is None and len(self.open) >= mcp_http.MOST_SESSIONS:
            status = 503
        elif session is None:
            self.open.append(next(self._names))
            headers = [(b"mcp-session-id", self.open[-1])]
        elif session not in self.open:
            status = 404
        elif scope["method"] == "DELETE":
            self.open.remove(session)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def ask(self, session: bytes | None = None, method: str = "POST") -> int:
        said: list[Any] = []

        async def hear(message: Scope) -> None:
            said.append(message)

        async def nothing() -> Scope:
            return {"type": "http.request", "body": b"", "more_body": False}

        headers = [(b"host", b"localhost"), *([(b"mcp-session-id", session)] if session else [])]
        await self.guarded(
            {"type": "http", "method": method, "path": "/mcp", "headers": headers}, nothing, hear
        )
        return int(said[0]["status"])


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    monkeypatch.setattr(mcp_http, "MOST_SESSIONS", 3)
    return Sessions()


async def test_the_longest_unused_session_makes_room(sessions: Sessions) -> None:
    for _ in range(3):
        sessions.now += 1
        assert await sessions.ask() == 200
    sessions.now += IDLE_S + 5
    assert await sessions.ask(b"1") == 200  # it is in use
    assert await sessions.ask() == 200
    assert sessions.open == [b"1", b"3", b"4"]
    assert await sessions.ask(b"2") == 404


async def test_sessions_in_use_are_never_ended_for_others(sessions: Sessions) -> None:
    for _ in range(3):
        assert await sessions.ask() == 200
    sessions.now += IDLE_S - 1
    assert await sessions.ask() == 503
    assert sessions.open == [b"1", b"2", b"3"]


async def test_an_ended_session_is_forgotten(sessions: Sessions) -> None:
    for _ in range(3):
        assert await sessions.ask() == 200
    assert await sessions.ask(b"1", "DELETE") == 200
    assert await sessions.ask() == 200
    sessions.now += 2 * IDLE_S
    assert await sessions.ask() == 200
    assert sessions.open == [b"3", b"4", b"5"]
