"""Common parts of the three example systems: the command line, and the destination of spans."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from script import order


def run_as_program(
    answer: Callable[[str, str], Awaitable[str]],
    instrument: Callable[[], None],
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """Answer the order on the command line, or without one the order in ``BLAMESPAN_TASK``.

    With ``-``, answer orders from standard input as JSON lines.

    A line is ``{"id": …, "order": N, "base_url": …}``; each gets ``{"id": …, "output": …}``. That saves the
    start of a process and the import of a framework for each run.
    """
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        instrument()
    if len(sys.argv) == 1:
        run(_once(answer, os.environ["BLAMESPAN_TASK"]))
    elif sys.argv[1] == "-":
        run(_serve(answer))
    else:
        run(_once(answer, order(int(sys.argv[1])).text))


async def _once(answer: Callable[[str, str], Awaitable[str]], task: str) -> None:
    print(await answer(task, os.environ["OPENAI_BASE_URL"]))


async def _serve(answer: Callable[[str, str], Awaitable[str]]) -> None:
    import asyncio

    running: set[asyncio.Task[None]] = set()

    async def one(asked: dict[str, Any]) -> None:
        try:
            told = {"id": asked["id"], "output": await answer(order(asked["order"]).text, asked["base_url"])}
        except Exception as error:  # noqa: BLE001 - a failed run is a result
            told = {"id": asked["id"], "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), flush=True)

    while line := await asyncio.to_thread(sys.stdin.readline):
        task = asyncio.create_task(one(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


def telemetry(service: str) -> Any:
    """Return a provider that sends spans over OTLP/HTTP and is the global one."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=200))
    trace.set_tracer_provider(provider)
    return provider
