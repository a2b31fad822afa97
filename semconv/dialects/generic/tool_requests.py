"""Tool calls that models requested, and the spans that execute them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from semconv.dialects.generic.clues import Clues
from semconv.dialects.generic.speakers import bare_name
from semconv.dialects.reading.agent_names import plain
from semconv.dialects.reading.tools import transfer_target
from semconv.model import ToolCall


class ToolRequests:
    """The tool calls that models requested, by name and by id."""

    def __init__(self, calls: Sequence[Clues]) -> None:
        self._names: dict[str, ToolCall] = {}
        self._ids: dict[str, ToolCall] = {}
        for clues in calls:
            for message in (*clues.output_messages, *clues.input_messages):
                for call in message.calls:
                    if call.name:
                        self._names.setdefault(call.name, call)
                    if call.call_id:
                        self._ids.setdefault(call.call_id, call)
        targets = (transfer_target(call.name, call.arguments) for call in self._names.values())
        self._transfers: Final = frozenset(plain(target) for target in targets if target)
        self.ids: Final = frozenset(self._ids)

    def is_transfer_to(self, names: Sequence[str]) -> bool:
        """Say whether a model requested a transfer to an agent with one of these names."""
        return not self._transfers.isdisjoint(plain(name) for name in names)

    def by(self, clues: Clues) -> ToolCall | None:
        """Return the requested call that a span executes; ``None`` if no model requested it."""
        for each in clues.ids:
            if each in self._ids:
                return self._ids[each]
        own = clues.span.name
        for name in (*clues.tools, *clues.names, own, bare_name(own), *own.replace(":", " ").split()):
            if name in self._names:
                return self._names[name]
        return None
