"""``blamespan bench``: accuracy and cost of a method on labelled data."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from analyzer.analyses.composition import budget_of, model_names, open_analyst, open_model
from analyzer.analyses.models.budget import HourlyBudget
from analyzer.analyses.models.reply_cache import ReplyCache, cached, open_cache, place_of_models
from analyzer.cli.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    WrongUsage,
    complain,
    optional,
    print_json,
    progress_bar,
)
from analyzer.cli.shared_options import METHOD_HELP, FloorOption, ModelOption, WithReferenceOption
from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.render import content_marker
from analyzer.lab.evaluation import bench_tables as tables
from analyzer.lab.evaluation.bench_tables import to_svg
from analyzer.lab.evaluation.benchmark import (
    LEARNERS,
    Benchmark,
    Contender,
    Job,
    blinded,
    examine,
    labelled,
    multi_reference,
    out_of_fold,
    read_contender,
    second_labels,
    select,
    trained_on,
    withhold,
)
from analyzer.lab.evaluation.benchmark import compare as compare_scores
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.scores import Score, Subject, share, share_interval, tabulate
from analyzer.methods.attribution import Attributor
from collector_processor.settings import Settings, load_settings
from semconv.json_text import read_json

_CACHE: Final = "replies"
"""Folder in the data directory."""


def bench(
    datasets: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATASET",
            help="Labelled runs: JSON lines, one JSON document, or a folder of them; plain, gzip or zstd.",
            show_default=False,
        ),
    ],
    method: Annotated[list[str] | None, optional("NAME", METHOD_HELP, "--method")] = None,
    model: ModelOption = None,
    with_reference: WithReferenceOption = False,
    compare: Annotated[
        tuple[str, str] | None,
        optional(
            "A B", "Two methods on the same runs, with a paired test. Each is METHOD\\[+reference]\\[@MODEL]."
        ),
    ] = None,
    train: Annotated[
        list[Path] | None, optional("DATASET", "Train the method on this; may be repeated.")
    ] = None,
    cv: Annotated[int | None, optional("K", "Train and test in K folds.", min=2)] = None,
    precision: Annotated[
        float | None, optional("P", "Abstain so that this share of the answers is right.", min=0, max=1)
    ] = None,
    floor: FloorOption = None,
    budget_usd: Annotated[
        float | None,
        optional(
            "USD",
            "Maximum cost in all; cached replies cost nothing. Default: BLAMESPAN_BUDGET_USD_PER_HOUR.",
            "--budget-usd",
            min=0,
        ),
    ] = None,
    second: Annotated[
        list[Path] | None,
        optional("DATASET", "Other annotators' labels of the same conversations.", "--second-labels"),
    ] = None,
    exclude: Annotated[
        Path | None, optional("FILE", "JSON list of run ids: also show the results without them.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Runs attributed at once.")] = 8,
    cache: Annotated[
        Path | None, optional("DIR", "Cache of model replies. Default: in the data directory.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Do not use the cache of replies.")] = False,
    plot: Annotated[Path | None, optional("FILE", "Draw the results as SVG.")] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Measure how often a method is right on labelled failures, and what it costs.

    Scoring is strict: the step must be exact, and a missing answer is wrong. The runs are taken
    as failed, and methods see the right answer only with --with-reference.
    Compare with the baselines [bold]random[/bold], [bold]first-agent-step[/bold], and
    [bold]constant[/bold], whose step is chosen out of fold. Model replies are cached by content: an
    interrupted benchmark resumes where it stopped, and a repeated one calls no model.

    Example: [bold]blamespan bench runs.jsonl.gz --compare signals constant --plot signals.svg[/bold]
    """
    if len(method or []) > 1:
        raise WrongUsage("--method is given twice: expected one; --compare A B measures two on the same runs")
    chosen = method[0] if method else None
    base = Contender(method=chosen, model=model, with_reference=with_reference)
    contenders = _contenders(base, compare)
    _check_usage(contenders, train, cv, plot)
    if precision is not None and floor is not None:
        raise WrongUsage("--precision and --floor exclude each other: --precision chooses the floor itself")
    _check_files([*datasets, *(train or []), *(second or [])], plot)
    drawn: list[Mapping[str, Any]] = []
    with ExitStack() as stack:
        asks = any(settings_of(contender).model for contender in contenders) and not no_cache
        reply_cache = (
            stack.enter_context(open_cache(cache or _data_dir() / _CACHE, complain)) if asks else None
        )
        plan = Plan(
            training=tuple(run for path in train or [] for run in _read(path)),
            trained_on=", ".join(path.name for path in train or []),
            folds=cv,
            precision=precision,
            floor=floor or 0.0,
            budget=None if budget_usd is None else _budget(contenders, budget_usd),
            concurrency=concurrency,
            cache=reply_cache,
            second=second_labels(labelled([r for path in second for r in _read(path)])) if second else None,
            excluded=_ids(exclude),
        )
        for path in datasets:
            drawn += _bench_one(path, contenders, plan, output)
    if plot is not None:
        plot.write_text(to_svg(drawn, ", ".join(path.name for path in datasets)), encoding="utf-8")


