"""``blamespan runs delete``: delete runs from the store, individually or all of a tenant's."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from analyzer.cli.kept_runs import DataDirOption, opened_store
from analyzer.cli.output import FormatOption, OutputFormat, WrongUsage, optional, print_json
from analyzer.inquiry.present import console, counted
from analyzer.issues.labels.labelling import find_run
from collector_processor.otlp import Tenant
from collector_processor.settings import load_settings
from collector_processor.sinks.deleting import delete_run_and_scores, delete_tenant_and_scores
from collector_processor.store.verdicts import RunStore


def delete(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All runs of the tenant; needs --tenant, empty for runs without one."),
    ] = False,
    tenant: Annotated[str | None, optional("TENANT", "The runs' tenant.")] = None,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Delete runs: verdicts, spans, logs, steps, labels and second opinions.

    Works whether or not the service runs. Counts of issues stay, and so do spans that the service has
    received and still buffers: it deletes these within a day. Scores in the backends of BLAMESPAN_SCORES go
    too, as soon as the service runs. Your backend's copy is not touched otherwise.

    Example: [bold]blamespan runs delete 4bf92f35[/bold]
    """
    if everything is bool(runs):
        raise WrongUsage("runs delete: expected RUN…, or --all with --tenant")
    if everything and tenant is None:
        raise WrongUsage('runs delete: --all needs --tenant; --tenant "" means the runs without a tenant')
    named = None if tenant is None else Tenant(tenant)
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    lanes, now_ns = settings.score_lanes, time.time_ns()
    with opened_store(settings, "runs") as db:
        if named is not None and everything:
            count = delete_tenant_and_scores(db, named, lanes, now_ns)
        else:
            found = {
                (one.tenant, one.run_id) for run in runs or () for one in [find_run(RunStore(db), run, named)]
            }
            count = sum(delete_run_and_scores(db, *name, lanes, now_ns) for name in sorted(found))
    if output is OutputFormat.JSON:
        print_json({"deleted": count})
    else:
        console().print(f"{counted(count, 'run')} deleted")
