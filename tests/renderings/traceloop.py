"""A play in Traceloop's OpenLLMetry, in its current and its older format.

Now: official messages on model calls with Traceloop's own attributes beside them. Before 2026: messages
flattened into ``gen_ai.prompt.N``. Handoffs have lost their target (``triage → unknown.handoff``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from semconv.model import Span
from tests.renderings.official import OFFICIAL, messages
from tests.renderings.play import Asked, Delegation, ModelCall, Play, ToolUse, Transfer, Turn
from tests.renderings.spans import Rendering, Written, exception, instructions_of, spans_of, turns
from tests.renderings.staging import Scene, Spoken, Stage

SCOPE: Final = "opentelemetry.instrumentation.some_framework"


def spans(stage: Stage) -> list[Span]:
    """Return the play's spans as versions of 2026 write them."""
    return spans_of(stage, lambda scene: _write(scene, _structured), scope=SCOPE)


def old_spans(stage: Stage) -> list[Span]:
    """Return the play's spans as older versions write them."""
    return spans_of(stage, lambda scene: _write(scene, _flattened), scope=SCOPE)


def _write(scene: Scene, conversation: Callable[[Scene], dict[str, Any]]) -> Written:
    match scene.played:
        case Play() as play:
            return Written(
                name=f"{play.name}.workflow",
                attributes=_entity("workflow", play.name, play.task, play.answer),
            )
        case Turn() as turn:
            attributes = _entity("agent", turn.agent, scene.brief, turn.last_words)
            return Written(
                name=f"{turn.agent}.agent", attributes=attributes | {"gen_ai.agent.name": turn.agent}
            )
        case ModelCall():
            attributes = {"llm.request.type": "chat", "gen_ai.request.model": "gpt", **conversation(scene)}
            return Written(name="openai.chat", kind=3, attributes=attributes, events=exception(scene))
        case ToolUse(asked=asked, result=result):
            return Written(
                name=f"{asked.tool}.tool", attributes=_tool(asked, result), events=exception(scene)
            )
        case Delegation(asked=asked, result=result):
            return Written(name=f"{asked.tool}.tool", attributes=_tool(asked, result))
        case Transfer():
            attributes = {"traceloop.span.kind": "handoff", "gen_ai.handoff.from_agent": scene.agent}
            return Written(name=f"{scene.agent} → unknown.handoff", attributes=attributes)


def _entity(kind: str, name: str, given: str, got: str) -> dict[str, Any]:
    return {
        "traceloop.span.kind": kind,
        "traceloop.entity.name": name,
        "traceloop.entity.input": _json({"args": [given], "kwargs": {}}) if given else "",
        "traceloop.entity.output": _json(got) if got else "",
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _tool(asked: Asked, result: str) -> dict[str, Any]:
    return {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": asked.tool,
        "gen_ai.tool.name": asked.tool,
        "gen_ai.tool.call.id": asked.call_id,
        "gen_ai.tool.call.arguments": asked.arguments,
        "gen_ai.tool.call.result": result,
    }


def _structured(scene: Scene) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": messages(*_heard(scene)),
        "gen_ai.output.messages": messages(scene.said) if scene.said else "",
    }


def _flattened(scene: Scene) -> dict[str, Any]:
    said = [scene.said] if scene.said else []
    return dict(_flat("gen_ai.prompt", _heard(scene))) | dict(_flat("gen_ai.completion", said))


def _heard(scene: Scene) -> list[Spoken]:
    return [Spoken("system", instructions_of(scene)), *scene.heard]


def _flat(prefix: str, each: Sequence[Spoken]) -> Iterator[tuple[str, Any]]:
    for number, message in enumerate(each):
        start = f"{prefix}.{number}"
        yield f"{start}.role", message.role
        yield f"{start}.content", message.text
        yield f"{start}.tool_call_id", message.answers
        for place, asked in enumerate(message.asks):
            call = f"{start}.tool_calls.{place}"
            yield f"{call}.id", asked.call_id
            yield f"{call}.name", asked.tool
            yield f"{call}.arguments", asked.arguments


TRACELOOP: Final = Rendering(name="traceloop", carries=OFFICIAL.carries, spans=spans, turns=turns)
OLD_TRACELOOP: Final = Rendering(name="old traceloop", carries=OFFICIAL.carries, spans=old_spans, turns=turns)
