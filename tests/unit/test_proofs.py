"""An experiment's result becomes a version of the verdict, and outranks all but a person's label."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.analyses.codec import write_answer
from analyzer.cli import experiment_runs
from analyzer.experiment.call_budget import Spent
from analyzer.experiment.candidates import ArmKey, Candidate, Fix
from analyzer.experiment.findings import Experiment, Finding, KeptArms, KeptTrial, KeptTrials, attribution_of
from analyzer.experiment.sequential import Arm, Comparison, Decision
from analyzer.inquiry.conversation import Label
from analyzer.issues.correcting import Outcome, follow_labels
from analyzer.issues.labels.commands import CommandKind, Commands
from analyzer.issues.labels.kept_trace import KeptTrace
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from analyzer.issues.labels.labelling import accept_label, proved_runs, training_runs
from analyzer.issues.labels.run_label import LabelKind, Statement
from analyzer.lab.evaluation.training import fit_linear
from analyzer.records.proof_records import Remembered, Report
from analyzer.service.commands import CommandTask
from collector_processor.core.disk import StoreError
from collector_processor.core.records import stated_certainty
from collector_processor.otlp import NO_TENANT, Signal
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.kept_spans import SpanKeeper, unpack_spans
from collector_processor.rebuild.redaction import make_redactor
from collector_processor.store.deletion import delete_run
from collector_processor.store.small_tables import PackedSpans, TrialArmRows
from collector_processor.writeback.outgoing import Decision as Decided
from collector_processor.writeback.outgoing import write_back
from semconv.dialects import USUAL
from semconv.model import Attribution, Blame
from semconv.record import replace as changed
from tests.factories import TRACE, span_id
from tests.issues import START
from tests.unit.test_second_opinions import RUN, SPANS, WANTED, Room, blame, room

__all__ = ["room"]

KEY = ArmKey(recorded=frozenset())


def experiment(step: int, decision: Decision, *, walk: Decision | None = None) -> Experiment:
    candidate = Candidate(
        call=step,
        step=step,
        agent=RUN.trajectory.steps[step].agent,
        belief=1.0,
        control=KEY,
        treatment=KEY,
        resampled=KEY,
    )
    found = Finding(
        candidate=candidate,
        control=Arm(n=11, successes=0),
        treatment=Arm(n=11, successes=7),
        resampled=None,
        comparison=Comparison(decision=decision, effect=0.64, interval=(0.02, 0.96), reason=""),
        reason="the run succeeds in 7 of 11 trials",
        spent=Spent(),
    )
    return Experiment(
        run_id=TRACE,
        fix=Fix(),
        fidelity=None,
        findings=(found,),
        decision=walk or decision,
        reason=found.reason,
        spent=Spent(),
        duration_s=1.0,
        decisive=found if decision is Decision.PROVED else None,
    )


def found_on(room: Room, step: int, decision: Decision) -> Attribution:
    attribution = attribution_of(experiment(step, decision), RUN.trajectory, room.verdict())
    assert attribution is not None
    return attribution


@pytest.fixture
async def proving(room: Room) -> CommandTask:
    """The service's side: a run whose verdict blames step 0 and whose spans are kept."""
    room.judge(blame(0, "signals"))
    rules = make_redactor(())
    (packed,) = SpanKeeper(redactor=rules).pack([encode(SPANS)], (), [((), rules.for_run())], [True])
    assert packed is not None
    room.second.store.spans.keep_all(
        [PackedSpans(tenant=NO_TENANT, run_id=TRACE, is_failure=True, packed=packed)], 5
    )
    return CommandTask(second=room.second, db=room.bench.db)


def hand_over(room: Room, step: int, decision: Decision) -> None:
    document = write_answer(found_on(room, step, decision)).decode()
    Commands(room.bench.db).add(CommandKind.EXPERIMENT, NO_TENANT, TRACE, START, document)


