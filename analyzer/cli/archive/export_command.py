"""``blamespan runs export``: a kept run as OTLP/JSON, or the history of all runs as Parquet files."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer

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
from analyzer.inquiry.present import console, counted
from analyzer.issues.labels.kept_trace import otlp_json
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Tenant
from collector_processor.settings import load_settings

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
    the verdicts that are new ([bold]blamespan runs query[/bold] reads it).

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
        from analyzer.cli.archive.archive_export import ArchiveExport, Exported  # noqa: PLC0415 - an extra
        from analyzer.cli.archive.parquet_files import only_exporter  # noqa: PLC0415 - as above
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
