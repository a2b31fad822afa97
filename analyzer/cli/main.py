"""The command line: dispatches to one command and maps errors to exit codes.

A command is the function of the same name in its file in ``commands/``; ``runs`` has commands of its own.
Only the called command's file is imported: the others' libraries take longer to import than most commands
take to run.

Exit codes: 0 success, 1 failure, 2 wrong usage. Errors are one line on standard error
that says what was expected.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import typer

from analyzer.cli.output import PROGRAM, WrongUsage, complain
from analyzer.inquiry.errors import AnalyzerError, ModelNeeded, UnknownMethod
from collector_processor.otlp import CollectorError

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Start here": ("demo", "run", "serve", "doctor"),
    "Read a recorded run": ("attribute", "explain", "pull", "steps", "diff", "lint", "map"),
    "Run it again": ("replay", "gateway", "experiment", "inject", "pin", "backtest"),
    "Follow up": ("issues", "workflows", "runs", "mcp"),
    "Make it better on your runs": ("label", "train", "bench"),
}
"""Modules in ``commands/``, in the order in which ``--help`` lists them."""
COMMANDS: Final = tuple(name for names in GROUPS.values() for name in names)
_PLACE: Final = "analyzer.cli.commands"


def _with_border(arguments: Sequence[str]) -> list[str]:
    """Double ``--`` for commands with several arguments before it, because the parser drops the first."""
    found = list(arguments)
    if found[:1] in (["inject"], ["pin"], ["backtest"]) and "--" in found:
        found.insert(found.index("--"), "--")
    return found


def _app(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line with the called command; if none is called, with the titles of all."""
    app = typer.Typer(
        name=PROGRAM,
        help="Which agent broke the run, at which step and why: inside the traces you already look at.",
        epilog="New here? Try [bold]blamespan demo[/bold].",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_root)
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    if called in COMMANDS and called == arguments[0]:
        _add(app, called)
        return app
    for title, names in GROUPS.items():
        for name in names:
            if name == called:
                _add(app, name)
            else:
                app.command(name, help=_title(name), rich_help_panel=title)(_untouched)
    return app


def _add(app: typer.Typer, name: str) -> None:
    """Add a command, or a command that has commands of its own."""
    module = import_module(f"{_PLACE}.{name}")
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
        for own in module.app.registered_commands:
            own.help = _flowing(own.callback)
    else:
        command = getattr(module, name)
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        app.command(help=_flowing(command), context_settings=settings)(command)


def _flowing(command: Callable[..., object]) -> str:
    """Return a command's help with each paragraph on a line, which the terminal breaks at its own width."""
    paragraphs = (command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _title(name: str) -> str:
    """Read a command's title from its source, which importing or parsing would take too long for."""
    source = Path(__file__).with_name("commands").joinpath(f"{name}.py").read_text(encoding="utf-8")
    documented = source.partition(f"\ndef {name}(")[2].partition('    """')[2]
    return documented.partition("\n\n")[0].partition('"""')[0]


def _untouched() -> None:
    raise AssertionError("a command that was not called ran")


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - the shape typer calls
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - nothing else needs it

        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}\n")
        raise typer.Exit


def _root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command in a process of its own, and exit with its code."""
    sys.exit(run(arguments, _kept_app))


def _kept_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line; what its imports made stays until the process ends."""
    gc.disable()  # looking for garbage in it takes a tenth of the imports' time
    try:
        return _app(arguments)
    finally:
        gc.freeze()  # nor is it looked for later, which would take a sixth of the time of `attribute`
        gc.enable()


def run(arguments: Sequence[str] | None = None, app_of: Callable[[Sequence[str]], typer.Typer] = _app) -> int:
    """Run one command and return its exit code; the caller's process may go on afterwards.

    Args:
        arguments: what follows the program's name; by default those of this process.
        app_of: imports the called command.
    """
    if sys.platform == "win32":  # file locks, signals and limits of processes are POSIX
        complain("needs Linux (tested) or macOS (not tested): on Windows, use it in WSL")
        return 2
    try:
        words = _with_border(sys.argv[1:] if arguments is None else list(arguments))
        code = app_of(words)(args=words, standalone_mode=False)
    except typer.TyperException as error:
        if message := error.format_message():  # empty if the help was shown instead
            complain(_plainly(message, words))
        return error.exit_code
    except (WrongUsage, UnknownMethod, ModelNeeded) as error:
        complain(str(error))
        return 2
    except (AnalyzerError, CollectorError, OSError) as error:
        complain(str(error))
        return 2 if _is_setting(error) else 1
    except (typer.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0


_PLAINLY: Final[Mapping[str, str]] = {
    r"Value error, ": "",
    r"Input should be a valid number\b.*": "expected a number",
    r"Input should be a valid integer\b.*": "expected a whole number",
    r"Input should be less than or equal to ": "expected at most ",
    r"Input should be greater than or equal to ": "expected at least ",
}
"""What the parser says of a value, as patterns, and what we say."""


def _plainly(message: str, words: Sequence[str]) -> str:
    """Return what the parser says of wrong usage in our words; where something is missing, with its help."""
    for pattern, ours in _PLAINLY.items():
        message = re.sub(pattern, ours, message)
    if not message.startswith(("Missing", "No such")) or message.endswith(("?", ")")):
        return message
    called = [word for word in words[:1] if word in COMMANDS]
    return f"{message.rstrip('.')}: see `{' '.join([PROGRAM, *called])} --help`"


def _is_setting(error: Exception) -> bool:
    """Return whether a setting is wrong; imported only here, because the settings module is large."""
    from collector_processor.settings import SettingsError  # noqa: PLC0415

    return isinstance(error, SettingsError)
