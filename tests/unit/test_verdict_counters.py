"""Counts of verdicts: each run once, moved by corrections, names bounded, new series at zero first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.metrics_core import Metric as Family

from analyzer.inquiry.verdict import FailureMode
from analyzer.telemetry.metric import MAX_AGENTS, MAX_LENGTH, MAX_SERVICES, OTHER, AgentNames, Kind, as_label
from analyzer.telemetry.metric_table import METRICS
from analyzer.telemetry.verdict_counters import (
    MAX_LAG_S,
    Counter,
    Move,
    Moving,
    RunCount,
    VerdictCounters,
    exemplar_of,
)
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT, Signal
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.outgoing import Decision, provisional, summary_of, write_back
from semconv.model import Abstention, Attribution, Blame, Effort, Resource, Span, Status, Verdict
from tests.factories import agent, chat, ordered, trace, workflow

SHOP = Resource(attributes={"service.name": "shop"})
DONE = Abstention(status=Status.NO_FAILURE, reason="it did its task")
POLICY = CarrierPolicy(clean=str)


def blame(name: str = "calculator", *, step: int = 0, mode: str = "loop", confidence: float = 0.75) -> Blame:
    return Blame(agent=name, step=step, reason="it went round", confidence=confidence, mode=mode)


def run_of(*agents: str) -> tuple[Span, ...]:
    spans = [workflow(1, answer="4")]
    for number, name in enumerate(agents, start=1):
        spans += [agent(2 * number, name), chat(2 * number + 1, parent=2 * number, answer=name)]
    return tuple(replace(span, resource=SHOP) for span in spans)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class World:
    """Decides verdicts on runs and passes them to the counters."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.counters = VerdictCounters(monotonic=self.clock)
        self.counted: dict[str, RunCount] = {}

    def decide(
        self,
        verdict: Verdict,
        *agents: str,
        previous: StoredVerdict | None = None,
        lag_s: float = 3.0,
        **attributed: object,
    ) -> Decision:
        spans = run_of(*(agents or ("planner", "calculator")))
        run = Run(trace=trace(*spans), trajectory=ordered(*spans))
        attribution = Attribution(run_id=run.trajectory.run_id, verdict=verdict, method="judge")
        return Decision(
            run=run,
            attribution=replace(attribution, **attributed),  # type: ignore[arg-type]
            document="{}",
            previous=previous,
            tenant=NO_TENANT,
            now_ns=max(span.end_ns for span in spans) + round(lag_s * 1e9),
        )

    def tell(self, decision: Decision) -> StoredVerdict:
        verdict = write_back(decision, POLICY).verdict
        summary = summary_of(decision)
        self.counters.count(summary, verdict)
        after = RunCount(
            service=verdict.service,
            status=verdict.status,
            agents=tuple(dict.fromkeys(step.agent for step in decision.run.trajectory.steps)),
            blamed=summary.blamed,
            mode=verdict_of.mode if isinstance(verdict_of := decision.attribution.verdict, Blame) else "",
        )
        run = self.counted.get(verdict.run_id)
        self.counted[verdict.run_id] = after
        self.counters.move(Move(before=run, after=after, exemplar=exemplar_of(verdict)))
        return verdict

    def shown(self, counter: Counter, settle_s: float = 0.0) -> dict[tuple[str, ...], float]:
        points = counter.points(self.clock.now, settle_s)
        return {point.labels: point.value for point in points}

    def lag(self) -> tuple[float, float]:
        """Return the number of measured lags, and their sum."""
        family = self.family("blamespan_analysis_lag_seconds")
        samples = {sample.name.removeprefix(family.name): sample.value for sample in family.samples}
        return samples["_count"], samples["_sum"]

    def family(self, name: str) -> Family:
        (family,) = (one for one in self.counters.collect(settle_s=0.0) if one.name == name)
        return family

    def stands(self, moving: Moving, settle_s: float = 0.0) -> dict[tuple[str, ...], float]:
        """Return the counts minus the withdrawn ones; each series must have both."""
        counted, withdrawn = (self.shown(one, settle_s) for one in (moving.counted, moving.withdrawn))
        assert set(counted) == set(withdrawn)
        return {labels: value - withdrawn[labels] for labels, value in counted.items()}

    def failures(self, settle_s: float = 0.0) -> dict[tuple[str, ...], float]:
        return {
            labels: value for labels, value in self.stands(self.counters.failures, settle_s).items() if value
        }


@pytest.fixture
def world() -> World:
    return World()


