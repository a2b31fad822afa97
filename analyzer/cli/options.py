"""Options that several commands have, apart from the commands: one must not cost the imports of another."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from analyzer.methods import AUTO, METHODS

METHOD_HELP: Final = (
    f"One of: {', '.join((AUTO, *METHODS))}. One that asks a model may be followed by *N, for N"
    " votes that are pooled (judge*3). Default: BLAMESPAN_METHOD, or auto"
    " (a ranker trained for the run's system, else the judge if a model is set, else signals)."
)

MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help=METHOD_HELP,
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Any litellm model; several with commas between take turns in votes. Default: BLAMESPAN_MODEL.",
        show_default=False,
    ),
]
WithReferenceOption = Annotated[
    bool, typer.Option("--with-reference", help="Let the method see the right answer, where the run has it.")
]
