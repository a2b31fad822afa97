"""``blamespan steps``: the ordered steps of recorded runs."""

from __future__ import annotations

from typing import Any

import typer

from analyzer.cli.output import FormatOption, OutputFormat, print_json
from analyzer.cli.recorded_runs import FilesArgument, LogsOption, RecordedRuns, name_of
from analyzer.inquiry.present import plain
from analyzer.inquiry.terminal import console, run_heading, steps_table
from semconv.model import Step, Trajectory


def steps(files: FilesArgument, logs: LogsOption = None, output: FormatOption = OutputFormat.TABLE) -> None:
    """Show the ordered steps of recorded runs.

    Which agent did what, in which order, as rebuilt from the spans of any
    framework. The first thing to look at when a verdict surprises you.
    As JSON, each run names its [bold]file[/bold].

    Example: [bold]blamespan steps trace.json[/bold]
    """
    recorded = RecordedRuns(files, logs or [])
    for path, run in recorded:
        if output is OutputFormat.JSON:
            print_json({**steps_document(run.trajectory), "file": str(path)})
            continue
        if len(files) > 1:
            console().print(plain(name_of(path), 200), style="bold", soft_wrap=True, markup=False)
        show_steps(run.trajectory)
    if recorded.exit_code:
        raise typer.Exit(recorded.exit_code)


def show_steps(trajectory: Trajectory) -> None:
    """Print one run's steps."""
    screen = console()
    screen.print(run_heading(trajectory), "")
    screen.print(steps_table(trajectory, width=screen.width), "")


def steps_document(trajectory: Trajectory) -> dict[str, Any]:
    """Return the run as the object of ``steps --format json``."""
    return {
        "run_id": trajectory.run_id,
        "task": trajectory.task,
        "output": trajectory.output,
        "outcome": trajectory.outcome.value if trajectory.outcome else None,
        "complete": trajectory.complete,
        "agents": list(trajectory.agents),
        "dialects": list(trajectory.dialects),
        "warnings": list(trajectory.warnings),
        "steps": [_step(step) for step in trajectory.steps],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "index": step.index,
        "agent": step.agent,
        "agent_source": step.agent_source.value,
        "kind": step.kind.value,
        "trace_id": step.trace_id,
        "span_id": step.span_id,
        "name": step.name,
        "start_ns": step.start_ns,
        "end_ns": step.end_ns,
        "status": step.status.value,
        "input": step.input,
        "output": step.output,
        "target": step.target,
        "group": step.group,
    }
