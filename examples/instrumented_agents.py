r"""A multi-agent program under OpenTelemetry; copy its instrumentation from ``analyzer/cli/demo_run.py``.

    python examples/instrumented_agents.py                   # prints the spans

    OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 \
    python examples/instrumented_agents.py                   # sends them to blamespan, a Collector, Jaeger

    python examples/instrumented_agents.py --model gpt-4o    # asks a real model, which may do better

Needs the OpenTelemetry SDK (``pip install '.[server]'`` in the checkout), and for a real model
``OPENAI_API_KEY``.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from analyzer.cli.demo_run import TOOLS, Chat, Message, Reply, ToolCall, play


def main() -> None:
    """Run the agents once and print their answer."""
    parser = argparse.ArgumentParser(description="Run the demo's agents, instrumented.")
    parser.add_argument("--model", help="an OpenAI model; by default a scripted one that makes a mistake")
    model = parser.parse_args().model

    provider = TracerProvider(resource=Resource.create({"service.name": "solar-agents"}))
    provider.add_span_processor(BatchSpanProcessor(exporter()))
    played = play(provider, chat=openai_chat(model), model=model) if model else play(provider)
    provider.shutdown()  # sends what is still waiting
    print(f"trace {played.trace_id}: {played.answer}")


def exporter() -> SpanExporter:
    """Return an exporter to the destination in OpenTelemetry's variables, or to the console."""
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"
        return HttpExporter() if protocol.startswith("http/") else GrpcExporter()
    return ConsoleSpanExporter()


def openai_chat(model: str) -> Chat:
    """Return a real model with the interface that the program expects."""
    from openai import OpenAI  # noqa: PLC0415 - only needed with --model

    client: Any = OpenAI()

    def chat(messages: Sequence[Message]) -> Reply:
        functions = [{"type": "function", "function": function} for function in TOOLS]
        answer = client.chat.completions.create(model=model, messages=list(messages), tools=functions)
        message = answer.choices[0].message
        return Reply(
            text=message.content or "",
            tool_calls=tuple(
                ToolCall(id=call.id, name=call.function.name, arguments=json.loads(call.function.arguments))
                for call in message.tool_calls or ()
            ),
            input_tokens=answer.usage.prompt_tokens,
            output_tokens=answer.usage.completion_tokens,
        )

    return chat


if __name__ == "__main__":
    main()
