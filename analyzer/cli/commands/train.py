"""``blamespan train``: train a ranker on labelled runs, with a card of its accuracy; or promote it."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.cli.kept_runs import DataDirOption, TenantOption, opened_store
from analyzer.cli.output import (
    CommandFailed,
    FormatOption,
    OutputFormat,
    WrongUsage,
    complain,
    optional,
    print_json,
)
from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.terminal import console
from analyzer.issues.labels.label_store import LabelStore, OpinionStore
from analyzer.issues.labels.labelling import UNNAMED, TrainingRuns, proved_runs, training_runs
from analyzer.issues.labels.queue import Name, is_random
from analyzer.issues.labels.run_label import Label
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.folds import history_key
from analyzer.lab.evaluation.training import FEWEST, Contest, Example, Ruling, as_example, contest
from analyzer.lab.evaluation.validation import CURVE, FOLDS, Labelled, certify, named, prepare
from analyzer.methods.ranker import Ranker, read_model, write_model
from analyzer.methods.ranker_features import VERSION
from collector_processor.otlp import Tenant
from collector_processor.settings import Settings, load_settings
from collector_processor.store.verdicts import RunStore

_SHARES = ("step_accuracy", "agent_accuracy", "top3_step_accuracy")
_PREVIOUS: Final = ".previous"
_LARGEST: Final = 64 << 20
_RESTART: Final = "Restart the service to use it."
_FEWEST_OF_A_STORE: Final = CURVE[0]
"""Fewest different runs to train on: the first point of the learning curve."""
_SAY_MORE: Final = ": label more runs with `blamespan label RUN --step N` or `blamespan label RUN right`"


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
        *(f"{fmean(share):.1f} ({min(share):.1f} to {max(share):.1f})" for share in shares),
        *(f"{error:.3f}" for error in errors),
    )


def _cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(line["n"]),
        *(_with_interval(line[key], line[f"{key}_ci"]) for key in _SHARES),
        f"{line['ece']:.3f}",
        f"{line['ece_if_calibrated']:.3f}",
    )


def _with_interval(share: float, interval: Sequence[float]) -> str:
    return f"{100 * share:.1f} [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def promote_ranker(
    challenger: Path | None, *, tenant: str | None, data_dir: Path | None, output: OutputFormat
) -> None:
    """Replace the ranker in use by a better one; with ``None``, put back the one before it.

    Both rankers judge the labelled runs of the random fifth that neither was trained on. The new one
    replaces BLAMESPAN_RANKER's file if it is right significantly more often (5 % over all looks).

    Raises:
        WrongUsage: no ranker is in use.
        CommandFailed: a file is no ranker of this version, or cannot be written.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    champion = settings.ranker
    if champion is None:
        raise WrongUsage("BLAMESPAN_RANKER is not set: expected the file of the ranker in use")
    if challenger is None:
        _roll_back(champion, output)
        return
    old, new = _ranker(champion), _ranker(challenger)
    found = contest(_results(settings, tenant, old, new))
    is_promoted = found.ruling is Ruling.PROMOTE
    if is_promoted:
        _replace(champion, challenger)
    _show_promotion(found, champion, challenger, output, is_promoted=is_promoted)


def _ranker(path: Path) -> Ranker:
    try:
        with path.open("rb") as file:
            ranker = read_model(file.read(_LARGEST).decode())
    except (OSError, UnicodeDecodeError, UnreadableInput) as error:
        raise CommandFailed(f"{path}: {error}") from error
    if ranker.features_version != VERSION:
        raise CommandFailed(f"{path}: made by another version of blamespan: train it again")
    return ranker


def _results(settings: Settings, tenant: str | None, old: Ranker, new: Ranker) -> Iterator[tuple[bool, bool]]:
    """Yield whether each ranker is right, run by run, in the order in which the labels were given."""
    since_ns = max(_seen_until(ranker) for ranker in (old, new))
    with opened_store(settings, "labels") as db:
        labels = LabelStore(db)
        owner = owner_of(labels, tenant)
        for one in labels.labelled(owner):
            if one.label.labelled_ns <= since_ns or not is_random((str(owner), one.label.run_id)):
                continue
            for run in training_runs([one]).runs:
                example = as_example(run)
                if example is not None:
                    yield _is_right(old, example), _is_right(new, example)


def _seen_until(ranker: Ranker) -> int:
    """Return the time of the newest label of random runs that a ranker may have learned; 0 if none.

    Raises:
        CommandFailed: its card does not say.
    """
    source: Mapping[str, Any] = ranker.card.get("source") or {}
    if source.get("kind") != "store" or source.get("without_random") is True:
        return 0
    last = source.get("last_label_ns")
    if not isinstance(last, int):
        raise CommandFailed("a ranker does not say which labels it was trained on: train it again")
    return last


def _is_right(ranker: Ranker, example: Example) -> bool:
    shares = ranker.rank(example.table)
    return shares.index(max(shares)) == example.step


def _replace(champion: Path, challenger: Path) -> None:
    """Replace the champion's file by the challenger's, atomically for readers."""
    previous, coming = _beside(champion, _PREVIOUS), _beside(champion, ".coming")
    try:
        shutil.copyfile(challenger, coming)
        shutil.copyfile(champion, previous)
        coming.replace(champion)
    except OSError as error:
        raise CommandFailed(f"{champion}: cannot be replaced: {error.strerror or error}") from error


