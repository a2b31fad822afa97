"""Pictures of a run as SVG: its steps in lanes, a map of a long run, and bars of the steps' times. Pure.

In the picture of a run, steps go from left to right, one per column, each in the lane of its agent; a band
marks the steps of a parallel group. An arrow shows where work passes from one lane to another.
A bar behind each step shows its probability of blame; only the decisive step is filled,
ringed and named. Colours come from the style sheet (classes, never ``style``: the pages
forbid inline styles), so that one picture serves dark and light themes.

Names come from traces: they pass through ``plain`` and are escaped here, the only place where they become
markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from analyzer.inquiry.present import counted, plain
from semconv.model import SpanStatus, Step, StepKind, agent_label

COLUMN: Final = 52
LANE: Final = 96
_TOP: Final = 40
_LEFT: Final = 20
_NODE: Final = 26
_FLOOR: Final = 20
"""Pixels between the bottom of a lane and the bottom of its bars."""
_TALLEST: Final = 52
_LEAST_SHOWN: Final = 0.02
_NAME: Final = 40
MOST_LANES: Final = 24
OTHERS: Final = "other agents"
_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
    ' markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0.5 8 4 0 7.5z"/></marker></defs>'
)
_KIND_WORDS: Final[Mapping[StepKind, str]] = {
    StepKind.LLM: "model call",
    StepKind.TOOL: "tool call",
    StepKind.HANDOFF: "handoff",
    StepKind.AGENT: "agent",
    StepKind.HUMAN: "human",
    StepKind.OTHER: "step",
}
_WIDE: Final = 1000
"""Units across a bar or a map; the page stretches them."""
_THINNEST: Final = 5.0
_MOST_CELLS: Final = 200
_MAP_ROW: Final = 8
_MAP_TOP: Final = 10
MOST_MAP_LANES: Final = 10
"""Lanes of a map; further agents share the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A verdict's probability of blame for each step, and the decisive step."""

    decisive: int | None = None
    word: str = "decisive"
    """Label of the decisive step: ``suspected`` if only the evidence says that the run failed."""
    probabilities: Mapping[int, float]
    """Probability 0..1 by step; missing steps have 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Position of a step, in columns and lanes from 0."""

    column: int
    lane: int


