"""Claude Code, which traces itself once it is told to by the environment."""

from __future__ import annotations

from claude_story import answer

print(answer())
