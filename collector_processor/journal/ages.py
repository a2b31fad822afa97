"""How long the oldest of a queue has waited, without a note for each row. Pure.

Rows leave about in the order they came, so that what has left says which came
first of those that are left. When each came is kept as marks, one a second at
most; of a queue that grows for hours, ever fewer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

MAX_MARKS: Final = 1024
"""Of one queue; beyond it every second one goes, and the rest lie twice as far apart."""
_STEP_NS: Final = 1_000_000_000


@dataclass(slots=True)
class QueueAge:
    """One queue's marks; bytes stand for rows."""

    came: int = 0
    went: int = 0
    step_ns: int = _STEP_NS
    marks: deque[tuple[int, int]] = field(default_factory=deque)
    """When something came, Unix ns, and how many bytes had come before it."""

    def add(self, size: int, received_ns: int) -> None:
        """Note that ``size`` bytes came."""
        if not self.marks or received_ns - self.marks[-1][0] >= self.step_ns:
            self.marks.append((received_ns, self.came))
            if len(self.marks) > MAX_MARKS:
                self._thin()
        self.came += size

    def take_back(self, size: int) -> None:
        """Note that the newest bytes were not stored after all."""
        self.came -= size

    def remove(self, size: int) -> None:
        """Note that ``size`` bytes left."""
        self.went += size
        while len(self.marks) > 1 and self.marks[1][1] <= self.went:
            self.marks.popleft()
        if self.went >= self.came:
            self.marks.clear()

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest came that is left, to within a mark; ``None`` where none is."""
        return self.marks[0][0] if self.marks and self.came > self.went else None

    def _thin(self) -> None:
        self.marks = deque(mark for place, mark in enumerate(self.marks) if place % 2 == 0)
        self.step_ns *= 2
