"""A play emitted by ``semconv.instrument`` through a real SDK, as OTLP bytes.

Scenes are opened and closed in the order of their times, each branch in its own context, as in tasks and
threads. The clock is the machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from collector_processor.rebuild.decode import decode
from semconv.instrument import Handle, Operation, agent, handoff, llm, run, tool
from semconv.model import Span, SpanId
from tests.renderings.official import OFFICIAL
from tests.renderings.play import Delegation, ModelCall, Play, ToolUse, Transfer, Turn
from tests.renderings.spans import Rendering, error_of
from tests.renderings.staging import Scene, Spoken, Stage


class PlayedError(RuntimeError):
    """Raised by a model or tool of the play."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A running operation with its context."""

    operation: Operation[Any]
    handle: Handle
    context: Context

    def close(self, error: str) -> None:
        raised = PlayedError(error) if error else None
        self.context.run(self.operation.__exit__, type(raised) if raised else None, raised, None)


def spans(stage: Stage) -> list[Span]:
    """Return the play's spans in order of arrival, parents before children."""
    arrived = decode(encode_spans(emitted(stage)).SerializeToString()).spans
    return sorted(arrived, key=lambda span: span.start_ns)


def turns(_: Stage, spans: Sequence[Span]) -> dict[SpanId, str]:
    """Return the agent of each span that is a turn."""
    return {
        span.span_id: str(span.attributes["gen_ai.agent.name"])
        for span in spans
        if span.attributes.get("gen_ai.operation.name") == "invoke_agent"
    }


def emitted(stage: Stage) -> list[ReadableSpan]:
    """Return the play's spans as an SDK hands them to its exporter, in the order of their ends."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "play"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    running: dict[int, _Open] = {}
    for _, _, act in sorted(_events(stage, provider, running), key=lambda event: event[:2]):
        act()
    provider.shutdown()
    return list(exporter.get_finished_spans())


def _events(
    stage: Stage, provider: TracerProvider, running: dict[int, _Open]
) -> list[tuple[int, int, Callable[[], None]]]:
    """Return when scenes begin and end; at equal times parents begin first and end last."""
    events: list[tuple[int, int, Callable[[], None]]] = []
    for number, scene in enumerate(stage.scenes):

        def begin(scene: Scene = scene) -> None:
            above = running[id(scene.parent)].handle if scene.parent else None
            operation = _operation(scene, above, provider)
            context = copy_context()
            running[id(scene)] = _Open(operation, context.run(operation.__enter__), context)
            _tell(running[id(scene)].handle, scene)

        def end(scene: Scene = scene) -> None:
            running[id(scene)].close(error_of(scene))

        events += [(scene.start_ns, number, begin), (scene.end_ns, -number, end)]
    return events


def _operation(scene: Scene, above: Handle | None, provider: TracerProvider) -> Operation[Any]:
    match scene.played:
        case Play() as play:
            return run(
                play.name,
                task=play.task,
                reference=play.reference or None,
                capture="SPAN_ONLY",
                tracer_provider=provider,
            )
        case Turn() as turn:
            told = scene.brief or None
            return agent(turn.agent, instructions=turn.instructions, message=told, parent=above)
        case ModelCall():
            return llm("gpt", messages=[_message(each) for each in scene.heard], parent=above)
        case ToolUse(asked=asked) | Delegation(asked=asked):
            return tool(asked.tool, arguments=asked.arguments, call_id=asked.call_id, parent=above)
        case Transfer(target=target):
            return handoff(target, parent=above)


def _tell(handle: Any, scene: Scene) -> None:
    """Record the output, if there is any."""
    match scene.played:
        case Play() as play if play.answer:
            handle.output(play.answer)
        case Turn() as turn if turn.last_words:
            handle.output(turn.last_words)
        case ModelCall() if scene.said is not None:
            handle.output(_message(scene.said))
        case ToolUse(result=result) if result:
            handle.result(result)
        case Delegation(result=result):
            handle.result(result)
        case _:
            return


def _message(spoken: Spoken) -> dict[str, Any]:
    """Return a message in the form of OpenAI's API."""
    if spoken.answers:
        return {"role": "tool", "tool_call_id": spoken.answers, "content": spoken.text}
    calls = [
        {"id": each.call_id, "type": "function", "function": {"name": each.tool, "arguments": each.arguments}}
        for each in spoken.asks
    ]
    return {"role": spoken.role, "content": spoken.text} | ({"tool_calls": calls} if calls else {})


OWN: Final = Rendering(name="own", carries=OFFICIAL.carries | {"reference"}, spans=spans, turns=turns)
