"""``blamespan runs index``: write the texts that searches look through, of runs that have none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from analyzer.cli.kept_runs import DataDirOption, opened_store
from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, print_json
from analyzer.executor.composition import kept_texts, open_cleaner
from analyzer.inquiry.present import console, counted
from analyzer.issues.beside_verdicts import NO_INDEX, text_row
from analyzer.issues.labels.kept_run import searched_text
from analyzer.issues.labels.kept_trace import read_kept
from analyzer.issues.labels.label_store import LabelStore
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Tenant
from collector_processor.settings import Settings, load_settings
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.run_text import RunText, RunTextRows
from collector_processor.store.verdicts import RunStore

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
            raise CommandFailed(NO_INDEX)
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
