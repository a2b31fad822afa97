"""``blamespan serve``: the whole service, or one part of it in a process of its own.

Each process ends on a signal, or when one of its parts fails.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import uvloop

from analyzer.analyses.composition import budget_of, open_analyst, prepare_model
from analyzer.analyses.executor import open_pool, stepping_in
from analyzer.cli.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    WrongUsage,
    optional,
    print_json,
)
from analyzer.inquiry.terminal import console
from analyzer.service.all_in_one import Running, running_service
from analyzer.service.lifetime import Lifetime, collecting_rarely
from analyzer.service.replicas import open_shared_store
from analyzer.service.start_lanes import open_routes
from analyzer.telemetry.json_lines import configure_logging
from analyzer.telemetry.otlp_metrics import export_metrics
from collector_processor.core.analysis import Analyst
from collector_processor.core.http_server import ListenError
from collector_processor.otlp import Address
from collector_processor.settings import (
    Settings,
    load_settings,
    require_token,
    unknown_variables,
)

logger = logging.getLogger(__name__)


def _port(what: str) -> Any:
    return optional("PORT", f"Port for {what}; 0 is a free one, which is printed.", min=0, max=65535)


class Part(StrEnum):
    """A part of the service."""

    ALL = "all"
    COLLECTOR = "collector"
    ANALYZER = "analyzer"
    PAGES = "pages"


def serve(
    part: Annotated[
        Part, typer.Argument(metavar="PART", help="`all`, `collector`, `analyzer` or `pages`.")
    ] = Part.ALL,
    data_dir: Annotated[
        Path | None,
        optional(
            "DIR",
            "For journal and verdicts, default: BLAMESPAN_DATA_DIR. Analyzers and pages keep nothing there.",
        ),
    ] = None,
    forward: Annotated[
        str | None, optional("URL", "Where spans go on to; default: BLAMESPAN_FORWARD_ENDPOINT.")
    ] = None,
    grpc: Annotated[int | None, _port("OTLP over gRPC")] = None,
    http: Annotated[int | None, _port("OTLP over HTTP")] = None,
    page: Annotated[int | None, _port("the pages and the API")] = None,
    model: Annotated[str | None, optional("MODEL", "Any litellm model; default: BLAMESPAN_MODEL.")] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Receive OTLP, forward it, and write into each failed run's trace which agent broke it.

    Point your agents' OTEL_EXPORTER_OTLP_ENDPOINT here, and this service's
    BLAMESPAN_FORWARD_ENDPOINT at your Jaeger, Tempo or Collector.
    Settings are environment variables and [bold]blamespan.toml[/bold]; see [bold]blamespan doctor[/bold].

    SIGTERM and Ctrl-C shut it down gracefully; a second one ends it at once. Nothing
    acknowledged is lost either way.

    The other parts work over one PostgreSQL, BLAMESPAN_STORE_URL:

    [bold]serve collector[/bold] receives OTLP and writes back; analyzers judge the failed runs. While no
    analyzer answers, signals judge them here. Set BLAMESPAN_FAILURE_PATTERN to the same value for both.

    [bold]serve analyzer[/bold] takes these runs from the store: any number of processes, on any machine.
    Model, method and ranker are its settings; all analyzers share one BLAMESPAN_BUDGET_USD_PER_HOUR.

    [bold]serve pages[/bold] serves the pages and the API alone: any number of processes with the same
    BLAMESPAN_TOKEN. The process that owns the store applies labels within seconds.
    """
    given = {"--data-dir": data_dir, "--forward": forward, "--grpc": grpc, "--http": http, "--model": model}
    for name in _UNUSED[part]:
        if given[name] is not None:
            raise WrongUsage(f"serve {part.value} has no use for {name}: leave it out")
    settings = _open_settings((grpc, http, page), data_dir=data_dir, forward_endpoint=forward, model=model)
    with _naming_the_option(settings.listeners):
        match part:
            case Part.ALL:
                uvloop.run(serve_until_stopped(settings, output))
            case Part.COLLECTOR:
                _serve_collector(settings, output)
            case Part.ANALYZER:
                _require_store(settings, "into which a collector puts runs")
                uvloop.run(_analyse_until_stopped(settings, output))
            case Part.PAGES:
                _require_store(settings, "that holds the runs")
                uvloop.run(_show_until_stopped(settings, output))


