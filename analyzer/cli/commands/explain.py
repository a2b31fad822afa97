"""``blamespan explain``: a run's verdict as one Markdown document."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from analyzer.cli.experiment_runs import kept_of
from analyzer.cli.judged_runs import known_or_judged, settings_here
from analyzer.cli.kept_runs import TenantOption
from analyzer.cli.output import CommandFailed
from analyzer.cli.recorded_runs import LogsOption, RecordedRun, load_runs
from analyzer.cli.shared_options import MethodOption, ModelOption
from analyzer.inquiry.explanation import explain as explanation
from collector_processor.core.runs import Run


def explain(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A file with one run, or the id of a kept run.", show_default=False
        ),
    ],
    for_agent: Annotated[
        bool,
        typer.Option(
            "--for-agent", help="Say what a coding agent is to do, and that the run's texts are data."
        ),
    ] = False,
    tenant: TenantOption = None,
    logs: LogsOption = None,
    method: MethodOption = None,
    model: ModelOption = None,
) -> None:
    """Explain a verdict in one Markdown document: what is known, what is not, where, how to prove it.

    For a report, a pull request or a coding agent. A kept run has its stored verdict; a file is judged here.

    Example: [bold]blamespan explain trace.json --for-agent > report.md[/bold]
    """
    kept = kept_of(run, tenant)
    recorded = _only(Path(run), logs or []) if kept is None else _as_recorded(kept.run())
    document, trajectory = known_or_judged(recorded, kept, settings_here(method, model, None, None))
    spans = recorded.trace.spans if recorded.trace else ()
    source = run if kept is None else kept.verdict.run_id
    text = explanation(document, trajectory, spans, source, for_agent=for_agent, is_kept=kept is not None)
    sys.stdout.write(text.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding))


def _as_recorded(run: Run) -> RecordedRun:
    return RecordedRun(trajectory=run.trajectory, trace=run.trace)


def _only(path: Path, logs: Sequence[Path]) -> RecordedRun:
    runs = load_runs(path, logs)
    if len(runs) != 1:
        raise CommandFailed(f"{path}: holds {len(runs)} runs, expected one")
    return runs[0]
