"""``blamespan export``: the spans and logs of a kept run, as OTLP/JSON."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from analyzer.cli.commands.learn.label import DataDirOption, RunArgument, TenantOption, opened_store
from analyzer.cli.output import optional
from analyzer.labels.kept_trace import KeptTrace, kept_trace, otlp_json
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Tenant
from collector_processor.settings import load_settings


def export(
    run: RunArgument,
    out: Annotated[Path | None, optional("FILE", "Write here; default: standard output.")] = None,
    tenant: TenantOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Write the spans and logs of a kept run as OTLP/JSON.

    They are written as received, but without secrets. Backends can read the file, and so can every
    command that takes a trace file.

    Example: [bold]blamespan export 4bf92f35 --out run.json[/bold]
    """
    document = otlp_json(open_kept(run, tenant=tenant, data_dir=data_dir).spans)
    if out is None:
        sys.stdout.buffer.write(document)
        sys.stdout.flush()
    else:
        out.write_bytes(document)


def open_kept(run: str, *, tenant: str | None = None, data_dir: Path | None = None) -> KeptTrace:
    """Return a kept run of the data directory, or of the store at ``BLAMESPAN_STORE_URL``.

    Raises:
        NoSuchRun: the id matches no run or several.
        NotKept: its spans are not kept.
        CommandFailed: there is no store yet.
        CollectorError: the store cannot be used.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    with opened_store(settings, "kept runs") as db:
        return kept_trace(db, run, None if tenant is None else Tenant(tenant), open_reader(settings.mappings))
