"""Turns labels and second opinions into verdicts, which supersede the run's, in the store and in the trace.

A label given to the service is stored in one transaction with the new verdict, the spans to send and the
moved issue counts. A label stored by another process is applied in the same way: the service watches the
number of the last label, one row of the store.

For a second opinion, a person chooses a method and a model for a kept run. The answer is committed like any
verdict if it differs: version, carriers that supersede the old ones, and counts in one transaction. A
person's verdict is kept, and an analysis without an answer of its own (``error``, or a fallback for the
chosen model) replaces no verdict.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

from analyzer.inquiry.verdict import to_json
from analyzer.issues.beside_verdicts import AnalysedRun, BesideVerdicts, packed_run
from analyzer.issues.issue_store import as_noted
from analyzer.issues.labels.label_store import LabelStore, Opinion, OpinionStore, of_request
from analyzer.issues.labels.labelling import AcceptedLabel, CheckedLabel, check_label, store_label
from analyzer.issues.labels.run_label import Label, LabelKind, Statement, place_of
from collector_processor.core.analysis import Analysis, CommitPort, KeepRun
from collector_processor.core.disk import StoreError
from collector_processor.core.records import (
    CONFIRMED,
    PERSON,
    SECOND_OPINION,
    Commit,
    Place,
    StoredVerdict,
    VerdictSummary,
)
from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.rebuild.redaction import Redact
from collector_processor.store.verdicts import RunStore
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.carriers import unpack_place
from collector_processor.writeback.outgoing import Decision, summary_of, write_back
from semconv.model import Abstention, Attribution, Blame, Evidence, ProofDecision, Status, Trajectory, Verdict

logger = logging.getLogger(__name__)

WATCH_EVERY_S: Final = 1.0
"""Seconds between checks of the last label's number; other processes may store labels."""

Corrected = tuple[VerdictSummary, StoredVerdict]


def follow_labels(store: RunStore, labels: LabelStore, policy: CarrierPolicy, now_ns: int) -> list[Corrected]:
    """Commit the corrections of the labels given since the last call; return the new verdicts.

    Raises:
        StoreError: the store refuses.
    """
    corrected: list[Corrected] = []
    given = labels.since(store.heeded())
    newest = {(label.tenant, label.run_id): number for number, label in given}
    for number, label in given:
        if newest[label.tenant, label.run_id] != number:
            continue
        decision = _decision(store, label, now_ns)
        if decision is None:
            if confirmed := _confirmed(store, label):
                store.commit(Commit(analysed=(), verdicts=confirmed, heeded=number))
            continue
        back = write_back(decision, policy)
        assert decision.previous is not None
        # The run is counted under its previous service.
        verdict = replace(back.verdict, service=decision.previous.service)
        store.commit(Commit(analysed=(), verdicts=(verdict,), outgoing=back.outgoing, heeded=number))
        if verdict.version > decision.previous.version:
            corrected.append((summary_of(decision), verdict))
    if given and store.heeded() < given[-1][0]:  # the last labels changed nothing
        store.commit(Commit(analysed=(), heeded=given[-1][0]))
    return corrected


