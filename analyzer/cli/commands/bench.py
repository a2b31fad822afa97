"""``blamespan bench``: accuracy and cost of a method on labelled data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from analyzer.commands import bench_tables as tables
from analyzer.commands.measuring import Plan, measure, settings_of
from analyzer.commands.options import METHOD_HELP, ModelOption, WithReferenceOption
from analyzer.commands.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    WrongUsage,
    complain,
    print_json,
)
from analyzer.conversation import Conversation
from analyzer.measuring.benchmark import Benchmark, labelled
from analyzer.measuring.comparison import compare as compare_scores
from analyzer.measuring.comparison import second_labels
from analyzer.measuring.contender import Contender, read_contender
from analyzer.measuring.dataset import read_dataset
from analyzer.measuring.learners import LEARNERS
from analyzer.measuring.plot import to_svg
from analyzer.reply_cache import open_cache
from collector_processor.settings import load_settings
from semconv.json_text import read_json

_CACHE: Final = "replies"
"""Folder in the data directory."""


def bench(
    datasets: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATASET",
            help="Labelled runs: JSON lines, one JSON document, or a folder of them; gzip or not.",
            show_default=False,
        ),
    ],
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="NAME", help=METHOD_HELP, show_default=False),
    ] = None,
    model: ModelOption = None,
    with_reference: WithReferenceOption = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Two methods on the same runs, with a paired test. Each is METHOD\\[+reference]\\[@MODEL].",
            show_default=False,
        ),
    ] = None,
    train: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DATASET", help="Train the method on this; may be repeated.", show_default=False
        ),
    ] = None,
    cv: Annotated[
        int | None,
        typer.Option(min=2, metavar="K", help="Train and test in K folds.", show_default=False),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="P",
            help="Abstain to be right in this share of answers.",
            show_default=False,
        ),
    ] = None,
    second: Annotated[
        list[Path] | None,
        typer.Option(
            "--second-labels",
            metavar="DATASET",
            help="Other annotators' labels of the same conversations.",
            show_default=False,
        ),
    ] = None,
    exclude: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON list of run ids: show the figures without them too.",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Runs attributed at once.")] = 8,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where replies are kept. Default: in the data directory.", show_default=False
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Ask anew, keep nothing.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the figures as SVG.", show_default=False)
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Measure how often a method is right on labelled failures, and what it costs.

    Scoring is strict: the step must be the very index, a missing answer is wrong. That the
    runs failed is taken as given, and the right answer is seen only with --with-reference.
    The floor, to put beside it: [bold]random[/bold], [bold]first-agent-step[/bold], and
    [bold]constant[/bold], whose step is chosen out of fold. Replies are kept by content: what was
    interrupted goes on where it stopped, and a second run asks nothing.

    Example: [bold]blamespan bench runs.jsonl.gz --compare signals constant --plot signals.svg[/bold]
    """
    if len(method or []) > 1:
        raise WrongUsage("--method is given twice: expected one; --compare A B measures two on the same runs")
    chosen = method[0] if method else None
    base = Contender(method=chosen, model=model, with_reference=with_reference)
    contenders = _contenders(base, compare)
    _check_usage(contenders, train, cv, plot)
    _check_files([*datasets, *(train or []), *(second or [])], plot)
    drawn: list[Mapping[str, Any]] = []
    with ExitStack() as stack:
        asks = any(settings_of(contender).model for contender in contenders) and not no_cache
        kept = stack.enter_context(open_cache(cache or _data_dir() / _CACHE, complain)) if asks else None
        plan = Plan(
            training=tuple(run for path in train or [] for run in _read(path)),
            trained_on=", ".join(path.name for path in train or []),
            folds=cv,
            precision=precision,
            concurrency=concurrency,
            cache=kept,
            second=second_labels(labelled([r for path in second for r in _read(path)])) if second else None,
            excluded=_ids(exclude),
        )
        for path in datasets:
            drawn += _bench_one(path, contenders, plan, output)
    if plot is not None:
        plot.write_text(to_svg(drawn, ", ".join(path.name for path in datasets)), encoding="utf-8")


