"""The command line: the composition root, which knows everything and does nothing itself.

Exit codes: 0 success, 1 the thing asked failed, 2 wrong usage. Errors are one
line on standard error that says what was expected.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Final

import typer

from analyzer.commands.attribute import attribute
from analyzer.commands.bench import bench
from analyzer.commands.confirm import confirm
from analyzer.commands.demo import demo
from analyzer.commands.doctor import doctor
from analyzer.commands.label import label
from analyzer.commands.output import PROGRAM, WrongUsage, complain
from analyzer.commands.reject import reject
from analyzer.commands.replay import replay
from analyzer.commands.serve import serve
from analyzer.commands.steps import steps
from analyzer.commands.train import train
from analyzer.errors import AnalyzerError, ModelNeeded, UnknownMethod
from collector_processor.otlp import CollectorError
from collector_processor.settings import SettingsError

app: Final = typer.Typer(
    name=PROGRAM,
    help="Which agent broke the run, at which step and why: inside the traces you already look at.",
    epilog="New here? Try [bold]blamespan demo[/bold].",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (demo, serve, attribute, steps, replay, bench, train, label, confirm, reject, doctor):
    app.command()(command)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - the shape typer calls
    if wanted:
        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}\n")
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = app(args=arguments, standalone_mode=False)
    except typer.TyperException as error:
        if message := error.format_message():  # none where the help was shown instead
            complain(message)
        return error.exit_code
    except (WrongUsage, SettingsError, UnknownMethod, ModelNeeded) as error:
        complain(str(error))
        return 2
    except (AnalyzerError, CollectorError, OSError) as error:
        complain(str(error))
        return 1
    except (typer.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0
