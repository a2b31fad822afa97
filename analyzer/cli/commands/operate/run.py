"""``blamespan run``: run any agent program, and say which of its agents broke it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from analyzer.cli.experiment_options import words_of
from analyzer.cli.output import FormatOption, OutputFormat, WrongUsage, complain, optional
from analyzer.inquiry.errors import AnalyzerError
from analyzer.programs.child import (
    CAPTURE,
    NOT_EXECUTABLE,
    NOT_FOUND,
    Ended,
    Seen,
    Wishes,
    child_environment,
    run_child,
)
from analyzer.programs.collecting import Destinations, collecting
from analyzer.programs.recording_gateway import RecordingGateway, recording
from collector_processor.otlp import CollectorError, Signal
from collector_processor.settings import Settings, load_settings

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
    if save is not None and (not save.parent.is_dir() or save.is_dir()):
        raise WrongUsage(f"--save {save}: no such folder, or a folder in place of a file")
    if check is not None and (not (words := words_of(check)) or shutil.which(words[0]) is None):
        raise WrongUsage(f"--check {check}: expected a command that can be run")
    wishes = Wishes(expect=expect, check=check, failed=failed, save=save, as_json=output is OutputFormat.JSON)
    # Both before the program starts: a wrong setting must not cost the verdict on a run of two hours.
    settings = load_settings(os.environ, directory=Path.cwd(), precision=0.0)
    own = {kind: _destinations(kind) for kind in _KINDS}
    code = asyncio.run(_run(command, wishes, settings, own, uses_gateway=not no_gateway, fails=fail))
    raise typer.Exit(code)


_KINDS: Final = ("grpc", "http/protobuf")


def _destinations(kind: str) -> Destinations:
    """Return where the program's telemetry of a protocol goes; a protocol that the user set comes first."""
    otel = {key: value for key, value in os.environ.items() if key.startswith("OTEL_") and value}
    return load_settings({"OTEL_EXPORTER_OTLP_PROTOCOL": kind, **otel}).endpoints


async def _run(
    command: Sequence[str],
    wishes: Wishes,
    settings: Settings,
    own: Mapping[str, Destinations],
    *,
    uses_gateway: bool,
    fails: bool,
) -> int:
    name = _name(command)
    async with (
        collecting(*(own[kind] for kind in _KINDS)) as collected,
        _recording(uses_gateway=uses_gateway) as gateway,
    ):
        environ = child_environment(os.environ, collected.url, name)
        environ |= gateway.environment() if gateway else {}
        if any(own.values()) and not os.environ.get(CAPTURE):
            complain(
                f"texts are recorded, and reach the program's own backend too; {CAPTURE}=false: none are"
            )
        importing = asyncio.create_task(asyncio.to_thread(import_module, _REPORT))
        ended = await _ended(command, environ, wishes)
        report: Any = await importing
    seen = Seen(
        program=name,
        ended=ended,
        traces=collected.bodies(Signal.TRACES),
        logs=collected.bodies(Signal.LOGS),
        calls=tuple(gateway.calls) if gateway else (),
        has_gateway=gateway is not None,
        left_out=gateway.left_out if gateway else 0,
        undelivered=collected.undelivered,
        why_undelivered=collected.why,
    )
    try:
        is_accused = await report.report(seen, wishes, settings)
    except (AnalyzerError, CollectorError, OSError) as error:
        complain(str(error))
        return ended.code or 1
    return 1 if fails and is_accused and ended.code == 0 else ended.code


async def _ended(command: Sequence[str], environ: dict[str, str], wishes: Wishes) -> Ended:
    """Run the program; exits like a shell if it cannot be run."""
    out = sys.stderr if wishes.as_json else sys.stdout
    try:
        return await run_child(command, environ, out, watches_output=wishes.watches_output)
    except OSError as error:
        complain(f"{command[0]}: {_why_not(command, error)}")
        raise typer.Exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE) from None


def _why_not(command: Sequence[str], error: OSError) -> str:
    """Return why a command cannot be run, with what to type for a script or a line of a shell."""
    if len(command) == 1 and " " in command[0]:
        return f"not found: blamespan run -- {command[0]}"
    if Path(command[0]).suffix == ".py":
        return f"cannot be executed: blamespan run -- python {' '.join(command)}"
    if isinstance(error, FileNotFoundError):
        return "not found"
    return f"cannot be executed ({error.strerror})"


@asynccontextmanager
async def _recording(*, uses_gateway: bool) -> AsyncIterator[RecordingGateway | None]:
    if not uses_gateway:
        yield None
        return
    async with recording({**_dotenv(Path(".env")), **os.environ}) as gateway:
        yield gateway


_SETTING: Final = re.compile(r"\s*(?:export\s+)?(\w+)\s*=\s*['\"]?([^'\"#\s]*)")


def _dotenv(file: Path) -> dict[str, str]:
    """Return the variables of a ``.env`` file, which many programs load: their addresses become upstreams."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {found[1]: found[2] for line in lines if (found := _SETTING.match(line))}


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