def test_a_failure_counts_for_the_blamed_agent_and_as_a_task_of_all(world: World) -> None:
    world.tell(world.decide(blame()))
    assert world.stands(world.counters.runs) == {("shop", "attributed"): 1}
    assert world.stands(world.counters.tasks) == {("shop", "planner"): 1, ("shop", "calculator"): 1}
    assert world.failures() == {("shop", "calculator", "loop"): 1}


def test_the_exemplar_is_the_span_to_blame(world: World) -> None:
    verdict = world.tell(world.decide(blame()))
    (exemplar,) = [
        one.exemplar for one in world.counters.failures.counted.points(world.clock.now, 0) if one.exemplar
    ]
    assert exemplar.labels == {"trace_id": verdict.trace_id, "span_id": verdict.span_id}


def test_an_agent_has_a_series_of_every_mode_from_its_first_task(world: World) -> None:
    world.tell(world.decide(DONE, "planner"))
    zero = {("shop", "planner", mode.value): 0.0 for mode in FailureMode}
    assert world.stands(world.counters.failures) == zero


def test_a_new_series_stays_at_zero_for_its_settling_time(world: World) -> None:
    world.tell(world.decide(blame()))
    assert world.failures(settle_s=30) == {}
    world.clock.now += 29.9
    assert world.failures(settle_s=30) == {}
    world.clock.now += 0.1
    assert world.failures(settle_s=30) == {("shop", "calculator", "loop"): 1}


def test_a_repeated_report_is_counted_once(world: World) -> None:
    first = world.tell(world.decide(blame()))
    world.tell(world.decide(blame(confidence=0.9), previous=first))
    assert world.failures() == {("shop", "calculator", "loop"): 1}
    assert world.shown(world.counters.superseded) == {(): 0}


def test_a_verdict_that_names_another_agent_moves_the_failure_and_no_counter_falls(world: World) -> None:
    first = world.tell(world.decide(blame()))
    world.tell(world.decide(blame("planner"), previous=first))
    assert world.failures() == {("shop", "planner", "loop"): 1}
    assert world.shown(world.counters.failures.counted)["shop", "calculator", "loop"] == 1
    assert world.shown(world.counters.failures.withdrawn)["shop", "calculator", "loop"] == 1
    assert world.stands(world.counters.runs) == {("shop", "attributed"): 1}
    assert world.shown(world.counters.superseded) == {(): 1}


def test_a_failure_that_proves_wrong_is_withdrawn(world: World) -> None:
    first = world.tell(world.decide(blame()))
    world.tell(world.decide(DONE, previous=first))
    assert world.failures() == {}
    assert world.stands(world.counters.runs) == {("shop", "attributed"): 0, ("shop", "no_failure"): 1}


def test_agents_that_a_later_analysis_finds_are_counted_with_a_task(world: World) -> None:
    first = world.tell(world.decide(DONE, "planner"))
    world.tell(world.decide(DONE, "planner", "calculator", previous=first))
    assert world.stands(world.counters.tasks) == {("shop", "planner"): 1, ("shop", "calculator"): 1}


def test_a_run_whose_root_comes_late_moves_to_the_roots_service(world: World) -> None:
    before = RunCount(service="tools", status="attributed", agents=("calculator",), blamed="calculator")
    world.counters.move(Move(before=None, after=before))
    world.counters.move(Move(before=before, after=replace(before, service="shop")))
    assert world.stands(world.counters.tasks) == {("tools", "calculator"): 0, ("shop", "calculator"): 1}
    assert world.failures() == {("shop", "calculator", "other"): 1}


def test_a_run_found_to_have_failed_after_all_becomes_a_failure(world: World) -> None:
    first = world.tell(world.decide(DONE))
    world.tell(world.decide(blame(), previous=first))
    assert world.failures() == {("shop", "calculator", "loop"): 1}
    assert world.stands(world.counters.tasks) == {("shop", "planner"): 1, ("shop", "calculator"): 1}


def test_the_final_verdict_counts_after_a_provisional_one(world: World) -> None:
    early = provisional(world.decide(blame()))
    world.tell(world.decide(blame(), previous=early))
    assert world.failures() == {("shop", "calculator", "loop"): 1}


def test_an_unknown_mode_is_counted_as_other(world: World) -> None:
    world.tell(world.decide(blame(mode="model's own prose about task 4711")))
    assert world.failures() == {("shop", "calculator", "other"): 1}