@pytest.mark.usefixtures("proving")
def test_a_proof_is_handed_over_though_the_store_refuses_its_trials(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(experiment_runs, "opened_store", lambda *_: nullcontext(room.bench.db))
    monkeypatch.setattr(TrialArmRows, "keep", refused)
    monkeypatch.setattr(experiment_runs, "packed_trial", lambda *_: b"packed")
    arms = KeptArms(
        recorded=KeptTrial(file="1.json", has_passed=False), changed=KeptTrial(file="2.json", has_passed=True)
    )
    proved = changed(experiment(1, Decision.PROVED), kept=KeptTrials(arms=arms, by_step={1: arms}))
    packed = room.second.store.spans.packed(NO_TENANT, TRACE)
    assert packed is not None
    with pytest.raises(StoreError):
        experiment_runs.hand_over(
            proved, RUN, KeptTrace(verdict=room.verdict(), spans=unpack_spans(packed), reader=USUAL)
        )
    assert [one.run_id for one in Commands(room.bench.db).waiting()] == [TRACE]


@pytest.mark.parametrize("document", ["", "{}", "[1]", '{"run_id": "another"}', "\x00"])
async def test_a_damaged_result_is_dropped_and_changes_nothing(
    room: Room, proving: CommandTask, document: str
) -> None:
    queue = Commands(room.bench.db)
    queue.add(CommandKind.EXPERIMENT, NO_TENANT, TRACE, START, document)
    queue.add(CommandKind.EXPERIMENT, NO_TENANT, "no such run", START, document)
    await proving.follow()
    assert (queue.waiting(), room.verdict().version, room.sent()) == ([], 1, [])


@pytest.mark.usefixtures("proving")
def test_a_proof_of_a_step_that_was_not_blamed_says_what_to_do(room: Room) -> None:
    assert isinstance(proved := found_on(room, 1, Decision.PROVED).verdict, Blame)
    assert proved.fix.startswith(f"Check this answer of {proved.agent}, and ask again")


async def test_a_persons_label_beats_a_proof(room: Room, proving: CommandTask) -> None:
    store, labels = room.second.store, room.bench.labels
    accept_label(labels, room.verdict(), Statement(kind=LabelKind.NOT_A_FAILURE), 6, verdicts=store)
    follow_labels(store, labels, room.second.policy, 7)
    hand_over(room, 1, Decision.PROVED)
    await proving.follow()
    assert (room.verdict().status, room.verdict().fields["method"]) == ("no_failure", "person")


async def test_a_proof_is_a_version_of_the_verdict_and_supersedes_the_carriers(
    room: Room, proving: CommandTask
) -> None:
    hand_over(room, 1, Decision.PROVED)
    await proving.follow()
    await proving.follow()  # nothing waits any more
    now = room.verdict()
    assert (now.version, now.agent, now.span_id, now.fields["method"]) == (
        2,
        "writer",
        span_id(5),
        "experiment",
    )
    assert now.fields["proof"] == {
        "decision": "proved",
        "step": 1,
        "span_id": span_id(5),
        "effect": 0.64,
        "interval": [0.02, 0.96],
        "trials": 22,
        "change": "resample",
    }
    assert "is_second_opinion" not in now.fields
    assert [name for name, _ in room.sent()] == [
        "writer: decisive error",
        "failure: writer, replaces verdict 1",
        *["withdrawn: planner → writer"] * 2,
    ]
    bodies = [one.body for one in room.second.store.outbox(Signal.TRACES)]
    carriers = [span.attributes for body in bodies for span in decode(body).spans]
    assert [one.get("blamespan.failure.proof.decision") for one in carriers] == [
        "proved",
        "proved",
        None,
        None,
    ]
    assert carriers[0]["blamespan.failure.proof.interval.high"] == 0.96
    assert [one.method for one in await room.second.of(NO_TENANT, TRACE)] == ["experiment"]


async def test_a_proof_of_the_blamed_step_is_also_a_new_version(room: Room, proving: CommandTask) -> None:
    hand_over(room, 0, Decision.PROVED)
    await proving.follow()
    now = room.verdict()
    assert (now.version, now.agent, now.fields["mode"]) == (2, "planner", None)
    assert stated_certainty(now.fields) == 0.95
    assert not [name for name, _ in room.sent() if name.startswith("withdrawn")]


async def test_no_opinion_supersedes_a_proof(room: Room, proving: CommandTask) -> None:
    hand_over(room, 1, Decision.PROVED)
    await proving.follow()
    assert await room.second.take(WANTED, room.trajectory, blame(0)) is Outcome.PROOF_STANDS
    before = room.verdict()
    late = Decided(
        run=RUN,
        attribution=blame(0, "signals"),
        document=json.dumps({"method": "signals"}),
        previous=before,
        tenant=NO_TENANT,
        now_ns=9,
    )
    assert write_back(late, room.second.policy).verdict == before


async def test_a_refutation_withdraws_the_blame_of_its_step_alone(room: Room, proving: CommandTask) -> None:
    refuted = found_on(room, 0, Decision.REFUTED)
    elsewhere = replace(WANTED, digest="of another step")
    assert refuted.proof is not None
    other = replace(refuted, proof=replace(refuted.proof, step=1, span_id=span_id(5)))
    assert await room.second.take(elsewhere, room.trajectory, other) is Outcome.AGREES
    assert (room.verdict().agent, room.sent()) == ("planner", [])
    hand_over(room, 0, Decision.REFUTED)
    await proving.follow()
    now = room.verdict()
    assert (now.version, now.status, now.agent) == (2, "undetermined", None)
    assert "refuted step 0 of planner" in now.fields["reason"]
    assert [name for name, _ in room.sent()][-1:] == ["withdrawn: planner"]
    assert await room.second.take(WANTED, room.trajectory, blame(0)) is Outcome.PROOF_STANDS
    again = replace(WANTED, method="verify")
    assert await room.second.take(again, room.trajectory, blame(1)) is Outcome.NEW_VERSION


async def test_an_experiment_that_decides_nothing_on_the_blamed_step_leaves_the_verdict(room: Room) -> None:
    room.judge(blame(0, "signals"))
    for found in (
        experiment(1, Decision.REFUTED),
        experiment(0, Decision.UNDECIDED),
        replace(experiment(0, Decision.UNDECIDED), findings=()),
    ):
        assert attribution_of(found, RUN.trajectory, room.verdict()) is None
    walked = experiment(0, Decision.REFUTED, walk=Decision.UNDECIDED)
    attribution = attribution_of(walked, RUN.trajectory, room.verdict())
    assert attribution is not None
    assert attribution.status == "undetermined"


async def test_deleting_a_run_deletes_its_waiting_results(room: Room, proving: CommandTask) -> None:
    hand_over(room, 1, Decision.PROVED)
    delete_run(proving.db, NO_TENANT, TRACE)
    assert Commands(room.bench.db).waiting() == []


async def test_a_proof_teaches_a_ranker_less_than_a_persons_label(room: Room, proving: CommandTask) -> None:
    store, labels, opinions = room.second.store, room.bench.labels, room.second.opinions
    hand_over(room, 1, Decision.PROVED)
    await proving.follow()
    found = training_runs(proved_runs(labels, store, opinions, NO_TENANT))
    assert [one.label for one in found.runs] == [Label(agent="writer", step=1, trust=0.5)]
    accept_label(labels, room.verdict(), Statement(kind=LabelKind.CONFIRMED), 6, verdicts=store)
    assert proved_runs(labels, store, opinions, NO_TENANT) == []
    (labelled,) = training_runs(labels.labelled(NO_TENANT)).runs
    assert labelled.label == Label(agent="writer", step=1, trust=1.0)


async def test_a_refutation_teaches_that_its_step_is_not_to_blame(room: Room, proving: CommandTask) -> None:
    hand_over(room, 0, Decision.REFUTED)
    await proving.follow()
    second = room.second
    found = training_runs(proved_runs(room.bench.labels, second.store, second.opinions, NO_TENANT))
    assert [one.label for one in found.runs] == [Label(agent=None, step=0, trust=0.5, is_refuted=True)]
    assert found.left_out == {}


@pytest.mark.parametrize("decision", [Decision.PROVED, Decision.REFUTED])
async def test_a_run_that_an_experiment_decided_on_is_kept_for_training(
    room: Room, proving: CommandTask, decision: Decision
) -> None:
    hand_over(room, 0, decision)
    await proving.follow()
    labels = LabelStore(room.bench.db, quota=1)
    later = PackedRun(tenant=NO_TENANT, run_id="f" * 32, is_failure=True, packed=b"x" * 10_000)
    labels.keep([later], START)
    assert labels.kept(NO_TENANT, "f" * 32) is None
    assert labels.kept(NO_TENANT, TRACE) is not None


def test_half_the_weight_is_half_the_evidence() -> None:
    """Two runs of weight one half count like one of weight 1; a run of weight 0 counts nothing."""
    pytest.importorskip("sklearn")
    first, second = [[1.0, 0.0], [0.0, 1.0]], [[0.3, 0.4], [0.5, 0.1]]
    once = fit_linear([first, second, second], [0, 1, 1], 1.0, [1.0, 0.5, 0.5])
    again = fit_linear([first, second, second], [0, 1, 0], 1.0, [1.0, 1.0, 0.0])
    assert once == pytest.approx(again, rel=1e-3)


def test_if_the_store_refuses_a_result_only_that_result_is_missing_on_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A backtest's exit code 1 would say that nothing is fixed."""
    monkeypatch.setenv("BLAMESPAN_DATA_DIR", str(tmp_path / "none"))
    subject = experiment_runs.Subject(tenant=NO_TENANT, id="run", service="shop")
    given = Remembered(options=(), command=())
    experiment_runs.keep_report(Report(head="fixed", lines=()), "backtest", given, [subject])
    assert "the result is not kept for the pages: " in capsys.readouterr().err
