"""Which of Claude Code's traces belong together: what works in the background reports in a later one.

Source: runs of Claude Code 2.1.330. A subagent works in the background by default. When it is done, its
report begins a new interaction, which is a trace of its own and links to nothing; the report, which is
the interaction's prompt, names the call that began the work. A session is no key: a person asks many
things in one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from semconv.dialects.reading import text
from semconv.model import Span

USER_PROMPT: Final = "user_prompt"
SESSION_ID: Final = "session.id"
TOOL_NAME: Final = "tool_name"
TOOL_USE_ID: Final = "tool_use_id"

_SPAWNING: Final = frozenset({"Agent", "Task"})
_REPORT: Final = re.compile(
    r"\s*<task-notification>\s*<task-id>[^<]{0,80}</task-id>\s*<tool-use-id>(?P<call>[\w-]{1,80})</tool-use-id>"
)
"""How a report begins; what follows is the subagent's own text, and may hold anything."""


def reported_call(prompt: str) -> str | None:
    """Return the call that a prompt reports on; ``None`` of what a person asked."""
    found = _REPORT.match(prompt)
    return found["call"] if found else None


def background_keys(span: Span) -> Iterator[str]:
    """Yield what the traces of a call and of its report share: its id, within the session."""
    if span.attributes.get(TOOL_NAME) in _SPAWNING:
        call = text(span.attributes, TOOL_USE_ID)
    else:
        call = reported_call(text(span.attributes, USER_PROMPT) or "")
    if call is not None:
        yield f"{text(span.attributes, SESSION_ID) or ''}:{call}"
