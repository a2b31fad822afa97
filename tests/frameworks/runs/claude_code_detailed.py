"""Claude Code, which traces itself in detail, as its beta of detailed tracing does."""

from __future__ import annotations

from claude_story import answer

print(answer())
