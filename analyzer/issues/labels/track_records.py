"""What each model, and each kind of evidence, has earned with a tenant: how often labels and proofs say so.

A verdict that pools a model's answer keeps both opinions in its document (``pooled``), and so does a second
opinion. Here they are compared with the step that a person named or an experiment proved. Each model counts
once for each run, by its first answer: later ones may have been asked for because the first was known to be
wrong. A rejected or refuted step says only that a model which named it was wrong; of a model which named
another one, nothing is known. So some right answers are not counted, and the accuracy errs on the low side.
Verdicts by signals alone are counted in the same way, by their mode (``worths``).
Nothing is stored: what a run said of a model is forgotten with the run.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from analyzer.inquiry.calibration import Worth
from analyzer.inquiry.verdict import POOLED, STATED
from analyzer.issues.labels.label_store import LabelStore, Opinion, OpinionStore
from analyzer.issues.labels.labelling import TRUST_IN_PROOF, newest_proofs, tried_step
from analyzer.issues.labels.run_label import Label, LabelKind
from collector_processor.core.analysis import UNKNOWN, TrackRecord
from collector_processor.core.disk import StoreError
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import Database, StoreThread
from collector_processor.store.verdicts import RunStore
from semconv.model import Status

logger = logging.getLogger(__name__)

MOST_RUNS: Final = 300
"""Newest labels of a tenant that count, and newest proofs: a provider may change a model under its name."""
FRESH_S: Final = 60.0
"""Seconds for which the records of a tenant are used before they are read again."""
_MOST_TENANTS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of one step of a run."""

    step: int
    span_id: str | None
    is_decisive: bool
    counts: float = 1.0


def track_records(
    labels: LabelStore, verdicts: RunStore, opinions: OpinionStore, tenant: Tenant
) -> dict[str, TrackRecord]:
    """Return the record of each model of which something is known, by its name.

    Raises:
        StoreError: the store refuses.
    """
    known, versions = _known_runs(labels, verdicts, opinions, tenant)
    records: defaultdict[str, TrackRecord] = defaultdict(lambda: UNKNOWN)
    for (run_id, model), pooled in _first_answers(versions, opinions.on(tenant, sorted(known))).items():
        if (step := known[run_id]) is not None:
            records[model] = _with(records[model], pooled, step)
    return {model: record for model, record in records.items() if record != UNKNOWN}


def worths(
    labels: LabelStore, verdicts: RunStore, opinions: OpinionStore, tenant: Tenant
) -> dict[str, Worth]:
    """Return what labels and proofs said of verdicts by signals, by the verdicts' mode.

    Each run counts once, by the first verdict that signals gave alone, with the confidence that they stated.

    Raises:
        StoreError: the store refuses.
    """
    known, versions = _known_runs(labels, verdicts, opinions, tenant)
    found: defaultdict[str, Worth] = defaultdict(Worth)
    counted = set[str]()
    for version in sorted(versions, key=lambda verdict: verdict.decided_ns):
        step, mode = known[version.run_id], version.fields.get("mode")
        is_own = version.fields.get("method") == "signals" and version.status == Status.ATTRIBUTED
        if step is None or not is_own or not isinstance(mode, str) or not mode or version.run_id in counted:
            continue
        counted.add(version.run_id)
        found[mode] = _judged(found[mode], version.fields, step)
    return {mode: worth for mode, worth in found.items() if worth.labelled}


def _judged(worth: Worth, fields: Mapping[str, Any], known: _Known) -> Worth:
    """Return the worth with one more verdict; unchanged if nothing is known of its step."""
    is_step, stated = _is(fields, known), fields.get(STATED, fields.get("confidence"))
    if is_step is None or not (known.is_decisive or is_step) or not isinstance(stated, float):
        return worth
    counts = known.counts
    return Worth(
        labelled=worth.labelled + counts,
        right=worth.right + counts * (is_step and known.is_decisive),
        stated=worth.stated + counts * stated,
    )


def _known_runs(
    labels: LabelStore, verdicts: RunStore, opinions: OpinionStore, tenant: Tenant
) -> tuple[dict[str, _Known | None], Sequence[StoredVerdict]]:
    """Return what labels and proofs say of runs, and all versions of these runs' verdicts."""
    said = {label.run_id: label for label in labels.newest(tenant, MOST_RUNS)}
    proofs = newest_proofs(labels, opinions, tenant, MOST_RUNS)
    versions = verdicts.versions(tenant, sorted({*said, *proofs}))
    labelled = {(version.run_id, version.version): version for version in versions}
    known = {run_id: _proved(opinion.fields) for run_id, opinion in proofs.items()}
    known |= {run_id: _labelled(one, labelled.get((run_id, one.version))) for run_id, one in said.items()}
    return known, versions


