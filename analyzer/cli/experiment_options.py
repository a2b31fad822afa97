"""Common parts of the commands that run trials: options, tools, checks, the gateway, prices, interruption."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from analyzer.analyses.models.completion import INSTALL_MODELS, is_litellm_installed, price_of
from analyzer.cli.output import CommandFailed, WrongUsage, optional
from analyzer.experiment.replay.gateway_options import GatewayOptions
from analyzer.experiment.replay.tape import RemoteTools, Tape
from analyzer.experiment.workflow import Check, CheckFailed, CommandCheck, Contains

CheckOption = Annotated[
    str | None, optional("COMMAND", "Gets the trial's output on standard input; exit code 0 is success.")
]
ExpectOption = Annotated[str | None, optional("TEXT", "A trial whose output contains this succeeded.")]
UpstreamOption = Annotated[
    str | None, optional("URL", "The live model's address; default: the provider's own.")
]
ParallelOption = Annotated[
    int, typer.Option("--parallel", min=1, metavar="N", help="Trials that run at the same time.")
]
BudgetOption = Annotated[
    float,
    typer.Option("--budget-usd", min=0, metavar="USD", help="Most dollars for the live calls of all trials."),
]
MaxCallsOption = Annotated[
    int | None,
    optional("N", "Most live calls of all trials; needed for a model whose price is unknown.", min=1),
]
AllowToolOption = Annotated[
    list[str] | None, optional("NAME", "A tool that only reads, and may run in a trial.")
]
UrlOption = Annotated[
    str | None, optional("URL", "Post each trial to a workflow behind HTTP, in place of COMMAND.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Time limit of a trial.")
]
INTERRUPTED_CODE: Final = 130
"""Exit code after Ctrl-C, as shells give it."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HttpToolOption = Annotated[
    list[str] | None,
    optional(
        "TOOL=VARIABLE",
        "A tool called over HTTP at the address in this variable; if the workflow takes it from elsewhere,"
        " the tool really runs in the first trial.",
    ),
]
McpToolOption = Annotated[
    list[str] | None,
    optional(
        "TOOL=VARIABLE", "A tool of the MCP server whose URL, or command, is in this environment variable."
    ),
]
McpCommandOption = Annotated[
    list[str] | None,
    optional("TOOL=COMMAND", "A tool of the MCP server that the workflow starts over stdio by this command."),
]


def on_interrupt(stop: Callable[[], object]) -> None:
    """Let the event loop call ``stop`` at Ctrl-C or a request to end."""
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # no signal handlers in loops on Windows
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop)


@contextmanager
def workflow_failures() -> Iterator[None]:
    """Raise ``CommandFailed`` if the workflow cannot be started, or the user's check cannot be run."""
    try:
        yield
    except OSError as error:
        raise CommandFailed(f"the workflow cannot be started: {error.strerror or error}") from error
    except CheckFailed as error:
        raise CommandFailed(str(error)) from error


def checks_of(check: str | None, expect: str | None, environment: Mapping[str, str]) -> list[Check]:
    """Return the checks of --check and --expect.

    Args:
        check: the command.
        expect: the text.
        environment: variables for the command.
    """
    found: list[Check] = []
    if check is not None:
        arguments = words_of(check)
        if not arguments:
            raise WrongUsage(f"--check {check}: expected a command whose quotation marks are closed")
        found.append(CommandCheck(arguments=arguments, environment=environment))
    if expect is not None:
        if not expect:
            raise WrongUsage("--expect: expected a text; every output contains the empty one")
        found.append(Contains(text=expect))
    if not found:
        raise WrongUsage("expected --check COMMAND or --expect TEXT: what tells a success from a failure")
    return found


def words_of(command: str) -> tuple[str, ...]:
    """Split a command as a shell does; nothing if a quotation does not end."""
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return ()


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before ``--``, and the command after it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:at]], [*arguments[at + 1 :]]


def require_one(command: Sequence[str] | None, url: str | None) -> None:
    """Refuse options that name no workflow, or both a command and a URL."""
    if bool(command) == (url is not None):
        raise WrongUsage("expected either -- COMMAND… or --url URL: what runs the workflow once")
    if url is not None and not url.startswith(("http://", "https://")):
        raise WrongUsage(f"--url {url}: expected a URL that begins with http:// or https://")


