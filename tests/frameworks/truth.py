"""The true steps of a run, from the scripted server's own log, as spans should give them. Pure.

One rule for all frameworks: a model call is a step, a tool execution is a step, and a requested transfer is a
step after the requesting call. What an agent says after handing over is no step. A guardrail is an ``other``
step only if it stopped something. Steps that a dialect cannot show are listed beside the run script, with the
reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Final

from semconv.model import Step, Trajectory
from tests.frameworks.catalogue import RunScript
from tests.frameworks.kit.story import PURSER, REGISTRAR
from tests.frameworks.script import MISREAD, bare
from tests.frameworks.server import Happening

ANYBODY: Final = "*"
REGISTRARS_FAULT: Final = frozenset({"misread", "given_up"})
"""Variants in which the registrar is to blame."""
_PASSING_CONTROL: Final = ("transfer", "handoff", "hand_off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A step that the spans should give."""

    agent: str
    """``ANYBODY`` if no span names the agent."""
    kind: str
    group: int
    """Steps of one group are parallel; their order is unknown."""
    target: str | None = None
    """The tool, or the target of the handoff."""
    text: str = ""
    """The output of the model or the tool; empty if it failed, because frameworks word errors differently."""
    is_decisive: bool = False
    is_asking: bool = False
    """A model call that requests a tool and says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The file beside a recording."""

    variant: str
    recorded: str
    """The date, ISO 8601."""
    versions: dict[str, str]
    """Versions of the packages that the run's requirements name."""
    log: tuple[Happening, ...]

    def write(self, path: Path) -> None:
        """Write it as JSON for people to read."""
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")


def read_truth(path: Path) -> Truth:
    """Read the file beside a recording."""
    said: dict[str, Any] = json.loads(path.read_text())
    log = tuple(Happening(**{**each, "calls": tuple(each["calls"])}) for each in said.pop("log"))
    return Truth(log=log, **said)


def expected_steps(run: RunScript, truth: Truth) -> tuple[Expected, ...]:
    """Return the steps that the run's spans should give, in order."""
    decisive = _decisive(truth)
    found: list[Expected] = []
    group, until = -1, 0
    for happened in sorted(truth.log, key=lambda each: each.began):
        if happened.kind == "other" and happened.ok:
            continue  # a guardrail that let it pass
        if found and _is_parting_word(found[-1], happened):
            continue
        if happened.began > until:
            group += 1
        until = max(until, happened.ended)
        found.append(
            Expected(
                agent=happened.agent or ANYBODY,
                kind=happened.kind,
                group=group,
                target=happened.tool or None,
                text=happened.text if happened.ok else "",
                is_decisive=happened is decisive,
                is_asking=bool(happened.calls) and not happened.text,
            )
        )
        if happened.target is not None and _is_handoff(run, happened):
            group += 1
            found.append(Expected(agent=happened.agent, kind="handoff", group=group, target=happened.target))
    return tuple(
        _named(run, truth.variant, each) for each in found if not says(run.hidden, truth.variant, each)
    )


def differences(expected: Sequence[Expected], trajectory: Trajectory) -> list[str]:
    """Describe where the steps differ from the expected ones; empty if they do not."""
    steps = _side_by_side(expected, list(trajectory.steps))
    if len(steps) == len(expected) and all(map(_same, steps, expected)):
        return []
    rows = enumerate(zip_longest(steps, expected))
    return ["steps:", *(_row(index, got, wanted) for index, (got, wanted) in rows)]


def says(which: Mapping[str, str], variant: str, each: Expected) -> bool:
    """Return whether an entry of a run's TOML names this step: ``[variant.][agent.]kind``."""
    kinds = (each.kind, "asking") if each.is_asking else (each.kind,)
    mine = [name for kind in kinds for name in (kind, f"{each.agent}.{kind}")]
    return any(name in which for kind in mine for name in (kind, f"{variant}.{kind}"))


def pairs(expected: Sequence[Expected], trajectory: Trajectory) -> list[tuple[Expected, Step]]:
    """Return each expected step with ours at its position."""
    return list(zip(expected, _side_by_side(expected, list(trajectory.steps)), strict=False))


def decisive_step(expected: Sequence[Expected], trajectory: Trajectory) -> Step | None:
    """Return our step at the position of the decisive one."""
    return next((step for each, step in pairs(expected, trajectory) if each.is_decisive), None)


def _decisive(truth: Truth) -> Happening | None:
    """The earliest event whose correction would turn the failure into success.

    The model call that says what only this variant says; in ``given_up`` the look-up that failed, because an
    agent that does not give up would have no more to say; else the purser's first call, wrong or broken.
    """
    if truth.variant == "given_up":
        return next((each for each in truth.log if each.kind == "tool" and not each.ok), None)
    calls = [each for each in truth.log if each.kind == "llm"]
    if truth.variant == "misread":
        words = f"{MISREAD} seats"
        own = [each for each in calls if each.agent == REGISTRAR]
        # An answering tool takes the words as its argument, and is the last that the registrar calls.
        return next((each for each in own if words in each.text), own[-1])
    return next((each for each in calls if each.agent == PURSER), None)


def _is_parting_word(before: Expected, happened: Happening) -> bool:
    """Return whether an agent only adds a word after it has handed over, as some frameworks ask it to."""
    is_own = (before.kind, before.agent) == ("handoff", happened.agent)
    return is_own and happened.kind == "llm" and happened.ok and not happened.calls


def _is_handoff(run: RunScript, happened: Happening) -> bool:
    if run.delegation != "by_name":
        return run.delegation == "handoff"
    return any(bare(call).startswith(_PASSING_CONTROL) for call in happened.calls)


def _named(run: RunScript, variant: str, each: Expected) -> Expected:
    agent = ANYBODY if says(run.unnamed, variant, each) else run.named.get(each.agent, each.agent)
    return replace(each, agent=agent)


def _side_by_side(expected: Sequence[Expected], steps: list[Step]) -> list[Step]:
    """Return the steps, with parallel ones in the expected order."""
    found: list[Step] = []
    for _, members in groupby(expected, key=lambda each: each.group):
        wanted = list(members)
        chunk = steps[len(found) : len(found) + len(wanted)]
        for each in wanted:
            if chunk:
                fits = (index for index, step in enumerate(chunk) if _same(step, each))
                found.append(chunk.pop(next(fits, 0)))
    return [*found, *steps[len(found) :]]


def _same(got: Step, expected: Expected) -> bool:
    return got.kind == expected.kind and expected.agent in {ANYBODY, got.agent}


def _row(index: int, got: Step | None, expected: Expected | None) -> str:
    mark = "  " if got and expected and _same(got, expected) else "! "
    told = f"{got.agent} {got.kind}" if got else "-"
    wanted = f"{expected.agent} {expected.kind}" if expected else "-"
    return f"{mark}{index:2} got {told:24} expected {wanted}"
