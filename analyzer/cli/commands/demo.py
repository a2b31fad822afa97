"""``blamespan demo``: the whole pipeline with embedded defaults, from a failing run to the blamed span."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.composition import open_analyst
from analyzer.cli.demo_run import play
from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, WrongUsage, optional, print_json
from analyzer.inquiry.terminal import attributes_table, console, run_heading, steps_table, verdict_panel
from analyzer.service.all_in_one import Running, running_service
from analyzer.web.api import run_document
from collector_processor.core.analysis import NOTHING_EARNED, Analysis, Earned
from collector_processor.core.records import StoredVerdict
from collector_processor.exporters import MemoryExporter
from collector_processor.otlp import Exporter, Signal
from collector_processor.otlp.destination import checked_url
from collector_processor.rebuild.decode import decode
from collector_processor.settings import Settings, load_settings
from semconv import attributes as names
from semconv.model import Attribution, Span, Trajectory

_GRACE_MS: Final = 300
_PATIENCE_S: Final = 30.0
_SHOWN: Final = frozenset(
    {
        *(names.CARRIER, names.ERROR, names.FAILURE_AGENT_NAME, names.FAILURE_CONFIDENCE, names.FAILURE_MODE),
        *(names.FAILURE_DECISIVE, names.FAILURE_EXPLANATION, names.FAILURE_STEP_INDEX),
        *(names.FAILURE_VALUE, names.FAILURE_VALUE_EXPECTED),
    }
)
_BACKEND_TRIES: Final = 200
_PAUSE_S: Final = 0.05
_SHUTDOWN_S: Final = 1.0
_FREE_PORT: Final = "127.0.0.1:0"
_SERVICE: Final = "solar-advisor"


@dataclass(slots=True)
class _RecordingAnalyst:
    """Wraps the service's analyst and records its analyses for display."""

    analyst: RunAnalyst
    trajectory: Trajectory | None = None
    attribution: Attribution | None = None

    async def analyse(self, trajectory: Trajectory, earned: Earned = NOTHING_EARNED) -> Analysis:
        """Analyse and record."""
        analysis = await self.analyst.analyse(trajectory, earned)
        self.trajectory, self.attribution = trajectory, analysis.attribution
        return analysis

    def glance(self, trajectory: Trajectory) -> Analysis:
        """Analyse a run that is still in progress."""
        return self.analyst.glance(trajectory)


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the service running afterwards, until Ctrl-C.")
    ] = False,
    endpoint: Annotated[
        str | None, optional("URL", "Your Jaeger, Tempo or Collector: see the blamed trace there.")
    ] = None,
    model: Annotated[
        str | None, optional("NAME", "Ask this litellm model too; default: no model, no key.")
    ] = None,
    data_dir: Annotated[
        Path | None, optional("DIR", "Keep the run here, for other commands; default: nothing is kept.")
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Play a failing multi-agent run through the whole pipeline, and show which agent broke it.

    Starts the service on free ports with a temporary journal, lets four small agents run
    and fail, sends their spans by OTLP/gRPC, waits for the verdict, and shows the span
    that carries it. Needs no network, no key and no backend.

    Example: [bold]blamespan demo --endpoint http://localhost:4317 --keep[/bold]
    """
    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="blamespan-demo-") as folder:
        settings = load_settings(
            {},
            data_dir=data_dir or Path(folder),
            otlp_grpc_listen=_FREE_PORT,
            otlp_http_listen=_FREE_PORT,
            web_listen=_FREE_PORT,
            root_grace=_GRACE_MS,
            shutdown_s=_SHUTDOWN_S,
            forward_endpoint=_checked(endpoint),
            model=model,
        )
        asyncio.run(_demo(settings, output, keep=keep))


def _checked(endpoint: str | None) -> str | None:
    try:
        return checked_url(endpoint) if endpoint else None
    except ValueError as error:
        raise WrongUsage(f"demo: {error}") from error


async def _demo(settings: Settings, output: OutputFormat, *, keep: bool) -> None:
    memory = MemoryExporter()
    backends: dict[Signal, Exporter] = {Signal.TRACES: memory, Signal.LOGS: memory}
    listener = _RecordingAnalyst(open_analyst(settings))
    async with running_service(
        settings, listener, exporters=None if settings.endpoints else backends
    ) as running:
        if output is OutputFormat.TABLE:
            console().print(_opening(running))
        started = time.monotonic()
        await asyncio.to_thread(_play, f"http://{running.grpc}")
        verdict = await _verdict(running, listener)
        await _carried(memory, verdict, settings, running)
        _show(
            verdict, listener, memory, settings, running, output, keep=keep, took_s=time.monotonic() - started
        )
        if keep:
            await running.failure


def _play(endpoint: str) -> None:
    """Run the agents with the standard OpenTelemetry SDK and exporter."""
    provider = TracerProvider(resource=Resource.create({"service.name": _SERVICE}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True)))
    try:
        play(provider)
    finally:
        provider.shutdown()


async def _verdict(running: Running, listener: _RecordingAnalyst) -> StoredVerdict:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if listener.trajectory is not None:
            verdicts = await running.find(listener.trajectory.run_id)
            if verdicts:
                return verdicts[0]
        await asyncio.sleep(0.02)
    raise CommandFailed(f"no verdict within {_PATIENCE_S:.0f} s; this is a bug, please report it")


async def _carried(
    memory: MemoryExporter, verdict: StoredVerdict, settings: Settings, running: Running
) -> None:
    """Wait until the backend has the run and its carriers.

    Raises:
        CommandFailed: the backend does not accept them.
    """
    if not settings.endpoints:
        async with asyncio.timeout(_PATIENCE_S):
            while verdict.span_id and _decisive(memory) is None:
                await memory.wait_for_requests(len(memory.requests) + 1)
        return
    where = settings.endpoints[Signal.TRACES].endpoint
    for _ in range(_BACKEND_TRIES):
        if not await running.undelivered():
            break
        await asyncio.sleep(_PAUSE_S)
    else:
        raise CommandFailed(f"{where} does not accept the spans: is it up, and does it speak OTLP there?")
    if running.rejected():
        raise CommandFailed(f"{where} permanently rejected {running.rejected()} spans")


def _decisive(memory: MemoryExporter) -> Span | None:
    """Return the carrier that the backend received under the blamed span."""
    bodies = [request.body for request in memory.delivered if request.signal is Signal.TRACES]
    spans = [span for body in bodies for span in decode(body).spans]
    return next((span for span in spans if span.attributes.get(names.FAILURE_DECISIVE) is True), None)


def _show(
    verdict: StoredVerdict,
    listener: _RecordingAnalyst,
    memory: MemoryExporter,
    settings: Settings,
    running: Running,
    output: OutputFormat,
    *,
    keep: bool,
    took_s: float,
) -> None:
    if output is OutputFormat.JSON:
        print_json(run_document(verdict))
        return
    trajectory, attribution = listener.trajectory, listener.attribution
    assert trajectory is not None
    assert attribution is not None
    screen = console()
    screen.print(run_heading(trajectory), "")
    screen.print(steps_table(trajectory, attribution, width=screen.width), "")
    screen.print(verdict_panel(attribution, trajectory), "")
    _show_carrier(screen, memory)
    screen.print(_where_to_look(verdict, settings, running, keep=keep, took_s=took_s))


def _show_carrier(screen: Console, memory: MemoryExporter) -> None:
    carrier = _decisive(memory)
    if carrier is None:
        return
    shown = {name: value for name, value in carrier.attributes.items() if name in _SHOWN}
    name = Text.assemble(
        (carrier.name, "bold red"), ("  child of the decisive span ", "dim"), carrier.parent_id or ""
    )
    rest = Text(f"… and {len(carrier.attributes) - len(shown)} more attributes", style="dim")
    title = "What your backend stores: a carrier span beside the untouched originals"
    body = Group(name, Text(), attributes_table(shown), rest)
    screen.print(Panel(body, title=title, title_align="left", border_style="dim", padding=(1, 2)), "")


def _opening(running: Running) -> Text:
    return Text.assemble(
        ("blamespan", "bold"), f" receives OTLP on {running.grpc}. Four agents answer a question, and fail.\n"
    )


def _where_to_look(
    verdict: StoredVerdict, settings: Settings, running: Running, *, keep: bool, took_s: float
) -> Text:
    text = Text()
    text.append(f"From the first span to the verdict in the trace: {took_s:.1f} s.\n", style="dim")
    text.append("Where to look\n", style="bold")
    if settings.endpoints:
        found = f"service {_SERVICE}, tag {names.FAILURE_DECISIVE}=true, trace {verdict.trace_id}"
        text.append(f"  in your backend     {found}\n")
    else:
        text.append("  in Jaeger or Tempo  blamespan demo --endpoint http://localhost:4317\n")
    if keep:
        text.append(f"  as JSON             http://{running.web}/api/runs/{verdict.run_id}\n")
        text.append(
            f"  with your agents    OTEL_EXPORTER_OTLP_ENDPOINT=http://{running.grpc}  (Ctrl-C ends)\n"
        )
    else:
        text.append("  on your program     blamespan run -- python my_agents.py\n")
        text.append("  on a file           blamespan attribute trace.json   (live: blamespan serve)\n")
    return text
