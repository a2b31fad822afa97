"""Matching of agent names across logs, labels and model replies, which spell them differently.

Magentic-style logs carry a suffix in the role that says what the agent was
doing (``Orchestrator (thought)``, ``Orchestrator (-> WebSurfer)``); it is the
same agent. Other brackets are part of the name (``manager (CodeAgent)``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ARROWS: Final = ("->", "=>", "→")
_DOING: Final = frozenset({"thought", "thoughts", "termination condition"})
_WORD: Final = re.compile(r"[^\W_]+")
_MOST_WORDS: Final = 60
_LONGEST_NAME: Final = 8
_NOT_ALPHANUMERIC: Final = re.compile(r"[\W_]+")


def strip_suffix(name: str) -> str:
    """Return the agent's name from a role, without the suffix for its activity."""
    name = name.strip()
    doing = _in_brackets(name)
    carried = doing is not None and (doing.casefold() in _DOING or doing.startswith(_ARROWS))
    return name[: name.rfind("(")].rstrip() if carried else name


def handover_target(role: str) -> str | None:
    """Return the agent that a role such as ``Orchestrator (-> WebSurfer)`` hands over to."""
    doing = _in_brackets(role.strip()) or ""
    arrow = next((arrow for arrow in _ARROWS if doing.startswith(arrow)), None)
    return (doing.removeprefix(arrow).strip() or None) if arrow else None


def normalise(name: str) -> str:
    """Return a form that is equal for all spellings of one agent: letters and digits, case-folded."""
    return _NOT_ALPHANUMERIC.sub("", strip_suffix(name)).casefold()


def same_agent(one: str | None, other: str | None) -> bool:
    """Return whether two names mean the same agent; a missing name matches nothing."""
    return bool(one and other and normalise(one) and normalise(one) == normalise(other))


def match_agent(text: str, agents: Sequence[str]) -> str | None:
    """Return the agent of ``agents`` that ``text`` names; ``None`` if it names none or several.

    A name that is part of another (``Expert`` in ``Data Expert``) counts only if the longer one is not meant.
    """
    wanted = normalise(text)
    if not wanted:
        return None
    equal = [agent for agent in agents if normalise(agent) == wanted]
    if equal:
        return equal[0]
    phrases = _phrases(text)
    named = [agent for agent in agents if normalise(agent) in phrases]
    longest = [
        agent for agent in named if not any(normalise(agent) in normalise(o) for o in named if o is not agent)
    ]
    return longest[0] if len(longest) == 1 else None


def _phrases(text: str) -> frozenset[str]:
    """Yield sequences of a few whole words from the beginning of a text, normalised."""
    words = [normalise(word) for word in _WORD.findall(text)[:_MOST_WORDS]]
    runs = (
        words[start : start + length] for start in range(len(words)) for length in range(1, _LONGEST_NAME + 1)
    )
    return frozenset("".join(run) for run in runs)


def _in_brackets(name: str) -> str | None:
    """Return the text in a name's trailing brackets; uses plain search, because names may be hostile."""
    opened = name.rfind("(") if name.endswith(")") else -1
    return name[opened + 1 : -1].strip() if opened >= 0 else None
