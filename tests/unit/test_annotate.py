"""Attributes that a verdict adds to a trace, and what it must not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from inline_snapshot import snapshot
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from analyzer.analyses.composition import carrier_policy
from collector_processor.rebuild.decode import decode_logs
from collector_processor.rebuild.encode import encode_logs
from collector_processor.rebuild.redaction import keep, omit
from collector_processor.settings import load_settings
from collector_processor.writeback.annotate import (
    CarrierPolicy,
    Judgement,
    Withdrawn,
    decisive_attributes,
    root_attributes,
)
from collector_processor.writeback.carriers import MAX_NAME, carriers, evaluation_logs, withdrawal
from semconv.model import (
    Abstention,
    Attribution,
    Blame,
    Change,
    Evidence,
    Link,
    Origin,
    Outcome,
    Passed,
    Ranked,
    Resource,
    Span,
    SpanId,
    SpanStatus,
    Status,
    Step,
    StepKind,
    Trace,
    TraceId,
    Trajectory,
    ValueOrigin,
)

TRACE = TraceId("0af7651916cd43dd8448eb211c80319c")
ROOT, CHAT = SpanId("00000000000000aa"), SpanId("00000000000000bb")
RESOURCE = Resource(attributes={"service.name": "shop", "team": "blue"})
SPAN = Span(trace_id=TRACE, span_id=ROOT, name="", start_ns=20_000, end_ns=50_000, resource=RESOURCE)
SPANS = (
    replace(SPAN, span_id=ROOT, name="invoke_workflow", start_ns=1_000, end_ns=90_000),
    replace(SPAN, span_id=CHAT, parent_id=ROOT, name="chat", trace_state="vendor=1", flags=0x101),
)
RUN = Trace(spans=SPANS)
STEP = Step(index=0, agent="calculator", kind=StepKind.LLM, trace_id=TRACE, span_id=CHAT, output="$450")
TRAJECTORY = Trajectory(
    run_id=TRACE,
    steps=(STEP,),
    agents=("calculator",),
    dialects=("blamespan",),
    root_trace_id=TRACE,
    root_span_id=ROOT,
)
BLAME = Blame(
    agent="calculator",
    step=0,
    reason="the tool said 480, mail ann@example.com",
    confidence=0.8,
    fix="report 480",
    mode="contradicts_tool",
    evidence=(Evidence(step=0, quote="$450"),),
    ranking=(Ranked(step=0, agent="calculator", probability=0.8),),
)
PASSED = Abstention(status=Status.NO_FAILURE, reason="the run did its task")


def judgement(
    verdict: Blame | Abstention = BLAME, version: int = 1, supersedes: str | None = None
) -> Judgement:
    told = Attribution(run_id=TRACE, verdict=verdict, method="signals")
    return Judgement(trajectory=TRAJECTORY, attribution=told, version=version, supersedes=supersedes)


def marked(told: Judgement | None = None, **policy: Any) -> tuple[Span, ...]:
    """Return the carriers of a judgement on the run."""
    return carriers(told or judgement(), RUN, CarrierPolicy(**policy))


def test_the_decisive_carrier_is_a_child_of_the_decisive_span_and_copies_its_resource() -> None:
    decisive, _ = marked()
    assert (decisive.trace_id, decisive.parent_id) == (TRACE, CHAT)
    assert decisive.name == "calculator: contradicts tool"
    assert decisive.resource == RESOURCE
    assert (decisive.start_ns, decisive.end_ns) == (20_000, 21_000)
    assert (decisive.trace_state, decisive.flags) == ("vendor=1", 1)
    assert (decisive.kind, decisive.status, decisive.links) == (1, SpanStatus.UNSET, ())
    assert decisive.scope.name == "blamespan"


@pytest.mark.parametrize(
    ("setting", "blamed", "suspected"),
    [
        ("unset", (SpanStatus.UNSET, True), (SpanStatus.UNSET, None)),
        ("error", (SpanStatus.ERROR, True), (SpanStatus.UNSET, None)),
        ("error-suspected", (SpanStatus.ERROR, True), (SpanStatus.ERROR, True)),
    ],
)
def test_the_setting_says_which_carriers_are_errors(
    setting: str, blamed: tuple[SpanStatus, bool | None], suspected: tuple[SpanStatus, bool | None]
) -> None:
    policy = carrier_policy(load_settings({"BLAMESPAN_CARRIER_STATUS": setting}))
    suspicion = replace(BLAME, status=Status.SUSPECTED)
    for verdict, expected in ((BLAME, blamed), (suspicion, suspected)):
        decisive, root = carriers(judgement(verdict), RUN, policy)
        assert (decisive.status, decisive.attributes.get("error")) == expected
        assert root.status is SpanStatus.UNSET


FAILURE_ID = "221642f76cfc2bb1879c562c710ab252"
ON_BOTH = {
    "blamespan.carrier": True,
    "error": True,
    "blamespan.run.id": TRACE,
    "blamespan.failure.id": FAILURE_ID,
    "blamespan.failure.status": "attributed",
    "blamespan.failure.version": 1,
    "blamespan.failure.method": "signals",
    "blamespan.failure.model": "none",
    "blamespan.failure.fallback": "none",
    "blamespan.failure.explanation": "the tool said 480, mail [e-mail]",
    "blamespan.failure.agent.name": "calculator",
    "blamespan.failure.step.index": 0,
    "blamespan.failure.accused": True,
    "blamespan.failure.step.span_id": CHAT,
    "blamespan.failure.mode": "contradicts_tool",
    "blamespan.failure.confidence": 0.8,
    "blamespan.failure.fix": "report 480",
    "openinference.span.kind": "EVALUATOR",
    "evaluations.0.evaluation.score": 0.0,
    "evaluations.0.evaluation.explanation": "the tool said 480, mail [e-mail]",
    "evaluations.0.evaluation.annotator_kind": "CODE",
    "evaluations.0.evaluation.identifier": FAILURE_ID,
}


def test_attributes_of_the_decisive_carrier() -> None:
    decisive, _ = marked()
    assert decisive.attributes == ON_BOTH | {
        "blamespan.failure.decisive": True,
        "blamespan.failure.rank": 1,
        "blamespan.step.index": 0,
        "blamespan.step.kind": "llm",
        "blamespan.step.agent.name": "calculator",
        "blamespan.step.agent.source": "span",
        "blamespan.step.content.state": "complete",
        "evaluations.0.evaluation.name": "failure_attribution",
        "evaluations.0.evaluation.label": "contradicts_tool",
    }


MOVED = ValueOrigin(
    value="$450",
    origin=Origin.NOWHERE,
    step=0,
    chain=(
        Passed(step=2, value="$480", change=Change.SAID),
        Passed(step=0, value="$450", change=Change.CHANGED),
    ),
)


def values_on(lineage: ValueOrigin, reason: str, policy: CarrierPolicy) -> dict[str, object]:
    verdict = replace(BLAME, reason=reason)
    attribution = Attribution(run_id=TRACE, verdict=verdict, method="signals", lineage=(lineage,))
    decisive, _ = carriers(
        Judgement(trajectory=TRAJECTORY, attribution=attribution, version=1, supersedes=None), RUN, policy
    )
    named = decisive.attributes.items()
    return {name: value for name, value in named if name.startswith("blamespan.failure.value")}


def test_the_decisive_carrier_has_the_wrong_value_and_the_right_one() -> None:
    assert values_on(MOVED, "gave $450; lookup returned $480", CarrierPolicy()) == {
        "blamespan.failure.value": "$450",
        "blamespan.failure.value.origin": "nowhere",
        "blamespan.failure.value.expected": "$480",
        "blamespan.failure.value.step.index": 2,
    }
    made_up = replace(MOVED, chain=(Passed(step=0, value="$450", change=Change.SAID),))
    assert values_on(made_up, "gave $450, which no tool returned", CarrierPolicy()) == {
        "blamespan.failure.value": "$450",
        "blamespan.failure.value.origin": "nowhere",
    }


def test_values_are_content_and_belong_to_the_reason() -> None:
    without_text = values_on(MOVED, "gave $450", CarrierPolicy(clean=omit))
    assert set(without_text) == {"blamespan.failure.value.origin", "blamespan.failure.value.step.index"}
    assert values_on(MOVED, "called the tool three times", CarrierPolicy()) == {}


def test_a_value_without_a_chain_is_on_no_carrier() -> None:
    assert values_on(replace(MOVED, chain=()), "gave $450", CarrierPolicy()) == {}


def test_attributes_of_the_roots_carrier() -> None:
    _, root = marked()
    assert (root.parent_id, root.start_ns, root.end_ns) == (ROOT, 1_000, 2_000)
    assert root.links == (Link(trace_id=TRACE, span_id=CHAT),)
    assert root.attributes == ON_BOTH | {
        "blamespan.run.complete": True,
        "blamespan.run.step.count": 1,
        "blamespan.run.agents": ("calculator",),
        "blamespan.run.dialects": ("blamespan",),
        "evaluations.0.evaluation.name": "task_success",
        "evaluations.0.evaluation.label": "fail",
    }


def test_a_verdict_without_blame_writes_only_the_roots_carrier() -> None:
    (root,) = marked(judgement(PASSED))
    assert root.parent_id == ROOT
    assert root.attributes["blamespan.failure.status"] == "no_failure"
    assert "error" not in root.attributes


def test_the_same_version_gives_the_same_span_ids_and_another_version_others() -> None:
    first = [span.span_id for span in marked()]
    assert first == [span.span_id for span in marked()]
    second = [span.span_id for span in carriers(judgement(version=2), RUN, CarrierPolicy())]
    assert not set(first) & set(second)
    assert len(set(first)) == 2


def test_a_blamed_root_gets_two_carriers_with_ids_of_their_own_and_no_link() -> None:
    step = replace(TRAJECTORY.steps[0], span_id=ROOT)
    crashed = replace(judgement(), trajectory=replace(TRAJECTORY, steps=(step,)))
    decisive, root = carriers(crashed, RUN, CarrierPolicy())
    assert decisive.parent_id == root.parent_id == ROOT
    assert decisive.span_id != root.span_id
    assert root.links == ()


def test_without_a_root_span_the_verdict_is_on_the_earliest_span() -> None:
    orphaned = Trace(spans=SPANS[1:])
    lost = replace(judgement(PASSED), trajectory=replace(TRAJECTORY, root_trace_id=None, root_span_id=None))
    (carrier,) = carriers(lost, orphaned, CarrierPolicy())
    assert carrier.parent_id == CHAT


@pytest.mark.parametrize(
    ("clean", "explanation"),
    [
        pytest.param(CarrierPolicy().clean, "the tool said 480, mail [e-mail]", id="redacted"),
        pytest.param(keep, "the tool said 480, mail ann@example.com", id="full"),
        pytest.param(omit, None, id="none"),
    ],
)
def test_the_policy_decides_which_texts_are_exported(clean: object, explanation: str | None) -> None:
    policy = CarrierPolicy(clean=clean)  # type: ignore[arg-type]
    attributes = decisive_attributes(judgement(), policy)
    assert attributes.get("blamespan.failure.explanation") == explanation
    _, log = evaluation_logs(judgement(), RUN, policy, now_ns=7)
    assert log.event.attributes.get("gen_ai.evaluation.explanation") == explanation


def test_a_providers_error_message_is_in_no_span() -> None:
    told = "signals, because judge failed: 401 Incorrect key sk-proj-abcdefghijklmnop1234"
    fallen = replace(judgement(), attribution=replace(judgement().attribution, fallback=told))
    for carrier in carriers(fallen, RUN, CarrierPolicy(clean=keep)):
        assert carrier.attributes["blamespan.failure.fallback"] == "signals, because judge failed"


def test_a_span_at_the_end_of_time_gets_a_carrier_all_the_same() -> None:
    late = replace(SPANS[1], start_ns=2**64 - 1, end_ns=2**64 - 1)
    decisive, _ = carriers(judgement(), Trace(spans=(SPANS[0], late)), CarrierPolicy())
    assert (decisive.start_ns, decisive.end_ns) == (2**64 - 1001, 2**64 - 1)


def test_strings_are_shorter_than_tempos_limit() -> None:
    long = replace(BLAME, reason="ä" * 5_000)
    text = decisive_attributes(judgement(long), CarrierPolicy())["blamespan.failure.explanation"]
    assert isinstance(text, str)
    assert len(text.encode()) <= 2_000
    assert text.endswith("ä…")


def test_the_evaluation_event_belongs_to_the_decisive_span() -> None:
    _, log = evaluation_logs(judgement(), RUN, CarrierPolicy(), now_ns=7)
    assert (log.trace_id, log.span_id) == (TRACE, CHAT)
    assert (log.event.name, log.event.time_ns) == ("gen_ai.evaluation.result", 7)
    assert log.event.attributes["gen_ai.evaluation.name"] == "failure_attribution"
    assert log.event.attributes["gen_ai.evaluation.score.label"] == "contradicts_tool"
    assert log.event.attributes["blamespan.failure.agent.name"] == "calculator"
    assert log.resource == RESOURCE


def test_the_evaluation_event_is_understood_in_a_list_of_logs() -> None:
    _, log = evaluation_logs(judgement(), RUN, CarrierPolicy(clean=omit), now_ns=7)
    assert isinstance(log.event.body, str)
    assert log.event.body.startswith("calculator broke the run at step ")
    assert "480" not in log.event.body, "prose stays out of it"
    sent = ExportLogsServiceRequest.FromString(encode_logs([log]))
    (raw,) = sent.resource_logs[0].scope_logs[0].log_records
    assert (raw.severity_number, raw.severity_text, raw.body.string_value) == (13, "WARN", log.event.body)
    (back,) = decode_logs(encode_logs([log]))
    assert (back.severity, back.event.body) == (13, log.event.body)


def test_without_a_destination_for_logs_there_is_no_evaluation_event() -> None:
    assert evaluation_logs(judgement(), RUN, CarrierPolicy(logs=False), now_ns=7) == ()


def test_a_changed_verdict_names_the_superseded_one_and_withdraws_its_carriers() -> None:
    old, new = judgement(), judgement(PASSED, version=2, supersedes=judgement().failure_id)
    assert root_attributes(new, CarrierPolicy())["blamespan.failure.supersedes"] == old.failure_id
    blamed = Withdrawn(agent="calculator", version=1, marked=(TRACE, CHAT))
    beside, under_root = withdrawal(new, blamed, RUN, CarrierPolicy())
    assert [(one.parent_id, one.name) for one in (beside, under_root)] == [
        (CHAT, "withdrawn: calculator"),
        (ROOT, "withdrawn: calculator"),
    ]
    assert beside.attributes == snapshot(
        {
            "blamespan.carrier": True,
            "blamespan.run.id": "0af7651916cd43dd8448eb211c80319c",
            "blamespan.failure.id": "3560dca04eca98d5ec52d84f2af53a16",
            "blamespan.failure.version": 2,
            "blamespan.failure.status": "withdrawn",
            "blamespan.failure.supersedes": "221642f76cfc2bb1879c562c710ab252",
            "blamespan.failure.withdrawn.agent.name": "calculator",
            "blamespan.failure.withdrawn.version": 1,
            "blamespan.failure.method": "signals",
        }
    )
    unmarked = replace(blamed, marked=None)
    assert [one.parent_id for one in withdrawal(new, unmarked, RUN, CarrierPolicy())] == [ROOT]
    gone = replace(blamed, marked=(TRACE, SpanId("f" * 16)))
    assert [one.parent_id for one in withdrawal(new, gone, RUN, CarrierPolicy())] == [ROOT]


LONG_NAME = "the senior research assistant"


@pytest.mark.parametrize(
    ("agent", "mode", "name"),
    [
        ("calculator", "wrong_computation", "failure: calculator (wrong computation)"),
        ("calculator", "", "failure: calculator"),
        ("weather_agent", "wrong_computation", "failure: weather_agent (wrong computation)"),
        ("senior research assistant", "loop", "failure: senior research assistant (loop)"),
        (f"{LONG_NAME} of Berlin", "gave_up", "failure: the senior research assi… (gave up)"),
        ("two\nlines", "loop", "failure: two lines (loop)"),
        ("a" * 99, "m" * 99, f"failure: {'a' * 34}…"),
    ],
)
def test_the_roots_carrier_is_named_for_people_and_short(agent: str, mode: str, name: str) -> None:
    _, root = carriers(judgement(replace(BLAME, agent=agent, mode=mode)), RUN, CarrierPolicy())
    assert root.name == name
    assert len(root.name) <= MAX_NAME
    assert root.attributes["blamespan.failure.agent.name"] == agent


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (Status.NO_FAILURE, "no failure found"),
        (Status.UNDETERMINED, "failure: undetermined"),
        (Status.ERROR, "not analysed"),
    ],
)
def test_without_blame_the_roots_carrier_says_so_and_is_not_an_error(status: Status, name: str) -> None:
    (root,) = carriers(judgement(Abstention(status=status, reason="")), RUN, CarrierPolicy())
    assert (root.name, "error" in root.attributes) == (name, False)


SUSPICION = replace(BLAME, status=Status.SUSPECTED, confidence=0.3, failed_probability=0.9)


def test_a_suspicion_has_the_probabilities_of_a_failure_and_of_this_step() -> None:
    for carrier in marked(judgement(SUSPICION)):
        assert carrier.attributes["blamespan.failure.confidence"] == 0.3
        assert carrier.attributes["blamespan.failure.probability"] == 0.9
    for carrier in marked():
        assert "blamespan.failure.probability" not in carrier.attributes
    _, log = evaluation_logs(judgement(SUSPICION), RUN, CarrierPolicy(), 1)
    assert log.event.body == (
        "suspected failure (0.90): calculator at step 0 (contradicts tool), confidence 0.30"
    )


def test_carriers_name_the_rules_that_gave_the_verdict() -> None:
    told = judgement()
    told = replace(told, attribution=replace(told.attribution, rules="7"))
    for carrier in carriers(told, RUN, CarrierPolicy()):
        assert carrier.attributes["blamespan.failure.rules"] == "7"


@pytest.mark.parametrize(
    ("verdict", "outcome", "method", "score", "label"),
    [
        (BLAME, None, "signals", 0.0, "fail"),
        (SUSPICION, None, "signals", None, "unknown"),
        (PASSED, None, "signals", None, "unknown"),
        (PASSED, Outcome.SUCCESS, "signals", 1.0, "pass"),
        (PASSED, None, "person", 1.0, "pass"),
        (Abstention(status=Status.UNDETERMINED, reason=""), Outcome.SUCCESS, "signals", None, "unknown"),
        (Abstention(status=Status.UNREADABLE, reason=""), None, "signals", None, "unknown"),
        (Abstention(status=Status.ERROR, reason=""), None, "signals", None, "unknown"),
    ],
)
def test_a_run_is_scored_only_if_its_outcome_was_stated(
    verdict: Blame | Abstention, outcome: Outcome | None, method: str, score: float | None, label: str
) -> None:
    told = replace(judgement(verdict), trajectory=replace(TRAJECTORY, outcome=outcome))
    told = replace(told, attribution=replace(told.attribution, method=method))
    log = evaluation_logs(told, RUN, CarrierPolicy(), 7)[0]
    given, root = log.event.attributes, marked(told)[-1].attributes
    assert (log.span_id, given["gen_ai.evaluation.name"]) == (ROOT, "task_success")
    assert given.get("gen_ai.evaluation.score.value") == root.get("evaluations.0.evaluation.score") == score
    assert given["gen_ai.evaluation.score.label"] == root["evaluations.0.evaluation.label"] == label


@pytest.mark.parametrize(("verdict", "score"), [(BLAME, 0.0), (SUSPICION, None)])
def test_the_blame_is_labelled_by_its_mode_and_scored_only_for_a_failure(
    verdict: Blame, score: float | None
) -> None:
    log = evaluation_logs(judgement(verdict), RUN, CarrierPolicy(), 7)[1].event.attributes
    decisive, _ = carriers(judgement(verdict), RUN, CarrierPolicy())
    assert log.get("gen_ai.evaluation.score.value") == score
    assert decisive.attributes.get("evaluations.0.evaluation.score") == score
    assert log["gen_ai.evaluation.score.label"] == "contradicts_tool"
    assert decisive.attributes["evaluations.0.evaluation.label"] == "contradicts_tool"
    assert log["blamespan.failure.confidence"] == verdict.confidence


@pytest.mark.parametrize("status", [Status.WAITING, Status.CANCELLED])
def test_runs_that_have_not_ended_are_not_evaluated(status: Status) -> None:
    waiting = judgement(Abstention(status=status, reason=""))
    assert evaluation_logs(waiting, RUN, CarrierPolicy(), 7) == ()
    (root,) = carriers(waiting, RUN, CarrierPolicy())
    assert "evaluations.0.evaluation.name" not in root.attributes


def test_one_search_finds_all_that_is_blamed() -> None:
    for verdict in (BLAME, SUSPICION):
        made = carriers(judgement(verdict), RUN, CarrierPolicy())
        assert made
        assert all(each.attributes["blamespan.failure.accused"] is True for each in made)
    (passed,) = marked(judgement(PASSED))
    assert "blamespan.failure.accused" not in passed.attributes


@pytest.mark.parametrize(
    ("verdict", "name"),
    [
        (BLAME, "failure: calculator, replaces verdict 1"),
        (replace(BLAME, mode="loop"), "failure: calculator, replaces verdict 1"),
        (replace(BLAME, agent="clerk", mode="loop"), "failure: clerk (loop), replaces verdict 1"),
        (SUSPICION, "suspected: calculator, replaces verdict 1"),
        (PASSED, "no failure found, replaces verdict 1"),
    ],
)
def test_a_new_verdicts_carrier_names_the_one_it_replaces(verdict: Blame | Abstention, name: str) -> None:
    new = judgement(verdict, version=2, supersedes=judgement().failure_id)
    root = carriers(new, RUN, CarrierPolicy())[-1]
    assert root.name == name
    assert len(root.name) <= MAX_NAME


def test_carriers_link_to_the_runs_page_and_to_its_step_where_we_have_pages() -> None:
    policy = CarrierPolicy(web_url="https://blame.example")
    decisive, root = carriers(judgement(), RUN, policy)
    assert root.attributes["blamespan.run.url"] == f"https://blame.example/runs/{TRACE}"
    assert decisive.attributes["blamespan.run.url"] == f"https://blame.example/runs/{TRACE}?step=0#step-0"


def test_both_traces_of_a_run_name_the_culprit_and_the_other_trace() -> None:
    other = TraceId("b" * 32)
    spans = (SPANS[0], replace(SPANS[1], trace_id=other, parent_id=None))
    step = replace(TRAJECTORY.steps[0], trace_id=other)
    joined = replace(judgement(), trajectory=replace(TRAJECTORY, steps=(step,)))
    decisive, root = carriers(joined, Trace(spans=spans), CarrierPolicy())
    assert (decisive.trace_id, root.trace_id) == (other, TRACE)
    for carrier in (decisive, root):
        assert carrier.attributes["blamespan.failure.agent.name"] == "calculator"
        assert carrier.attributes["blamespan.failure.step.trace_id"] == other
        assert carrier.attributes["blamespan.run.root.trace_id"] == TRACE


def test_an_agent_that_a_person_named_without_a_step_is_on_the_root_alone() -> None:
    (root,) = carriers(replace(judgement(), names_step=False), RUN, CarrierPolicy())
    assert root.name == "failure: calculator (contradicts tool)"
    assert "blamespan.failure.step.index" not in root.attributes


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("calculator", "researcher", "withdrawn: calculator → researcher"),
        ("calculator", "calculator", "withdrawn: calculator (another step)"),
        ("a" * 40, "b" * 40, f"withdrawn: {'a' * 14}… → {'b' * 14}…"),
    ],
)
def test_a_withdrawal_is_named_after_both_agents(old: str, new: str, name: str) -> None:
    blamed = Withdrawn(agent=old, version=1, marked=None)
    (carrier,) = withdrawal(judgement(replace(BLAME, agent=new), version=2), blamed, RUN, CarrierPolicy())
    assert carrier.name == name
    assert carrier.attributes["blamespan.failure.withdrawn.agent.name"] == old
    assert carrier.attributes["blamespan.failure.agent.name"] == new
