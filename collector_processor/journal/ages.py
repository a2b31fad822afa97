"""Age of the oldest row in a queue, without storing a time for each row. Pure.

Rows leave roughly in the order in which they came, so the bytes that have left show
which of the remaining rows is the oldest. Arrival times are stored as marks, at most one
a second; in a queue that grows for hours the marks are thinned out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

MAX_MARKS: Final = 1024
"""Most marks of one queue; beyond it every second mark is dropped and their spacing doubles."""
_STEP_NS: Final = 1_000_000_000


@dataclass(slots=True)
class QueueAge:
    """Marks of one queue; positions are counted in bytes, not rows."""

    came: int = 0
    went: int = 0
    step_ns: int = _STEP_NS
    marks: deque[tuple[int, int]] = field(default_factory=deque)
    """Arrival time in Unix ns, and the bytes that had arrived before it."""

    def add(self, size: int, received_ns: int) -> None:
        """Record that ``size`` bytes arrived."""
        if not self.marks or received_ns - self.marks[-1][0] >= self.step_ns:
            self.marks.append((received_ns, self.came))
            if len(self.marks) > MAX_MARKS:
                self._thin()
        self.came += size

    def take_back(self, size: int) -> None:
        """Undo the newest ``add``: the bytes were not stored."""
        self.came -= size

    def remove(self, size: int) -> None:
        """Record that ``size`` bytes left."""
        self.went += size
        while len(self.marks) > 1 and self.marks[1][1] <= self.went:
            self.marks.popleft()
        if self.went >= self.came:
            self.marks.clear()

    @property
    def oldest_ns(self) -> int | None:
        """Arrival time of the oldest remaining row, to within a mark; ``None`` if the queue is empty."""
        return self.marks[0][0] if self.marks and self.came > self.went else None

    def _thin(self) -> None:
        self.marks = deque(mark for place, mark in enumerate(self.marks) if place % 2 == 0)
        self.step_ns *= 2