@contextmanager
def _naming_the_option(listeners: Sequence[Address]) -> Iterator[None]:
    """Add to an error about one of our ports the option that chooses another one."""
    try:
        yield
    except ListenError as error:
        option = dict(zip(listeners, _PORT_OPTIONS, strict=True)).get(error.address)
        raise CommandFailed(f"{error}; another port: {option} PORT") if option else error from error


def _require_store(settings: Settings, use: str) -> None:
    from analyzer.service.halves import require_store  # noqa: PLC0415 - the pages: ``serve`` has a process for them

    require_store(settings, use)


def _serve_collector(settings: Settings, output: OutputFormat) -> None:
    from analyzer.service.halves import asking, collector_settings  # noqa: PLC0415 - as above

    _require_store(settings, "from which analyzers take runs")
    uvloop.run(serve_until_stopped(collector_settings(settings), output, asking(settings)))


_UNUSED: Final[Mapping[Part, tuple[str, ...]]] = {
    Part.ALL: (),
    Part.COLLECTOR: ("--model",),
    Part.ANALYZER: ("--data-dir", "--forward", "--grpc", "--http"),
    Part.PAGES: ("--data-dir", "--forward", "--grpc", "--http", "--model"),
}
"""Options that a part does not use."""
_PORT_OPTIONS: Final = ("--grpc", "--http", "--page")
_LISTENERS: Final = ("otlp_grpc_listen", "otlp_http_listen", "web_listen")


