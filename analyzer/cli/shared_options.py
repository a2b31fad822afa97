"""Options shared by several commands, in their own file so that one does not import another."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from analyzer.cli.output import optional
from analyzer.methods.registry import AUTO, METHODS

METHOD_HELP: Final = (
    f"One of: {', '.join((AUTO, *METHODS))}. One that calls a model may be followed by *N, for N"
    " votes that are pooled (judge*3). Default: BLAMESPAN_METHOD, or auto"
    " (a ranker trained for the run's system, else the judge if a model is set, else signals)."
)

MethodOption = Annotated[str | None, optional("NAME", METHOD_HELP, "--method")]
ModelOption = Annotated[
    str | None,
    optional("NAME", "Any litellm model. Default: BLAMESPAN_MODEL.", "--model"),
]
FloorOption = Annotated[
    float | None,
    optional(
        "P",
        "Abstain below this confidence, as BLAMESPAN_PRECISION has the service do.",
        "--floor",
        min=0,
        max=1,
    ),
]
WithReferenceOption = Annotated[
    bool, typer.Option("--with-reference", help="Let the method see the right answer, where the run has it.")
]
