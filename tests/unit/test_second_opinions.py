"""A second opinion is stored, and becomes a version of the verdict in the store, the trace and the counts."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from analyzer.analyses.commit import Committer, Leaving
from analyzer.analyses.prepared import Prepared, TraceBytes, keeping
from analyzer.issues.correcting import Outcome, SecondOpinions, Wanted, follow_labels
from analyzer.issues.labels.label_store import MAX_OF_A_RUN, OpinionStore
from analyzer.issues.labels.labelling import accept_label
from analyzer.issues.labels.run_label import LabelKind, Statement
from collector_processor.core.analysis import Analysis, KeptRun
from collector_processor.core.records import Commit, StoredVerdict
from collector_processor.otlp import NO_TENANT, Signal, Tenant
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from collector_processor.settings import load_settings
from collector_processor.store.database.connection import StoreThread
from collector_processor.store.small_tables import PackedSpans
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.carriers import pack_place
from collector_processor.writeback.outgoing import Decision, write_back
from semconv.model import Abstention, Attribution, Blame, Status, Trajectory
from tests.factories import TRACE, agent, chat, span_id, workflow
from tests.issues import START, Bench
from tests.slow_lane import MemorySource

SPANS = (
    workflow(1, task="sum"),
    agent(2, "planner"),
    chat(3, parent=2, answer="1"),
    agent(4, "writer"),
    chat(5, parent=4, answer="2"),
)
(RUN,) = rebuild([encode(SPANS)])
WANTED = Wanted(tenant=NO_TENANT, run_id=TRACE, method="judge", model="m", digest="d")


def blame(step: int, method: str = "judge") -> Attribution:
    verdict = Blame(
        agent=RUN.trajectory.steps[step].agent, step=step, reason="why", confidence=0.8, mode="loop"
    )
    return Attribution(run_id=TRACE, verdict=verdict, method=method)


def passed() -> Attribution:
    verdict = Abstention(status=Status.NO_FAILURE, reason="fine")
    return Attribution(run_id=TRACE, verdict=verdict, method="triage")


async def nothing(_trace: TraceBytes) -> Prepared:
    return Prepared()


@dataclass(kw_only=True)
class Room:
    """The stores of a service that judged one run."""

    bench: Bench
    second: SecondOpinions

    @property
    def trajectory(self) -> Trajectory:
        return RUN.trajectory

    def judge(self, attribution: Attribution) -> None:
        store = self.second.store
        decision = Decision(
            run=RUN, attribution=attribution, document="{}", previous=None, tenant=NO_TENANT, now_ns=5
        )
        back = write_back(decision, self.second.policy)
        assert back.place is not None
        is_failure = attribution.status is not Status.NO_FAILURE
        with store.transaction():
            store.commit(Commit(analysed=(), verdicts=(back.verdict,), places=(back.place,)))
            spans = PackedSpans(tenant=NO_TENANT, run_id=TRACE, is_failure=is_failure, packed=b"x")
            store.spans.keep_all([spans], 5)

    def verdict(self) -> StoredVerdict:
        found = self.second.store.current(NO_TENANT, TRACE)
        assert found is not None
        return found

    def sent(self) -> list[tuple[str, str | None]]:
        bodies = [one.body for one in self.second.store.outbox(Signal.TRACES)]
        return [(span.name, span.parent_id) for body in bodies for span in decode(body).spans]


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    bench = Bench(folder=tmp_path)
    policy = CarrierPolicy()
    kept = keeping(load_settings({}))
    thread = StoreThread()
    committer = Committer(
        source=MemorySource(),
        store=bench.verdicts,
        thread=thread,
        leaving=Leaving(policy=policy, wall_ns=lambda: START, wake_outbox=lambda: None),
    )
    second = SecondOpinions(
        commits=committer,
        store=bench.verdicts,
        opinions=OpinionStore(bench.db),
        beside=bench.beside,
        kept=kept,
        policy=policy,
        now_ns=lambda: START,
    )
    yield Room(bench=bench, second=second)
    thread.close()
    bench.close()


async def test_an_opinion_that_differs_is_a_new_version_and_supersedes_the_carriers(room: Room) -> None:
    room.judge(blame(0, "signals"))
    assert await room.second.take(WANTED, room.trajectory, blame(1)) is Outcome.NEW_VERSION
    now = room.verdict()
    assert (now.version, now.agent, now.step, now.span_id) == (2, "writer", 1, span_id(5))
    assert (now.fields["method"], now.fields["is_second_opinion"]) == ("judge", True)
    assert [name for name, _ in room.sent()] == [
        "writer: loop",
        "failure: writer (loop), replaces verdict 1",
        *["withdrawn: planner → writer"] * 2,
    ]


async def test_verdicts_are_committed_while_the_run_of_an_opinion_is_packed(room: Room) -> None:
    room.judge(blame(0, "signals"))
    turn = cast("Committer", room.second.commits).turn

    def kept(trajectory: Trajectory, analysis: Analysis) -> KeptRun:
        assert not turn.locked()
        assert threading.current_thread().name != "runstore"
        return room.second.kept(trajectory, analysis)

    second = replace(room.second, kept=kept)
    assert await second.take(WANTED, room.trajectory, blame(1)) is Outcome.NEW_VERSION


async def test_a_long_reason_is_redacted_before_verdicts_have_to_wait(room: Room) -> None:
    room.judge(blame(0, "signals"))
    turn, redacted = cast("Committer", room.second.commits).turn, list[str]()

    def clean(text: str) -> str:
        assert not turn.locked() or text != "why"
        redacted.append(text)
        return text

    second = replace(room.second, policy=replace(room.second.policy, clean=clean))
    assert await second.take(WANTED, room.trajectory, blame(1)) is Outcome.NEW_VERSION
    assert redacted.count("why") == 1  # several attributes have it


async def test_an_opinion_on_a_run_that_changed_meanwhile_is_prepared_again(room: Room) -> None:
    room.judge(blame(0, "signals"))
    (grown,) = rebuild([encode((*SPANS, chat(9, parent=2)))])
    place = pack_place(grown, NO_TENANT, (None, None))
    assert place is not None
    asked = list[str]()

    def kept(trajectory: Trajectory, analysis: Analysis) -> KeptRun:
        if not asked:
            room.second.store.commit(Commit(analysed=(), places=(place,)))
        asked.append(trajectory.run_id)
        return room.second.kept(trajectory, analysis)

    second = replace(room.second, kept=kept)
    assert await second.take(WANTED, room.trajectory, blame(1)) is Outcome.NEW_VERSION
    assert len(asked) == 2


async def test_the_counts_follow_an_opinion(room: Room) -> None:
    room.judge(passed())
    await room.second.take(WANTED, room.trajectory, blame(1))
    counted = room.bench.db.execute("SELECT blamed, step, status FROM counted_run").fetchall()
    assert [tuple(row) for row in counted] == [("writer", 1, "attributed")]
    kept = room.bench.db.execute("SELECT is_failure FROM kept_spans").fetchall()
    assert [bool(row[0]) for row in kept] == [True]  # of the quota of failed runs from now on


async def test_an_opinion_that_agrees_is_kept_and_changes_nothing(room: Room) -> None:
    room.judge(blame(1, "signals"))
    before = room.verdict()
    assert await room.second.take(WANTED, room.trajectory, blame(1)) is Outcome.AGREES
    assert (room.verdict(), room.sent()) == (before, [])
    assert [one.method for one in await room.second.of(NO_TENANT, TRACE)] == ["judge"]


async def test_a_persons_label_is_kept(room: Room) -> None:
    room.judge(blame(0, "signals"))
    store, labels = room.second.store, room.bench.labels
    accept_label(labels, room.verdict(), Statement(kind=LabelKind.NOT_A_FAILURE), 6, verdicts=store)
    follow_labels(store, labels, room.second.policy, 7)
    assert await room.second.take(WANTED, room.trajectory, blame(1)) is Outcome.PERSON_DECIDED
    assert room.verdict().status == "no_failure"
    assert await room.second.known(WANTED) is not None


@pytest.mark.parametrize(
    "answer",
    [
        replace(blame(1), fallback="the model did not answer"),
        Attribution(
            run_id=TRACE, verdict=Abstention(status=Status.ERROR, reason="no"), method="judge", error="no"
        ),
    ],
)
async def test_an_analysis_without_an_answer_of_its_own_changes_nothing_and_is_asked_again(
    room: Room, answer: Attribution
) -> None:
    room.judge(blame(0, "signals"))
    assert await room.second.take(WANTED, room.trajectory, answer) is Outcome.NO_ANSWER
    assert (room.verdict().version, room.sent()) == (1, [])
    assert await room.second.known(WANTED) is None


async def test_an_opinion_is_known_for_the_same_question_only(room: Room) -> None:
    room.judge(blame(0, "signals"))
    await room.second.take(WANTED, room.trajectory, blame(1))
    found = await room.second.known(WANTED)
    assert found is not None
    assert json.loads(found.document)["agent"] == "writer"
    for other in (
        replace(WANTED, method="verify"),
        replace(WANTED, model=""),
        replace(WANTED, digest="e"),
        replace(WANTED, tenant=Tenant("x=b")),
    ):
        assert await room.second.known(other) is None


async def test_nothing_is_stored_about_a_run_that_is_deleted_before_its_opinion_comes(room: Room) -> None:
    assert await room.second.take(WANTED, room.trajectory, blame(1)) is Outcome.NOT_CORRECTABLE
    assert room.sent() == []
    assert await room.second.of(NO_TENANT, TRACE) == []


async def test_the_opinions_on_a_run_are_bounded(room: Room) -> None:
    room.judge(blame(1, "signals"))
    for number in range(MAX_OF_A_RUN + 5):
        await room.second.take(replace(WANTED, digest=str(number)), room.trajectory, blame(1))
    found = await room.second.of(NO_TENANT, TRACE)
    assert [one.run_digest for one in found[:2]] == [str(MAX_OF_A_RUN + 4), str(MAX_OF_A_RUN + 3)]
    assert len(found) == MAX_OF_A_RUN
