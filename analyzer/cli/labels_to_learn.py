"""Labelled runs to train a ranker on, from files or from the labels in a service's store."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from analyzer.cli.kept_runs import opened_store
from analyzer.cli.output import CommandFailed, WrongUsage, complain
from analyzer.inquiry.conversation import Conversation
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.labelling import UNNAMED, TrainingRuns, proved_runs, training_runs
from analyzer.issues.labels.opinion_store import OpinionStore
from analyzer.issues.labels.queue import Name
from analyzer.issues.labels.run_label import Label
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.folds import history_key
from analyzer.lab.evaluation.training import FEWEST
from analyzer.lab.evaluation.validation import CURVE, Labelled, named
from collector_processor.otlp import Tenant
from collector_processor.settings import load_settings
from collector_processor.store.verdicts import RunStore

_FEWEST_OF_A_STORE: Final = CURVE[0]
"""Fewest different runs to train on: the first point of the learning curve."""
_SAY_MORE: Final = ": label more runs with `blamespan label RUN --step N` or `blamespan label RUN right`"


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
        wanted = [
            one for one in every if is_kept is None or is_kept((str(one.label.tenant), one.label.run_id))
        ]
        found = training_runs(wanted)
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


def _origin(found: TrainingRuns, tenant: Tenant) -> Mapping[str, Any]:
    days = sorted(_day(label) for label in found.labels)
    weak = [one.label for one in found.runs if one.label is not None and one.label.trust < 1]
    refuted = sum(label.is_refuted for label in weak)
    return {
        "kind": "store",
        "tenant": tenant,
        "n": len(found.runs),
        "labels": dict(Counter(label.kind.value for label in found.labels)),
        "systems": dict(Counter(label.service or UNNAMED for label in found.labels)),
        "labelled": [days[0], days[-1]] if days else [],
        "last_label_ns": max((label.labelled_ns for label in found.labels), default=0),
        "proofs": len(weak) - refuted,
        "refutations": refuted,
        "left_out": found.left_out,
    }


def _day(label: Label) -> str:
    return datetime.fromtimestamp(label.labelled_ns / 1e9, tz=UTC).date().isoformat()
