"""If an instrumentation records a model's input but not its output, later calls quote the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import SpanLimits

from collector_processor.rebuild.stages import rebuild
from semconv.model import ContentState, Step, Trajectory
from tests.renderings.openinference import OPENINFERENCE
from tests.renderings.play import Asked, ModelCall, Play, ToolUse, Turn
from tests.renderings.staging import Stage
from tests.renderings.through_sdk import Arrange, replayed

ASKED = Asked(tool="search", arguments='{"page": 1}', call_id="call_1")
READER = Turn(
    agent="reader",
    instructions="Read on.",
    acts=(
        ModelCall(text="a thought", asks=(ASKED,)),
        ToolUse(asked=ASKED, result="a page"),
        ModelCall(text="the answer"),
    ),
)
OUTPUT = ("llm.output_messages", "output.")


def without_outputs_of_models(attributes: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    is_model = attributes["openinference.span.kind"] == "LLM"
    return [(name, value) for name, value in attributes.items() if not (is_model and name.startswith(OUTPUT))]


def hidden(attributes: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    """As OpenInference does if outputs are hidden."""
    said = without_outputs_of_models(attributes)
    return said if len(said) == len(attributes) else [*said, ("output.value", "__REDACTED__")]


def arrived(arrange: Arrange) -> Trajectory:
    stage = Stage(Play(name="reading", task="the task", stages=(READER,)))
    (run,) = rebuild([replayed(OPENINFERENCE.spans(stage), SpanLimits(), arrange)])
    return run.trajectory


def calls(trajectory: Trajectory) -> list[Step]:
    return [step for step in trajectory.steps if step.kind.value == "llm"]


def test_a_later_call_of_the_agent_tells_what_the_model_said() -> None:
    trajectory = arrived(without_outputs_of_models)

    first, last = calls(trajectory)
    assert first.output == 'a thought\ncall search({"page": 1})'
    assert last.input == "tool: a page"
    assert last.output == "the answer"
    assert trajectory.warnings == ()
    assert first.content is ContentState.COMPLETE


def test_what_was_to_be_hidden_is_not_looked_for() -> None:
    first, last = calls(arrived(hidden))

    assert (first.output, last.output) == ("__REDACTED__", "__REDACTED__")
    assert first.content is ContentState.REDACTED
