"""Label values out of names that anybody may send: bounded in number and in length.

A label's value is a series for ever, in our memory and in Prometheus: names
beyond the limit share one value. Each service has room for agents of its own,
so that one which invents a name a run fills nobody else's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

OTHER: Final = "other"
"""What all names beyond the limit are called."""
MAX_SERVICES: Final = 50
MAX_AGENTS: Final = 40
"""Of each service."""
MAX_LENGTH: Final = 80
CUT: Final = "…"
"""The last character of a truncated name."""
_UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"


@dataclass(slots=True)
class BoundedNames:
    """The first ``limit`` names that were asked for keep their own."""

    limit: int
    nameless: str
    """What stands for an empty name."""
    _known: set[str] = field(default_factory=set)

    def __call__(self, name: str) -> str:
        """Return the label for a name."""
        label = as_label(name) or self.nameless
        if label not in self._known:
            if len(self._known) >= self.limit:
                return OTHER
            self._known.add(label)
        return label


@dataclass(slots=True)
class AgentNames:
    """Labels for the agents of services."""

    services: BoundedNames = field(default_factory=lambda: BoundedNames(MAX_SERVICES, "unknown_service"))
    _agents: dict[str, BoundedNames] = field(default_factory=dict)

    def __call__(self, service: str, agent: str) -> tuple[str, str]:
        """Return the labels for a service and one of its agents."""
        label = self.services(service)
        agents = self._agents.setdefault(label, BoundedNames(MAX_AGENTS, "unnamed"))
        return label, agents(agent)


def as_label(name: str) -> str:
    """Return a name on one line, of at most ``MAX_LENGTH`` characters that can be shown."""
    short = name.strip()[: MAX_LENGTH + 1]
    is_plain = short.isprintable()  # as nearly all are
    shown = short if is_plain else "".join(char if char.isprintable() else _UNPRINTABLE for char in short)
    return shown if len(shown) <= MAX_LENGTH else shown[: MAX_LENGTH - 1] + CUT
