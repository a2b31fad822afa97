"""``blamespan diff``: two recorded or kept runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from analyzer.cli.output import FormatOption, OutputFormat, WrongUsage, print_json
from analyzer.cli.recorded_runs import LogsOption, RecordedRun, load_runs
from analyzer.history.run_diff import (
    Change,
    RunDiff,
    RunTotals,
    StepPair,
    compare_runs,
    departure_in_words,
    in_words,
    matter_in_words,
    nearest_run,
)
from analyzer.inquiry.present import plain
from analyzer.inquiry.terminal import console
from analyzer.inquiry.whole_run import WholeRun, whole_run, whole_steps
from collector_processor.core.runs import Run
from collector_processor.rebuild.redaction import ALL_KINDS, Cleaner, make_redactor

_RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A file in any format that `attribute` reads, or a kept run's id.",
        show_default=False,
    ),
]
_STYLES = {Change.SAME: "dim", Change.TEXT: "yellow", Change.ONLY_LEFT: "red", Change.ONLY_RIGHT: "green"}
_SIGNS = {Change.SAME: " ", Change.TEXT: "~", Change.ONLY_LEFT: "-", Change.ONLY_RIGHT: "+"}


def diff(
    left: _RunArgument,
    right: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…", help="The run to compare with; of several, the nearest.", show_default=False
        ),
    ],
    logs: LogsOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show two runs side by side: aligned steps, and the first difference that matters for the answers.

    Steps are aligned by agent, kind and tool, then by their text. The differences of time, tokens
    and cost are the second run minus the first. Of several runs the nearest is shown: the same task first,
    and one that passed if there is any.

    Example: [bold]blamespan diff failed.json passed.json[/bold]
    """
    first, *others = (_one(path, logs or []) for path in (left, *right))
    second = nearest_run(first, others)
    found = compare_runs(first, second, len(others))
    if output is OutputFormat.JSON:
        print_json(found.to_json())
    else:
        _show(found, first, second)


def _one(path: Path, logs: list[Path]) -> WholeRun:
    runs = load_runs(path, logs)
    if len(runs) > 1:
        raise WrongUsage(f"{path}: holds {len(runs)} runs, expected one")
    return _whole(runs[0])


def _whole(run: RecordedRun) -> WholeRun:
    clean = Cleaner(make_redactor(ALL_KINDS, ()))
    if run.trace is None:
        return whole_steps(run.trajectory, clean)
    return whole_run(Run(trace=run.trace, trajectory=run.trajectory), clean)


def _show(found: RunDiff, left: WholeRun, right: WholeRun) -> None:
    screen = console()
    screen.print(_totals(found), "")
    if found.compared > 1:
        screen.print(f"Of {found.compared} runs, {plain(found.right, 40)} is the nearest.")
    if found.first_divergence is None:
        screen.print("The runs take the same steps with the same texts.")
        return
    first = found.first_divergence if found.matters is None else found.matters.place
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    for name in ("", "left", "right"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("agent", no_wrap=True, max_width=24)
    table.add_column("what happened", ratio=1, overflow="fold")
    for place, pair in enumerate(found.pairs):
        mark = "▶" if place == first else _SIGNS[pair.change]
        texts = (Text(plain(pair.agent, 24)), Text(_what(pair, left, right)))
        table.add_row(mark, _place(pair.left), _place(pair.right), *texts, style=_STYLES[pair.change])
    screen.print(table)
    screen.print(plain(matter_in_words(found), 400))
    if found.departure is not None:
        told = departure_in_words(found.departure, found.distance)
        screen.print(plain(told, 400))


def _totals(found: RunDiff) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("run", "steps", "errors", "seconds", "tokens in", "tokens out", "dollars"):
        table.add_column(name, justify="left" if name == "run" else "right")
    for name, totals in ((found.left, found.left_totals), (found.right, found.right_totals)):
        table.add_row(Text(plain(name, 40)), *_numbers(totals))
    return table


def _numbers(totals: RunTotals) -> tuple[str, ...]:
    cost = "-" if totals.cost_usd is None else f"{totals.cost_usd:.4f}"
    counts = ("-" if count is None else str(count) for count in (totals.input_tokens, totals.output_tokens))
    return str(totals.steps), str(totals.errors), f"{totals.duration_s:.2f}", *counts, cost


def _place(step: int | None) -> str:
    return "" if step is None else str(step)


def _what(pair: StepPair, left: WholeRun, right: WholeRun) -> str:
    ours = None if pair.left is None else left.steps[pair.left]
    theirs = None if pair.right is None else right.steps[pair.right]
    both = [step for step in (ours, theirs) if step is not None]
    texts = [plain(step.error or step.output or step.input or step.name, 200) for step in both]
    if len(texts) == 1 or texts[0] == texts[-1]:
        differs = f" ({in_words(pair.differs)})" if pair.differs else ""
        return texts[0] + differs
    return f"{texts[0]}\n→ {texts[1]}"
