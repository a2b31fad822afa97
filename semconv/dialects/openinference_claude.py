"""What OpenInference's instrumentation of the Claude Agent SDK leaves to the call that spawns a subagent.

Source: runs of openinference-instrumentation-claude-agent-sdk 0.1.22 with Claude Code 2.1.330. It sees
messages and hooks, not model calls: a subagent's AGENT span is named after the tool, holds no texts, says
OK after a crash and ends with the whole run. What it was asked, answered and failed of stands on the TOOL
span above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from semconv.dialects.reading import error_of, is_failed, items, mapping, text
from semconv.dialects.surroundings import Surroundings
from semconv.model import Span

SCOPE: Final = "openinference.instrumentation.claude_agent_sdk"
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
SUBAGENT_TYPE: Final = "subagent_type"
PROMPT: Final = "prompt"
STATUS: Final = "status"
CONTENT: Final = "content"

_COMPLETED: Final = "completed"
"""Other results only say that the subagent works in the background."""
_NOTE: Final = "<tools-used-before-summary>"
"""Begins what Claude Code adds to an answer for the agent that reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A subagent, by the call that spawned it."""

    name: str | None = None
    task: str = ""
    answer: str = ""
    failed: bool = False
    error: str = ""


def spawned(span: Span, surroundings: Surroundings) -> Spawned:
    """Return what the call around a span says of the subagent; nothing where no call spawned it."""
    above = surroundings.parent(span)
    if span.scope.name != SCOPE or above is None:
        return Spawned()
    given, got = (mapping(above.attributes.get(name)) for name in (INPUT_VALUE, OUTPUT_VALUE))
    name = text(given, SUBAGENT_TYPE)
    if name is None:
        return Spawned()
    return Spawned(
        name=name,
        task=text(given, PROMPT) or "",
        answer=_told(got.get(CONTENT)) if got.get(STATUS) == _COMPLETED else "",
        failed=is_failed(above),
        error=error_of(above) if is_failed(above) else "",
    )


def _told(content: object) -> str:
    texts = (text(mapping(block), "text") or "" for block in items(content))
    return "\n".join(each for each in texts if each and not each.startswith(_NOTE))