def _budget(contenders: Sequence[Contender], usd: float) -> HourlyBudget | None:
    """Return one budget for all calls of the benchmark; its clock stands still, so the hour never ends."""
    models = (open_model(settings_of(contender)) for contender in contenders)
    first = next((model for model in models if model is not None), None)
    if first is None:
        return None
    return HourlyBudget(model=first.model, usd=usd, clock=lambda: 0.0, purpose="for this benchmark")


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
    """Check the file arguments before the work starts."""
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
            f"{path}: {results[0].left_out} runs left out: the label names no agent, or no step of the run"
        )
    labels = results[0].lines[-1].get("second_labels")
    if labels is not None and not labels["n"]:
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
    tables.show_answers(result.lines)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The command's options other than the contenders."""

    training: tuple[Conversation, ...]
    trained_on: str
    folds: int | None
    precision: float | None
    floor: float
    """Abstain below this confidence."""
    budget: HourlyBudget | None
    """Pays for all contenders; ``None``: each has the hourly budget of the settings."""
    concurrency: int
    cache: ReplyCache | None
    second: Mapping[str, Label] | None
    """Other annotators' labels by conversation; ``None`` if not requested."""
    excluded: frozenset[str]


def measure(path: Path, runs: Sequence[Conversation], contender: Contender, plan: Plan) -> Benchmark:
    """Measure one contender on the runs of a data set."""
    settings = settings_of(contender)
    analyst = open_analyst(settings, with_reference=contender.with_reference)
    attributor, own = analyst.attributor, budget_of(analyst)
    if plan.budget is not None and own is not None:
        attributor = replace(attributor, model=plan.budget.lend(own.model))
    if plan.cache is not None and attributor.model is not None:
        model = cached(attributor.model, plan.cache, place_of_models(os.environ))
        attributor = replace(attributor, model=model, new_marker=content_marker)
    scored = labelled(runs)
    if not contender.with_reference:
        scored = blinded(scored)
    jobs, learned_from = _jobs(scored, settings.method, attributor, plan)
    asked_before = (plan.cache.found, plan.cache.missed) if plan.cache else (0, 0)
    with progress_bar("attributing", len(jobs)) as advance:
        scores = asyncio.run(examine(jobs, concurrency=plan.concurrency, progress=lambda _score: advance()))
    if plan.cache is not None and plan.cache.found > asked_before[0]:
        found, missed = plan.cache.found - asked_before[0], plan.cache.missed - asked_before[1]
        complain(f"{path.name}: {found} of {found + missed} replies came from the cache")
    subject = Subject(
        dataset=path.name,
        method=settings.method,
        model=next(iter(model_names(settings)), None),
        with_reference=contender.with_reference,
        trained_on=learned_from,
    )
    lines, scores = _lines(scores, subject, plan)
    return Benchmark(lines=lines, scores=scores, left_out=len(runs) - len(scored))


def _jobs(
    runs: Sequence[Conversation], method: str, attributor: Attributor, plan: Plan
) -> tuple[tuple[Job, ...], str | None]:
    learner = LEARNERS.get(method)
    folds = plan.folds or (learner.usual_folds if learner else None)
    if learner and plan.training:
        return trained_on(plan.training, runs, learner, attributor), plan.trained_on
    if learner and folds:
        return out_of_fold(runs, learner, attributor, folds), f"the other folds of {folds}"
    return tuple(Job(run=run, attribute=attributor) for run in runs), None


def _lines(
    scores: tuple[Score, ...], subject: Subject, plan: Plan
) -> tuple[tuple[dict[str, Any], ...], tuple[Score, ...]]:
    """Return the result lines, with the requested extras on the total, and their scores."""
    extras: dict[str, Any] = {}
    scores = withhold(scores, plan.floor)
    if plan.precision is not None:
        chosen = select(scores, plan.precision)
        scores = chosen.scores
        answered = [s.step_right for s in scores if s.step is not None]
        extras["selective"] = {
            "precision_wanted": plan.precision,
            "answered": len(answered),
            "precision": share(answered),
            "precision_ci": share_interval(answered),
            "thresholds": list(chosen.thresholds),
        }
    if plan.second is not None:
        extras["second_labels"] = multi_reference(scores, plan.second)
    if plan.excluded:
        rest = [s for s in scores if s.run_id not in plan.excluded]
        extras["without_excluded"] = tabulate(rest, subject)[-1]
    lines = tabulate(scores, subject)
    return (*lines[:-1], {**lines[-1], **extras}), scores


def settings_of(contender: Contender) -> Settings:
    """Return the settings with the contender's values in place."""
    return load_settings(
        os.environ,
        directory=Path.cwd(),
        method=contender.method,
        model=contender.model,
        precision=0.0,  # the setting is for the service: with it, accuracy would depend on the environment
    )
