"""What ``label``, ``confirm`` and ``reject`` share: the stores of a data directory, the run, the answer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from analyzer.commands.output import CommandFailed, OutputFormat, print_json
from analyzer.labels import LabelKind, Said
from analyzer.labels.labelling import Given, find_run, give
from analyzer.labels.store import LabelStore, open_labels
from analyzer.present import console, plain
from collector_processor.otlp import Tenant
from collector_processor.runstore import RUNS, RunStore
from collector_processor.settings import load_settings
from collector_processor.stored import StoredVerdict

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or the beginning of it.", show_default=False)
]
TenantOption = Annotated[
    str | None,
    typer.Option(
        metavar="TENANT",
        help="Whose run it is, where several have one of this id.",
        show_default=False,
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="The service's data directory; default: BLAMESPAN_DATA_DIR.", show_default=False
    ),
]


def say(run: str, said: Said, *, tenant: str | None, data_dir: Path | None, output: OutputFormat) -> None:
    """Label a run of the data directory, and print what is kept now.

    Raises:
        NoSuchRun: no single run is meant.
        LabelRefused: what was said does not fit the run.
        CommandFailed: there is no run yet.
    """
    with opened(data_dir) as (verdicts, labels):
        verdict = find_run(verdicts, run, None if tenant is None else Tenant(tenant))
        given = give(labels, verdict, said, time.time_ns(), verdicts=verdicts)
    if output is OutputFormat.JSON:
        print_json(given.to_json())
    else:
        _show(given, verdict)


@contextmanager
def opened(data_dir: Path | None) -> Iterator[tuple[RunStore, LabelStore]]:
    """Open the stores of a data directory, whether or not a service runs on it.

    Raises:
        CommandFailed: there is none.
    """
    folder = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir).data_dir
    path = folder / RUNS
    if not path.is_file():
        raise CommandFailed(f"{folder}: holds no verdicts: expected the data directory of `blamespan serve`")
    with closing(RunStore(path)) as verdicts, closing(open_labels(folder)) as labels:
        yield verdicts, labels


def _show(given: Given, verdict: StoredVerdict) -> None:
    label, screen = given.label, console()
    screen.print(plain(f"{label.run_id}: {_in_words(given, verdict)}", 500), highlight=False, markup=False)
    if label.kind in {LabelKind.CONFIRMED, LabelKind.CORRECTED} and given.obstacle:
        screen.print(f"The label is kept, but a ranker cannot learn from it: {given.obstacle}.", style="dim")
    if given.trace_obstacle:
        screen.print(f"The trace stays as it is: {given.trace_obstacle}.", style="dim")
    elif label.kind is not LabelKind.CONFIRMED:
        screen.print(
            "The service corrects the trace within seconds; if it is stopped, when it starts again.",
            style="dim",
        )


def _in_words(given: Given, verdict: StoredVerdict) -> str:
    label = given.label
    blamed = f"{label.agent}" + ("" if label.step is None else f", step {label.step}")
    told = "no failure" if verdict.agent is None else verdict.agent
    told += "" if verdict.step is None else f", step {verdict.step}"
    words: dict[LabelKind, Any] = {
        LabelKind.CONFIRMED: f"confirmed: {blamed}",
        LabelKind.CORRECTED: f"to blame is {blamed} (the verdict said {told})",
        LabelKind.REJECTED: f"rejected: not {told}; what is right is not known",
        LabelKind.NOT_A_FAILURE: "not a failure",
    }
    return str(words[label.kind])
