"""A coding agent gets the answers that the page on MCP shows."""

from __future__ import annotations

from tools.references import mcp_session


def test_a_coding_agent_gets_the_answers_that_the_page_shows() -> None:
    page = mcp_session.settled(mcp_session.PAGE.read_text(encoding="utf-8"))
    assert mcp_session.settled(mcp_session.session()) in page, "run: python -m tools.references.mcp_session"
