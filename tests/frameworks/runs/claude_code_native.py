"""Claude Code with its own tracing, turned on by environment variables."""

from __future__ import annotations

from claude_story import answer

print(answer())
