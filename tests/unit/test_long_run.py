"""A run of 45 turns whose spans lost most attributes to the SDK's limit still shows every turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import pytest
from opentelemetry.sdk.trace import SpanLimits

from collector_processor.core.runs import Run
from collector_processor.rebuild.stages import rebuild
from semconv.model import ContentState
from tests.renderings.openinference import OPENINFERENCE
from tests.renderings.play import Act, Asked, ModelCall, Play, ToolUse, Turn
from tests.renderings.spans import Rendering
from tests.renderings.staging import Stage
from tests.renderings.through_sdk import Arrange, as_they_are, replayed
from tests.renderings.traceloop import OLD_TRACELOOP

TURNS: Final = 45
OUTPUTS: Final = ("llm.output_messages", "gen_ai.completion")
LIMITS: Final = SpanLimits(max_span_attributes=128)


def turn(number: int) -> list[Act]:
    asked = Asked(tool="search", arguments=f'{{"page": {number}}}', call_id=f"call_{number}")
    return [
        ModelCall(text=f"thought {number}", asks=(asked,)),
        ToolUse(asked=asked, result=f"result {number}"),
    ]


def long_run() -> Stage:
    acts = [*chain.from_iterable(turn(number) for number in range(TURNS - 1)), ModelCall(text="the answer")]
    agent = Turn(agent="reader", instructions="Read on.", acts=tuple(acts))
    return Stage(Play(name="reading", task="the task", stages=(agent,)))


def answers_first(attributes: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    """Set outputs first, as instrumentations with a late hook for inputs do: the outputs are evicted."""
    return sorted(attributes.items(), key=lambda item: not item[0].startswith(OUTPUTS))


def arrived(rendering: Rendering, arrange: Arrange) -> Run:
    (run,) = rebuild([replayed(rendering.spans(long_run()), LIMITS, arrange)])
    return run


flattening = pytest.mark.parametrize("rendering", [OPENINFERENCE, OLD_TRACELOOP], ids=lambda each: each.name)
arranging = pytest.mark.parametrize("arrange", [as_they_are, answers_first])


@flattening
@arranging
def test_every_turns_text_is_there(rendering: Rendering, arrange: Arrange) -> None:
    run = arrived(rendering, arrange)
    dropped = sum(span.dropped_attributes for span in run.trace.spans)
    assert dropped > 3_000  # or the test shows nothing
    steps = run.trajectory.steps
    calls = [step for step in steps if step.kind.value == "llm"]
    assert [step.output.partition("\n")[0] for step in calls] == [
        *(f"thought {number}" for number in range(TURNS - 1)),
        "the answer",
    ]
    assert [f'call search({{"page": {number}}})' in step.output for number, step in enumerate(calls)] == [
        *[True] * (TURNS - 1),
        False,
    ]
    assert [step.input for step in calls[1:]] == [f"tool: result {number}" for number in range(TURNS - 1)]
    assert run.trajectory.task == "the task"
    assert run.trajectory.output == "the answer"


@flattening
@arranging
def test_a_loss_is_reported(rendering: Rendering, arrange: Arrange) -> None:
    trajectory = arrived(rendering, arrange).trajectory
    cut = [step for step in trajectory.steps if step.content is ContentState.TRUNCATED]
    assert trajectory.warnings == (f"{len(cut)} of {2 * TURNS - 1} steps lost content to limits",)
    assert ContentState.DROPPED not in {step.content for step in trajectory.steps}
