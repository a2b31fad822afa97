"""A play in OpenInference, by its specification: flattened messages, kinds of span, ``agent.name``.

A handoff is a tool's span, as in every instrumentation except openai-agents'. The root has status OK even
after a crash, as openai-agents' does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from semconv.model import Span, SpanStatus
from tests.renderings.play import Asked, Delegation, ModelCall, Play, ToolUse, Transfer, Turn
from tests.renderings.spans import Rendering, Written, exception, instructions_of, spans_of, turns
from tests.renderings.staging import TRANSFERRED, Scene, Spoken, Stage

SCOPE: Final = "openinference.instrumentation.some_framework"
_PLAIN: Final = "text/plain"
_JSON: Final = "application/json"


def spans(stage: Stage) -> list[Span]:
    """Return the play's spans."""
    return spans_of(stage, _write, scope=SCOPE)


def _write(scene: Scene) -> Written:
    match scene.played:
        case Play() as play:
            attributes = _of("CHAIN") | _values(play.task, play.answer)
            return Written(name=play.name, attributes=attributes, status=SpanStatus.OK)
        case Turn() as turn:
            attributes = _of("AGENT") | {"agent.name": turn.agent} | _values(scene.brief, turn.last_words)
            return Written(name=turn.agent, attributes=attributes, events=exception(scene))
        case ModelCall():
            return Written(name="ChatModel", attributes=_llm(scene), events=exception(scene))
        case ToolUse(asked=asked, result=result):
            return Written(name=asked.tool, attributes=_tool(asked, result), events=exception(scene))
        case Delegation(asked=asked, result=result):
            return Written(name=asked.tool, attributes=_tool(asked, result))
        case Transfer(asked=asked):
            return Written(name=asked.tool, attributes=_tool(asked, TRANSFERRED))


def _of(kind: str) -> dict[str, Any]:
    return {"openinference.span.kind": kind}


def _values(given: str, got: str) -> dict[str, Any]:
    return {
        "input.value": given,
        "input.mime_type": _PLAIN if given else "",
        "output.value": got,
        "output.mime_type": _PLAIN if got else "",
    }


def _tool(asked: Asked, result: str) -> dict[str, Any]:
    return _of("TOOL") | {
        "tool.name": asked.tool,
        "tool_call.id": asked.call_id,
        **_values(asked.arguments, result),
        "input.mime_type": _JSON,
    }


def _llm(scene: Scene) -> dict[str, Any]:
    heard = [Spoken("system", instructions_of(scene)), *scene.heard]
    said = [scene.said] if scene.said else []
    return (
        _of("LLM")
        | dict(_flattened("llm.input_messages", heard))
        | dict(_flattened("llm.output_messages", said))
    )


def _flattened(prefix: str, messages: Sequence[Spoken]) -> Iterator[tuple[str, Any]]:
    for number, message in enumerate(messages):
        start = f"{prefix}.{number}.message"
        yield f"{start}.role", message.role
        yield f"{start}.content", message.text
        yield f"{start}.tool_call_id", message.answers
        for place, asked in enumerate(message.asks):
            call = f"{start}.tool_calls.{place}.tool_call"
            yield f"{call}.id", asked.call_id
            yield f"{call}.function.name", asked.tool
            yield f"{call}.function.arguments", asked.arguments


OPENINFERENCE: Final = Rendering(
    name="openinference",
    # All but the right answer, which the specification has no place for.
    carries=frozenset({"agent", "kind", "target", "heard", "said", "error", "group", "task", "answer"}),
    spans=spans,
    turns=turns,
)
