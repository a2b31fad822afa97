"""``blamespan run``: run any agent program, and say which of its agents broke it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from analyzer.cli.output import FormatOption, OutputFormat, WrongUsage, complain, optional
from analyzer.programs.child import (
    NOT_EXECUTABLE,
    NOT_FOUND,
    Ended,
    Seen,
    Wishes,
    run_child,
    telemetry_variables,
)
from analyzer.programs.collecting import collecting
from analyzer.programs.recording_gateway import RecordingGateway, recording
from collector_processor.otlp import Signal
from collector_processor.settings import load_settings

CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""What follows the program's name is the program's."""
_REPORT: Final = "analyzer.cli.run_report"
"""Imported while the program runs: the analysis takes longer to import than most programs to start."""


def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND…", help="The program and its arguments.", show_default=False),
    ],
    expect: Annotated[
        str | None, optional("TEXT", "The run succeeded if the program's output contains this.")
    ] = None,
    check: Annotated[
        str | None,
        optional("COMMAND", "Gets the program's output on standard input; exit code 0 is success."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Take the run as failed.")] = False,
    fail: Annotated[
        bool,
        typer.Option("--fail", help="Exit with 1 if an agent is accused, although the program gave 0."),
    ] = False,
    save: Annotated[
        Path | None, optional("FILE", "Write the run here as OTLP/JSON, without its secrets.")
    ] = None,
    no_gateway: Annotated[
        bool, typer.Option("--no-gateway", help="Leave the addresses of model providers as they are.")
    ] = False,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Run a program of agents, instrumented or not, and say which agent broke it.

    The program uses this terminal; its standard output stays as it is, and the verdict goes to standard
    error. Its OpenTelemetry spans are collected, also from a program that sends them elsewhere, which still
    gets them. Calls to OpenAI, Anthropic and what speaks like them pass through a recorder on this machine,
    so that a program without any instrumentation has steps too. Nothing is kept and nothing is left running.

    A run has failed if the program ends with an error code, if --expect or --check say so, or if its steps
    show it. Exit code: the program's, 127 if it is not found. With --format json, standard output has the
    verdicts, and the program's output goes to standard error.

    Example: [bold]blamespan run -- python my_agents.py[/bold]
    """
    if save is not None and not save.parent.is_dir():
        raise WrongUsage(f"--save {save}: no such folder")
    if check is not None and not check.strip():
        raise WrongUsage("--check: expected a command")
    wishes = Wishes(expect=expect, check=check, failed=failed, save=save, as_json=output is OutputFormat.JSON)
    raise typer.Exit(asyncio.run(_run(command, wishes, uses_gateway=not no_gateway, fails=fail)))


async def _run(command: Sequence[str], wishes: Wishes, *, uses_gateway: bool, fails: bool) -> int:
    own = load_settings({key: value for key, value in os.environ.items() if key.startswith("OTEL_")})
    async with collecting(own.endpoints) as receivers, _recording(uses_gateway=uses_gateway) as gateway:
        name = _name(command)
        environ = {
            **os.environ,
            **telemetry_variables(os.environ, receivers.grpc, receivers.http, name),
            **(gateway.environment() if gateway else {}),
        }
        importing = asyncio.create_task(asyncio.to_thread(import_module, _REPORT))
        ended = await _ended(command, environ, wishes)
        report: Any = await importing
    if ended is None:
        return NOT_FOUND
    collected = receivers.collected
    seen = Seen(
        program=name,
        ended=ended,
        traces=collected.bodies(Signal.TRACES),
        logs=collected.bodies(Signal.LOGS),
        calls=tuple(gateway.calls) if gateway else (),
        has_gateway=gateway is not None,
        undelivered=collected.undelivered,
        why_undelivered=collected.why,
    )
    is_accused = await report.report(seen, wishes)
    return 1 if fails and is_accused and ended.code == 0 else ended.code


async def _ended(command: Sequence[str], environ: dict[str, str], wishes: Wishes) -> Ended | None:
    """Run the program; ``None`` if there is none."""
    out = sys.stderr if wishes.as_json else sys.stdout
    try:
        return await run_child(command, environ, out, watches_output=wishes.watches_output)
    except FileNotFoundError:
        complain(f"{command[0]}: not found")
        return None
    except PermissionError:
        complain(f"{command[0]}: cannot be executed")
        raise typer.Exit(NOT_EXECUTABLE) from None


@asynccontextmanager
async def _recording(*, uses_gateway: bool) -> AsyncIterator[RecordingGateway | None]:
    if not uses_gateway:
        yield None
        return
    async with recording(os.environ) as gateway:
        yield gateway


_FILE: Final = re.compile(r"[\w./~-]+\.\w{1,4}")
_MODULE: Final = "-m"


def _name(command: Sequence[str]) -> str:
    """Return the program's name: the module or script that an interpreter runs, else the program."""
    first = Path(command[0]).name
    if not first.startswith(_INTERPRETERS):
        return first
    if _MODULE in command[:-1]:
        return command[command.index(_MODULE) + 1]
    script = next((word for word in command[1:] if _FILE.fullmatch(word)), first)
    return Path(script).stem


_INTERPRETERS: Final = ("python", "node", "deno", "bun", "npx", "tsx", "ruby", "uv", "poetry")
