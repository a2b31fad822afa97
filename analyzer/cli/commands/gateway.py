"""``blamespan gateway``: serve a recorded run's answers to a rerun of its workflow."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from analyzer.cli.experiment_options import (
    HttpToolOption,
    McpCommandOption,
    McpToolOption,
    remote_tools,
)
from analyzer.cli.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    WrongUsage,
    complain,
    optional,
    print_json,
)
from analyzer.cli.recorded_runs import LogsOption, load_runs, reader_here
from analyzer.experiment.experiment_output import tool_lines
from analyzer.experiment.replay.gateway_options import ANTHROPIC, OPENAI, GatewayOptions, LiveCall
from analyzer.experiment.replay.gateway_server import Gateway, serving
from analyzer.experiment.replay.open_trial import OpenTrial
from analyzer.experiment.replay.read_tape import read_tape, undeclared_tool
from analyzer.experiment.replay.tape import NotReplayable, Tape
from analyzer.experiment.replay.trial import Change, TrialReport
from analyzer.experiment.replay.trial_tools import ToolRules, plan
from analyzer.inquiry.present import counted
from analyzer.inquiry.terminal import console
from analyzer.service.lifetime import collecting_rarely
from collector_processor.core.runs import Run
from collector_processor.settings import require_token_beyond
from collector_processor.settings.value_types import address
from semconv.record import replace

_TRIAL_ID: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")


def gateway(
    tape: Annotated[
        Path, optional("FILE", "The recorded run: any file that `steps` reads, except conversations.")
    ],
    logs: LogsOption = None,
    trial: Annotated[
        str | None,
        optional("ID", "The trial's id, 16 to 64 letters, digits, `-` and `_`; default: 128 random bits."),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Port 0 takes a free one.")
    ] = "127.0.0.1:0",
    upstream: Annotated[
        str | None, optional("URL", "Where live calls go; default: the provider's own address.")
    ] = None,
    until: Annotated[
        int | None,
        optional(
            "STEP", "Last step answered from the tape; all later calls are live. Default: none is live."
        ),
    ] = None,
    max_calls: Annotated[int, typer.Option(min=0, metavar="N", help="Live calls allowed.")] = 100,
    allow_tool: Annotated[
        list[str] | None, optional("NAME", "A tool that only reads, and so may really run. May be repeated.")
    ] = None,
    http_tool: HttpToolOption = None,
    mcp_tool: McpToolOption = None,
    mcp_command: McpCommandOption = None,
    lifetime: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Time limit of the trial.")
    ] = 3600,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Answer a rerun of a workflow from the trace of a recorded run.

    Speaks OpenAI's chat completions, responses and embeddings and Anthropic's messages. Prints the
    environment to set, serves until Ctrl-C, and then says which calls were answered.
    A workflow reached beyond this machine needs BLAMESPAN_TOKEN.

    Example: [bold]blamespan gateway --tape trace.json[/bold]
    """
    allowed = frozenset(allow_tool or ())
    remotes = remote_tools(http_tool or (), mcp_tool or (), mcp_command or ())
    recorded = _tape(tape, logs or [], ToolRules(allowed=allowed, remotes=remotes))
    if until is None:
        change = None
    elif (call := recorded.call_of_step(until)) is None:
        raise WrongUsage(f"--until {until}: expected the index of a model call's step; see `blamespan steps`")
    else:
        change = Change(call=call.index, answer=call.answer)
    if trial is not None and not _TRIAL_ID.fullmatch(trial):
        raise WrongUsage("--trial: expected 16 to 64 letters, digits, `-` and `_`, hard to guess")
    options = replace(_options(listen, upstream, allowed, max_calls), remotes=remotes)
    sys.stderr.writelines(f"{line}\n" for line in tool_lines(plan(recorded, options.rules())))
    asyncio.run(_serve(options, recorded, change, trial or "", lifetime, output))