def _open_settings(ports: tuple[int | None, int | None, int | None], **given: Any) -> Settings:
    """Return the settings of a service; logs misspelled settings.

    Args:
        ports: those of gRPC, HTTP and pages that the command line names; the hosts are the settings'.
        given: other settings that it names; ``None`` for those that it does not.

    New files are private to this user from now on: they hold the runs' texts unencrypted. Existing files
    keep their mode.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), **given)
    moved: dict[str, Any] = {
        name: str(Address(host=listener.host, port=port))
        for name, listener, port in zip(_LISTENERS, settings.listeners, ports, strict=True)
        if port is not None
    }
    if moved:
        settings = load_settings(os.environ, directory=Path.cwd(), **given, **moved)
    require_token(settings)
    os.umask(0o077)
    configure_logging()
    for name, meant in unknown_variables(os.environ).items():
        mend = {"mend": f"did you mean {meant}?"} if meant else {}
        logger.warning("unknown setting in the environment", extra={"variable": name, **mend})
    return settings


async def serve_until_stopped(
    settings: Settings, output: OutputFormat, opened: AbstractAsyncContextManager[Analyst] | None = None
) -> None:
    """Run the service, print its addresses, and shut it down gracefully on a signal.

    ``opened`` yields the analyst, by default the configured one.
    """
    stopped = _stop_on_signal()
    async with (
        opened or nullcontext() as analyst,
        running_service(settings, analyst) as running,
        collecting_rarely(),
    ):
        _announce(running, settings, output)
        await _until_stopped(stopped, running.failure)


def _announce(running: Running, settings: Settings, output: OutputFormat) -> None:
    """Print the addresses: for port 0, the actual port is known only now."""
    backends = {name.value: destination.shown for name, destination in settings.endpoints.items()}
    if output is OutputFormat.JSON:
        print_json(
            {
                "grpc": str(running.grpc),
                "http": str(running.http),
                "web": str(running.web),
                "backends": backends,
                "data_dir": str(settings.data_dir),
                "write_back": settings.write_back.value,
                "method": settings.method,
                "model": settings.model,
                "analyzer": "store" if settings.asks_analyzers else None,
            }
        )
        return
    own = f"{settings.method}, {settings.model or 'no model'}"
    by = "analyzers over the store" if settings.asks_analyzers else own
    _say(
        f"page        http://{running.web}/   (also /api/runs, /healthz, /readyz, /metrics)",
        f"OTLP/gRPC   {running.grpc}",
        f"OTLP/HTTP   http://{running.http}",
        f"goes on to  {', '.join(sorted(set(backends.values()))) or 'nowhere (BLAMESPAN_FORWARD_ENDPOINT)'}",
        f"analysed by {by}; kept in {settings.data_dir}",
    )


def _say(*lines: str) -> None:
    """Print lines as they are: a narrow terminal wraps them, a file keeps each in one."""
    console().print(*lines, sep="\n", soft_wrap=True)


async def _show_until_stopped(settings: Settings, output: OutputFormat) -> None:
    from analyzer.service.pages_alone import open_pages_alone  # noqa: PLC0415 - as above

    stopped = _stop_on_signal()
    async with AsyncExitStack() as stack:
        lifetime = Lifetime(stack)
        server = open_pages_alone(settings, stack, lifetime)
        port = await server.start()
        stack.push_async_callback(server.stop)
        address = Address(host=settings.listeners[2].host, port=port)
        async with collecting_rarely():
            _announce_page(address, output)
            await _until_stopped(stopped, lifetime.failure)


def _announce_page(address: Address, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json({"web": str(address)})
    else:
        _say(f"page        http://{address}/   (also /api/runs, /healthz, /readyz, /metrics)")


async def _analyse_until_stopped(settings: Settings, output: OutputFormat) -> None:
    from analyzer.service.halves import STOP_S, AnalyzerHalf, share_spending  # noqa: PLC0415 - as above

    stopped = _stop_on_signal()
    async with AsyncExitStack() as stack:
        lifetime = Lifetime(stack)
        analyst, instance_id = open_analyst(settings), secrets.token_hex(8)
        store = open_shared_store(settings, stack)
        if (budget := budget_of(analyst)) is not None:
            await share_spending(store, budget)
        pool = open_pool(settings, analyst)
        stack.push_async_callback(pool.close)
        half = AnalyzerHalf(settings, stepping_in(pool, analyst))
        exporters = open_routes(settings, lifetime, instance_id)
        lifetime.background(export_metrics(settings, half.metrics.collect, exporters, instance_id))
        await prepare_model(settings)  # before the first job: it must not wait for that
        server = half.server()
        stack.push_async_callback(server.stop)
        port = await server.start()
        worker = await half.take_jobs(store, lifetime)
        try:
            async with collecting_rarely():
                _announce_analyzer(settings, port, output)
                await _until_stopped(stopped, lifetime.failure)
        finally:
            server.close()
            await asyncio.shield(worker.stop(STOP_S))


def _announce_analyzer(settings: Settings, port: int, output: OutputFormat) -> None:
    """Print the address: for port 0, the actual port is known only now."""
    web = Address(host=settings.listeners[2].host, port=port)
    if output is OutputFormat.JSON:
        print_json({"web": str(web), "method": settings.method, "model": settings.model})
        return
    _say(
        f"listens on  http://{web}   (also /healthz, /readyz, /metrics)",
        f"analyses by {settings.method}, {settings.model or 'no model'}",
    )


def _stop_on_signal() -> asyncio.Event:
    """Return an event set by SIGTERM or Ctrl-C; a second signal ends the process at once."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, _stop, stopped)
    return stopped


async def _until_stopped(stopped: asyncio.Event, failure: asyncio.Future[None]) -> None:
    """Wait for the stop event; if a part of the service fails first, raise its error."""
    stopping = asyncio.create_task(stopped.wait())
    failure.add_done_callback(lambda _failed: stopping.cancel())
    try:
        await stopping
    except asyncio.CancelledError:
        if not failure.done():
            raise
        failure.result()


def _stop(stopped: asyncio.Event) -> None:
    if stopped.is_set():
        logger.warning("second signal: ending at once; the next start resumes unfinished work")
        os._exit(130)
    stopped.set()
