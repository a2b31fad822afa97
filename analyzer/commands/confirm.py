"""``blamespan confirm``: the verdict on a run is right."""

from __future__ import annotations

from analyzer.commands.labelling import DataDirOption, RunArgument, TenantOption, say
from analyzer.commands.output import FormatOption, OutputFormat
from analyzer.labels import LabelKind, Said


def confirm(
    run: RunArgument,
    tenant: TenantOption = None,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Say that the verdict on a run is right, agent and step.

    Where the verdict says that the run did not fail, that is what is confirmed.

    Example: [bold]blamespan confirm 4bf92f35[/bold]
    """
    said = Said(kind=LabelKind.CONFIRMED)
    say(run, said, tenant=tenant, data_dir=data_dir, output=output)
