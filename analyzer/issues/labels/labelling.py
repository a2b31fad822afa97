"""Giving labels and learning from them, shared by the command line and the API.

Not pure: only coordinates the stores of verdicts and labels. Synchronous.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from analyzer.inquiry.conversation import Conversation
from analyzer.inquiry.conversation import Label as Blamed
from analyzer.inquiry.errors import AnalyzerError, UnreadableInput
from analyzer.inquiry.visible import visible_run
from analyzer.issues.labels.kept_run import KeptRun, unpack
from analyzer.issues.labels.label_store import MAX_OPINIONS, LabelledRun, LabelStore, Opinion, OpinionStore
from analyzer.issues.labels.run_label import (
    Label,
    LabelKind,
    LabelRefused,
    Statement,
    as_label,
    place_of,
    to_json,
)
from collector_processor.core.records import EXPERIMENT, StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.rebuild.redaction import Redact, redact
from collector_processor.store.verdicts import RunStore
from semconv.model import Status

logger = logging.getLogger(__name__)

UNNAMED: Final = "unnamed"
"""The system of a run whose service has no name."""
TRUST_IN_PROOF: Final = 0.5
"""Weight of a proof in training: two weigh as much as a person's label. A proof is only as good as the user's
check, and experiments mostly decide on runs whose step is often right when resampled."""
_MOST_FOUND: Final = 20


class NoSuchRun(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """The id matches no run, or several; the message lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLabel:
    """A label that was accepted."""

    label: Label
    obstacle: str | None
    """Reason why a ranker cannot learn from it, in a few words; ``None`` if it can."""
    trace_obstacle: str | None
    """Reason why the run's trace cannot be corrected; ``None`` if it can or need not be."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for programs."""
        learned = {"can_be_learned": self.obstacle is None, "obstacle": self.obstacle}
        trace = {"trace_follows": self.trace_obstacle is None, "trace_obstacle": self.trace_obstacle}
        return {**to_json(self.label), **learned, **trace}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRuns:
    """A tenant's labelled runs that can be trained on, and the number of unusable ones by reason."""

    runs: tuple[Conversation, ...]
    labels: tuple[Label, ...]
    """One for each run, in the same order."""
    left_out: dict[str, int]