def _tape(path: Path, logs: list[Path], rules: ToolRules) -> Tape:
    runs = [run for run in load_runs(path, logs) if run.trace is not None and run.trajectory.steps]
    if len(runs) != 1:
        raise CommandFailed(f"{path}: expected one run with spans, found {len(runs)}")
    assert runs[0].trace is not None
    run = Run(trace=runs[0].trace, trajectory=runs[0].trajectory, reader=reader_here())
    tape = read_tape(run, allow_tools=rules.allowed)
    obstacle = tape if isinstance(tape, NotReplayable) else undeclared_tool(tape, rules)
    if obstacle is not None:
        complain(f"{path}: not replayable ({obstacle.obstacle.value}): {obstacle.reason}")
        for line in obstacle.mend:
            complain(f"mend: {line}")
        raise typer.Exit(1)
    assert isinstance(tape, Tape)
    return tape


def _options(listen: str, upstream: str | None, allowed: frozenset[str], max_calls: int) -> GatewayOptions:
    try:
        where = address(listen)
    except ValueError as error:
        raise WrongUsage(f"--listen: {error}") from error
    if upstream is not None and urlsplit(upstream).scheme not in {"http", "https"}:
        raise WrongUsage(f"--upstream: expected an http or https URL, got {upstream!r}")
    token = os.environ.get("BLAMESPAN_TOKEN", "")
    require_token_beyond(where, token)
    return GatewayOptions(
        host=where.host,
        port=where.port,
        openai=upstream or OPENAI,
        anthropic=upstream or ANTHROPIC,
        token="" if where.is_loopback else token,
        allow_tools=allowed,
        reserve=_Allowance(max_calls).reserve,
    )


class _Allowance:
    """Budget of a fixed number of live calls."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._calls: Final = calls

    async def reserve(self, _: LiveCall) -> str:
        if not self._left:
            return f"all {self._calls} live calls of --max-calls are used"
        self._left -= 1
        return ""


async def _serve(
    options: GatewayOptions,
    tape: Tape,
    change: Change | None,
    trial: str,
    lifetime_s: float,
    output: OutputFormat,
) -> None:
    stopped = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    async with serving(options) as running, collecting_rarely():
        opened = running.open(tape, change, lifetime_s=lifetime_s, trial=trial)
        _announce(running, opened, tape, output)
        await stopped.wait()
        report = running.report(opened.trial)
    _tell(report, output)


def _announce(running: Gateway, opened: OpenTrial, tape: Tape, output: OutputFormat) -> None:
    environment = running.environment(opened)
    if output is OutputFormat.JSON:
        print_json(
            {
                "url": running.url,
                "trial": opened.trial,
                "base_url": opened.base_url,
                "run_id": tape.run_id,
                "calls": len(tape.calls),
                "environment": dict(environment),
            }
        )
        return
    heading = f"plays {counted(len(tape.calls), 'model call')} of run {tape.run_id}; Ctrl-C ends it"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    console().print(heading, *lines, sep="\n", soft_wrap=True)


def report_document(report: TrialReport) -> dict[str, Any]:
    """Return a trial's report as the last object of ``gateway --format json``."""
    difference = report.first_difference
    return {
        "calls": report.calls,
        "served": report.served,
        "masked": report.masked,
        "live": report.live,
        "live_embeddings": report.live_embeddings,
        "missing": list(report.missing),
        "tools_served": report.tools_served,
        "undeclared_tools": list(report.undeclared),
        "invalid": report.invalid or None,
        "first_difference": None
        if difference is None
        else {
            "call": difference.call,
            "message": difference.message,
            "expected": difference.expected,
            "found": difference.found,
        },
        "final": True,
    }


def _tell(report: TrialReport, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(report_document(report))
        return
    live = f"{report.live} live" + (
        f" and {counted(report.live_embeddings, 'request')} for embeddings, which the tape does not hold"
        if report.live_embeddings
        else ""
    )
    lines = [f"{report.served} of {report.calls} calls answered from the tape, {live}"]
    if report.invalid:
        lines.append(f"invalid: {report.invalid}")
    if (difference := report.first_difference) is not None:
        at = (
            "no call is left"
            if difference.call is None
            else f"call {difference.call}, message {difference.message}"
        )
        lines += [
            f"first difference: {at}",
            f"  recorded  {difference.expected}",
            f"  asked     {difference.found}",
        ]
    console().print(*lines, sep="\n", soft_wrap=True)
