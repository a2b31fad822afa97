"""``blamespan reject``: the verdict on a run is wrong."""

from __future__ import annotations

from analyzer.commands.labelling import DataDirOption, RunArgument, TenantOption, say
from analyzer.commands.output import FormatOption, OutputFormat
from analyzer.labels import LabelKind, Said


def reject(
    run: RunArgument,
    tenant: TenantOption = None,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Say that the verdict on a run is wrong, where you do not know what is right.

    Where you do, say so with [bold]blamespan label[/bold]: nothing is learned from a rejection.

    Example: [bold]blamespan reject 4bf92f35[/bold]
    """
    said = Said(kind=LabelKind.REJECTED)
    say(run, said, tenant=tenant, data_dir=data_dir, output=output)
