"""Claude Code with its own tracing in detail (the beta of detailed tracing)."""

from __future__ import annotations

from claude_story import answer

print(answer())