@pytest.mark.parametrize(
    ("lag_s", "counted"),
    [(3.0, (1, 3.0)), (-60.0, (1, 0.0)), (MAX_LAG_S + 1, (0, 0.0))],
    ids=["behind", "a clock ahead of ours", "played back"],
)
def test_lag_is_from_the_last_spans_end_to_the_verdict(
    world: World, lag_s: float, counted: tuple[int, float]
) -> None:
    world.tell(world.decide(DONE, lag_s=lag_s))
    assert world.lag() == pytest.approx(counted)


def test_the_lag_ends_when_the_backend_has_the_carrier(world: World) -> None:
    first = world.decide(blame())
    back = write_back(first, POLICY)
    world.counters.count(summary_of(first, back), back.verdict)
    assert world.lag() == (0, 0.0), "nobody can see it yet"
    (carried,) = [out for out in back.outgoing if out.ended_ns]
    assert carried.signal is Signal.TRACES
    world.counters.delivered(carried.ended_ns, first.now_ns + 60_000_000_000)
    assert world.lag() == (1, 63.0)


def test_a_verdict_that_replaces_another_adds_no_second_lag(world: World) -> None:
    first = world.tell(world.decide(blame()))
    second = world.decide(blame("planner", step=1), previous=first)
    back = write_back(second, POLICY)
    assert back.outgoing
    assert [out.ended_ns for out in back.outgoing] == [0] * len(back.outgoing)


def test_an_end_time_that_the_store_cannot_hold_is_stored_as_0(world: World) -> None:
    decision = world.decide(blame())
    (first, *others) = decision.run.trace.spans
    late = replace(decision.run, trace=trace(replace(first, end_ns=2**64 - 1), *others))
    back = write_back(replace(decision, run=late), POLICY)
    assert [out.ended_ns for out in back.outgoing] == [0] * len(back.outgoing)


def test_the_cost_of_every_analysis_counts(world: World) -> None:
    effort = Effort(calls=2, input_tokens=900, output_tokens=100, cost_usd=0.25)
    first = world.tell(world.decide(blame(), model="m", effort=effort))
    world.tell(world.decide(blame(), previous=first, model="m", effort=replace(effort, cost_usd=None)))
    counters = world.counters
    assert world.shown(counters.calls) == {("m",): 4}
    assert world.shown(counters.tokens) == {("m", "input"): 1800, ("m", "output"): 200}
    assert world.shown(counters.cost_usd) == {("m",): 0.25}
    assert world.shown(counters.unpriced) == {("m",): 1}


def test_a_service_that_invents_agents_fills_only_its_own_share() -> None:
    names = AgentNames()
    invented = {names("noisy", f"agent {number}") for number in range(1000)}
    assert len(invented) == MAX_AGENTS + 1
    assert ("noisy", OTHER) in invented
    assert names("shop", "calculator") == ("shop", "calculator")


def test_services_are_bounded_and_share_the_rest() -> None:
    names = AgentNames()
    assert len({names(f"service {number}", "a")[0] for number in range(1000)}) == MAX_SERVICES + 1
    assert names("service 3", "a") == ("service 3", "a")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("calculator", "calculator"),
        ("  \n", ""),
        ("a\nb\x00", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        ("\udcff", "\N{REPLACEMENT CHARACTER}"),
        ("x" * 100_000, "x" * (MAX_LENGTH - 1) + "…"),
    ],
)
def test_a_label_is_one_short_line_whatever_the_name(name: str, label: str) -> None:
    assert as_label(name) == label


def test_a_confidence_is_shown_with_the_blamed_span(world: World) -> None:
    verdict = world.tell(world.decide(blame(confidence=0.75)))
    samples = world.family("blamespan_confidence").samples
    (shown,) = (sample for sample in samples if sample.exemplar is not None)
    assert shown.labels == {"le": "0.8"}
    assert shown.exemplar is not None
    assert shown.exemplar.labels == {"trace_id": verdict.trace_id, "span_id": verdict.span_id}


def test_every_family_is_in_the_table_and_has_no_series_beside_it(world: World) -> None:
    world.tell(world.decide(blame(), model="m", effort=Effort(calls=1)))
    suffixes = {Kind.COUNTER: {"_total"}, Kind.GAUGE: {""}, Kind.HISTOGRAM: {"_bucket", "_count", "_sum"}}
    told = {metric.name: suffixes[metric.kind] for metric in METRICS}
    for family in world.counters.collect(settle_s=0.0):
        assert {sample.name.removeprefix(family.name) for sample in family.samples} == told[family.name]
