"""Times of steps: bars for the list of steps, and a map of a long run, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from analyzer.inquiry.present import plain
from analyzer.web.views.picture import Suspicion, lanes_of
from semconv.model import SpanStatus, Step

_WIDE: Final = 1000
"""Units across a bar or a map; the page stretches them."""
_THINNEST: Final = 5.0
_MOST_CELLS: Final = 200
_ROW: Final = 8
_TOP: Final = 10
MOST_ROWS: Final = 10
"""Lanes of a map; further agents share the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Start and end of a run's steps, in nanoseconds since the epoch; both 0 if no step has a time."""

    start_ns: int
    end_ns: int

    @staticmethod
    def of(steps: Sequence[Step]) -> Clock:
        """Return the clock of a run."""
        starts = [step.start_ns for step in steps if step.start_ns]
        ends = [step.end_ns for step in steps if step.start_ns]
        return Clock(start_ns=min(starts, default=0), end_ns=max(ends, default=0))

    @property
    def seconds(self) -> float:
        """Duration of the run; 0 if unknown."""
        return max(0, self.end_ns - self.start_ns) / 1e9

    def since(self, step: Step) -> float:
        """Return the seconds from the run's start to the step's."""
        return max(0, step.start_ns - self.start_ns) / 1e9

    def bar(self, step: Step) -> str:
        """Return a bar from the step's start to its end; empty if its times are unknown."""
        whole = self.end_ns - self.start_ns
        if whole <= 0 or not step.start_ns:
            return ""
        left = _WIDE * (step.start_ns - self.start_ns) / whole
        wide = max(_THINNEST, _WIDE * max(0, step.end_ns - step.start_ns) / whole)
        left = min(left, _WIDE - wide)
        failed = " is-failed" if step.status is SpanStatus.ERROR else ""
        return (
            f'<svg class="bar" viewBox="0 0 {_WIDE} 8" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect class="is-{step.kind.value}{failed}" x="{left:.1f}" y="0" width="{wide:.1f}" height="8"/>'
            "</svg>"
        )


def overview(steps: Sequence[Step], suspicion: Suspicion) -> str:
    """Return a map of a whole run: a lane for each agent, errors and the decisive step marked.

    Each cell of at most ``_MOST_CELLS`` is a link to its first step, for the mouse; the steps themselves are
    reached by keyboard.
    """
    if not steps:
        return ""
    lanes = {agent: min(number, MOST_ROWS - 1) for number, agent in enumerate(lanes_of(steps))}
    rows = min(len(lanes), MOST_ROWS)
    per_cell = -(-len(steps) // _MOST_CELLS)
    cells = [steps[at : at + per_cell] for at in range(0, len(steps), per_cell)]
    height = _TOP + rows * _ROW + 2
    size = f'viewBox="0 0 {len(cells) * 5} {height}" height="{height}" preserveAspectRatio="none"'
    inside = "".join(
        "".join(_cell(number, cell, lanes, suspicion, height)) for number, cell in enumerate(cells)
    )
    seen = f'<rect class="seen" x="0" y="0" width="0" height="{height}"/>'
    return f'<svg class="overview" {size} aria-hidden="true">{inside}{seen}</svg>'


def _cell(
    number: int, cell: Sequence[Step], lanes: dict[str, int], suspicion: Suspicion, height: int
) -> Iterator[str]:
    first, last = cell[0].index, cell[-1].index
    label = f"step {first}" if first == last else f"steps {first} to {last}"
    agents = ", ".join(dict.fromkeys(plain(step.agent, 30) for step in cell))
    failed = next((step for step in cell if step.status is SpanStatus.ERROR), None)
    guilty = next((step for step in cell if step.index == suspicion.decisive), None)
    aim = (guilty or failed or cell[0]).index
    left = 5 * number
    yield f'<a href="?step={aim}#step-{aim}" tabindex="-1"><title>{escape(f"{label}: {agents}")}</title>'
    yield f'<rect class="cell" x="{left}" y="0" width="5" height="{height}"/>'
    kinds = {lanes.get(step.agent, MOST_ROWS - 1): step.kind.value for step in cell}
    if failed is not None:
        kinds[lanes.get(failed.agent, MOST_ROWS - 1)] = "failed"
    for lane, kind in kinds.items():
        place = f'x="{left + 0.5:g}" y="{_TOP + lane * _ROW}" width="4" height="{_ROW - 2}"'
        yield f'<rect class="is-{kind}" {place}/>'
    if guilty is not None:
        yield f'<rect class="guilty" x="{left - 1}" y="0" width="7" height="{height}"/>'
    yield "</a>"
