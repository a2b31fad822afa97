"""Output shared by all commands: format, one-line errors, progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from analyzer.inquiry.errors import AnalyzerError
from analyzer.telemetry.json_lines import json_text

PROGRAM: Final = "blamespan"


class OutputFormat(StrEnum):
    """Format of printed results."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--format", help="`table` for people; `json` for programs: one object a line on standard output."
    ),
]


def optional(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Declare an option that may be left out; its help shows no default."""
    return typer.Option(*names, metavar=metavar, help=text, show_default=False, **more)


class CommandFailed(AnalyzerError):  # noqa: N818 - reads better at the ``raise``
    """The command failed: one line on standard error, exit code 1."""


class WrongUsage(AnalyzerError):  # noqa: N818 - as above
    """The command was called wrongly: one line on standard error, exit code 2."""


def print_json(document: Mapping[str, Any]) -> None:
    """Print one object on one line of standard output."""
    line = json_text(document)
    try:
        line.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # the terminal lacks Unicode, or a file name is not valid Unicode
        line = json.dumps(document, default=str)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(message: str) -> None:
    """Print one line on standard error."""
    from analyzer.inquiry.present import plain  # noqa: PLC0415 - most of the time that --help takes

    sys.stderr.write(f"{PROGRAM}: {plain(message, 2000)}\n")


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error during a long task; shows nothing unless it is a terminal.

    Yields: what advances the bar by one.
    """
    if total < 2 or not sys.stderr.isatty():
        yield _no_bar
        return
    from rich import progress  # noqa: PLC0415 - most commands show none
    from rich.console import Console  # noqa: PLC0415 - as above

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


def _no_bar() -> None:
    pass


def missing_extra(error: ModuleNotFoundError) -> CommandFailed:
    """Return the failure of a command whose libraries are in the extra ``history``; raise other errors."""
    if (error.name or "").partition(".")[0] != "pyarrow":
        raise error
    return CommandFailed(
        f"{error.name} is not installed; it is in the extra history: pip install '.[server,history]'"
    )
