"""``blamespan train``: train a ranker on labelled runs, with a card of its accuracy; or promote one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.cli.kept_runs import DataDirOption, TenantOption
from analyzer.cli.labels_to_learn import read_files, read_store, require_enough
from analyzer.cli.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    WrongUsage,
    complain,
    optional,
    print_json,
)
from analyzer.cli.promotion import promote_ranker
from analyzer.evaluation.validation import CURVE, FOLDS, certify, prepare
from analyzer.inquiry.present import console
from analyzer.issues.labels.queue import is_random
from analyzer.methods.learned.model_file import write_model


def train(
    datasets: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DATASET",
            help="Labelled runs of your own system: JSON lines, one JSON document, or a folder of them."
            " Without one: the runs that were labelled or confirmed in the service's store.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, optional("FILE", "File of the trained model.")] = None,
    promote: Annotated[
        Path | None,
        optional(
            "FILE",
            "In place of training: put this ranker into BLAMESPAN_RANKER's file, if it is right significantly"
            " more often on labelled random runs that neither was trained on. Repeat it when there are more.",
        ),
    ] = None,
    rollback: Annotated[
        bool,
        typer.Option("--rollback", help="In place of training: put back the ranker before the promotion."),
    ] = False,
    tenant: TenantOption = None,
    data_dir: DataDirOption = None,
    leave_out_random: Annotated[
        bool,
        typer.Option(
            "--leave-out-random",
            help="Do not learn from the store's random runs, so that `--promote` can test on them.",
        ),
    ] = False,
    date: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="Date for the card.", show_default="today")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = FOLDS,
    seed: Annotated[int, typer.Option(help="The same runs and seed give the same model.")] = 0,
    curve: Annotated[
        bool,
        typer.Option("--curve/--no-curve", help="Also measure accuracy with 10, 20, 30, 40 and 50 labels."),
    ] = True,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Train a ranker on labelled failures and measure its accuracy, or promote one that was trained.

    Accuracy comes from nested cross-validation: no run is judged by a model that saw its label.
    A ranker is meant for the systems it was trained on: "other systems" in the card shows its
    accuracy elsewhere, where its confidence is not reliable. Training needs the extra
    [bold]ranker[/bold] (scikit-learn); using a model does not.

    Example: [bold]blamespan train --out ranker.json[/bold], then
    [bold]BLAMESPAN_RANKER=ranker.json blamespan attribute run.json --method ranker[/bold];
    later [bold]blamespan train --out new.json --leave-out-random[/bold], then
    [bold]blamespan train --promote new.json[/bold]
    """
    if [out is not None, promote is not None, rollback].count(True) != 1:
        raise WrongUsage("expected one of --out FILE, --promote FILE, --rollback")
    if out is None:
        if datasets or leave_out_random:
            raise WrongUsage("--promote and --rollback train nothing: they exclude the options of training")
        promote_ranker(promote, tenant=tenant, data_dir=data_dir, output=output)
        return
    _require_file_name(out)
    if datasets and (tenant is not None or data_dir is not None):
        raise WrongUsage("--tenant and --data-dir select the store: they exclude a DATASET")
    if datasets and leave_out_random:
        raise WrongUsage("--leave-out-random concerns the store: it excludes a DATASET")
    kept = (lambda run: not is_random(run)) if leave_out_random else None
    labels = read_files(datasets) if datasets else read_store(data_dir, tenant, kept)
    labelled = prepare(labels.runs)
    if len(labelled) < len(labels.runs):
        complain(
            f"{len(labels.runs) - len(labelled)} runs left out: the label names no agent and step of the run,"
            " or the conversation is in the data already"
        )
    require_enough(labelled, labels)
    ranker = certify(
        labelled,
        date=date or datetime.now(tz=UTC).date().isoformat(),
        folds=folds,
        seed=seed,
        curve=CURVE if curve else (),
        progress=complain,
    )
    ranker = replace(ranker, card={**ranker.card, "source": labels.source})
    try:
        out.write_text(write_model(ranker), encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{out}: {error.strerror or error}") from error
    if output is OutputFormat.JSON:
        print_json({"model": str(out), **ranker.card})
    else:
        _show(out, ranker.card)


def _require_file_name(out: Path) -> None:
    if not out.parent.is_dir():
        raise WrongUsage(f"{out.parent}: no such folder")
    if out.is_dir():
        raise WrongUsage(f"{out}: is a folder, expected the name of a file")


def _show(out: Path, card: Mapping[str, Any]) -> None:
    learned = ", ".join(f"{n} of {system or 'one system'}" for system, n in card["trained_on"].items())
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.title = f"{out}: trained on {card['labels']} labelled runs ({learned}), {card['date']}"
    for name in ("tested on", "n", "step %", "agent %", "top-3 %", "ECE", "if calibrated"):
        table.add_column(name, justify="left" if name == "tested on" else "right", overflow="fold")
    for line in card["in_distribution"]:
        table.add_row(f"own runs, {card['folds']}-fold: {line['subset']}", *_cells(line))
    splits = card["splits"]
    table.add_row(f"own runs: mean of {len(splits)} splits (least to most)", *_spread_cells(splits))
    for line in card["out_of_distribution"]:
        table.add_row(f"other systems: {line['subset']}", *_cells(line))
    for line in card["learning_curve"]:
        table.add_row(f"own runs, {line['labels']} labels", *_cells(line))
    console().print(table)
    console().print(
        "nested cross-validation; brackets: 95 % Wilson interval; other systems: trained on all but this one",
        style="dim",
    )
    console().print(f"calibrated by {card['calibrated_by']}", style="dim")
    if not card["out_of_distribution"]:
        console().print(
            "other systems: not measured, because all labels are of one system; expect low accuracy there",
            style="dim",
        )


def _spread_cells(splits: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the mean and range over other splits of the same runs."""
    shares = [[100 * split[key] for split in splits] for key in _SHARES]
    errors = [fmean(split[key] for split in splits) for key in ("ece", "ece_if_calibrated")]
    return (
        str(splits[0]["n"]),
        *(f"{fmean(found):.1f} ({min(found):.1f} to {max(found):.1f})" for found in shares),
        *(f"{error:.3f}" for error in errors),
    )


def _cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(line["n"]),
        *(_with_interval(line[key], line[f"{key}_ci"]) for key in _SHARES),
        f"{line['ece']:.3f}",
        f"{line['ece_if_calibrated']:.3f}",
    )


_SHARES = ("step_accuracy", "agent_accuracy", "top3_step_accuracy")


def _with_interval(share: float, interval: Sequence[float]) -> str:
    return f"{100 * share:.1f} [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
