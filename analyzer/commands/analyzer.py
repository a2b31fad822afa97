"""``blamespan analyzer``: the half of ``serve`` that says who broke a run; any number, nothing kept."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import uvloop

from analyzer.commands.output import FormatOption, OutputFormat, print_json
from analyzer.commands.serve import configure_logging, keep_to_ourselves, warn_of_unknown
from analyzer.commands.stopping import told_to_stop
from analyzer.composition import open_analyst, prepare_model
from analyzer.present import console
from analyzer.remote.opening import analyzer_server
from collector_processor.settings import Address, Settings, load_settings, require_token

__all__ = ["analyzer"]


def analyzer(output: FormatOption = OutputFormat.TABLE) -> None:
    """The half of [bold]serve[/bold] that is asked who broke a run: any number of them, behind one address.

    It listens on BLAMESPAN_WEB_LISTEN and keeps nothing. Model, method and ranker are its settings;
    BLAMESPAN_BUDGET_USD_PER_HOUR is for [bold]each[/bold] process: with five, five times that may be spent.
    """
    settings = load_settings(os.environ, directory=Path.cwd())
    require_token(settings)
    keep_to_ourselves()
    configure_logging()
    warn_of_unknown(os.environ)
    uvloop.run(_serve(settings, output))


async def _serve(settings: Settings, output: OutputFormat) -> None:
    stopped = told_to_stop()
    server = analyzer_server(settings, open_analyst(settings))
    await prepare_model(settings)  # before the door opens: the first to ask shall not pay for it
    port = await server.start()
    try:
        _announce(settings, port, output)
        await stopped.wait()
    finally:
        await asyncio.shield(server.stop(settings.shutdown_max / 1000))


def _announce(settings: Settings, port: int, output: OutputFormat) -> None:
    """Say where it listens: a port given as 0 is known only now."""
    web = Address(host=settings.listeners[2].host, port=port)
    if output is OutputFormat.JSON:
        print_json({"web": str(web), "method": settings.method, "model": settings.model})
        return
    console().print(
        f"asked at    http://{web}   (also /healthz, /readyz, /metrics)",
        f"analyses by {settings.method}, {settings.model or 'no model'}",
        sep="\n",
    )
