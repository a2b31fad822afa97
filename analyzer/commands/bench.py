"""``blamespan bench``: accuracy and cost of a method on labelled data."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.benchmark import Benchmark
from analyzer.benchmark import bench as run_benchmark
from analyzer.commands.attribute import MethodOption, ModelOption, WithReferenceOption
from analyzer.commands.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    advance,
    complain,
    print_json,
    progress_bar,
)
from analyzer.composition import open_analyst
from analyzer.conversation import Conversation
from analyzer.dataset import read_dataset
from analyzer.present import console
from collector_processor.settings import Settings, load_settings


def bench(
    datasets: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATASET…",
            help="Labelled runs: JSON lines, one JSON document, or a folder of them; gzip or not.",
            show_default=False,
        ),
    ],
    method: MethodOption = None,
    model: ModelOption = None,
    with_reference: WithReferenceOption = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Runs attributed at once.")] = 8,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Measure how often a method is right on labelled failures, and what it costs.

    Scoring is strict: the step must be the very index, a missing answer is wrong. That the
    runs failed is taken as given, and the right answer is seen only with --with-reference.
    The floor, to put beside it: [bold]random[/bold], [bold]first-agent-step[/bold], [bold]constant[/bold].

    Example: [bold]blamespan bench runs.jsonl.gz --method signals[/bold]
    """
    settings = load_settings(os.environ, directory=Path.cwd(), method=method, model=model)
    for path in datasets:
        runs = read_dataset(path)
        if not runs:
            raise CommandFailed(f"{path}: holds no runs")
        result = asyncio.run(_measure(settings, path.name, runs, concurrency, with_reference=with_reference))
        if result.left_out:
            complain(f"{path}: {result.left_out} runs left out: their label has no agent or no step")
        _show(result, output)


async def _measure(
    settings: Settings, name: str, runs: Sequence[Conversation], concurrency: int, *, with_reference: bool
) -> Benchmark:
    analyst = open_analyst(settings, with_reference=with_reference)
    with progress_bar("attributing", len(runs)) as bar:
        return await run_benchmark(
            runs,
            analyst.attributor,
            dataset=name,
            method=settings.method,
            model=settings.model,
            concurrency=concurrency,
            progress=lambda _score: advance(bar),
        )


def _show(result: Benchmark, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        for line in result.lines:
            print_json(line)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.title = f"{result.lines[0]['dataset']}: {result.lines[0]['method']}"
    for name in (
        "subset",
        "n",
        "step %",
        "agent %",
        "both %",
        "top-3 %",
        "±1 %",
        "±5 %",
        "none",
        "errors",
        "calls",
    ):
        table.add_column(name, justify="left" if name == "subset" else "right")
    for line in result.lines:
        table.add_row(*_cells(line))
    console().print(table)
    console().print("brackets: 95 % Wilson interval", style="dim")


def _cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(line["subset"]),
        str(line["n"]),
        _with_interval(line["step_accuracy"], line["step_accuracy_ci"]),
        _with_interval(line["agent_accuracy"], line["agent_accuracy_ci"]),
        _percent(line["joint_accuracy"]),
        _percent(line["top3_step_accuracy"]),
        _percent(line["within"]["1"]),
        _percent(line["within"]["5"]),
        str(line["undetermined"]),
        str(line["errors"]),
        str(line["calls"]),
    )


def _with_interval(share: float | None, interval: Sequence[float] | None) -> str:
    if share is None or interval is None:
        return "-"
    return f"{_percent(share)} \\[{_percent(interval[0])}, {_percent(interval[1])}]"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
