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

from analyzer.analyses.models.completion import require_litellm
from analyzer.cli.experiment_options import MaxCallsOption, words_of
from analyzer.cli.output import FormatOption, OutputFormat, WrongUsage, complain, optional
from analyzer.inquiry.errors import AnalyzerError
from analyzer.programs.auto_instrument import (
    advice,
    instrumenting,
    look_up,
    own_source,
    python_of,
)
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
from analyzer.programs.collecting import Destinations, collecting, own_destinations
from analyzer.programs.model_call import PassedCall
from analyzer.programs.recording_gateway import RecordingGateway, recording, unrecorded
from collector_processor.otlp import CollectorError, Signal
from collector_processor.settings import Settings, load_settings
from semconv.record import record

CONTEXT_SETTINGS: Final = {"allow_interspersed_args": False}
"""What follows the program's name is the program's."""
_SIGNALLED: Final = 128
"""Least exit code of a program that a signal ended."""
_PROOF: Final = "analyzer.cli.proved_run"
_REPORT: Final = "analyzer.cli.run_report"
_PAGE: Final = "analyzer.cli.run_page"
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
    opens: Annotated[
        bool, typer.Option("--open", help="Then serve the run's page until Ctrl-C, and print its address.")
    ] = False,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove",
            help="Then prove which step broke a failed run: an experiment runs the program again. Needs"
            " --expect or --check.",
        ),
    ] = False,
    max_calls: MaxCallsOption = None,
    no_gateway: Annotated[
        bool, typer.Option("--no-gateway", help="Leave the addresses of model providers as they are.")
    ] = False,
    no_instrument: Annotated[
        bool, typer.Option("--no-instrument", help="Switch no instrumentation on in a Python program.")
    ] = False,
    times: Annotated[
        int | None, optional("N", "Run it N times, and rank what breaks it.", "-n", min=1)
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Run a program of agents, instrumented or not, and say which agent broke it.

    The program uses this terminal; its standard output stays as it is, and the verdict goes to standard
    error. Its OpenTelemetry spans are collected, also from a program that sends them elsewhere, which still
    gets them. Calls to OpenAI, Anthropic and what speaks like them pass through a recorder on this machine,
    so that a program without any instrumentation has steps too. In a Python program that sets up no telemetry
    by itself, OpenTelemetry's auto-instrumentation is switched on if it is installed there. Nothing is kept
    and nothing is left running.

    A run has failed if the program ends with an error code, if --expect or --check say so, or if its steps
    show it. Exit code: the program's, 127 if it is not found. With --format json, standard output has the
    verdicts, and the program's output goes to standard error.

    With -n the program runs N times, one after the other. Each run gets a line, and the first failed one is
    shown in full; the last lines say how often it broke, which agents broke it, and at which steps, with 95 %
    intervals. The exit code is 0 only if every run gave 0, else the first other one. With --format json, the
    last object has "final": true. Ctrl-C stops after the current run. --save keeps all runs in one file.

    With --prove, a run that failed by --expect or --check is repeated as `blamespan experiment` does: the
    suspected answer is sampled anew in every second trial. If something is missing for that, it is said. The
    calls cost at most 5 dollars, or --max-calls calls. The exit code stays the program's.

    Example: [bold]blamespan run -- python my_agents.py[/bold]
    """
    if save is not None and (not save.parent.is_dir() or save.is_dir()):
        raise WrongUsage(f"--save {save}: no such folder, or a folder in place of a file")
    if check is not None and (not (words := words_of(check)) or shutil.which(words[0]) is None):
        raise WrongUsage(f"--check {check}: expected a command that can be run")
    if prove and (times is not None or opens):
        raise WrongUsage("--prove: expected neither -n nor --open with it")
    if max_calls is not None and not prove:
        raise WrongUsage("--max-calls: expected --prove too")
    wishes = Wishes(
        expect=expect,
        check=check,
        failed=failed,
        save=save,
        as_json=output is OutputFormat.JSON,
        opens=opens,
    )
    # All before the program starts: a wrong setting must not cost the verdict on a run of two hours.
    settings = load_settings(os.environ, directory=Path.cwd(), precision=0.0)
    if settings.model:
        require_litellm(settings.model)
    program = _Program(
        command=command,
        name=_name(command),
        own=own_destinations(os.environ),
        providers=None if no_gateway else {**_dotenv(Path(".env")), **os.environ},
        instruments=not no_instrument,
    )
    _say_beforehand(program)
    judged: list[_LastJudged] = []
    code = asyncio.run(_run(program, wishes, settings, times, fails=fail, judged=judged))
    if prove and judged and not judged[-1].seen.ended.is_stopped:
        _prove(program, wishes, settings, judged[-1], max_calls)
    raise typer.Exit(code)


@record
class _LastJudged:
    """An execution of the program, its runs and the verdicts on them."""

    seen: Seen
    runs: Sequence[Any]
    verdicts: Sequence[Any]


def _prove(
    program: _Program, wishes: Wishes, settings: Settings, last: _LastJudged, max_calls: int | None
) -> None:
    proving: Any = import_module(_PROOF)
    proof = proving.Proof(
        command=program.command, wishes=wishes, providers=program.providers or os.environ, max_calls=max_calls
    )
    proving.prove(proof, last.runs, last.verdicts, settings)


@record
class _Program:
    """A program to run, and where it sends what it tells."""

    command: Sequence[str]
    name: str
    own: tuple[Destinations, Destinations]
    """Its own backends, by OTLP/gRPC and by OTLP/HTTP."""
    providers: Mapping[str, str] | None
    """The environment that names its model providers; ``None`` for no gateway."""
    instruments: bool
    """Whether auto-instrumentation may be switched on."""


def _say_beforehand(program: _Program) -> None:
    """Say once what the user could not expect."""
    if any(program.own) and not os.environ.get(CAPTURE):
        complain(f"texts are recorded, and reach the program's own backend too; {CAPTURE}=false: none are")
    if names := unrecorded(program.providers or {}):
        complain(
            f"calls to the address in {', '.join(names)} are not recorded: it has a password or is no http"
            " URL, and stays as it is"
        )


async def _run(
    program: _Program,
    wishes: Wishes,
    settings: Settings,
    times: int | None,
    *,
    fails: bool,
    judged: list[_LastJudged],
) -> int:
    """Run a program once, or the given number of times, say what was seen, and return our exit code.

    The last execution that could be judged is added to ``judged``.
    """
    reporter: Any = None
    voice: Any = None
    code = 0
    added = await _instrumentation(program)
    for _ in range(times or 1):
        seen = await _seen(program, wishes, added)
        if reporter is None:
            report: Any = import_module(_REPORT)
            voice = report.Repeated(wishes, program.name, times) if times else report.Once(wishes)
            reporter = report.Reporter(wishes, settings)
        own_code = await _told(reporter, voice, seen, judged)
        code = code or own_code
        if seen.ended.is_stopped:
            break
    voice.conclude()
    if reporter.shown:
        await import_module(_PAGE).show_page(reporter.shown, reporter.analyst)
    return 1 if fails and voice.has_accused and code == 0 else code


async def _told(reporter: Any, voice: Any, seen: Seen, kept: list[_LastJudged]) -> int:
    """Say what was seen of one execution; return its exit code, or 1 for 0 if not all can be said."""
    try:
        judged = await reporter.judge(seen)
    except (AnalyzerError, CollectorError, OSError) as error:
        complain(str(error))
        voice.miss(seen)
        return seen.ended.code or 1
    voice.say(seen, judged)
    kept[:] = [_LastJudged(seen=seen, runs=reporter.runs, verdicts=judged)]
    try:
        reporter.save()
    except (AnalyzerError, CollectorError, OSError) as error:
        complain(str(error))
        return seen.ended.code or 1
    return seen.ended.code


@record
class _Added:
    """What is added to a program's environment so that it is instrumented."""

    variables: Mapping[str, str]
    advice: str = ""
    """What to install so that more is seen."""


async def _instrumentation(program: _Program) -> _Added:
    """Return the variables that instrument a Python program without telemetry of its own, and say so."""
    python = python_of(program.command)
    if python is None or not program.instruments or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return _Added(variables={})
    source = await asyncio.to_thread(own_source, program.command, Path.cwd())
    if source is None:
        return _Added(variables={})
    installed = await look_up(python, os.environ)
    if installed is None:
        return _Added(variables={})
    if not installed.is_ready:
        return _Added(variables={}, advice=advice(installed, source))
    named = ", ".join(installed.instrumentors) or "spans of frameworks themselves"
    complain(f"Python auto-instrumentation is on ({named}); --no-instrument leaves it off")
    return _Added(variables=instrumenting(os.environ, installed), advice=advice(installed, source))


async def _seen(program: _Program, wishes: Wishes, added: _Added) -> Seen:
    """Run a program once."""
    async with (
        collecting(*program.own) as collected,
        _recording(program.providers) as gateway,
    ):
        environ = child_environment(os.environ, collected.url, program.name)
        environ |= {**added.variables, **(gateway.environment() if gateway else {})}
        importing = asyncio.create_task(asyncio.to_thread(import_module, _REPORT))
        ended = await _ended(program.command, environ, wishes)
        await importing
    calls = tuple(gateway.calls) if gateway else ()
    return Seen(
        program=program.name,
        ended=ended,
        traces=collected.bodies(Signal.TRACES),
        logs=collected.bodies(Signal.LOGS),
        calls=calls,
        has_gateway=gateway is not None,
        left_out=gateway.left_out if gateway else 0,
        undelivered=collected.undelivered,
        why_undelivered=collected.why,
        advice=added.advice or (_other_python(program.command) if _may_lack(ended, calls) else ""),
    )


def _may_lack(ended: Ended, calls: Sequence[PassedCall]) -> bool:
    """Tell whether a missing package may be why it failed: not if it called a model, or was stopped."""
    return 0 < ended.code < _SIGNALLED and not ended.is_stopped and not calls


def _other_python(command: Sequence[str]) -> str:
    """Return what to type in place of our own Python, which may lack the program's packages."""
    python = python_of(command)
    found = shutil.which(python) if python else None
    if found is None or Path(found).parent != Path(sys.executable).parent:
        return ""
    return (
        f"if a package is missing: {found} is the Python that blamespan is installed in, so name the one of"
        " your program's environment"
    )


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
async def _recording(providers: Mapping[str, str] | None) -> AsyncIterator[RecordingGateway | None]:
    if providers is None:
        yield None
        return
    async with recording(providers) as gateway:
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
