"""``blamespan analyzer``: the half of ``serve`` that says who broke a run; any number of them."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from analyzer.commands.output import FormatOption, OutputFormat, print_json
from analyzer.commands.serve import keep_to_ourselves, warn_of_unknown
from analyzer.commands.stopping import told_to_stop, until_stopped
from analyzer.composition import budget_of, open_analyst, prepare_model
from analyzer.json_lines import configure_logging
from analyzer.present import console
from analyzer.remote.opening import analyzer_server
from analyzer.remote.server import AnalyzerServer
from analyzer.remote.spent import keep_spending
from analyzer.serving.lanes import open_routes
from analyzer.serving.lifetime import Lifetime
from analyzer.serving.own_metrics import send_metrics
from collector_processor.settings import Address, Settings, load_settings, require_token

__all__ = ["analyzer"]


SpendingDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="What models cost within the hour; default: BLAMESPAN_DATA_DIR, and nothing is kept without.",
        show_default=False,
    ),
]


def analyzer(data_dir: SpendingDirOption = None, output: FormatOption = OutputFormat.TABLE) -> None:
    """The half of [bold]serve[/bold] that is asked who broke a run: any number of them, behind one address.

    It listens on BLAMESPAN_WEB_LISTEN. Model, method and ranker are its settings;
    BLAMESPAN_BUDGET_USD_PER_HOUR is for [bold]each[/bold] process: with five, five times that may be spent.
    With a data directory, which is then this process's alone, a restart begins no new hour; nothing
    else is kept.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    require_token(settings)
    keep_to_ourselves()
    configure_logging()
    warn_of_unknown(os.environ)
    uvloop.run(_serve(settings, output))


async def _serve(settings: Settings, output: OutputFormat) -> None:
    stopped = told_to_stop()
    async with AsyncExitStack() as stack:
        lifetime = Lifetime(stack)
        server = await _prepared(settings, lifetime)
        port = await server.start()
        try:
            _announce(settings, port, output)
            await until_stopped(stopped, lifetime.failure)
        finally:
            await asyncio.shield(server.stop(settings.shutdown_max / 1000))


async def _prepared(settings: Settings, lifetime: Lifetime) -> AnalyzerServer:
    """Open what is behind the door."""
    analyst, instance_id = open_analyst(settings), secrets.token_hex(8)
    budget = budget_of(analyst)
    if budget is not None and "data_dir" in settings.model_fields_set:
        await keep_spending(settings.data_dir, budget, lifetime)
    server = analyzer_server(settings, analyst)
    exporters = open_routes(settings, lifetime, instance_id)
    send_metrics(settings, lifetime, server.metrics.collect, exporters, instance_id)
    await prepare_model(settings)  # before the door opens: the first to ask shall not pay for it
    return server


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
