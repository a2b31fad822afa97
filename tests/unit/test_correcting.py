"""A person's label becomes the run's verdict, in the store and in the trace."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from analyzer.issues.beside_verdicts import text_row
from analyzer.issues.correcting import follow_labels
from analyzer.issues.labels.kept_run import pack
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from analyzer.issues.labels.labelling import AcceptedLabel, accept_label
from analyzer.issues.labels.run_label import LabelKind, Statement
from collector_processor.core.records import Commit, StoredVerdict, stated_certainty
from collector_processor.core.scores import Lane
from collector_processor.otlp import NO_TENANT, Signal
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import keep
from collector_processor.rebuild.stages import rebuild
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.deletion import delete_run
from collector_processor.store.run_text import RunTextRows
from collector_processor.store.verdicts import RunStore
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.outgoing import Decision, write_back
from semconv.attributes import FAILURE_EXPLANATION
from semconv.model import Abstention, Attribution, Blame, Span, Status
from tests.factories import TRACE, agent, chat, span_id, workflow

SPANS = (
    workflow(1, task="sum"),
    agent(2, "planner"),
    chat(3, parent=2, answer="1"),
    agent(4, "writer"),
    chat(5, parent=4, answer="2"),
)
POLICY = CarrierPolicy()
WRITER = Statement(kind=LabelKind.CORRECTED, step=1)
DID_NOT_FAIL = Statement(kind=LabelKind.NOT_A_FAILURE)
REJECTED = Statement(kind=LabelKind.REJECTED)
CONFIRMED = Statement(kind=LabelKind.CONFIRMED)


@dataclass(kw_only=True)
class World:
    """The stores of a service that judged one run; ``follow`` is done every few seconds by the service."""

    store: RunStore
    labels: LabelStore
    policy: CarrierPolicy = POLICY

    def judge(
        self, step: int | None = 0, *, confidence: float = 0.9, mode: str = "loop", **document: object
    ) -> None:
        (run,) = rebuild([encode(SPANS)])
        verdict: Blame | Abstention = Abstention(status=Status.NO_FAILURE, reason="fine")
        if step is not None:
            acting = run.trajectory.steps[step].agent
            verdict = Blame(agent=acting, step=step, reason="why", confidence=confidence, mode=mode)
        decision = Decision(
            run=run,
            attribution=Attribution(run_id=TRACE, verdict=verdict, method="signals"),
            document=json.dumps({"confidence": confidence, "mode": mode, "reason": "why", **document}),
            previous=self.store.current(NO_TENANT, TRACE),
            tenant=NO_TENANT,
            now_ns=5,
        )
        back = write_back(decision, self.policy)
        assert back.place is not None
        self.store.commit(
            Commit(analysed=(), verdicts=(back.verdict,), outgoing=back.outgoing, places=(back.place,))
        )
        packed = pack(run.trajectory, keep) or b""
        self.labels.keep([PackedRun(tenant=NO_TENANT, run_id=TRACE, is_failure=True, packed=packed)], 5)
        self.sent()

    def sent(self) -> list[Span]:
        """Return the pending carriers, and mark them as sent."""
        entries = [entry for signal in Signal for entry in self.store.outbox(signal)]
        self.store.delivered([entry.id for entry in entries])
        bodies = (entry.body for entry in entries if entry.signal is Signal.TRACES)
        return [span for body in bodies for span in decode(body).spans]

    def verdict(self) -> StoredVerdict:
        found = self.store.current(NO_TENANT, TRACE)
        assert found is not None
        return found

    def say(self, statement: Statement) -> AcceptedLabel:
        return accept_label(self.labels, self.verdict(), statement, 6, verdicts=self.store)

    def follow(self) -> list[tuple[str, str | None]]:
        """Apply the labels; return the new carriers' names and parents."""
        follow_labels(self.store, self.labels, self.policy, 7)
        return [(span.name, span.parent_id) for span in self.sent()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(store=RunStore(tmp_path / "store.sqlite"), labels=LabelStore(tmp_path / "store.sqlite"))
    yield found
    found.store.close()
    found.labels.close()


def test_a_correction_is_a_new_version_with_carriers_and_withdraws_the_old_blame(world: World) -> None:
    world.judge()
    given = world.say(WRITER)
    assert given.trace_obstacle is None
    assert world.follow() == [
        ("writer: decisive error", span_id(5)),
        ("failure: writer, replaces verdict 1", span_id(1)),
        ("withdrawn: planner → writer", span_id(3)),
        ("withdrawn: planner → writer", span_id(1)),
    ]
    now = world.verdict()
    assert (now.version, now.status, now.agent, now.step, now.span_id) == (
        *(2, "attributed", "writer", 1),
        span_id(5),
    )
    assert (now.is_by_person, stated_certainty(now.fields), now.service) == (True, 1.0, "test")
    assert json.loads(now.document)["reason"] == "A person says so (version 1 said: planner, step 0)."


QUOTES = [{"step": 0, "quote": "1"}, {"step": 1, "quote": "2"}]
LINEAGE = [{"value": "2", "origin": "nowhere", "step": 1, "path": None, "formula": None, "chain": []}]


def test_a_correction_keeps_the_evidence_and_carries_the_persons_reason(world: World) -> None:
    world.judge(evidence=[*QUOTES, "damaged"], lineage=LINEAGE)
    world.say(replace(WRITER, why="it copied ann@example.org's sum.", author="ada"))
    follow_labels(world.store, world.labels, world.policy, 7)
    decisive = next(span for span in world.sent() if span.name == "writer: decisive error")
    document = json.loads(world.verdict().document)
    assert document["evidence"] == [*reversed(QUOTES)]
    assert document["lineage"] == LINEAGE
    reason = "A person says so (version 1 said: planner, step 0): it copied [e-mail]'s sum."
    assert document["reason"] == reason
    assert decisive.attributes[FAILURE_EXPLANATION] == reason
    assert decisive.attributes["evaluations.0.evaluation.annotator_kind"] == "HUMAN"
    world.say(DID_NOT_FAIL)
    world.follow()
    assert json.loads(world.verdict().document)["lineage"] == LINEAGE


IN_INDEX = "SELECT 1 FROM run_text_index WHERE run_text_index MATCH 'zeb'"


def everywhere(db: StoreConnection) -> str:
    """Return what all tables of a store contain."""
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = [name for name in names if not name.startswith("run_text_index")]  # the index of a table's texts
    rows = [row for name in tables for row in db.execute(f"SELECT * FROM {name}")]
    return "\n".join(str(cell) for row in rows for cell in row)


def test_a_persons_reason_is_gone_with_its_run_and_never_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    db, lane = world.store._db, Lane("scores:phoenix")
    texts = RunTextRows(db)
    assert texts.create_index()
    world.policy = CarrierPolicy(lanes={NO_TENANT: (lane,)})
    world.judge()
    world.say(replace(WRITER, why="it misread the zebra crossing"))
    follow_labels(world.store, world.labels, world.policy, 7)
    texts.write([text_row(world.verdict(), "")])
    waiting = [one for name in (*Signal, lane) for one in world.store.outbox(name)]
    assert {one.signal for one in waiting if b"zebra" in one.body} == {Signal.TRACES, Signal.LOGS, lane}
    assert "zebra" in everywhere(db)
    assert list(db.execute(IN_INDEX)) == [(1,)]
    delete_run(db, NO_TENANT, TRACE)
    assert world.store.outbox_size() == 0
    assert "zebra" not in everywhere(db)
    assert "zebra" not in caplog.text
    assert list(db.execute(IN_INDEX)) == []


def test_a_reason_given_later_is_kept_with_the_label_and_makes_no_new_version(world: World) -> None:
    """Prose alone never supersedes a verdict."""
    world.judge()
    world.say(WRITER)
    world.follow()
    world.say(replace(WRITER, why="it copied the sum"))
    assert world.follow() == []
    assert world.verdict().version == 2
    assert [label.why for label in world.labels.labels(NO_TENANT, TRACE)] == ["it copied the sum", ""]


def test_the_label_no_failure_withdraws_the_blame_even_if_passing_runs_get_no_span(world: World) -> None:
    world.judge()
    world.say(DID_NOT_FAIL)
    assert world.follow() == [
        ("no failure found, replaces verdict 1", span_id(1)),
        ("withdrawn: planner", span_id(3)),
        ("withdrawn: planner", span_id(1)),
    ]
    assert world.verdict().status == "no_failure"


def test_a_run_that_passed_can_be_blamed(world: World) -> None:
    world.judge(None)
    world.say(WRITER)
    assert [name for name, _ in world.follow()] == [
        "writer: decisive error",
        "failure: writer, replaces verdict 1",
    ]


@pytest.mark.parametrize("statement", [WRITER, DID_NOT_FAIL, REJECTED])
def test_the_same_label_again_changes_nothing(world: World, statement: Statement) -> None:
    world.judge()
    world.say(statement)
    world.follow()
    before = world.verdict()
    world.say(statement)
    assert (world.follow(), world.verdict()) == ([], before)
    assert len(world.labels.labels(NO_TENANT, TRACE)) == 1


def test_confirming_a_written_verdict_sends_nothing(world: World) -> None:
    world.judge()
    world.say(CONFIRMED)
    assert (world.follow(), world.verdict().version) == ([], 1)
    world.judge(1)
    assert (world.sent(), world.verdict().agent) == ([], "planner"), "no later analysis overrules it"
    world.say(CONFIRMED)
    assert len(world.labels.labels(NO_TENANT, TRACE)) == 1
    world.say(REJECTED)
    assert [name for name, _ in world.follow()] == [
        "failure: undetermined, replaces verdict 1",
        *["withdrawn: planner"] * 2,
    ]
    assert world.verdict().status == "undetermined"


def test_an_agent_without_a_step_is_shown_under_the_root_alone(world: World) -> None:
    world.judge()
    world.say(Statement(kind=LabelKind.CORRECTED, agent="writer"))
    assert [name for name, _ in world.follow()] == [
        "failure: writer, replaces verdict 1",
        *["withdrawn: planner → writer"] * 2,
    ]
    now = world.verdict()
    assert (now.agent, now.step, now.span_id, json.loads(now.document)["step"]) == (
        "writer",
        None,
        None,
        None,
    )
    world.say(WRITER)
    assert [name for name, _ in world.follow()] == [
        "writer: decisive error",
        "failure: writer, replaces verdict 2",
    ]


def test_a_later_label_replaces_an_earlier_one_and_late_spans_replace_none(world: World) -> None:
    world.judge()
    world.say(DID_NOT_FAIL)
    world.follow()
    world.say(WRITER)
    assert [name for name, _ in world.follow()] == [
        "writer: decisive error",
        "failure: writer, replaces verdict 2",
    ]
    assert world.verdict().version == 3
    world.judge(0)
    assert (world.sent(), world.verdict().agent) == ([], "writer")


def test_the_newest_of_several_labels_is_applied_once(world: World) -> None:
    world.judge()
    world.say(REJECTED)
    world.say(WRITER)
    assert world.follow()[0][0] == "writer: decisive error"
    assert (world.verdict().version, world.follow()) == (2, [])


def test_without_stored_positions_the_label_is_kept_and_the_answer_says_so(world: World) -> None:
    world.judge()
    world.store._db.execute("DELETE FROM place")
    given = world.say(WRITER)
    assert given.to_json()["trace_obstacle"] == "the positions of its spans are no longer stored"
    assert (world.follow(), world.verdict().version) == ([], 1)
    assert [label.agent for label in world.labels.labels(NO_TENANT, TRACE)] == ["writer"]


def test_a_damaged_position_stops_no_other_label(world: World) -> None:
    world.judge()
    world.say(WRITER)
    world.store._db.execute("UPDATE place SET packed = X'00'")
    assert world.follow() == []
    assert world.store.heeded() == 1


def test_a_label_of_a_provisional_verdict_writes_nothing(world: World) -> None:
    world.judge()
    world.store.commit(Commit(analysed=(), verdicts=(replace(world.verdict(), is_provisional=True),)))
    assert world.say(DID_NOT_FAIL).trace_obstacle == "the run has not ended"
    assert world.follow() == []


def test_stored_positions_are_deleted_oldest_first(world: World) -> None:
    world.judge()
    world.store.prune(10, most_place_bytes=1 << 20)
    assert world.store.place(NO_TENANT, TRACE) is not None
    world.store.prune(10, most_place_bytes=10)
    assert world.store.place(NO_TENANT, TRACE) is None