def lanes_of(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the agents in order of appearance; beyond ``MOST_LANES`` the last lane holds all others."""
    agents = list(dict.fromkeys(step.agent for step in steps))
    return tuple(agents) if len(agents) <= MOST_LANES else (*agents[: MOST_LANES - 1], OTHERS)


def places(steps: Sequence[Step]) -> tuple[Place, ...]:
    """Return each step's position: one column per step, but agents of a group share columns."""
    lanes = {agent: number for number, agent in enumerate(lanes_of(steps))}
    found: list[Place] = []
    start = free = 0
    group: int | None = None
    taken: dict[int, int] = {}
    for step in steps:
        lane = lanes.get(step.agent, len(lanes) - 1)
        if step.group is None or step.group != group:
            start, taken, group = free, {}, step.group
        column = start + taken.get(lane, 0)
        taken[lane] = taken.get(lane, 0) + 1
        free = max(free, column + 1)
        found.append(Place(column=column, lane=lane))
    return tuple(found)


def draw(steps: Sequence[Step], suspicion: Suspicion) -> str:
    """Return the picture of some steps of a run, in order, as SVG for a page with the style sheet.

    Each step is a link to ``#step-INDEX``.
    """
    lanes, where = lanes_of(steps), places(steps)
    width = 2 * _LEFT + COLUMN * max([place.column + 1 for place in where], default=1)
    width = max(width, 2 * _LEFT + 8 * max(map(len, map(_short, lanes)), default=0))
    height = _TOP + LANE * max(1, len(lanes)) + 6
    guilty = next((step for step in steps if step.index == suspicion.decisive), None)
    summary = escape(_summary(steps, lanes, guilty, suspicion.word))
    parts = [
        f'<svg class="picture" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"',
        f' role="group" aria-label="{summary}">',
        _TIP,
        *_lanes(lanes),
        *_bands(steps, where, height),
        *_arrows(steps, where),
        *_mark(steps, where, suspicion, height),
        *_nodes(steps, where, suspicion),
        "</svg>",
    ]
    return "".join(parts)


def name_board(steps: Sequence[Step], suspicion: Suspicion) -> str:
    """Return the lanes' names as separate SVG that stays in place while the picture scrolls below."""
    lanes = lanes_of(steps)
    guilty = next((step.agent for step in steps if step.index == suspicion.decisive), None)
    width = _LEFT + 8 * max(map(len, map(_short, lanes)), default=0)
    height = _TOP + LANE * max(1, len(lanes)) + 6
    size = f'width="{width}" height="{height}"'
    head = f'<svg class="picture board" xmlns="http://www.w3.org/2000/svg" {size} aria-hidden="true">'
    return "".join([head, *_names(lanes, guilty), "</svg>"])


def _summary(steps: Sequence[Step], lanes: Sequence[str], guilty: Step | None, word: str) -> str:
    label = f"{counted(len(steps), 'step')} of {counted(len(lanes), 'agent')} in order"
    return f"{label}; step {guilty.index} of {_short(guilty.agent)} is {word}" if guilty else label


def _lanes(lanes: Sequence[str]) -> Iterator[str]:
    """Yield the lanes' backgrounds, as wide as the page permits."""
    for number in range(len(lanes)):
        top = _TOP + number * LANE
        yield f'<rect class="lane" x="0" y="{top}" width="100%" height="{LANE - 6}" rx="8"/>'


def _names(lanes: Sequence[str], guilty: str | None) -> Iterator[str]:
    for number, agent in enumerate(lanes):
        kind = "name guilty" if agent == guilty else "name"
        yield f'<text class="{kind}" x="10" y="{_TOP + number * LANE + 17}">{escape(_short(agent))}</text>'


def _bands(steps: Sequence[Step], where: Sequence[Place], height: int) -> Iterator[str]:
    """Yield a band for each group of parallel steps."""
    columns: dict[int, list[int]] = {}
    for step, place in zip(steps, where, strict=True):
        if step.group is not None:
            columns.setdefault(step.group, []).append(place.column)
    for taken in columns.values():
        left, right = _x(min(taken)) - COLUMN / 2 + 3, _x(max(taken)) + COLUMN / 2 - 3
        yield f'<g class="parallel"><rect x="{left:g}" y="{_TOP - 8}" width="{right - left:g}"'
        yield f' height="{height - _TOP + 6}" rx="6"/>'
        yield f'<text x="{left + 10:g}" y="{_TOP + 6}">∥</text></g>'


def _arrows(steps: Sequence[Step], where: Sequence[Place]) -> Iterator[str]:
    for here, there in _passages(steps, where):
        is_handoff = steps[here].kind is StepKind.HANDOFF or where[here].lane != where[there].lane
        yield _arrow(where[here], where[there], "passage" if is_handoff else "flow")


def _passages(steps: Sequence[Step], where: Sequence[Place]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of positions in ``steps`` between which work passes.

    A group is entered at each lane's first step and left at its last.
    """
    before: list[int] = []
    now: dict[int, int] = {}
    group: int | None = None
    for number, step in enumerate(steps):
        lane = where[number].lane
        if step.group is None or step.group != group:
            before, now, group = list(now.values()), {}, step.group
        if lane in now:
            yield now[lane], number
        else:
            for earlier in before:
                yield earlier, number
        now[lane] = number


def _arrow(here: Place, there: Place, kind: str) -> str:
    x1, y1, x2, y2 = _x(here.column), _y(here.lane), _x(there.column), _y(there.lane)
    if here.lane == there.lane:
        return f'<path class="{kind}" d="M{x1 + _NODE / 2:g} {y1:g}H{x2 - _NODE / 2 - 1:g}"/>'
    down = 1 if y2 > y1 else -1
    start, end = y1 + down * _NODE / 2, y2 - down * (_NODE / 2 + 2)
    bend = start + (end - start) / 2
    curve = f"M{x1:g} {start:g}C{x1:g} {bend:g} {x2:g} {bend:g} {x2:g} {end:g}"
    return f'<path class="{kind}" d="{curve}" marker-end="url(#tip)"/>'


def _mark(steps: Sequence[Step], where: Sequence[Place], suspicion: Suspicion, height: int) -> Iterator[str]:
    """Yield the line through the decisive step, behind its column."""
    for step, place in zip(steps, where, strict=True):
        if step.index == suspicion.decisive:
            x = f"{_x(place.column):g}"
            yield f'<line class="mark" aria-hidden="true" x1="{x}" x2="{x}" y1="24" y2="{height - 4}"/>'


def _nodes(steps: Sequence[Step], where: Sequence[Place], suspicion: Suspicion) -> Iterator[str]:
    for step, place in zip(steps, where, strict=True):
        probability = suspicion.probabilities.get(step.index, 0.0)
        is_decisive = step.index == suspicion.decisive
        failed = step.status is SpanStatus.ERROR
        marks = ("decisive" * is_decisive, "failed" * failed)
        classes = " ".join(filter(None, ("step", f"is-{step.kind.value}", *marks)))
        label = escape(_accessible_name(step, probability, suspicion.word if is_decisive else ""))
        if is_decisive:
            yield from _flag(place, suspicion.word)
        yield f'<a class="{classes}" href="#step-{step.index}" aria-label="{label}"><title>{label}</title>'
        yield from _blame(place, probability)
        yield _shape(step.kind, _x(place.column), _y(place.lane))
        yield f'<text x="{_x(place.column):g}" y="{_y(place.lane) + 4:g}">{step.index}</text>'
        if failed:
            yield f'<text class="cross" x="{_x(place.column) + 13:g}" y="{_y(place.lane) - 9:g}">✕</text>'
        yield "</a>"


def _blame(place: Place, probability: float) -> Iterator[str]:
    if probability < _LEAST_SHOWN:
        return
    tall = max(3.0, _TALLEST * min(1.0, probability))
    left, foot = _x(place.column) - _NODE / 2, _y(place.lane) - _NODE / 2 - 4
    strength = 0.4 + 0.6 * min(1.0, probability)
    yield f'<rect class="blame" x="{left:g}" y="{foot - tall:.1f}" width="{_NODE}" height="{tall:.1f}"'
    yield f' rx="3" opacity="{strength:.2f}"/>'


def _flag(place: Place, word: str) -> Iterator[str]:
    """Yield the visual marker of the decisive step; its accessible name says the same."""
    x = _x(place.column)
    yield '<g class="pointer" aria-hidden="true">'
    left = max(2.0, x - 42)
    yield f'<rect x="{left:g}" y="4" width="84" height="20" rx="10"/>'
    yield f'<text x="{left + 42:g}" y="18">{word}</text>'
    yield f'<circle class="ring" cx="{x:g}" cy="{_y(place.lane):g}" r="{_NODE / 2 + 5:g}"/></g>'


def _shape(kind: StepKind, x: float, y: float) -> str:
    half = _NODE / 2
    match kind:
        case StepKind.TOOL:
            size = f'width="{_NODE}" height="{_NODE}"'
            return f'<rect class="node" x="{x - half:g}" y="{y - half:g}" {size} rx="4"/>'
        case StepKind.HANDOFF:
            points = f"{x - half:g},{y - half:g} {x + 5:g},{y - half:g} {x + half + 3:g},{y:g}"
            points += f" {x + 5:g},{y + half:g} {x - half:g},{y + half:g}"
            return f'<polygon class="node" points="{points}"/>'
        case _:
            return f'<circle class="node" cx="{x:g}" cy="{y:g}" r="{half:g}"/>'


def _accessible_name(step: Step, probability: float, word: str) -> str:
    parts = [f"step {step.index}", _short(step.agent), _KIND_WORDS[step.kind]]
    if step.target:
        parts.append(_short(step.target))
    if step.status is SpanStatus.ERROR:
        parts.append("error")
    if step.group is not None:
        parts.append("in parallel")
    if probability >= _LEAST_SHOWN:
        parts.append(f"blamed with {probability:.0%}")
    return (f"{word}: " if word else "") + ", ".join(parts)


def _short(name: str) -> str:
    return plain(agent_label(name), _NAME)


def _x(column: int) -> float:
    return _LEFT + COLUMN * column + COLUMN / 2


def _y(lane: int) -> float:
    return _TOP + lane * LANE + LANE - _FLOOR - _NODE / 2 + 4


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
    lanes = {agent: min(number, MOST_MAP_LANES - 1) for number, agent in enumerate(lanes_of(steps))}
    rows = min(len(lanes), MOST_MAP_LANES)
    per_cell = -(-len(steps) // _MOST_CELLS)
    cells = [steps[at : at + per_cell] for at in range(0, len(steps), per_cell)]
    height = _MAP_TOP + rows * _MAP_ROW + 2
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
    kinds = {lanes.get(step.agent, MOST_MAP_LANES - 1): step.kind.value for step in cell}
    if failed is not None:
        kinds[lanes.get(failed.agent, MOST_MAP_LANES - 1)] = "failed"
    for lane, kind in kinds.items():
        place = f'x="{left + 0.5:g}" y="{_MAP_TOP + lane * _MAP_ROW}" width="4" height="{_MAP_ROW - 2}"'
        yield f'<rect class="is-{kind}" {place}/>'
    if guilty is not None:
        yield f'<rect class="guilty" x="{left - 1}" y="0" width="7" height="{height}"/>'
    yield "</a>"
