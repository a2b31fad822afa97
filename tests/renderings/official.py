"""A play in OpenTelemetry's own GenAI conventions, as the official langchain instrumentation writes it.

The agent's name is only on its own span. A handoff has no span: it is a tool call in the model's answer with
its result in the next call's history.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from semconv.model import AttributeValue, Span
from tests.renderings.play import Asked, Delegation, ModelCall, Play, ToolUse, Transfer, Turn
from tests.renderings.spans import Rendering, Written, spans_of, turns
from tests.renderings.staging import Scene, Spoken, Stage

SCOPE: Final = "opentelemetry.instrumentation.genai.langchain"


def spans(stage: Stage) -> list[Span]:
    """Return the play's spans."""
    return spans_of(stage, _write, scope=SCOPE)


def message(spoken: Spoken) -> dict[str, Any]:
    """Return a message in the conventions' schema of roles and parts."""
    if spoken.answers:
        part = {"type": "tool_call_response", "id": spoken.answers, "response": spoken.text}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = [{"type": "text", "content": spoken.text}] if spoken.text else []
    return {"role": spoken.role, "parts": parts + [_call(asked) for asked in spoken.asks]}


def messages(*each: Spoken) -> str:
    """Return messages as an attribute's JSON."""
    return json.dumps([message(one) for one in each], ensure_ascii=False)


def _call(asked: Asked) -> dict[str, Any]:
    return {"type": "tool_call", "id": asked.call_id, "name": asked.tool, "arguments": asked.arguments}


def _write(scene: Scene) -> Written | None:
    match scene.played:
        case Play() as play:
            return Written(name=f"invoke_workflow {play.name}", attributes=_workflow(play))
        case Turn() as turn:
            return Written(name=f"invoke_agent {turn.agent}", attributes=_turn(scene, turn))
        case ModelCall():
            return Written(name="chat gpt", kind=3, attributes=_chat(scene))
        case ToolUse(asked=asked, result=result):
            return Written(name=f"execute_tool {asked.tool}", attributes=_tool(asked, result))
        case Delegation(asked=asked, result=result):
            return Written(name=f"execute_tool {asked.tool}", attributes=_tool(asked, result))
        case Transfer():
            return None


def _workflow(play: Play) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": play.name,
        "gen_ai.input.messages": messages(Spoken("user", play.task)),
        "gen_ai.output.messages": messages(Spoken("assistant", play.answer)) if play.answer else "",
    }


def _turn(scene: Scene, turn: Turn) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": turn.agent,
        "gen_ai.input.messages": messages(Spoken("user", scene.brief)) if scene.brief else "",
        "gen_ai.output.messages": messages(Spoken("assistant", turn.last_words)) if turn.last_words else "",
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": turn.instructions}]),
    }


def _chat(scene: Scene) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt",
        "gen_ai.input.messages": messages(*scene.heard),
        "gen_ai.output.messages": messages(scene.said) if scene.said else "",
    }


def _tool(asked: Asked, result: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": asked.tool,
        "gen_ai.tool.call.id": asked.call_id,
        "gen_ai.tool.call.arguments": asked.arguments,
        "gen_ai.tool.call.result": result,
    }


def structured_spans(stage: Stage) -> list[Span]:
    """Return the play's spans with messages as structured values, which the conventions prefer to JSON."""
    return [replace(span, attributes=dict(map(_unquoted, span.attributes.items()))) for span in spans(stage)]


def _unquoted(pair: tuple[str, AttributeValue]) -> tuple[str, AttributeValue]:
    name, value = pair
    is_quoted = name.endswith((".messages", ".system_instructions"))
    return name, json.loads(value) if is_quoted and isinstance(value, str) else value


OFFICIAL: Final = Rendering(
    name="official",
    # All but the right answer, which the convention has no place for.
    carries=frozenset({"agent", "kind", "target", "heard", "said", "error", "group", "task", "answer"}),
    spans=spans,
    turns=turns,
)
STRUCTURED: Final = replace(OFFICIAL, name="official, structured", spans=structured_spans)
