"""``blamespan train --promote``: replace the ranker in use by a better one, or take that back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from analyzer.cli.kept_runs import opened_store
from analyzer.cli.labels_to_learn import owner_of
from analyzer.cli.output import CommandFailed, OutputFormat, WrongUsage, print_json
from analyzer.evaluation.promotion import Contest, Ruling, contest
from analyzer.evaluation.training import Example, as_example
from analyzer.inquiry.errors import UnreadableInput
from analyzer.inquiry.present import console
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.labelling import training_runs
from analyzer.issues.labels.queue import is_random
from analyzer.methods.learned.features import VERSION
from analyzer.methods.learned.model_file import read_model
from analyzer.methods.learned.ranker import Ranker
from collector_processor.settings import Settings, load_settings

_PREVIOUS: Final = ".previous"
_LARGEST: Final = 64 << 20


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
    _show(found, champion, challenger, output, is_promoted=is_promoted)


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
    since_ns = max(_seen_until(each) for each in (old, new))
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


_RESTART: Final = "Restart the service to use it."


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _show(
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
