"""``blamespan mcp``: the runs and verdicts for coding agents, over the Model Context Protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from analyzer.api.client import Client
from analyzer.api.run_source import RunSource, ServiceSource, StoreSource
from analyzer.cli.kept_runs import DataDirOption
from analyzer.cli.output import CommandFailed, WrongUsage, optional
from analyzer.service.lifetime import collecting_rarely
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import NO_TENANT, Address, Tenant, tenant_headers, tenant_of
from collector_processor.rebuild.redaction import make_redactor, read_kinds
from collector_processor.settings import load_settings, require_token_beyond


def mcp(
    url: Annotated[
        str | None, optional("URL", "A running service's pages, such as http://127.0.0.1:8500.", "--url")
    ] = None,
    data_dir: DataDirOption = None,
    tenant: Annotated[
        str | None,
        optional(
            "TENANT",
            "Only this tenant's runs, such as x-scope-orgid=shop; otherwise all tenants'.",
            "--tenant",
        ),
    ] = None,
    allow_writes: Annotated[
        bool,
        typer.Option(
            "--allow-writes", help="Let the agent label runs and start backtests; otherwise it only reads."
        ),
    ] = False,
    listen: Annotated[
        int | None,
        optional(
            "PORT",
            "Serve streamable HTTP on this port instead of standard input and output.",
            "--port",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="HOST", help="Address for --port; beyond loopback it needs BLAMESPAN_TOKEN."
        ),
    ] = "127.0.0.1",
) -> None:
    """Let a coding agent read failed runs, steps, verdicts and issues (Model Context Protocol).

    Speaks on standard input and output. With [bold]--url[/bold] it asks a running service, with
    BLAMESPAN_TOKEN if it needs one; otherwise it reads the data directory. With [bold]--port[/bold], clients
    must send BLAMESPAN_TOKEN if it is set.

    Example: [bold]blamespan mcp --url http://127.0.0.1:8500[/bold]
    """
    if url is not None and data_dir is not None:
        raise WrongUsage("expected --url or --data-dir, not both")
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    asked, address = _tenant(tenant), _address(host, listen, settings.token)
    if url is not None:
        try:
            client = Client(url=url, token=settings.token, headers=tenant_headers(asked))
        except ValueError as error:
            raise WrongUsage(f"--{error}") from None
        asking = ServiceSource(client=client, reader=open_reader(settings.mappings))
        _serve(asking, allow_writes=allow_writes, listen=address, token=settings.token)
        return
    place = settings.store_place
    if isinstance(place, Path) and not place.is_file():
        raise CommandFailed(
            f"{settings.data_dir}: holds no runs: expected the data directory of `blamespan serve`"
        )
    reader = open_reader(settings.mappings)
    opened = StoreSource(
        place,
        tenant=asked,
        reader=reader,
        is_fair_sample=settings.is_fair_sample,
        clean=make_redactor(read_kinds(settings.redact), settings.redact_patterns).redact,
    )
    with closing(opened) as source:
        is_the_users = address is None or settings.token  # another user's process could ask a port
        here = (settings.data_dir, asked or None) if is_the_users else None
        _serve(source, allow_writes=allow_writes, listen=address, token=settings.token, here=here)


def _tenant(tenant: str | None) -> Tenant:
    """Return the tenant as the store names it.

    Raises:
        WrongUsage: it is not HEADER=VALUE.
    """
    if tenant is None:
        return NO_TENANT
    headers = tenant_headers(Tenant(tenant))
    if not all(name and value for name, value in headers.items()) or not headers:
        raise WrongUsage(f"--tenant: expected HEADER=VALUE, such as x-scope-orgid=shop, not {tenant!r}")
    told = {name.lower(): value for name, value in headers.items()}
    return tenant_of(told, tuple(told))


def _address(host: str, port: int | None, token: str | None) -> Address | None:
    """Return the address to serve on; ``None`` for standard input and output.

    Raises:
        SettingsError: others could connect, and there is no token, or a short one.
    """
    if port is None:
        return None
    address = Address(host=host, port=port)
    require_token_beyond(address, token)
    return address


def _serve(
    source: RunSource,
    *,
    allow_writes: bool,
    listen: Address | None,
    token: str | None,
    here: tuple[Path, str | None] | None = None,
) -> None:
    """Serve; ``here`` is the data directory on this machine with the only tenant, for backtests."""
    server, backtests = _make_server(source, allow_writes=allow_writes, here=here)
    with suppress(KeyboardInterrupt):
        asyncio.run(_until_ended(server, backtests, listen, token))


async def _until_ended(server: Any, backtests: Any, listen: Address | None, token: str | None) -> None:
    async with backtests or nullcontext():
        if listen is None:
            await server.run_stdio_async()
        else:
            sys.stderr.write(f"blamespan: http://{listen}/mcp\n")
            await _serve_http(server, listen, token)


async def _serve_http(server: Any, listen: Address, token: str | None) -> None:
    from analyzer.api.mcp_http import serve_http  # noqa: PLC0415 - an extra

    async with collecting_rarely():
        await serve_http(server, listen, token)


def _make_server(
    source: RunSource, *, allow_writes: bool, here: tuple[Path, str | None] | None
) -> tuple[Any, Any]:
    """Return the server, and what it starts."""
    try:
        from analyzer.api.mcp_backtests import Backtests  # noqa: PLC0415 - an extra
        from analyzer.api.mcp_server import make_server  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types"}:
            raise
        raise CommandFailed(
            f"{error.name} is not installed; it is in the extra mcp: pip install '.[server,mcp]'"
        ) from None
    backtests = None if here is None else Backtests(*here)
    return make_server(source, allows_writes=allow_writes, backtests=backtests), backtests