@dataclass(slots=True, kw_only=True)
class Corrections:
    """Corrects verdicts and moves counts by labels, as long as the service runs. Not pure."""

    commits: CommitPort
    store: RunStore
    labels: LabelStore
    """Uses the connection of ``store``."""
    policy: CarrierPolicy
    now_ns: Callable[[], int]
    count: Callable[[], object]
    """Moves the counts of labelled runs; runs on the store's thread, in the transaction."""
    counted: Callable[[], None]
    """Called on the event loop afterwards."""
    clean: Redact
    """Removes secrets from a person's reason."""
    _seen: int = field(default=-1, init=False)
    _waits: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Follow the labels of other processes until cancelled."""
        while True:
            await self.follow()
            await asyncio.sleep(WATCH_EVERY_S)

    async def follow(self) -> None:
        """Apply the labels given since the last call; if the store refuses, the next call retries."""
        try:
            if await self.commits.in_db(self.labels.last) != self._seen:
                self._committed(*await self.commits.in_turn(self._follow))
        except StoreError as error:
            if not self._waits:
                logger.warning("corrections by people wait for the store", extra={"reason": str(error)})
            self._waits = True

    async def hear(self, verdict: StoredVerdict, statement: Statement, said_ns: int) -> AcceptedLabel | None:
        """Accept a label that was said elsewhere, as of then; ``None`` if the run has one as new.

        So a statement that is heard again makes no second label, and a later label stands.

        Raises:
            LabelRefused: it does not fit the run, or the run was deleted meanwhile.
            StoreError: the store refuses.
        """
        while True:
            if await self.commits.in_db(self._has_later, verdict, said_ns):
                return None
            checked = await self._checked(verdict, statement, said_ns)

            def take(checked: CheckedLabel = checked) -> tuple[AcceptedLabel, list[Corrected], int] | None:
                with self.store.transaction():
                    later = self._has_later(verdict, said_ns)
                    label = None if later else store_label(self.labels, verdict, checked, self.store)
                    return None if label is None else (label, *self._follow())

            if (taken := await self.commits.in_turn(take)) is not None:
                accepted_label, corrected, seen = taken
                self._committed(corrected, seen)
                return accepted_label

    def _has_later(self, verdict: StoredVerdict, said_ns: int) -> bool:
        labels = self.labels.labels(verdict.tenant, verdict.run_id)
        return any(label.labelled_ns >= said_ns for label in labels)

    async def _checked(self, verdict: StoredVerdict, statement: Statement, said_ns: int) -> CheckedLabel:
        """Check a label in another thread than the store's: verdicts would wait for a run of megabytes."""
        packed = await self.commits.in_db(self.labels.kept, verdict.tenant, verdict.run_id)
        return await asyncio.to_thread(check_label, packed, verdict, statement, said_ns, self.clean)

    def _follow(self) -> tuple[list[Corrected], int]:
        with self.store.transaction():
            corrected = follow_labels(self.store, self.labels, self.policy, self.now_ns())
            self.count()
            return corrected, self.labels.last()

    def _committed(self, corrected: list[Corrected], seen: int) -> None:
        self._seen, self._waits = seen, False
        self.counted()
        if corrected:
            self.commits.committed(corrected)


def _confirmed(store: RunStore, label: Label) -> tuple[StoredVerdict, ...]:
    """Return the verdict marked as confirmed by a person, if the label confirms it; writes no span."""
    verdict = store.current(label.tenant, label.run_id)
    is_same = verdict is not None and (verdict.agent, verdict.span_id) == (label.agent, label.span_id)
    if label.kind is not LabelKind.CONFIRMED or verdict is None or verdict.is_provisional or not is_same:
        return ()
    return (replace(verdict, document=json.dumps({**verdict.fields, CONFIRMED: True})),)


def _decision(store: RunStore, label: Label, now_ns: int) -> Decision | None:
    """Return a label's decision on its run; ``None`` if the trace cannot or need not be corrected."""
    previous = store.current(label.tenant, label.run_id)
    packed = store.place(label.tenant, label.run_id)
    if previous is None or previous.is_provisional or packed is None:
        return None
    is_suspicion = previous.status == Status.SUSPECTED  # a confirmed suspicion becomes a failure
    if label.kind is LabelKind.CONFIRMED and not is_suspicion:
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
        document=_document(attribution, run, previous, names_step=step is not None),
        previous=previous,
        tenant=label.tenant,
        now_ns=now_ns,
        names_step=step is not None,
    )


def _verdict(label: Label, step: int | None, previous: StoredVerdict) -> Verdict:
    before = _in_words(previous)
    why = f": {label.why.rstrip('.')}." if label.why else "."
    if label.kind is LabelKind.NOT_A_FAILURE:
        reason = f"A person says that the run did not fail ({before}){why}"
        return Abstention(status=Status.NO_FAILURE, reason=reason)
    if label.kind is LabelKind.REJECTED or label.agent is None:
        reason = f"A person rejected the verdict ({before}); the right one is not known{why}"
        return Abstention(status=Status.UNDETERMINED, reason=reason)
    fields = previous.fields if (previous.agent, previous.span_id) == (label.agent, label.span_id) else {}
    reason = f"A person says so ({before}){why}"
    return Blame(
        agent=label.agent,
        step=step or 0,
        reason=" ".join(filter(None, (reason, _text(fields.get("reason"))))),
        confidence=1.0,
        mode=_text(fields.get("mode")),
        fix=_text(fields.get("fix")),
        evidence=_evidence(previous, step),
    )


def _evidence(previous: StoredVerdict, step: int | None) -> tuple[Evidence, ...]:
    """Return the quotes of the corrected verdict, those of the named step first; leave out damaged ones."""
    quotes = [
        Evidence(step=one["step"], quote=one["quote"])
        for one in previous.fields.get("evidence") or ()
        if isinstance(one, dict) and isinstance(one.get("step"), int) and isinstance(one.get("quote"), str)
    ]
    return tuple(sorted(quotes, key=lambda evidence: evidence.step != step))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _in_words(previous: StoredVerdict) -> str:
    said = previous.status.replace("_", " ")
    if previous.agent is not None:
        said = previous.agent if previous.step is None else f"{previous.agent}, step {previous.step}"
    return f"version {previous.version} said: {said}"


