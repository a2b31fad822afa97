"""Claude Code, which traces itself and lets its subagents work in the background, as it does by default."""

from __future__ import annotations

from claude_story import answer

print(answer())
