"""``blamespan runs query``: SQL over the history that ``blamespan runs export --parquet`` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.cli.output import FormatOption, OutputFormat, missing_extra, print_json
from analyzer.inquiry.present import console, plain

_MOST_SHOWN: Final = 1_000
"""Rows of a table for people; ``--format json`` prints all."""
_CELL: Final = 400


def query(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The folder of `blamespan runs export --parquet`.", show_default=False
        ),
    ],
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One statement, in DuckDB's dialect.", show_default=False)
    ],
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Stop the statement after this.")
    ] = 300,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Query the exported history with SQL, by DuckDB in this process.

    Tables: `verdicts`, `runs` (the current verdict of each run), `steps`, `spectra`; `DESCRIBE runs` lists
    the columns. The statement can read this folder and nothing else, and take half of the memory.

    Example: [bold]blamespan runs query history "SELECT agent, count(*) FROM runs GROUP BY ALL"[/bold]
    """
    try:
        from analyzer.cli.archive import sql_query as archive  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None

    with archive.query(folder, sql, archive.QueryLimits(seconds=timeout)) as found:
        if output is OutputFormat.JSON:
            for row in found.rows:
                print_json(dict(zip(found.columns, row, strict=True)))
        else:
            _show(found.columns, found.rows)


def _show(columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(plain(column, _CELL), overflow="fold")
    for row in islice(rows, _MOST_SHOWN):
        table.add_row(*("" if value is None else plain(str(value), _CELL) for value in row))
    screen = console()
    screen.print(table)
    if next(rows, None) is not None:
        screen.print(f"only the first {_MOST_SHOWN:,} rows: --format json prints all", style="dim")
