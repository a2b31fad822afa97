"""``blamespan mcp``: the runs and verdicts for coding agents, over the Model Context Protocol."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from analyzer.api.client import Client
from analyzer.api.run_source import RunSource, ServiceSource, StoreSource
from analyzer.cli.commands.label import DataDirOption
from analyzer.cli.output import CommandFailed, WrongUsage, optional
from collector_processor.settings import load_settings


def mcp(
    url: Annotated[
        str | None, optional("URL", "A running service's pages, such as http://127.0.0.1:8500.", "--url")
    ] = None,
    data_dir: DataDirOption = None,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let the agent label runs; otherwise it only reads.")
    ] = False,
    listen: Annotated[
        int | None,
        optional(
            "PORT",
            "Serve streamable HTTP on this port of 127.0.0.1 instead of standard input and output.",
            "--port",
        ),
    ] = None,
) -> None:
    """Let a coding agent read failed runs, steps, verdicts and issues (Model Context Protocol).

    Speaks on standard input and output. With [bold]--url[/bold] it asks a running service, with
    BLAMESPAN_TOKEN if it needs one; otherwise it reads the data directory.

    Example: [bold]blamespan mcp --url http://127.0.0.1:8500[/bold]
    """
    if url is not None and data_dir is not None:
        raise WrongUsage("expected --url or --data-dir, not both")
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    if url is not None:
        try:
            client = Client(url=url, token=settings.token)
        except ValueError as error:
            raise WrongUsage(f"--{error}") from None
        _serve(ServiceSource(client=client), allow_writes=allow_writes, port=listen)
        return
    place = settings.store_place
    if isinstance(place, Path) and not place.is_file():
        raise CommandFailed(
            f"{settings.data_dir}: holds no runs: expected the data directory of `blamespan serve`"
        )
    with closing(StoreSource(place, is_fair_sample=settings.is_fair_sample)) as source:
        _serve(source, allow_writes=allow_writes, port=listen)


def _serve(source: RunSource, *, allow_writes: bool, port: int | None) -> None:
    server = _make_server(source, allow_writes=allow_writes)
    if port is None:
        server.run()
    else:
        sys.stderr.write(f"blamespan: http://127.0.0.1:{port}/mcp\n")
        server.run("streamable-http", host="127.0.0.1", port=port)


def _make_server(source: RunSource, *, allow_writes: bool) -> Any:
    try:
        from analyzer.api.mcp_server import make_server  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types"}:
            raise
        raise CommandFailed(
            f"{error.name} is not installed; it is of the extra mcp: pip install '.[server,mcp]'"
        ) from None
    return make_server(source, allows_writes=allow_writes)