def find_run(verdicts: RunStore, prefix: str, tenant: Tenant | None) -> StoredVerdict:
    """Return the current verdict of the only run whose id begins with ``prefix``.

    Raises:
        NoSuchRun: there is none, or there are several.
    """
    is_text = f"{prefix}{tenant}".isprintable()  # false for surrogates, which represent undecodable bytes
    stored_verdicts = verdicts.starting_with(prefix, tenant, _MOST_FOUND) if prefix and is_text else []
    exact = [verdict for verdict in stored_verdicts if verdict.run_id == prefix]
    match exact or stored_verdicts:
        case [verdict]:
            return verdict
        case []:
            raise NoSuchRun(f"no run {prefix!r}: expected the id of a run with a verdict, or its beginning")
        case several if len({verdict.run_id for verdict in several}) == 1:
            tenants = ", ".join(repr(verdict.tenant) for verdict in several)
            raise NoSuchRun(f"several tenants have a run {several[0].run_id}: name one of {tenants}")
        case several:
            ids = ", ".join(dict.fromkeys(verdict.run_id for verdict in several))
            raise NoSuchRun(f"several runs begin with {prefix!r}: {ids}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLabel:
    """A statement that fits a run, before it is stored."""

    label: Label
    packed: bytes | None
    """The kept run against which it was checked."""
    obstacle: str | None


def check_label(
    packed: bytes | None, verdict: StoredVerdict, statement: Statement, now_ns: int, clean: Redact
) -> CheckedLabel:
    """Check a person's statement against the kept run.

    Uses no store: a run of megabytes takes long, and verdicts would wait for it.

    Raises:
        LabelRefused: the statement does not fit the run.
    """
    kept = _read(packed)
    label = as_label(statement, verdict, kept.trajectory if kept else None, now_ns, clean)
    usable = _training_run(LabelledRun(label=label, packed=packed))
    return CheckedLabel(label=label, packed=packed, obstacle=usable if isinstance(usable, str) else None)


def store_label(
    labels: LabelStore, verdict: StoredVerdict, checked: CheckedLabel, verdicts: RunStore | None = None
) -> AcceptedLabel | None:
    """Store a checked label; ``None`` if the run is kept in another form now: check it again.

    The service corrects the trace afterwards (``correcting.py``); with ``verdicts``, it is checked whether it
    can, and whether the run still exists.

    Raises:
        LabelRefused: the run was deleted meanwhile.
        StoreError: the store refuses.
    """
    label = checked.label
    with labels.transaction():
        if verdicts is not None and verdicts.current(verdict.tenant, verdict.run_id) is None:
            raise LabelRefused(f"{verdict.run_id} has been deleted")
        if labels.kept(verdict.tenant, verdict.run_id) != checked.packed:
            return None
        before = labels.labels(verdict.tenant, verdict.run_id)
        if verdict.is_persons_word and before and before[0].says_the_same_as(label):
            label = before[0]
        else:
            labels.add(label)
    return AcceptedLabel(
        label=label,
        obstacle=checked.obstacle,
        trace_obstacle=trace_obstacle(verdicts, verdict) if verdicts is not None else None,
    )


def accept_label(
    labels: LabelStore,
    verdict: StoredVerdict,
    statement: Statement,
    now_ns: int,
    *,
    verdicts: RunStore | None = None,
    clean: Redact = redact,
) -> AcceptedLabel:
    """Check a person's statement against the run, and store it as the run's label.

    ``clean`` removes secrets from the person's reason; ``verdicts`` is as for ``store_label``.

    Raises:
        LabelRefused: the statement does not fit the run, or the run was deleted meanwhile.
        StoreError: the store refuses.
    """
    while True:
        packed = labels.kept(verdict.tenant, verdict.run_id)
        checked = check_label(packed, verdict, statement, now_ns, clean)
        if (accepted := store_label(labels, verdict, checked, verdicts)) is not None:
            return accepted


def trace_obstacle(verdicts: RunStore, verdict: StoredVerdict) -> str | None:
    """Return why a run's trace cannot be corrected, in a few words; ``None`` if it can."""
    if verdict.is_provisional:
        return "the run has not ended"
    if verdicts.place(verdict.tenant, verdict.run_id) is None:
        return "the positions of its spans are no longer stored"
    return None


def proved_runs(
    labels: LabelStore, verdicts: RunStore, opinions: OpinionStore, tenant: Tenant
) -> list[LabelledRun]:
    """Return the newest experiment's result on each run without a person's label, as labels.

    A refutation is a rejection with the step that is not to blame; the right one is not known.
    """
    runs: list[LabelledRun] = []
    for run_id, opinion in newest_proofs(labels, opinions, tenant).items():
        verdict = verdicts.current(tenant, run_id)
        if verdict is None:
            continue
        label = _label_of(opinion, verdict)
        runs.append(
            LabelledRun(
                label=label,
                packed=labels.kept(tenant, run_id),
                trust=TRUST_IN_PROOF,
                is_refuted=label.kind is LabelKind.REJECTED and label.step is not None,
            )
        )
    return runs


def newest_proofs(
    labels: LabelStore, opinions: OpinionStore, tenant: Tenant, most: int = MAX_OPINIONS
) -> dict[str, Opinion]:
    """Return the newest experiment's result on each run without a person's label, of the newest ``most``."""
    newest = {opinion.run_id: opinion for opinion in reversed(opinions.by_method(tenant, EXPERIMENT, most))}
    said = labels.current([(tenant, run_id) for run_id in newest])
    return {run_id: opinion for run_id, opinion in newest.items() if (tenant, run_id) not in said}


def tried_step(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of an experiment's document that names the proved or refuted step; may be empty."""
    given = fields.get("proof")
    if fields.get("status") == Status.ATTRIBUTED:
        return fields
    return given if isinstance(given, dict) else {}


def _label_of(opinion: Opinion, verdict: StoredVerdict) -> Label:
    fields = opinion.fields
    is_proved = fields.get("status") == Status.ATTRIBUTED
    tried = tried_step(fields)
    return Label(
        tenant=opinion.tenant,
        run_id=opinion.run_id,
        kind=LabelKind.CORRECTED if is_proved else LabelKind.REJECTED,
        version=verdict.version,
        service=verdict.service,
        labelled_ns=opinion.given_ns,
        agent=fields.get("agent") if is_proved else None,
        step=tried.get("step"),
        span_id=tried.get("span_id"),
    )


def training_runs(labelled: Iterable[LabelledRun]) -> TrainingRuns:
    """Return the labelled runs that a ranker can learn from, and the number of others by reason."""
    runs: list[Conversation] = []
    learned: list[Label] = []
    left_out: dict[str, int] = {}
    for one in labelled:
        usable = _training_run(one)
        if isinstance(usable, str):
            left_out[usable] = left_out.get(usable, 0) + 1
        else:
            runs.append(usable)
            learned.append(one.label)
    return TrainingRuns(runs=tuple(runs), labels=tuple(learned), left_out=left_out)


def _training_run(one: LabelledRun) -> Conversation | str:
    """Return the labelled run for training, or the reason why it cannot be used."""
    label = one.label
    if not label.names_a_step and not one.is_refuted:
        return f"{label.kind} without a step" if label.agent else label.kind.replace("_", " ")
    kept = _read(one.packed)
    if kept is None:
        return "not kept"
    if not kept.has_texts:
        return "kept without its texts"
    place = place_of(label, kept.trajectory)
    if place is None:
        return "changed since it was labelled"
    return Conversation(
        trajectory=visible_run(kept.trajectory),  # in the form in which the ranker will see runs
        label=Blamed(agent=label.agent, step=place, trust=one.trust, is_refuted=one.is_refuted),
        source=label.service or UNNAMED,
    )


def _read(packed: bytes | None) -> KeptRun | None:
    try:
        return None if packed is None else unpack(packed)
    except UnreadableInput:
        logger.warning("a kept run cannot be read", exc_info=True)
        return None
