"""Turns second opinions into verdicts: each becomes a new version of the verdict if it differs.

A person chooses a method and a model for a kept run. The answer is committed like any verdict: version,
carriers that supersede the old ones, and counts in one transaction. A person's verdict is kept, and an
analysis without an answer of its own (``error``, or a fallback for the chosen model) replaces no verdict.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from analyzer.inquiry.verdict import to_json
from analyzer.issues.beside_verdicts import AnalysedRun, BesideVerdicts, packed_run
from analyzer.issues.issue_store import as_noted
from analyzer.issues.labels.opinion_store import Opinion, OpinionStore
from collector_processor.core.analysis import Analysis, CommitPort, KeepRun
from collector_processor.core.records import SECOND_OPINION, Commit, Place, StoredVerdict, VerdictSummary
from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.verdicts import RunStore
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.outgoing import Decision, summary_of, write_back
from collector_processor.writeback.span_places import unpack_place
from semconv.model import Attribution, Blame, ProofDecision, Status, Trajectory

logger = logging.getLogger(__name__)


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
        found = await self.of(asked.tenant, asked.run_id)
        wanted = (asked.method, asked.model, asked.digest)
        return next(
            (one for one in found if (one.method, one.model, one.run_digest) == wanted and one.is_answer),
            None,
        )

    async def take(self, asked: Wanted, trajectory: Trajectory, attribution: Attribution) -> Outcome:
        """Store an opinion, and commit it as a new version of the verdict if it differs.

        Raises: StoreError: the store refuses; nothing is stored.
        """
        document = to_json(attribution, trajectory)

        def commit() -> tuple[Outcome, list[tuple[VerdictSummary, StoredVerdict]]]:
            with self.store.transaction():
                if attribution.status is not Status.ERROR:  # an error is worth asking again
                    self.opinions.add(_opinion(asked, json.dumps(document), self.now_ns()))
                return self._commit(asked, trajectory, attribution)

        outcome, committed = await self.commits.in_turn(commit)
        if committed:
            self.commits.committed(committed)
        return outcome

    def _commit(
        self, asked: Wanted, trajectory: Trajectory, attribution: Attribution
    ) -> tuple[Outcome, list[tuple[VerdictSummary, StoredVerdict]]]:
        previous = self.store.current(asked.tenant, asked.run_id)
        packed = self.store.place(asked.tenant, asked.run_id)
        if attribution.status is Status.ERROR or attribution.fallback:
            return Outcome.NO_ANSWER, []
        if previous is None or previous.is_provisional or packed is None:
            return Outcome.NOT_CORRECTABLE, []
        if (stays := _stays(previous, attribution)) is not None:
            return stays, []
        try:
            run = unpack_place(packed)
        except ValueError as error:
            extra = {"run_id": asked.run_id, "reason": str(error)}
            logger.warning("trace cannot be corrected", extra=extra)
            return Outcome.NOT_CORRECTABLE, []
        place = Place(tenant=asked.tenant, run_id=asked.run_id, packed=packed)
        decision = replace(
            _decision(run, trajectory, attribution),
            previous=previous,
            tenant=asked.tenant,
            now_ns=self.now_ns(),
            place=place,
        )
        back = write_back(decision, self.policy)
        if back.verdict.version == previous.version:
            is_overruled = previous.proof and previous.agent != _blamed(attribution)
            return Outcome.PROOF_STANDS if is_overruled else Outcome.AGREES, []
        verdict = replace(back.verdict, service=previous.service)
        analysis = Analysis(attribution=attribution, document=decision.document)
        self._keep_and_count(asked.tenant, trajectory, analysis)
        self.store.commit(Commit(analysed=(), verdicts=(verdict,), outgoing=back.outgoing))
        return Outcome.NEW_VERSION, [(summary_of(decision, back), verdict)]

    def _keep_and_count(self, tenant: Tenant, trajectory: Trajectory, analysis: Analysis) -> None:
        kept = self.kept(trajectory, analysis)
        run_id = trajectory.run_id
        packed = packed_run(tenant, run_id, kept.packed, is_failure=kept.is_failure)
        self.beside.add(
            AnalysedRun(noted=as_noted(tenant, run_id, kept.noted), packed=packed, text=kept.text)
        )
        if kept.is_failure:
            self.store.spans.count_as_failed(tenant, run_id)


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


def _decision(run: Run, trajectory: Trajectory, attribution: Attribution) -> Decision:
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
