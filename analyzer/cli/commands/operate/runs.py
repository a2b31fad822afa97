"""``blamespan runs``: the commands on stored runs."""

from __future__ import annotations

import typer

from analyzer.cli.archive.delete_command import delete
from analyzer.cli.archive.export_command import export
from analyzer.cli.archive.index_command import index
from analyzer.cli.archive.query_command import query

app = typer.Typer(no_args_is_help=True)


@app.callback()
def runs() -> None:
    """Export, query, index or delete the runs that the service has stored."""


app.command()(export)
app.command()(query)
app.command()(index)
app.command()(delete)
