"""Options of the commands that run a workflow again and again: its checks, its limits and its tools."""

from __future__ import annotations

from typing import Annotated

import typer

from analyzer.cli.output import optional

CheckOption = Annotated[
    str | None, optional("COMMAND", "Gets the trial's output on standard input; exit code 0 is success.")
]
ExpectOption = Annotated[str | None, optional("TEXT", "A trial whose output contains this succeeded.")]
UpstreamOption = Annotated[
    str | None, optional("URL", "The live model's address; default: the provider's own.")
]
ParallelOption = Annotated[int, typer.Option("--parallel", min=1, metavar="N", help="Trials at a time.")]
BudgetOption = Annotated[
    float, typer.Option("--budget-usd", min=0, metavar="USD", help="For the live calls of all trials.")
]
MaxCallsOption = Annotated[
    int | None, optional("N", "Live calls in all; needed for a model whose price is unknown.", min=1)
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