def _document(attribution: Attribution, run: Run, previous: StoredVerdict, *, names_step: bool) -> str:
    """Return the verdict's document; the values' origins stay, which the stored places cannot give again."""
    document = to_json(attribution, run.trajectory) | {"lineage": previous.fields.get("lineage") or []}
    if not names_step:
        document |= {"step": None, "span_id": None}
    return json.dumps(document)


class Outcome(StrEnum):
    """Effect of a second opinion on the verdict."""

    NEW_VERSION = "new_version"
    AGREES = "agrees"
    PERSON_DECIDED = "person_decided"
    """A person's verdict stands."""
    PROOF_STANDS = "proof_stands"
    """An experiment proved another answer, or refuted this one."""
    NO_ANSWER = "no_answer"
    """The method had no answer of its own: an error, or a fallback."""
    NOT_CORRECTABLE = "not_correctable"
    """The run has not ended, was deleted, or its span positions are no longer stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The requested opinion: the choice and the run."""

    tenant: Tenant
    run_id: str
    method: str
    model: str
    digest: str
    """Digest of the kept run."""


class KeptOpinions(Protocol):
    """Stores second opinions and corrects verdicts by them, here or through another process."""

    async def of(self, tenant: Tenant, run_id: str) -> Sequence[Opinion]:
        """Return the opinions on a run, newest first."""
        ...

    async def known(self, asked: Wanted) -> Opinion | None:
        """Return the stored opinion on exactly this request; ``None`` if there is none."""
        ...

    async def take(self, asked: Wanted, trajectory: Trajectory, attribution: Attribution) -> Outcome:
        """Store an opinion, and commit it as a new version of the verdict if it differs.

        Raises:
            StoreError: the store refuses.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOpinions:
    """Stores second opinions and corrects verdicts by them. Not pure."""

    commits: CommitPort
    store: RunStore
    opinions: OpinionStore
    """Uses the connection of ``store``."""
    beside: BesideVerdicts
    kept: KeepRun
    policy: CarrierPolicy
    now_ns: Callable[[], int]

    async def of(self, tenant: Tenant, run_id: str) -> Sequence[Opinion]:
        """Return the opinions on a run, newest first."""
        return await self.commits.in_db(self.opinions.of, tenant, run_id)

    async def known(self, asked: Wanted) -> Opinion | None:
        """Return the stored opinion on exactly this request; ``None`` if there is none."""
        return of_request(await self.of(asked.tenant, asked.run_id), asked.method, asked.model, asked.digest)

    async def take(self, asked: Wanted, trajectory: Trajectory, attribution: Attribution) -> Outcome:
        """Store an opinion, and commit it as a new version of the verdict if it differs.

        Raises: StoreError: the store refuses; nothing is stored.
        """
        while True:
            packed = await self.commits.in_db(self.store.place, asked.tenant, asked.run_id)
            # Before the store is locked: a run of megabytes takes long, and verdicts would wait for it.
            prepared = await asyncio.to_thread(self._prepared, asked, trajectory, attribution, packed)
            taken = await self.commits.in_turn(self._take, asked, attribution, prepared)
            if taken is not None:
                outcome, committed = taken
                if committed:
                    self.commits.committed(committed)
                return outcome

    def _prepared(
        self, asked: Wanted, trajectory: Trajectory, attribution: Attribution, packed: bytes | None
    ) -> _Prepared:
        """Return all that can be known before the transaction."""
        is_answer = attribution.status is not Status.ERROR
        opinion = None
        if is_answer:  # an error is worth asking again
            opinion = _opinion(asked, json.dumps(to_json(attribution, trajectory)), self.now_ns())
        proposed = None
        if is_answer and not attribution.fallback and packed is not None:
            try:
                run = unpack_place(packed)
            except ValueError as error:
                extra = {"run_id": asked.run_id, "reason": str(error)}
                logger.warning("trace cannot be corrected", extra=extra)
            else:
                proposed = self._proposed(asked, packed, _decided(run, trajectory, attribution), trajectory)
        return _Prepared(packed=packed, opinion=opinion, proposed=proposed)

    def _proposed(self, asked: Wanted, packed: bytes, decided: Decision, trajectory: Trajectory) -> _Proposed:
        tenant, run_id = asked.tenant, asked.run_id
        decision = replace(decided, tenant=tenant, place=Place(tenant=tenant, run_id=run_id, packed=packed))
        policy = self.policy.remembering()
        write_back(decision, policy)  # so that the policy knows the reason without its secrets
        kept = self.kept(trajectory, Analysis(attribution=decided.attribution, document=decided.document))
        return _Proposed(
            decision=decision,
            policy=policy,
            run=AnalysedRun(
                noted=as_noted(tenant, run_id, kept.noted),
                packed=packed_run(tenant, run_id, kept.packed, is_failure=kept.is_failure),
                text=kept.text,
            ),
            is_failure=kept.is_failure,
        )

    def _take(
        self, asked: Wanted, attribution: Attribution, prepared: _Prepared
    ) -> tuple[Outcome, list[Corrected]] | None:
        """Store an opinion and commit what follows; ``None`` if the run changed since it was prepared.

        Nothing is stored about a run that was deleted while the method was at work.
        """
        with self.store.transaction():
            if self.store.place(asked.tenant, asked.run_id) != prepared.packed:
                return None
            if prepared.opinion is not None and self.store.current(asked.tenant, asked.run_id) is not None:
                self.opinions.add(prepared.opinion)
            return self._commit(asked, attribution, prepared.proposed)

    def _commit(
        self, asked: Wanted, attribution: Attribution, proposed: _Proposed | None
    ) -> tuple[Outcome, list[Corrected]]:
        previous = self.store.current(asked.tenant, asked.run_id)
        if attribution.status is Status.ERROR or attribution.fallback:
            return Outcome.NO_ANSWER, []
        if previous is None or previous.is_provisional or proposed is None:
            return Outcome.NOT_CORRECTABLE, []
        if (stays := _stays(previous, attribution)) is not None:
            return stays, []
        decision = replace(proposed.decision, previous=previous, now_ns=self.now_ns())
        back = write_back(decision, proposed.policy)
        if back.verdict.version == previous.version:
            is_overruled = previous.proof and previous.agent != _blamed(attribution)
            return Outcome.PROOF_STANDS if is_overruled else Outcome.AGREES, []
        verdict = replace(back.verdict, service=previous.service)
        self.beside.add(proposed.run)
        if proposed.is_failure:
            self.store.spans.count_as_failed(asked.tenant, asked.run_id)
        self.store.commit(Commit(analysed=(), verdicts=(verdict,), outgoing=back.outgoing))
        return Outcome.NEW_VERSION, [(summary_of(decision, back), verdict)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposed:
    """The new version of a verdict, if it turns out to differ."""

    decision: Decision
    """Without the previous verdict, which the store adds."""
    policy: CarrierPolicy
    """Remembers the decision's redacted texts."""
    run: AnalysedRun
    is_failure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """An opinion, ready to be stored."""

    packed: bytes | None
    """The stored positions of the run's spans for which it was prepared."""
    opinion: Opinion | None
    """``None`` if the answer is an error."""
    proposed: _Proposed | None
    """``None`` if the trace cannot be corrected."""


