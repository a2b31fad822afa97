"""Runs of the three example systems with one known fault each: of shape, or of a value. Seeded, no process.

The roles, their order and their sums are those of ``examples/systems/script.py``. Passing and failing runs
alike vary: a retried call, an agent that speaks twice, a further look-up, a greeting at the start. The
decisive step is the step that the fault changes, from the script alone.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from semconv.model import Outcome, OutcomeSource, SpanId, SpanStatus, Step, StepKind, Trajectory

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "systems"))

from script import (  # type: ignore[import-not-found]  # the examples are not a package
    FLOWS,
    LOOKING_UP,
    OPENINGS,
    Order,
    order,
    reply,
    succeeded,
)

SHAPES: Final = ("wrong_tool", "loop", "wrong_handoff", "premature_end", "skipped_step", "extra_step")
VALUES: Final = ("wrong_value", "dropped_constraint", "stale_context")
KINDS: Final = (*SHAPES, *VALUES)
RETRIED, TWICE, FURTHER, GREETED = 0.15, 0.1, 0.3, 0.2
"""Probabilities of the variations; a retry is twice as likely in a run that fails."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """One run and, if it failed, its decisive step."""

    trajectory: Trajectory
    kind: str = ""
    step: int | None = None

    @property
    def agent(self) -> str:
        """The agent of the decisive step."""
        assert self.step is not None
        return self.trajectory.steps[self.step].agent


@dataclass
class _Story:
    system: str
    asked: Order
    coin: random.Random
    is_failing: bool
    steps: list[Step] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def add(self, agent: str, output: str, kind: StepKind = StepKind.LLM, **more: object) -> int:
        place = len(self.steps)
        told = "\n".join([self.asked.text, *self.said[-2:]])
        given: dict[str, object] = {"input": told, "span_id": SpanId(f"{place + 1:016x}"), **more}
        self.steps.append(Step(index=place, agent=agent, kind=kind, output=output, **given))  # type: ignore[arg-type]
        return place

    def speak(self, role: str, values: dict[str, int] | None = None) -> int:
        text = _told(values) if values else reply(role, self.asked, self.said, None).text
        place = self.add(role, f"{self.coin.choice(OPENINGS)} {self.coin.choice(OPENINGS)} {text}")
        self.said.append(self.steps[-1].output)
        return place

    def look_up(self, role: str, tool: str, result: str) -> int:
        asked = f'call {tool}({{"item": "{self.asked.first[1]}"}})'
        place = self.add(role, asked)
        given = {"target": tool, "input": asked, "causes": (place,)}
        if self.coin.random() < RETRIED * (2 if self.is_failing else 1):
            error = {"status": SpanStatus.ERROR, "error": "TimeoutError: no answer"}
            self.add(role, "", StepKind.TOOL, **given, **error)
        self.add(role, result, StepKind.TOOL, **given)
        return place

    def usual(self, role: str) -> None:
        """Play a role as in a run that passes."""
        if role == LOOKING_UP:
            for _ in range(1 + (self.coin.random() < FURTHER)):
                self.look_up(role, "look_up_price", f"{self.asked.first[1]}: sold at the usual price")
        self.speak(role)
        if self.coin.random() < TWICE and role != FLOWS[self.system][-1]:
            self.speak(role)


def played(system: str, number: int, kind: str = "") -> Played:
    """Play one run; ``kind`` is its fault, empty for a run that passes. The number decides everything."""
    coin = random.Random(f"{system} {number} {kind}")
    while True:
        story = _Story(system, order(coin.randrange(10**6)), coin, bool(kind))
        step = _play(story, kind)
        outcome = Outcome.SUCCESS if succeeded(story.asked, story.said[-1]) else Outcome.FAILURE
        if (outcome is Outcome.FAILURE) == bool(kind) and (step is None) == (not kind):
            break
    trajectory = Trajectory(
        run_id=f"{system}-{number}-{kind or 'passed'}",
        steps=tuple(story.steps),
        task=story.asked.text,
        output=story.said[-1],
        outcome=outcome,
        outcome_source=OutcomeSource.EVALUATOR,
        agents=tuple(dict.fromkeys(each.agent for each in story.steps)),
    )
    return Played(trajectory=trajectory, kind=kind, step=step)


def _play(story: _Story, kind: str) -> int | None:
    roles = list(dict.fromkeys(FLOWS[story.system]))
    at = _place_of(kind, roles, story.coin) if kind else -1
    if story.coin.random() < GREETED:
        story.add("greeter", "Welcome. Your order is being worked on.")
    decisive: int | None = None
    for place, role in enumerate(roles):
        if place != at:
            story.usual(role)
            if decisive is None and kind == "skipped_step" and place == at + 1 and at >= 0:
                decisive = _first_of(story, role)
            continue
        decisive = _faulty(story, role, kind)
        if kind == "premature_end":
            break
    return decisive


def _place_of(kind: str, roles: list[str], coin: random.Random) -> int:
    """Return which role the fault strikes; the last one only answers."""
    return coin.randrange(1 if kind == "dropped_constraint" else 0, len(roles) - 1)


def _first_of(story: _Story, role: str) -> int:
    return next(step.index for step in story.steps if step.agent == role)


def _faulty(story: _Story, role: str, kind: str) -> int | None:  # noqa: PLR0911 - one a kind
    """Play a role with its fault; return the decisive step, ``None`` if it comes later or cannot be."""
    wrong = _wrong(story, role)
    match kind:
        case "wrong_tool":
            place = story.look_up(role, "search_the_web", "Ten results about other shops.")
            story.speak(role, wrong)
            return place
        case "loop":
            story.usual(role)
            place = story.speak(role, wrong)
            story.speak(role, wrong)
            story.speak(role, wrong)
            return place
        case "wrong_handoff":
            return story.speak("archivist", wrong)
        case "extra_step":
            story.usual(role)
            story.said.append(_told(wrong))  # later roles read wrong values
            return story.look_up(role, "apply_voucher", "voucher applied")
        case "premature_end":
            return story.speak(role)
        case "skipped_step":
            story.said.append(_told(wrong))
            return None
        case _:
            if role == LOOKING_UP:
                story.look_up(role, "look_up_price", f"{story.asked.first[1]}: sold at the usual price")
            return story.speak(role, _changed(story, wrong, kind))


def _told(values: dict[str, int]) -> str:
    return f"{', '.join(f'{name} = {value}' for name, value in values.items())}."


def _wrong(story: _Story, role: str) -> dict[str, int]:
    """Return what a role says, with one value a little off, as in the script."""
    right = story.asked.right
    text = reply(role, story.asked, story.said, None).text
    values = {part.split(" = ")[0]: right[part.split(" = ")[0]] for part in text.rstrip(".").split(", ")}
    name = story.coin.choice(sorted(values))
    values[name] += story.coin.choice((-1, 1)) * story.coin.randint(2, 9)
    return values


def _changed(story: _Story, wrong: dict[str, int], kind: str) -> dict[str, int]:
    right = story.asked.right
    if kind == "dropped_constraint" and "discount" in wrong:
        return {**wrong, "discount": 0}
    if kind == "dropped_constraint" and "total" in wrong:
        return {**wrong, "total": right["subtotal"]}
    if kind == "stale_context":
        other = order(story.coin.randrange(10**6)).right
        return {name: other[name] for name in wrong}
    return wrong


__all__ = ["FLOWS", "KINDS", "SHAPES", "VALUES", "Played", "played"]
