"""Runs of workflows in a store: each finds a seat and reserves it, and its outcome is stated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from analyzer.history import facts
from analyzer.history.elements import elements_of, pack
from analyzer.inquiry.verdict import NOTHING_SAYS_SO, to_json
from collector_processor.core.records import Commit, RunFacts, StoredVerdict
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.verdicts import RunStore
from semconv.model import Abstention, Attribution, Blame, Status, Trajectory, Verdict
from tests.runs import run, step, tool
from tests.verdicts import stored

APART_NS: Final = 10**9
RULE: Final = "`seat` of reserve equalled `seat` of find"
"""What all runs do that reserve what they found."""


def reserving(number: int, seat: str = "") -> Trajectory:
    """Return a run that finds a seat and reserves it, or another ``seat``."""
    own = f"S-{number}"
    found, asked = json.dumps({"seat": own}), json.dumps({"seat": seat or own})
    return run(tool("clerk", found, "find"), tool("clerk", "{}", "reserve", input=asked), step("clerk", "ok"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A workflow, and the time of its first run."""

    start_ns: int
    tenant: Tenant = NO_TENANT
    service: str = "shop"
    workflow: str = "refunds"


def keep_runs(
    db: StoreConnection,
    place: Place,
    said: Sequence[str],
    *,
    prefix: str = "run",
    release: str = "1.0",
    other_seats: Sequence[int] = (),
    like: Trajectory | None = None,
) -> list[str]:
    """Write runs with these outcomes, oldest first, of one version; return their ids.

    Args:
        db: the store.
        place: their workflow.
        said: ``passed``, ``failed`` or ``unsaid``.
        prefix: the beginning of their ids.
        release: their version.
        other_seats: the numbers of runs that reserve another seat than they found.
        like: what all runs did instead of reserving a seat.
    """
    store = RunStore(db)
    names = [f"{prefix}-{number:03}" for number in range(len(said))]
    verdicts = [_verdict(place, number, name, said[number]) for number, name in enumerate(names)]
    store.commit(Commit(analysed=(), verdicts=tuple(verdicts)))
    totals = RunTotals(workflow=place.workflow, steps=3)
    with db.transaction():
        store.totals.total([(place.tenant, name, totals) for name in names])
        store.history.note(
            [
                (
                    place.tenant,
                    name,
                    word,
                    _facts(like or reserving(number, "S-other" if number in other_seats else ""), release),
                )
                for number, (name, word) in enumerate(zip(names, said, strict=True))
            ]
        )
    return names


def _verdict(place: Place, number: int, name: str, said: str) -> StoredVerdict:
    """Return the verdict on a run: it blames the reservation, or nothing."""
    reason = "an evaluator states its outcome: success" if said == "passed" else NOTHING_SAYS_SO
    verdict: Verdict = Abstention(status=Status.NO_FAILURE, reason=reason)
    if said == "failed":
        verdict = Blame(agent="clerk", step=1, reason="it reserved another seat", confidence=0.9)
    done = replace(reserving(number), run_id=name)
    told = Attribution(run_id=name, verdict=verdict, method="signals")
    blame = {"agent": "clerk", "step": 1} if said == "failed" else {"agent": None, "step": None}
    return stored(
        tenant=place.tenant,
        service=place.service,
        run_id=name,
        failure_id=f"{place.tenant}-{place.workflow}-{name}",
        status=told.status.value,
        span_id=None,
        decided_ns=place.start_ns + number * APART_NS,
        document=json.dumps(to_json(told, done)),
        **blame,
    )


def _facts(done: Trajectory, release: str) -> RunFacts:
    return RunFacts(
        version=f"v{release}",
        release=release,
        elements=pack(elements_of(done)),
        invariants=facts.pack(facts.collect(done)),
    )