def _contenders(base: Contender, compare: tuple[str, str] | None) -> list[Contender]:
    if compare is None:
        return [base]
    if base.method is not None:
        raise WrongUsage("--method and --compare exclude each other: --compare names both methods")
    return [read_contender(text, base) for text in compare]


def _check_usage(
    contenders: Sequence[Contender], train: list[Path] | None, cv: int | None, plot: Path | None
) -> None:
    if train and cv is not None:
        raise WrongUsage("--train and --cv exclude each other: expected one of them")
    methods = [settings_of(contender).method for contender in contenders]
    if (train or cv is not None) and not any(name in LEARNERS for name in methods):
        names = ", ".join(LEARNERS)
        raise WrongUsage(f"{' and '.join(methods)}: nothing to train; methods that learn are {names}")
    if plot is not None and plot.suffix != ".svg":
        raise WrongUsage(f"--plot {plot}: expected a file name that ends in .svg")


def _check_files(read: Sequence[Path], plot: Path | None) -> None:
    """Say before the work what would end it afterwards."""
    for path in read:
        if not path.exists():
            raise WrongUsage(f"{path}: no such file or folder")
    if plot is not None and not plot.parent.is_dir():
        raise WrongUsage(f"--plot {plot}: no such folder")


def _bench_one(
    path: Path, contenders: Sequence[Contender], plan: Plan, output: OutputFormat
) -> list[Mapping[str, Any]]:
    runs = _read(path)
    if not labelled(runs):
        raise CommandFailed(
            f"{path}: none of its {len(runs)} runs has a label with an agent and a step of its own: expected"
            ' {"label": {"agent", "step"}} or {"mistake_agent", "mistake_step"} in each'
        )
    results = [measure(path, runs, contender, plan) for contender in contenders]
    if results[0].left_out:
        complain(
            f"{path}: {results[0].left_out} runs left out: their label has no agent, or no step of theirs"
        )
    told = results[0].lines[-1].get("second_labels")
    if told is not None and not told["n"]:
        complain(f"{path}: none of its runs has a second label")
    for result in results:
        _show(result, output)
        for reason in tables.error_summary(result.scores):
            complain(f"{path.name}, {result.lines[0]['method']}: {reason}")
    if len(results) == 2:
        first, second = results
        names = (_name(first), _name(second))
        _show_comparison(compare_scores(first.scores, second.scores, dataset=path.name, names=names), output)
    return [line for result in results for line in result.lines]


def _show(result: Benchmark, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        for line in result.lines:
            print_json(line)
        return
    tables.show_accuracy(result.lines)
    tables.show_nearness_and_confidence(result.lines)
    tables.show_cost(result.lines)
    tables.show_lengths(result.lines)
    tables.show_extras(result.lines[-1])


def _show_comparison(lines: Sequence[Mapping[str, Any]], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        for line in lines:
            print_json(line)
        return
    tables.show_comparison(lines)


def _name(result: Benchmark) -> str:
    line = result.lines[-1]
    model = f"@{line['model']}" if line["model"] else ""
    return f"{line['method']}{'+reference' if line['with_reference'] else ''}{model}"


def _data_dir() -> Path:
    return load_settings(os.environ, directory=Path.cwd()).data_dir


def _read(path: Path) -> tuple[Conversation, ...]:
    runs = read_dataset(path)
    if not runs:
        raise CommandFailed(f"{path}: holds no runs")
    return runs


def _ids(path: Path | None) -> frozenset[str]:
    if path is None:
        return frozenset()
    try:
        ids = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongUsage(f"--exclude {path}: expected a JSON list of run ids: {error}") from error
    if not isinstance(ids, list):
        raise WrongUsage(f"--exclude {path}: expected a JSON list of run ids")
    return frozenset(map(str, ids))