def _labelled(label: Label, verdict: StoredVerdict | None) -> _Known | None:
    if label.kind in {LabelKind.CONFIRMED, LabelKind.CORRECTED} and label.step is not None:
        return _Known(step=label.step, span_id=label.span_id, is_decisive=True)
    if label.kind is LabelKind.REJECTED and verdict is not None and verdict.step is not None:
        return _Known(step=verdict.step, span_id=verdict.span_id, is_decisive=False)
    return None


def _proved(fields: Mapping[str, Any]) -> _Known | None:
    tried = tried_step(fields)
    step, span_id = tried.get("step"), tried.get("span_id")
    if not isinstance(step, int):
        return None
    is_decisive = fields.get("status") == Status.ATTRIBUTED
    return _Known(step=step, span_id=span_id, is_decisive=is_decisive, counts=TRUST_IN_PROOF)


def _first_answers(
    verdicts: Iterable[StoredVerdict], opinions: Iterable[Opinion]
) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return what was pooled when a model first answered about a run, by run and model."""
    given = [(verdict.decided_ns, verdict.run_id, verdict.fields) for verdict in verdicts]
    given += [(opinion.given_ns, opinion.run_id, opinion.fields) for opinion in opinions]
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for _, run_id, document in sorted(given, key=lambda one: one[0]):
        model, pooled = document.get("model"), document.get(POOLED)
        if isinstance(model, str) and isinstance(pooled, dict):
            found.setdefault((run_id, model), pooled)
    return found


def _with(record: TrackRecord, pooled: Mapping[str, Any], known: _Known) -> TrackRecord:
    """Return the record with one more run; unchanged if nothing is known of the model's step."""
    model, own = _is(pooled.get("model"), known), _is(pooled.get("without_model"), known)
    if model is None or not (known.is_decisive or model):
        return record
    counts = known.counts
    if not known.is_decisive:  # the model named a step that is not to blame
        return replace(record, labelled=record.labelled + counts)
    return replace(
        record,
        labelled=record.labelled + counts,
        right=record.right + counts * model,
        won=record.won + counts * (model and own is False),
        lost=record.lost + counts * (own is True and not model),
    )


def _is(named: object, known: _Known) -> bool | None:
    """Return whether an answer names the known step; ``None`` if that cannot be told."""
    if not isinstance(named, dict) or not isinstance(named.get("step"), int):
        return None
    span_id = named.get("span_id")
    if span_id is not None and known.span_id is not None and span_id != known.span_id:
        return False
    if named["step"] == known.step:
        return True
    # Late spans may have moved the step, or one span holds several steps.
    return None if span_id is not None and span_id == known.span_id else False


Record = TypeVar("Record")


class TrackRecords(Generic[Record]):
    """Reads the records of tenants, each at most once in ``FRESH_S`` seconds. Not pure."""

    def __init__(
        self, read: Callable[[Tenant], Awaitable[Mapping[str, Record]]], clock: Callable[[], float]
    ) -> None:
        """Create it without records.

        Args:
            read: returns a tenant's records; may raise ``StoreError``.
            clock: returns seconds of a monotonic clock.
        """
        self._read: Final = read
        self._clock: Final = clock
        self._known: Final[OrderedDict[Tenant, tuple[Mapping[str, Record], float]]] = OrderedDict()

    async def __call__(self, tenant: Tenant) -> Mapping[str, Record]:
        """Return the tenant's records by their names; what was last read if the store refuses."""
        found, at_s = self._known.get(tenant, ({}, -FRESH_S))
        if tenant in self._known and self._clock() < at_s + FRESH_S:
            return found
        try:
            found = await self._read(tenant)
        except StoreError as error:
            logger.warning("cannot read what models and evidence have earned", extra={"reason": str(error)})
        self._known[tenant] = (found, self._clock())
        self._known.move_to_end(tenant)
        if len(self._known) > _MOST_TENANTS:
            self._known.popitem(last=False)
        return found


def open_track_records(
    stack: AsyncExitStack, database: Database
) -> tuple[TrackRecords[TrackRecord], TrackRecords[Worth]]:
    """Return readers of what models and evidence have earned, on a connection and a thread of their own.

    They read some megabytes: on the store's thread, commits would wait for them.
    """
    db, thread = database.connect(), StoreThread(name="track-records")
    stack.callback(db.close)
    stack.callback(thread.close)
    stores = LabelStore(db), RunStore(db), OpinionStore(db)
    return (
        TrackRecords(lambda tenant: thread.run(track_records, *stores, tenant), time.monotonic),
        TrackRecords(lambda tenant: thread.run(worths, *stores, tenant), time.monotonic),
    )


__all__ = ["FRESH_S", "MOST_RUNS", "TrackRecords", "open_track_records", "track_records", "worths"]
