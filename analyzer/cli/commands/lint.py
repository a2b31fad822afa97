"""``blamespan lint``: list what a trace lacks for good attribution, with a fix for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from analyzer.cli.commands.map import proposed, write_mapping
from analyzer.cli.output import FormatOption, OutputFormat, complain, print_json
from analyzer.cli.recorded_runs import FilesArgument, LogsOption, RecordedRuns, name_of, reader_here
from analyzer.inquiry.present import counted, plain
from analyzer.inquiry.terminal import console
from collector_processor.core.runs import Run
from collector_processor.lint import INFERRED, Finding, Severity
from collector_processor.lint import lint as look_at
from semconv.model import Trace, Trajectory

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_MARKS: Final = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.INFO: "·"}
_FAILING: Final = frozenset({Severity.ERROR, Severity.WARNING})

StrictOption = Annotated[
    bool, typer.Option("--strict", help="Also exit with 1 if there are only `info` findings.")
]
MappingOption = Annotated[
    Path | None,
    typer.Option(
        "--mapping", metavar="FILE", help="Write a mapping for runs that no dialect reads, to be corrected."
    ),
]


def lint(
    files: FilesArgument,
    logs: LogsOption = None,
    strict: StrictOption = False,
    mapping: MappingOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """List what traces lack for good attribution, with the line that fixes it.

    Checks agents, content, task, context, handoffs, tool calls, limits and clocks, and names the
    setting or the code for the framework that wrote the spans. Exits with 1 if there is an error
    or a warning, so that it can fail a build; `info` alone is fine.

    Example: [bold]blamespan lint trace.json[/bold]
    """
    recorded, failed, reader = RecordedRuns(files, logs or []), False, reader_here()
    inferred: list[Trace] = []
    for path, run in recorded:
        if run.trace is None:
            complain(f"{name_of(path)}: a conversation log has no spans to check")
            failed = True
            continue
        findings = look_at(Run(trace=run.trace, trajectory=run.trajectory), reader)
        if any(finding.rule == INFERRED for finding in findings):
            inferred.append(run.trace)
        _show(path, run.trajectory, findings, output)
        failed = failed or any(strict or finding.severity in _FAILING for finding in findings)
    if mapping is not None and inferred:
        write_mapping(proposed(inferred), mapping)
    if code := max(int(failed), recorded.exit_code):
        raise typer.Exit(code)


def _show(path: Path, trajectory: Trajectory, findings: tuple[Finding, ...], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        for finding in findings:
            print_json(finding_document(path, trajectory, finding))
        return
    console().print(
        _heading(path, trajectory, findings), *(_shown(finding) for finding in findings), "", sep="\n"
    )


def finding_document(path: Path, trajectory: Trajectory, finding: Finding) -> dict[str, Any]:
    """Return a finding as the object of ``lint --format json``."""
    return {
        "file": str(path),
        "run_id": trajectory.run_id,
        "rule": finding.rule,
        "severity": finding.severity.value,
        "what": finding.what,
        "spans": len(finding.spans),
        "of": finding.of,
        "trace_id": finding.spans[0].trace_id,
        "span_id": finding.spans[0].span_id,
        "framework": finding.framework,
        "mend": list(finding.mend),
    }


def _heading(path: Path, trajectory: Trajectory, findings: tuple[Finding, ...]) -> Text:
    agents = ", ".join(plain(agent, 30) for agent in trajectory.agents[:6]) or "no agents"
    steps = counted(len(trajectory.steps), "step")
    heading = Text.assemble(
        (plain(name_of(Path(path.name)), 60), "bold"),
        (f"  run {plain(trajectory.run_id, 32)}, {steps} by {agents}", "dim"),
    )
    if not findings:
        heading.append("\n  ✓ lacks nothing", style="green")
    return heading


def _shown(finding: Finding) -> RenderableType:
    style = _STYLES[finding.severity]
    title = Text.assemble(
        (f"{_MARKS[finding.severity]} {finding.rule}", style),
        (f"  {len(finding.spans)} of {finding.of}", "bold"),
        (f", as span {finding.spans[0].span_id}", "dim"),
        (f" of {plain(finding.framework, 60)}" if finding.framework else "", "dim"),
    )
    mend = Text("\n".join(plain(line, 200) for line in finding.mend), style="green")
    return Padding(
        Group(title, Padding(Text(plain(finding.what, 400)), (0, 2)), Padding(mend, (0, 4))), (0, 2)
    )
