"""``blamespan runs``: export, index or delete the runs that the service has stored."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer

from analyzer.analyses.composition import kept_texts, open_cleaner
from analyzer.cli.kept_runs import DataDirOption, open_kept, opened_store
from analyzer.cli.output import (
    FormatOption,
    OutputFormat,
    WrongUsage,
    complain,
    missing_extra,
    optional,
    print_json,
)
from analyzer.inquiry.present import counted
from analyzer.inquiry.terminal import console
from analyzer.issues.beside_verdicts import NO_INDEX, text_row
from analyzer.issues.labels.kept_run import searched_text
from analyzer.issues.labels.kept_trace import otlp_json, read_kept
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.labelling import find_run
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Tenant
from collector_processor.settings import Settings, load_settings
from collector_processor.sinks.deleting import delete_run_and_scores, delete_tenant_and_scores
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.run_text import RunText, RunTextRows
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


_NAMES_REMEMBERED = 100_000


def export(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.", show_default=False),
    ] = None,
    out: Annotated[Path | None, optional("FILE", "Write the run here; default: standard output.")] = None,
    parquet: Annotated[
        Path | None,
        optional("DIR", "Instead of a run: add the history of all runs to the Parquet files in this folder."),
    ] = None,
    since: Annotated[
        str | None, optional("DAY", "With --parquet: only verdicts since this day (YYYY-MM-DD, UTC).")
    ] = None,
    tenant: Annotated[
        str | None,
        optional(
            "TENANT", "The run's tenant, if several have a run of this id; with --parquet, only its runs."
        ),
    ] = None,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Write a kept run as OTLP/JSON, or the history of all runs as Parquet files.

    A run is written as received, but without secrets. Backends can read the file, and so can every
    command that takes a trace file.

    The history is verdicts, steps and spectra, by day and tenant, without the texts of runs; each export adds
    the verdicts that are new.

    Example: [bold]blamespan runs export 4bf92f35 --out run.json[/bold],
    [bold]blamespan runs export --parquet history[/bold]
    """
    if (run is None) is (parquet is None):
        raise WrongUsage("runs export: expected RUN, or --parquet DIR")
    if parquet is not None:
        _export_history(parquet, _day(since), tenant=tenant, data_dir=data_dir, output=output)
        return
    if since is not None:
        raise WrongUsage("runs export: --since belongs to --parquet")
    document = otlp_json(open_kept(run or "", tenant=tenant, data_dir=data_dir).spans)
    if out is None:
        sys.stdout.buffer.write(document)
        sys.stdout.flush()
    else:
        out.write_bytes(document)


def _export_history(
    folder: Path, since: Any, *, tenant: str | None, data_dir: Path | None, output: OutputFormat
) -> None:
    from collector_processor.rebuild.redaction import ALL_KINDS, make_redactor  # noqa: PLC0415 - large

    try:
        from analyzer.cli.archive import (  # noqa: PLC0415 - an extra
            ArchiveExport,
            Exported,
            only_exporter,
        )
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None

    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    redact = make_redactor(ALL_KINDS, settings.redact_patterns).redact
    clean = lru_cache(_NAMES_REMEMBERED)(redact)  # names recur

    def tell(written: Exported) -> None:
        if sys.stderr.isatty():
            complain(f"{written.verdicts:,} verdicts, {written.steps:,} steps …")

    with opened_store(settings, "runs") as db, only_exporter(folder):
        archive = ArchiveExport(db, folder, clean, open_reader(settings.mappings))
        written = archive.export(None if tenant is None else Tenant(tenant), since, tell)
    if output is OutputFormat.JSON:
        print_json({name: getattr(written, name) for name in ("verdicts", "steps", "spectra", "partitions")})
    else:
        text = (
            f"{counted(written.verdicts, 'verdict')} and {counted(written.steps, 'step')} added to {folder}"
        )
        console().print(text)


def _day(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise WrongUsage(f"--since {text}: expected a day, such as 2026-01-31") from None


_AT_ONCE = 10
"""Runs in one transaction, for which a running service waits."""


def index(
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Delete the index first, for example after damage to the disk.")
    ] = False,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Index the texts of kept runs for the search of the web pages and the API.

    The service indexes each run after its verdict. This command adds runs that an earlier version stored, or
    whose texts a crash lost, at about a hundred runs a second. Works whether or not the service runs.

    Example: [bold]blamespan runs index[/bold]
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    with opened_store(settings, "runs") as db:
        rows = RunTextRows(db)
        if afresh:
            rows.clear()
        if not rows.create_index():
            complain(NO_INDEX)
        count, unwritten = 0, list[RunText]()
        for text in _missing(settings, db, rows):
            unwritten.append(text)
            if len(unwritten) == _AT_ONCE:
                rows.write(unwritten)
                unwritten.clear()
            count += 1
        rows.write(unwritten)
    if output is OutputFormat.JSON:
        print_json({"indexed": count})
    else:
        console().print(f"{counted(count, 'run')} indexed")


def _missing(settings: Settings, db: StoreConnection, rows: RunTextRows) -> Iterator[RunText]:
    verdicts, labels = RunStore(db), LabelStore(db)
    clean, texts, reader = open_cleaner(settings), kept_texts(settings), open_reader(settings.mappings)
    after = (Tenant(""), "")
    while names := rows.missing(after):
        for name in names:
            verdict = verdicts.current(*name)
            kept = verdict and read_kept(
                verdict, verdicts.spans.packed(*name), labels.kept(*name), clean, reader
            )
            if verdict and kept:
                yield text_row(verdict, searched_text(kept.trajectory, texts))
        after = names[-1]


app = typer.Typer(no_args_is_help=True)


@app.callback()
def runs() -> None:
    """Export, index or delete the runs that the service has stored."""


app.command()(export)
app.command()(index)
app.command()(delete)
