"""Transcripts in Markdown as chat messages: turns below ``**User:**`` and ``**Assistant:**``. Pure.

Documents of many kinds have such lines: glossaries, examples, interviews. A text is a transcript only if
nothing but titles stands before its first turn, which is a person's or the instructions, a program speaks,
one of the speakers does so again, and no tool answers a person. Questions with answers, and prompts with
responses, are lists: each entry stands alone. Lines in fences (three backticks) are no headings.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from analyzer.recordings.conversation_log import is_program

_ROLES: Final = {
    **dict.fromkeys(("user", "human", "you", "me", "customer"), "user"),
    **dict.fromkeys(("assistant", "ai", "agent", "bot", "model"), "assistant"),
    **dict.fromkeys(("tool", "tool result", "tool output", "function"), "tool"),
    **dict.fromkeys(("system", "system prompt", "developer"), "system"),
}
_PRODUCTS: Final = frozenset(
    {"claude", "gemini", "copilot", "grok", "mistral", "llama", "deepseek", "perplexity"}
)
"""Assistants whose names do not say that they are programs."""
_CALLING: Final = ("assistant", "tool")
"""Before a tool's turn: an assistant, or another tool that it called."""
_HEADING: Final = re.compile(r"\*\*([A-Za-z][\w .-]{0,40})(?::\*\*|\*\*:)[ \t]*(.*)")
_FENCE: Final = re.compile(r" {0,3}(```|~~~)")
_RULE: Final = re.compile(r"\n[ \t]*(?:-{3,}|\*{3,}|_{3,})\s*\Z")
"""A line across, as many programs put between turns."""


def read_markdown(text: str) -> list[dict[str, str]]:
    """Return the turns of a transcript as messages of the chat API; empty for other texts."""
    found = _turns(text)
    turns = [turn for turn in found if turn["content"]]
    roles = [turn["role"] for turn in turns]
    speakers = {(turn["role"], turn.get("name")) for turn in turns}
    is_told = roles[:1] in (["user"], ["system"]) and {"user", "assistant"} <= {*roles}
    is_asked = all(one["role"] != "tool" or before["role"] in _CALLING for before, one in pairwise(found))
    return turns if is_told and is_asked and len(turns) > len(speakers) else []


def _turns(text: str) -> list[dict[str, str]]:
    found: list[tuple[dict[str, str], list[str]]] = []
    fence = ""
    for line in text.splitlines():
        heading = None if fence else _HEADING.fullmatch(line.rstrip())
        speaker = _speaker(heading[1].strip()) if heading else {}
        if heading and speaker:
            found.append((speaker, [heading[2]]))
            continue
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        if found:
            found[-1][1].append(line)
        elif not _is_title(line):
            return []
    return [speaker | {"content": _RULE.sub("", "\n".join(lines)).strip()} for speaker, lines in found]


def _is_title(line: str) -> bool:
    """Tell whether a line may stand before the first turn: a title, a line across or nothing."""
    told = line.strip()
    return not told.strip("-*_") or told.startswith("#")


def _speaker(name: str) -> dict[str, str]:
    """Return role and name by what a heading calls a speaker; empty for other headings."""
    if role := _ROLES.get(name.lower()):
        return {"role": role}
    is_known = name.lower() in _PRODUCTS or is_program(name)
    return {"role": "assistant", "name": name} if is_known else {}
