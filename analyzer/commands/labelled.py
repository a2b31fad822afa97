"""Where ``train`` gets labelled runs from: files, or the store that a service keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from analyzer.commands.labelling import opened
from analyzer.commands.output import CommandFailed, WrongUsage, complain
from analyzer.conversation import Conversation
from analyzer.labels import Label
from analyzer.labels.labelling import UNNAMED, Lessons, lessons
from analyzer.labels.store import LabelStore
from analyzer.learning.folds import history_key
from analyzer.learning.training import FEWEST
from analyzer.measuring.dataset import read_dataset
from analyzer.measuring.validation import CURVE, Labelled
from collector_processor.otlp import Tenant

_FEWEST_OF_A_STORE: Final = CURVE[0]
"""Different runs: the fewest that the learning curve has a figure for."""
_SAY_MORE: Final = ": say more of them with `blamespan label RUN --step N` or `blamespan confirm RUN`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Labelled runs, and what the model's card says of where they are from."""

    runs: Sequence[Conversation]
    source: Mapping[str, Any]
    place: str
    """Where they are from, for people."""
    fewest: int
    """Different runs that it takes."""
    remedy: str = ""
    """What to do where there are fewer."""


def read_files(paths: Sequence[Path]) -> Source:
    """Read labelled runs from files.

    Raises:
        WrongUsage: there is no such file.
        UnreadableInput: one holds something else.
    """
    runs: list[Conversation] = []
    for path in paths:
        if not path.exists():
            raise WrongUsage(f"{path}: no such file or folder")
        runs += read_dataset(path)
    names = [path.name for path in paths]
    source = {"kind": "files", "files": names, "n": len(runs)}
    return Source(runs=runs, source=source, place=", ".join(names), fewest=FEWEST)


def read_store(data_dir: Path | None, tenant: str | None) -> Source:
    """Read what people said of the verdicts in a data directory.

    Raises:
        CommandFailed: there is no store.
        WrongUsage: several tenants have labels, and none was named.
    """
    with opened(data_dir) as (_, labels):
        owner = _owner(labels, tenant)
        found = lessons(labels.labelled(owner))
    for why, count in sorted(found.left_out.items()):
        complain(f"{count} of the labels teach nothing: {why}")
    return Source(
        runs=found.runs,
        source=_origin(found, owner),
        place="the store",
        fewest=_FEWEST_OF_A_STORE,
        remedy=_SAY_MORE,
    )


def require_enough(labelled: Sequence[Labelled], source: Source) -> None:
    """Refuse to train on next to nothing.

    Raises:
        CommandFailed: there are too few different runs.
    """
    different = len({history_key(one.run.trajectory) for one in labelled})
    if different < source.fewest:
        raise CommandFailed(
            f"{source.place} has {different} different runs with a label to learn from, expected"
            f" {source.fewest} or more{source.remedy}"
        )


def _owner(labels: LabelStore, tenant: str | None) -> Tenant:
    tenants = labels.tenants()
    if tenant is not None:
        return Tenant(tenant)
    if len(tenants) > 1:
        shown = ", ".join(map(repr, tenants))
        raise WrongUsage(f"several tenants have labels: expected --tenant with one of {shown}")
    return tenants[0] if tenants else Tenant("")


def _origin(found: Lessons, tenant: Tenant) -> Mapping[str, Any]:
    days = sorted(_day(label) for label in found.labels)
    return {
        "kind": "store",
        "tenant": tenant,
        "n": len(found.runs),
        "labels": dict(Counter(label.kind.value for label in found.labels)),
        "systems": dict(Counter(label.service or UNNAMED for label in found.labels)),
        "labelled": [days[0], days[-1]] if days else [],
        "left_out": found.left_out,
    }


def _day(label: Label) -> str:
    return datetime.fromtimestamp(label.labelled_ns / 1e9, tz=UTC).date().isoformat()
