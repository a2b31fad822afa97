"""Turns labels into verdicts: a person's label supersedes the run's verdict, in the store and in the trace.

The process that receives a label stores it first. The service then reads labels in order. For each it
commits the new verdict, the spans to send and the label's number in one transaction, so a crash loses no
correction and writes none twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from analyzer.labels.label import Label, LabelKind, place_of
from analyzer.labels.store import LabelStore
from analyzer.verdict import to_json
from collector_processor.annotate import CarrierPolicy
from collector_processor.examine import Examiner
from collector_processor.places import unpack_place
from collector_processor.rebuild import Run
from collector_processor.runstore import RunStore
from collector_processor.stored import CONFIRMED, PERSON, Commit, StoredVerdict
from collector_processor.stores import StoreError
from collector_processor.writeback import Decision, Gist, gist_of, write_back
from semconv.model import Abstention, Attribution, Blame, Status, Verdict

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0
"""Seconds between scans for labels; labels may be written by another process."""

Corrected = tuple[Gist, StoredVerdict]


def follow_labels(store: RunStore, labels: LabelStore, policy: CarrierPolicy, now_ns: int) -> list[Corrected]:
    """Commit the corrections of the labels given since the last call, one by one; return the new verdicts.

    Raises:
        StoreError: the disk cannot be written; corrections committed before stay.
    """
    corrected: list[Corrected] = []
    given = labels.since(store.heeded())
    newest = {(label.tenant, label.run_id): number for number, label in given}
    for number, label in given:
        if newest[label.tenant, label.run_id] != number:
            continue
        decision = _decision(store, label, policy, now_ns)
        if decision is None:
            if confirmed := _confirmed(store, label):
                store.commit(Commit(analysed=(), verdicts=confirmed, heeded=number))
            continue
        back = write_back(decision, policy)
        assert decision.previous is not None
        # The run is counted under the service that it had.
        verdict = replace(back.verdict, service=decision.previous.service)
        store.commit(Commit(analysed=(), verdicts=(verdict,), outgoing=back.outgoing, heeded=number))
        if verdict.version > decision.previous.version:
            corrected.append((gist_of(decision), verdict))
    if given and store.heeded() < given[-1][0]:  # the last ones changed nothing
        store.commit(Commit(analysed=(), heeded=given[-1][0]))
    return corrected


@dataclass(slots=True, kw_only=True)
class Corrections:
    """Corrects verdicts by new labels, as long as the service runs. A shell."""

    examiner: Examiner
    store: RunStore
    labels: LabelStore
    policy: CarrierPolicy
    now_ns: Callable[[], int]
    look_every_s: float = LOOK_EVERY_S
    _waits: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Follow labels until cancelled."""
        while True:
            await self.follow()
            await asyncio.sleep(self.look_every_s)

    async def follow(self) -> None:
        """Apply the labels given since the last call; if the disk refuses, the next call retries."""
        try:
            corrected = await self.examiner.in_turn(
                follow_labels, self.store, self.labels, self.policy, self.now_ns()
            )
        except StoreError as error:
            if not self._waits:
                logger.warning("corrections by people wait for the store", extra={"reason": str(error)})
            self._waits = True
            self.examiner.committed(())  # what came before the refusal may go
            return
        self._waits = False
        if corrected:
            self.examiner.committed(corrected)


def _confirmed(store: RunStore, label: Label) -> tuple[StoredVerdict, ...]:
    """Return the verdict marked as confirmed by a person, if the label confirms it; writes no span."""
    verdict = store.current(label.tenant, label.run_id)
    is_same = verdict is not None and (verdict.agent, verdict.span_id) == (label.agent, label.span_id)
    if label.kind is not LabelKind.CONFIRMED or verdict is None or verdict.is_provisional or not is_same:
        return ()
    return (replace(verdict, document=json.dumps({**verdict.told, CONFIRMED: True})),)


def _decision(store: RunStore, label: Label, policy: CarrierPolicy, now_ns: int) -> Decision | None:
    """Return a label's decision on its run; ``None`` if the trace cannot or need not be corrected."""
    previous = store.current(label.tenant, label.run_id)
    packed = store.place(label.tenant, label.run_id)
    if previous is None or previous.is_provisional or packed is None:
        return None
    if label.kind is LabelKind.CONFIRMED and policy.marks(previous.confidence):
        return None
    try:
        run = unpack_place(packed)
    except ValueError as error:
        logger.warning("trace cannot be corrected", extra={"run_id": label.run_id, "reason": str(error)})
        return None
    step = place_of(label, run.trajectory)
    attribution = Attribution(run_id=label.run_id, verdict=_verdict(label, step, previous), method=PERSON)
    return Decision(
        run=run,
        attribution=attribution,
        document=_document(attribution, run, names_step=step is not None),
        previous=previous,
        tenant=label.tenant,
        now_ns=now_ns,
        names_step=step is not None,
    )


def _verdict(label: Label, step: int | None, previous: StoredVerdict) -> Verdict:
    before = _in_words(previous)
    if label.kind is LabelKind.NOT_A_FAILURE:
        reason = f"A person says that the run did not fail ({before})."
        return Abstention(status=Status.NO_FAILURE, reason=reason)
    if label.kind is LabelKind.REJECTED or label.agent is None:
        reason = f"A person rejected the verdict ({before}); the right one is not known."
        return Abstention(status=Status.UNDETERMINED, reason=reason)
    told = previous.told if (previous.agent, previous.span_id) == (label.agent, label.span_id) else {}
    reason = f"A person says so ({before})."
    return Blame(
        agent=label.agent,
        step=step or 0,
        reason=" ".join(filter(None, (reason, _text(told.get("reason"))))),
        confidence=1.0,
        mode=_text(told.get("mode")),
        fix=_text(told.get("fix")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _in_words(previous: StoredVerdict) -> str:
    said = previous.status.replace("_", " ")
    if previous.agent is not None:
        said = previous.agent if previous.step is None else f"{previous.agent}, step {previous.step}"
    return f"version {previous.version} said: {said}"


def _document(attribution: Attribution, run: Run, *, names_step: bool) -> str:
    document = to_json(attribution, run.trajectory)
    if not names_step:
        document |= {"step": None, "span_id": None}
    return json.dumps(document)
