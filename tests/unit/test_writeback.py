"""A verdict's version, and the bytes that it sends."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from collector_processor.core.records import PERSON, Carriers, StoredVerdict
from collector_processor.otlp import NO_TENANT, Signal, Tenant
from collector_processor.rebuild.decode import decode, decode_logs
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.outgoing import Decision, WriteBack, provisional, write_back
from semconv.model import Abstention, Attribution, Blame, Resource, Span, Status
from tests.factories import TRACE, agent, chat, span_id, workflow
from tests.otlp_requests import numbers_in

SPANS = (
    workflow(1, task="sum"),
    agent(2, "planner"),
    chat(3, parent=2, answer="1"),
    agent(4, "writer"),
    chat(5, parent=4, answer="2"),
)
POLICY = CarrierPolicy()
DECISIVE = "blamespan.failure.decisive"


def decision(
    step: int | None = 0, *, previous: StoredVerdict | None = None, confidence: float = 0.9
) -> Decision:
    (run,) = rebuild([encode(SPANS)])
    verdict: Blame | Abstention = Abstention(status=Status.NO_FAILURE, reason="fine")
    if step is not None:
        agent_name = run.trajectory.steps[step].agent
        verdict = Blame(agent=agent_name, step=step, reason="wrong sum", confidence=confidence)
    told = Attribution(run_id=TRACE, verdict=verdict, method="scripted")
    return Decision(run=run, attribution=told, document="{}", previous=previous, tenant=NO_TENANT, now_ns=7)


def told(step: int | None = 0) -> StoredVerdict:
    return write_back(decision(step), POLICY).verdict


def carriers(back: WriteBack) -> list[Span]:
    return [span for out in back.outgoing if out.signal is Signal.TRACES for span in decode(out.body).spans]


def test_the_first_verdict_is_version_1_with_carriers_and_an_evaluation() -> None:
    back = write_back(decision(), POLICY)
    assert (back.verdict.version, back.verdict.agent, back.verdict.step) == (1, "planner", 0)
    assert (back.verdict.service, back.verdict.decided_ns, back.verdict.is_provisional) == ("test", 7, False)
    decisive, root = ("planner: decisive error", span_id(3)), ("failure: planner", span_id(1))
    assert [(one.name, one.parent_id) for one in carriers(back)] == [decisive, root]
    (log,) = [out for out in back.outgoing if out.signal is Signal.LOGS]
    assert [entry.span_id for entry in decode_logs(log.body)] == [span_id(1), span_id(3)]
    assert back.rewrites == ()


def spread(*order: int) -> Decision:
    """Return a verdict on a run over two services, whose spans arrived in this order."""
    shop, tools = (Resource(attributes={"service.name": name}) for name in ("shop", "tools"))
    spans = [replace(span, resource=shop if span is SPANS[0] else tools) for span in SPANS]
    (run,) = rebuild([encode([spans[place]]) for place in order])
    return replace(decision(), run=run)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)])
def test_a_run_belongs_to_its_roots_service(order: tuple[int, ...]) -> None:
    assert write_back(spread(*order), POLICY).verdict.service == "shop"


def test_a_run_belongs_to_its_earliest_spans_service_until_the_root_arrives() -> None:
    early = write_back(spread(4, 2, 3, 1), POLICY).verdict
    assert early.service == "tools"
    late = write_back(replace(spread(4, 2, 3, 1, 0), previous=early), POLICY).verdict
    assert (late.service, late.version, late.failure_id) == ("shop", early.version, early.failure_id)


def test_the_same_decision_is_the_same_bytes() -> None:
    assert write_back(decision(), POLICY) == write_back(decision(), POLICY)


def test_an_unchanged_verdict_sends_nothing() -> None:
    before = told()
    back = write_back(decision(previous=before, confidence=0.1), POLICY)
    assert back == WriteBack(verdict=before, place=back.place)


def test_a_step_that_late_spans_moved_is_the_same_step_under_its_new_number() -> None:
    """Nothing is written into the trace again; the page and labels use the current step number."""
    before = replace(told(1), step=0, document="old", decided_ns=3)
    back = write_back(decision(1, previous=before), POLICY)
    assert (back.verdict.step, back.verdict.document) == (1, "{}")
    assert (back.verdict.version, back.verdict.failure_id) == (before.version, before.failure_id)
    assert (back.verdict.decided_ns, back.outgoing) == (3, ())


ANOTHER_STEP = ["writer: decisive error", "failure: writer, replaces verdict 1"]


@pytest.mark.parametrize(
    ("step", "names"),
    [
        pytest.param(1, [*ANOTHER_STEP, *["withdrawn: planner → writer"] * 2], id="another step"),
        pytest.param(
            None, ["no failure found, replaces verdict 1", *["withdrawn: planner"] * 2], id="no failure"
        ),
    ],
)
def test_a_changed_verdict_supersedes_and_withdraws_beside_the_old_one(
    step: int | None, names: list[str]
) -> None:
    before = told()
    back = write_back(decision(step, previous=before), POLICY)
    made = carriers(back)
    assert [one.name for one in made] == names
    assert [one.parent_id for one in made[-2:]] == [before.span_id, span_id(1)]
    for one in made[-2:]:
        assert one.attributes["blamespan.failure.status"] == "withdrawn"
        assert one.attributes["blamespan.failure.supersedes"] == before.failure_id
        assert one.attributes["blamespan.failure.withdrawn.version"] == 1
        assert DECISIVE not in one.attributes
    assert back.verdict.version == 2
    assert {one.attributes["blamespan.failure.id"] for one in made} == {back.verdict.failure_id}
    assert back.verdict.failure_id != before.failure_id


def test_without_an_earlier_blame_nothing_is_withdrawn() -> None:
    back = write_back(decision(0, previous=told(None)), POLICY)
    names = [one.name for one in carriers(back)]
    assert names == ["planner: decisive error", "failure: planner, replaces verdict 1"]
    assert back.verdict.version == 2


def test_a_provisional_verdict_was_never_written_and_is_never_withdrawn() -> None:
    before = provisional(decision(1))
    assert before.is_provisional
    back = write_back(decision(0, previous=before), POLICY)
    assert [one.name for one in carriers(back)] == ["planner: decisive error", "failure: planner"]
    assert (back.verdict.version, back.verdict.is_provisional) == (1, False)


def test_a_provisional_verdict_that_is_confirmed_is_written() -> None:
    assert carriers(write_back(decision(0, previous=provisional(decision(0))), POLICY))


def test_carriers_belong_to_the_runs_tenant() -> None:
    mine = replace(decision(), tenant=Tenant("x-scope-orgid=acme"))
    back = write_back(mine, POLICY)
    assert {out.tenant for out in back.outgoing} == {mine.tenant} == {back.verdict.tenant}


class TestWhatIsWritten:
    def test_a_run_that_passed_gets_no_span_unless_all_are_wanted(self) -> None:
        assert carriers(write_back(decision(None), POLICY)) == []
        (root,) = carriers(write_back(decision(None), CarrierPolicy(carriers=Carriers.ALL)))
        assert root.name == "no failure found"

    @pytest.mark.parametrize("status", ["waiting", "cancelled"])
    def test_nor_does_one_that_waits_or_was_cancelled(self, status: str) -> None:
        verdict = Abstention(status=Status(status), reason="no end yet")
        told = Attribution(run_id=TRACE, verdict=verdict, method="triage")
        unfinished = replace(decision(None), attribution=told)
        assert write_back(unfinished, POLICY).outgoing == ()
        (root,) = carriers(write_back(unfinished, CarrierPolicy(carriers=Carriers.ALL)))
        assert root.name == status

    def test_a_passing_run_is_left_alone_in_hold_mode_too(self) -> None:
        assert write_back(decision(None), POLICY, {8: encode(SPANS)}).rewrites == ()

    def test_with_none_nothing_is_written_whatever_was_said_before(self) -> None:
        silent = CarrierPolicy(carriers=Carriers.NONE)
        assert carriers(write_back(decision(1, previous=told()), silent)) == []
        assert write_back(decision(), silent, {8: encode(SPANS)}).rewrites == ()

    def test_an_original_with_an_error_of_its_own_keeps_it(self) -> None:
        spans = (*SPANS[:2], replace(SPANS[2], attributes={**SPANS[2].attributes, "error": "timeout"}))
        (run,) = rebuild([encode(spans)])
        ((_, body),) = write_back(replace(decision(), run=run), POLICY, {8: encode(spans)}).rewrites
        (original,) = [one for one in decode(body).spans if one.span_id == span_id(3)]
        assert original.attributes["error"] == "timeout"
        assert body.count(b"\n\x05error") == 1


class TestAPersonsWord:
    def word(self, step: int = 1) -> StoredVerdict:
        said = replace(decision(step).attribution, method=PERSON)
        persons = replace(decision(step, previous=told()), attribution=said, document='{"method": "person"}')
        return write_back(persons, POLICY).verdict

    def test_is_kept_whatever_a_later_analysis_finds(self) -> None:
        before = self.word()
        back = write_back(decision(0, previous=before), POLICY)
        assert (back.verdict, back.outgoing) == (before, ())

    def test_follows_its_step_to_a_new_number(self) -> None:
        before = replace(self.word(), step=7)
        moved = write_back(decision(0, previous=before), POLICY).verdict
        assert (moved.step, moved.agent, json.loads(moved.document)["step"]) == (1, "writer", 1)

    def test_turns_an_unknown_outcome_into_a_pass(self) -> None:
        said = replace(decision(None).attribution, method=PERSON)
        before = decision(None, previous=told(None))
        persons = replace(before, attribution=said, document='{"method": "person"}')
        back = write_back(persons, POLICY)
        (out,) = back.outgoing
        (log,) = decode_logs(out.body)
        assert (back.verdict.version, log.event.attributes["gen_ai.evaluation.score.label"]) == (2, "pass")
        again = write_back(replace(persons, previous=back.verdict), POLICY)
        assert again.outgoing == ()


class TestHeld:
    def test_originals_get_the_attributes_and_nothing_else_changes(self) -> None:
        held = {8: encode(SPANS[:3]), 9: encode(SPANS[3:])}
        back = write_back(decision(), POLICY, held)
        ((seq, body),) = back.rewrites
        assert (seq, numbers_in(body), carriers(back)) == (8, [1, 2, 3], [])
        sent = {span.span_id: span for span in decode(body).spans}
        assert sent[span_id(3)].attributes[DECISIVE] is True
        assert sent[span_id(1)].attributes["blamespan.failure.agent.name"] == "planner"
        assert DECISIVE not in sent[span_id(1)].attributes
        before = {span.span_id: span for span in decode(held[8]).spans}
        for name, span in sent.items():
            added = {key for key in span.attributes if key.startswith(("blamespan.", "annotations."))}
            added |= {"error"} if name == span_id(3) else set()
            own = {key: value for key, value in span.attributes.items() if key not in added}
            assert replace(span, attributes=own) == before[name]

    def test_evaluations_are_annotations_at_the_next_free_index(self) -> None:
        theirs = {"annotations.4.annotation.name": "tone", "annotations.x": "theirs"}
        taken = replace(SPANS[2], attributes={**SPANS[2].attributes, **theirs})
        spans = (*SPANS[:2], taken, *SPANS[3:])
        (run,) = rebuild([encode(spans)])
        held = {8: encode(spans)}
        ((_, body),) = write_back(replace(decision(), run=run), POLICY, held).rewrites
        sent = {span.span_id: span.attributes for span in decode(body).spans}
        assert sent[span_id(1)]["annotations.0.annotation.name"] == "task_success"
        decisive = sent[span_id(3)]
        assert decisive["annotations.4.annotation.name"] == "tone"
        assert decisive["annotations.5.annotation.name"] == "failure_attribution"
        assert decisive["annotations.5.annotation.identifier"] == "blamespan"
        metadata = {"version": 1, "failure_id": decisive["blamespan.failure.id"]}
        assert decisive["annotations.5.annotation.metadata"] == json.dumps(metadata)
        (again,) = rebuild([body])
        assert again.trajectory.outcome is None, "our own evaluations are not read back"
        assert not any(step.failed_evaluations for step in again.trajectory.steps)

    def test_what_is_in_two_rows_is_written_into_both(self) -> None:
        held = {8: encode(SPANS[:1]), 9: encode(SPANS[1:])}
        back = write_back(decision(), POLICY, held)
        assert [seq for seq, _ in back.rewrites] == [8, 9]

    def test_what_went_on_before_gets_a_carrier(self) -> None:
        back = write_back(decision(), POLICY, {9: encode(SPANS[1:])})
        assert [seq for seq, _ in back.rewrites] == [9]
        assert [one.name for one in carriers(back)] == ["failure: planner"]

    def test_a_withdrawal_is_a_carrier_even_then(self) -> None:
        back = write_back(decision(1, previous=told()), POLICY, {8: encode(SPANS)})
        assert [one.name for one in carriers(back)] == ["withdrawn: planner → writer"] * 2
        assert len(back.rewrites) == 1