def gateway_options(upstream: str | None, tools: Sequence[str]) -> GatewayOptions:
    """Return the options of a gateway with this upstream, whose model may call these tools."""
    options = GatewayOptions(allow_tools=frozenset(tools))
    if upstream is None:
        return options
    if not upstream.startswith(("http://", "https://")):
        raise WrongUsage(f"--upstream {upstream}: expected a URL that begins with http:// or https://")
    return GatewayOptions(allow_tools=frozenset(tools), openai=upstream, anthropic=upstream)


def require_prices(
    tapes: Sequence[Tape], budget_usd: float, max_calls: int | None, others: Sequence[str] = ()
) -> None:
    """Refuse, before anything starts, trials whose live calls certainly exceed the budget.

    Args:
        tapes: the runs to replay.
        budget_usd: for all live calls.
        max_calls: their number, if limited.
        others: models that no tape holds.
    """
    models = {call.answer.model for tape in tapes for call in tape.calls if call.answer.model}.union(others)
    if budget_usd <= 0 and not (models and all(price_of(model, 1, 1) == 0 for model in models)):
        raise WrongUsage(
            f"--budget-usd {budget_usd:g} pays for no live call of"
            f" {', '.join(sorted(models)) or 'a model that is not recorded'}: expected more, or a model whose"
            " listed price is 0"
        )
    if max_calls is not None:
        return
    unknown = sorted(model for model in models if price_of(model, 1, 1) is None)
    if unknown:
        source = "" if is_litellm_installed() else f", or litellm, which lists prices ({INSTALL_MODELS})"
        raise WrongUsage(
            f"the price of {', '.join(unknown)} is unknown: expected --max-calls N as the limit{source}"
        )


def remote_tools(http: Sequence[str], mcp: Sequence[str], commands: Sequence[str]) -> tuple[RemoteTools, ...]:
    """Read the values of --http-tool, --mcp-tool and --mcp-command."""
    remote_toolses = [
        *(RemoteTools(variable=name, tools=tools) for name, tools in _by_variable(http, "--http-tool")),
        *(_mcp_server(name, tools) for name, tools in _by_variable(mcp, "--mcp-tool")),
    ]
    if len({tools.variable for tools in remote_toolses}) < len(remote_toolses):
        raise WrongUsage("--mcp-tool: expected a variable that no --http-tool uses")
    return (*remote_toolses, *_started(commands))


def _by_variable(given: Sequence[str], option: str) -> Iterable[tuple[str, frozenset[str]]]:
    found: dict[str, frozenset[str]] = {}
    for each in given:
        name, _, variable = each.rpartition("=")
        if not name or not _VARIABLE.fullmatch(variable):
            raise WrongUsage(f"{option} {each}: expected TOOL=VARIABLE")
        found[variable] = found.get(variable, frozenset()) | {name}
    return found.items()


def _mcp_server(variable: str, tools: frozenset[str]) -> RemoteTools:
    value = os.environ.get(variable, "")
    if urlsplit(value).scheme in {"http", "https"}:
        return RemoteTools(variable=variable, tools=tools, mcp_server=value)
    command = words_of(value)
    if not command or shutil.which(command[0]) is None:
        raise WrongUsage(
            f"--mcp-tool: expected the MCP server's http or https URL, or the command that starts it, in the"
            f" environment variable {variable}"
        )
    return RemoteTools(variable=variable, tools=tools, command=command)


def _started(commands: Sequence[str]) -> Iterator[RemoteTools]:
    found: dict[tuple[str, ...], frozenset[str]] = {}
    for each in commands:
        name, _, given = each.partition("=")
        command = words_of(given)
        if not name or not command:
            raise WrongUsage(f"--mcp-command {each}: expected TOOL=COMMAND")
        if Path(command[0]).name != command[0]:
            raise WrongUsage(
                f"--mcp-command {each}: expected a program that the workflow finds in PATH; if it uses a"
                " path, let it read the command from a variable: --mcp-tool TOOL=VARIABLE"
            )
        if shutil.which(command[0]) is None:
            raise WrongUsage(f"--mcp-command {each}: {command[0]} is not found in PATH")
        found[command] = found.get(command, frozenset()) | {name}
    for place, (command, tools) in enumerate(found.items()):
        yield RemoteTools(variable=f"stdio-{place}", tools=tools, command=command, is_in_path=True)
