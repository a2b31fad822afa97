"""Claude Code with its own tracing; its subagents work in the background, which is its default."""

from __future__ import annotations

from claude_story import answer

print(answer())
