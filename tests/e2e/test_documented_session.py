"""A coding agent gets the answers that the page on MCP shows."""

from __future__ import annotations

from tools.references import mcp_session


def test_a_coding_agent_gets_the_answers_that_the_page_shows() -> None:
    assert mcp_session.sessions() == mcp_session.shown(), "run: python -m tools.references.mcp_session"
