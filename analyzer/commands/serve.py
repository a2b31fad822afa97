"""``blamespan serve``: the whole line in one process."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop

from analyzer.commands.output import FormatOption, OutputFormat, print_json
from analyzer.commands.stopping import told_to_stop, until_stopped
from analyzer.json_lines import configure_logging
from analyzer.present import console
from analyzer.service import Running, running_service
from collector_processor.analyst import Analyst
from collector_processor.settings import (
    Settings,
    SettingsError,
    load_settings,
    require_token,
    unknown_variables,
)

logger = logging.getLogger(__name__)

SWITCH_S: Final = 0.0005
"""How long one thread may keep the interpreter from another that wants it. Python's own 5 ms are for
programs that compute; here each page and each request is handed from thread to thread several times, and
would wait as long at each while a run is analysed (``python -m tests.web.measure``)."""

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Journal and verdicts; default: BLAMESPAN_DATA_DIR.", show_default=False
    ),
]


def serve(
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Take OTLP, pass it on, and write into each failed run's trace who broke it.

    Point your agents' OTEL_EXPORTER_OTLP_ENDPOINT here, and this service's
    BLAMESPAN_FORWARD_ENDPOINT at your Jaeger, Tempo or Collector.
    Settings are environment variables and [bold]blamespan.toml[/bold]; see [bold]blamespan doctor[/bold].

    SIGTERM and Ctrl-C stop it in order; a second one ends it at once. Nothing
    acknowledged is lost either way.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    require_token(settings)
    if settings.analyzer_endpoint is not None:
        raise SettingsError(
            "BLAMESPAN_ANALYZER_ENDPOINT is set: expected blamespan collector, which asks there"
        )
    keep_to_ourselves()
    configure_logging()
    warn_of_unknown(os.environ)
    uvloop.run(serve_until_stopped(settings, output))


def warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Say which variables look like settings and are none: most are misspelled."""
    for name, meant in unknown_variables(environ).items():
        mend = {"mend": f"did you mean {meant}?"} if meant else {}
        logger.warning("unknown setting in the environment", extra={"variable": name, **mend})


def keep_to_ourselves() -> None:
    """Let nobody else of this machine read the files we make: what runs say stands in them as it came.

    Those that are there already keep the mode that their owner gave them.
    """
    os.umask(0o077)


async def serve_until_stopped(
    settings: Settings, output: OutputFormat, opened: AbstractAsyncContextManager[Analyst] | None = None
) -> None:
    """Run the service, say where it listens, and end it in order when told.

    Args:
        settings: all of it.
        output: how it is said.
        opened: gives who analyses; by default what the settings ask for.
    """
    stopped = told_to_stop()
    sys.setswitchinterval(SWITCH_S)
    async with opened or nullcontext() as analyst, running_service(settings, analyst) as running:
        _announce(running, settings, output)
        _spare_collector()
        await until_stopped(stopped, running.failure)


def _spare_collector() -> None:
    """Never look for garbage among what is there at the start: all of that stays.

    A look at everything takes tens of milliseconds, in which nothing is acknowledged.
    """
    gc.collect()
    gc.freeze()


def _announce(running: Running, settings: Settings, output: OutputFormat) -> None:
    """Say where it listens: ports given as 0 are known only now."""
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
                "analyzer": settings.analyzer_endpoint,
            }
        )
        return
    screen = console()
    screen.print(f"OTLP/gRPC   {running.grpc}", f"OTLP/HTTP   http://{running.http}", sep="\n")
    screen.print(f"API         http://{running.web}/api/runs   (also /healthz, /readyz, /metrics)")
    screen.print(
        f"goes on to  {', '.join(sorted(set(backends.values()))) or 'nowhere (BLAMESPAN_FORWARD_ENDPOINT)'}"
    )
    by = settings.analyzer_endpoint or f"{settings.method}, {settings.model or 'no model'}"
    screen.print(f"analysed by {by}; kept in {settings.data_dir}")
