"""``blamespan label``: who was to blame in a run, said by a person."""

from __future__ import annotations

from typing import Annotated

import typer

from analyzer.commands.labelling import DataDirOption, RunArgument, TenantOption, say
from analyzer.commands.output import FormatOption, OutputFormat, WrongUsage
from analyzer.labels import LabelKind, Said


def label(
    run: RunArgument,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="The agent to blame.", show_default=False)
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="The decisive step, counted from 0.", show_default=False),
    ] = None,
    did_not_fail: Annotated[bool, typer.Option("--did-not-fail", help="The run did its task.")] = False,
    tenant: TenantOption = None,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Say who was to blame in a run that the service has a verdict on.

    Works while the service runs and when it does not. The newest label of a run counts; a ranker
    learns from those that name a step ([bold]blamespan train --out FILE[/bold]).

    Example: [bold]blamespan label 4bf92f35 --step 7[/bold]
    """
    if did_not_fail and (agent is not None or step is not None):
        raise WrongUsage("--did-not-fail excludes --agent and --step: nobody is to blame")
    if not did_not_fail and agent is None and step is None:
        raise WrongUsage("expected --agent, --step or both, or --did-not-fail")
    kind = LabelKind.NOT_A_FAILURE if did_not_fail else LabelKind.CORRECTED
    said = Said(kind=kind, agent=agent, step=step)
    say(run, said, tenant=tenant, data_dir=data_dir, output=output)