def _stays(previous: StoredVerdict, attribution: Attribution) -> Outcome | None:
    """Return why the verdict stays regardless of the answer; ``None`` if the answer counts."""
    proof = attribution.proof
    if previous.is_persons_word:
        return Outcome.PERSON_DECIDED
    if proof is not None and proof.decision is ProofDecision.REFUTED and proof.span_id != previous.span_id:
        return Outcome.AGREES  # it refutes a step that the verdict does not blame
    return None


def _blamed(attribution: Attribution) -> str | None:
    return attribution.verdict.agent if isinstance(attribution.verdict, Blame) else None


_NO_STEP: Final = {"step": None, "span_id": None}


def _opinion(asked: Wanted, document: str, given_ns: int) -> Opinion:
    return Opinion(
        tenant=asked.tenant,
        run_id=asked.run_id,
        method=asked.method,
        model=asked.model,
        run_digest=asked.digest,
        given_ns=given_ns,
        document=document,
    )


def _decided(run: Run, trajectory: Trajectory, attribution: Attribution) -> Decision:
    """Return the decision on a run's stored spans, without the previous verdict, which the store adds."""
    verdict = attribution.verdict
    names_step = not isinstance(verdict, Blame) or any(
        step.index == verdict.step for step in run.trajectory.steps
    )
    asked = {} if attribution.proof else {SECOND_OPINION: True}
    document = to_json(attribution, trajectory) | asked | ({} if names_step else _NO_STEP)
    return Decision(
        run=run,
        attribution=attribution,
        document=json.dumps(document, ensure_ascii=False),
        previous=None,
        tenant=NO_TENANT,
        now_ns=0,
        names_step=names_step,
    )
