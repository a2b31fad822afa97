"""A run gives the same steps in every dialect and for every order of arrival.

Only what the dialect can express is compared, as its renderer declares (``CARRIES``).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.model import Step, Trajectory
from tests.renderings.journey import MAIN, arriving, split
from tests.renderings.official import OFFICIAL, STRUCTURED
from tests.renderings.openinference import OPENINFERENCE
from tests.renderings.own import OWN
from tests.renderings.play import Play
from tests.renderings.plays import AGENTS, plays
from tests.renderings.spans import Rendering
from tests.renderings.staging import Line, Stage
from tests.renderings.traceloop import OLD_TRACELOOP, TRACELOOP

RENDERINGS: Final = (OWN, OFFICIAL, STRUCTURED, OPENINFERENCE, TRACELOOP, OLD_TRACELOOP)


def lines_of(trajectory: Trajectory) -> list[Line]:
    return [_line(step) for step in trajectory.steps]


def _line(step: Step) -> Line:
    return Line(
        agent=step.agent,
        kind=step.kind.value,
        target=step.target if step.kind.value != "llm" else None,
        heard=step.input if step.kind.value != "handoff" else "",
        said=step.output if step.kind.value != "handoff" else "",
        error=step.error.removeprefix("PlayedError: "),  # the exception's type
        group=step.group,
    )


def carried(lines: Sequence[Line], carries: frozenset[str]) -> list[Any]:
    kept = [tuple(getattr(line, name) for name in Line.__slots__ if name in carries) for line in lines]
    # what overlaps is in no order
    return [
        sorted(map(repr, (kept[i] for i in range(len(lines)) if lines[i].group == line.group)))
        if line.group is not None
        else repr(kept[number])
        for number, line in enumerate(lines)
    ]


def compare(trajectory: Trajectory, stage: Stage, carries: frozenset[str]) -> None:
    play = stage.play
    assert carried(lines_of(trajectory), carries) == carried(stage.lines(), carries)
    assert trajectory.complete
    assert trajectory.task == play.task
    assert trajectory.output == play.answer
    assert bool(trajectory.root_error) == bool(play.crash)
    if "reference" in carries:
        assert (trajectory.reference or "") == play.reference


SKEWS_NS: Final = (0, 3_000_000, -3_000_000, 2_000_000_000, -3_600_000_000_000)
SERVICES: Final = (MAIN, "booking", "research")
homes = st.fixed_dictionaries({name: st.sampled_from(SERVICES) for name in AGENTS})
clocks = st.fixed_dictionaries({name: st.sampled_from(SKEWS_NS) for name in SERVICES[1:]})
chances = st.randoms(use_true_random=False)
law = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("rendering", RENDERINGS, ids=lambda each: each.name)
@given(play=plays())
@law
def test_every_dialect_preserves_a_run(rendering: Rendering, play: Play) -> None:
    stage = Stage(play)
    (run,) = rebuild([encode(rendering.spans(stage))])
    assert run.trajectory.warnings == ()
    compare(run.trajectory, stage, rendering.carries)


@pytest.mark.parametrize("rendering", RENDERINGS, ids=lambda each: each.name)
@given(play=plays(), services=homes, skews_ns=clocks, chance=chances)
@law
def test_every_dialect_preserves_a_run_in_any_order_of_arrival(
    rendering: Rendering,
    play: Play,
    services: dict[str, str],
    skews_ns: dict[str, int],
    chance: random.Random,
) -> None:
    """Split between services whose clocks differ, in pieces, with duplicates, out of order."""
    stage = Stage(play)
    spans = rendering.spans(stage)
    scattered = split(spans, rendering.turns(stage, spans), services, skews_ns)
    (run,) = rebuild(arriving(scattered, chance))
    compare(run.trajectory, stage, rendering.carries)
    used = {each.resource.attributes["service.name"] for each in scattered}
    skewed = {service for service, skew_ns in skews_ns.items() if skew_ns and service in used}
    warned = {warning.split()[3] for warning in run.trajectory.warnings if warning.startswith("clock skew")}
    assert warned == skewed
