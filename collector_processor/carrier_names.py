"""Display names of carriers: short, with the most important word first. Pure.

Jaeger's column shows the service name and then as much of the span name as fits.
"""

from __future__ import annotations

from typing import Final

MAX_NAME: Final = 44
"""Most characters of a carrier's name; agent names are truncated to fit, attributes have them in full."""
_LEAST_AGENT: Final = 12
"""Fewest characters kept of an agent's name; the failure mode is dropped before it gets shorter."""


def decisive_name(agent: str, mode: str) -> str:
    """Return the name of the carrier under the decisive span, such as ``calculator: wrong computation``."""
    return _fitted("", agent, f": {_words(mode) or 'decisive error'}")


def root_name(agent: str, mode: str) -> str:
    """Return the name of the root's carrier, such as ``failure: calculator (wrong computation)``."""
    return _fitted("failure: ", agent, f" ({_words(mode)})" if mode else "")


def withdrawal_name(old: str, new: str | None) -> str:
    """Return the name of a withdrawal, such as ``withdrawn: researcher → calculator``.

    Args:
        old: the agent blamed before.
        new: the agent blamed now, if any.
    """
    if new is None:
        return _fitted("withdrawn: ", old, "")
    if new == old:
        return _fitted("withdrawn: ", old, " (another step)")
    room = (MAX_NAME - len("withdrawn:  → ")) // 2
    return f"withdrawn: {_cut(old, room)} → {_cut(new, room)}"


def _words(mode: str) -> str:
    return mode.replace("_", " ")


def _fitted(before: str, agent: str, after: str) -> str:
    """Return a name of at most ``MAX_NAME`` characters: truncate the agent's name, or drop ``after``."""
    room = MAX_NAME - len(before) - len(after)
    if room < _LEAST_AGENT:
        room, after = MAX_NAME - len(before), ""
    return f"{before}{_cut(agent, room)}{after}"


def _cut(agent: str, room: int) -> str:
    agent = " ".join(agent.split())
    return agent if len(agent) <= room else f"{agent[: room - 1]}…"