def _roll_back(champion: Path, output: OutputFormat) -> None:
    """Swap the champion and the ranker before it, so that a rollback can be taken back too."""
    previous, coming = _beside(champion, _PREVIOUS), _beside(champion, ".coming")
    if not previous.is_file():
        raise CommandFailed(f"{previous}: no such file: no ranker was promoted here")
    _ranker(previous)
    try:
        shutil.copyfile(previous, coming)
        if champion.is_file():
            champion.replace(previous)
        coming.replace(champion)
    except OSError as error:
        raise CommandFailed(f"{champion}: cannot be replaced: {error.strerror or error}") from error
    if output is OutputFormat.JSON:
        print_json({"rolled_back": True, "file": str(champion)})
        return
    console().print(f"{champion}: the ranker before the last promotion is back. {_RESTART}")


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _show_promotion(
    found: Contest, champion: Path, challenger: Path, output: OutputFormat, *, is_promoted: bool
) -> None:
    if output is OutputFormat.JSON:
        print_json(
            {
                "ruling": found.ruling.value,
                "promoted": is_promoted,
                "n": found.n,
                "champion": found.champion,
                "challenger": found.challenger,
                "wins": found.wins,
                "losses": found.losses,
                "file": str(champion),
            }
        )
        return
    lines = {
        Ruling.PROMOTE: f"{challenger} is promoted: it is now {champion}. {_RESTART}"
        " `blamespan train --rollback` takes that back.",
        Ruling.REJECT: f"{challenger} is worse than the ranker in use: not promoted.",
        Ruling.UNDECIDED: "Not decided: the ranker in use stays. Label more: `blamespan label --queue`.",
    }
    counts = (
        f"{found.n} labelled random runs that neither was trained on: the ranker in use is right in"
        f" {found.champion}, the new one in {found.challenger}; only the new one in {found.wins}, only"
        f" the old one in {found.losses}"
    )
    console().print(counts, lines[found.ruling], sep="\n", soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Labelled runs with their origin for the model's card."""

    runs: Sequence[Conversation]
    source: Mapping[str, Any]
    place: str
    """The origin as text for people."""
    fewest: int
    """Fewest different runs required."""
    remedy: str = ""
    """Advice if there are fewer."""


def read_files(paths: Sequence[Path]) -> Source:
    """Read labelled runs from files.

    Raises:
        WrongUsage: there is no such file.
        UnreadableInput: a file does not hold labelled runs.
    """
    runs: list[Conversation] = []
    for path in paths:
        if not path.exists():
            raise WrongUsage(f"{path}: no such file or folder")
        runs += read_dataset(path)
    names = [path.name for path in paths]
    source = {"kind": "files", "files": names, "n": len(runs)}
    return Source(runs=runs, source=source, place=", ".join(names), fewest=FEWEST)


def read_store(
    data_dir: Path | None, tenant: str | None, is_kept: Callable[[Name], bool] | None = None
) -> Source:
    """Read labelled runs from the store in a data directory.

    Args:
        data_dir: the directory; ``None`` for the configured one.
        tenant: whose labels; ``None`` if only one has any.
        is_kept: chooses runs by tenant and id; ``None`` takes all.

    Raises:
        CommandFailed: there is no store.
        WrongUsage: several tenants have labels, and none was given.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    with opened_store(settings, "verdicts") as db:
        labels = LabelStore(db)
        owner = owner_of(labels, tenant)
        proved = proved_runs(labels, RunStore(db), OpinionStore(db), owner)
        every = [*labels.labelled(owner), *proved]
        runs = [one for one in every if is_kept is None or is_kept((str(one.label.tenant), one.label.run_id))]
        found = training_runs(runs)
    for why, count in sorted(found.left_out.items()):
        complain(f"{count} of the labels are of no use for training: {why}")
    return Source(
        runs=found.runs,
        source={**_origin(found, owner), "without_random": is_kept is not None},
        place="the store",
        fewest=_FEWEST_OF_A_STORE,
        remedy=_SAY_MORE,
    )


def require_enough(labelled: Sequence[Labelled], source: Source) -> None:
    """Refuse to train on too few runs.

    Raises:
        CommandFailed: there are too few different runs.
    """
    different = len({history_key(one.run.trajectory) for one in named(labelled)})
    if different < source.fewest:
        raise CommandFailed(
            f"{source.place} has {different} different runs with a label to learn from, expected"
            f" {source.fewest} or more{source.remedy}"
        )


def owner_of(labels: LabelStore, tenant: str | None) -> Tenant:
    """Return the tenant whose labels are meant.

    Raises:
        WrongUsage: several tenants have labels, and none was given.
    """
    tenants = labels.tenants()
    if tenant is not None:
        return Tenant(tenant)
    if len(tenants) > 1:
        shown = ", ".join(map(repr, tenants))
        raise WrongUsage(f"several tenants have labels: expected --tenant with one of {shown}")
    return tenants[0] if tenants else Tenant("")


def _origin(runs: TrainingRuns, tenant: Tenant) -> Mapping[str, Any]:
    days = sorted(_day(label) for label in runs.labels)
    weak = [one.label for one in runs.runs if one.label is not None and one.label.trust < 1]
    refuted = sum(label.is_refuted for label in weak)
    return {
        "kind": "store",
        "tenant": tenant,
        "n": len(runs.runs),
        "labels": dict(Counter(label.kind.value for label in runs.labels)),
        "systems": dict(Counter(label.service or UNNAMED for label in runs.labels)),
        "labelled": [days[0], days[-1]] if days else [],
        "last_label_ns": max((label.labelled_ns for label in runs.labels), default=0),
        "proofs": len(weak) - refuted,
        "refutations": refuted,
        "left_out": runs.left_out,
    }


def _day(label: Label) -> str:
    return datetime.fromtimestamp(label.labelled_ns / 1e9, tz=UTC).date().isoformat()
