"""Verdicts of the service use the kept runs of the same workflow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.codec import read_prepared, write_prepared
from analyzer.analyses.prepare import Preparer, preparer_of
from analyzer.analyses.prepared import Analysed, Prepared, TraceBytes
from analyzer.analyses.run_comparison import FRESH_S, MOST_RUNS, RunComparison
from analyzer.history.elements import pack
from analyzer.history.known_runs import MOST_ELEMENTS, failed_run, from_text, parts_of, to_text
from analyzer.history.spectrum import LEAST_PASSING, Said
from analyzer.inquiry.calibration import Worth
from analyzer.methods.attribution import Attributor
from collector_processor.core.records import HistoryRow, RunFacts
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import Cleaner, Redactor
from collector_processor.settings import load_settings
from semconv.model import Completion, Span, Status, Step, StepKind, TraceId, Trajectory
from tests.factories import TRACE, agent, chat, tool, workflow
from tests.unit.test_verdict_path import Way, opened

OTHER = Tenant("other")


def spans(*, number: int, paid: bool, error: str = "", service: str = "shop") -> list[Span]:
    """A planner, a buyer who may pay, and a writer; one workflow."""
    trace_id = TraceId(f"{number:032x}")
    found = [
        workflow(1, error=error or None),
        agent(2, "planner", parent=1),
        chat(3, answer="buy it", agent_name="planner", parent=2),
        agent(4, "buyer", parent=1),
        chat(5, answer="it costs 3", agent_name="buyer", parent=4),
        *([tool(6, "pay", parent=4, result="paid")] if paid else []),
        agent(7, "writer", parent=1),
        chat(8, answer="Here is your order.", agent_name="writer", parent=7),
    ]
    resource = replace(found[0].resource, attributes={"service.name": service})
    return [replace(one, trace_id=trace_id, resource=resource) for one in found]


def preparing(least_confidence: float = 0.0) -> Preparer:
    by = RunAnalyst(attributor=Attributor(clock=lambda: 0.0, least_confidence=least_confidence))
    return preparer_of(load_settings({}), by, by.unasked, Cleaner(Redactor()))


def facts_of(number: int, *, paid: bool, service: str = "shop", version: str = "") -> RunFacts:
    key = TraceKey(NO_TENANT, TraceId(f"{number:032x}"))
    bodies = (encode(spans(number=number, paid=paid, service=service)),)
    (run,) = preparing()(TraceBytes(key=key, completion=Completion.ROOT_ENDED, bodies=bodies)).runs
    assert isinstance(run, Analysed)
    assert run.news.facts is not None
    return replace(run.news.facts, version=version) if version else run.news.facts


@dataclass
class Compared:
    """A slow lane that compares failed runs."""

    way: Way
    now: float = 0.0
    least_confidence: float = 0.0
    worths: Mapping[str, Worth] = field(default_factory=dict)

    def keep(
        self, first: int, n: int, said: Said, *, paid: bool, tenant: Tenant = NO_TENANT, **about: str
    ) -> None:
        """Store that so many runs of the workflow ended in this way."""
        service, facts = about.get("service", "shop"), facts_of(first, paid=paid, **about)
        db = self.way.store._db
        with self.way.store.transaction():
            for number in range(first, first + n):
                db.execute(
                    "INSERT INTO run_totals (tenant, run_id, version, decided_ns, status, service, workflow)"
                    " VALUES (?, ?, 1, ?, '', ?, 'invoke_workflow')",
                    (tenant, f"kept{number}", number, service),
                )
            self.way.store.history.note(
                [(tenant, f"kept{each}", said, facts) for each in range(first, first + n)]
            )

    async def fail(
        self, number: int = 999, *, paid: bool = True, error: str = "the wrong price"
    ) -> Mapping[str, Any]:
        """Return the verdict on a run that failed, or without an error on one that is silent."""
        self.way.receive(*spans(number=number, paid=paid, error=error))
        key = TraceKey(NO_TENANT, TraceId(f"{number:032x}"))
        await self.way.examine(key)
        return self.way.verdict(key).fields


@pytest.fixture
def compared(tmp_path: Path) -> Iterator[Compared]:
    lane: list[Compared] = []

    def clock() -> float:
        return lane[0].now

    async def worths(tenant: Tenant) -> Mapping[str, Worth]:
        return lane[0].worths if tenant == NO_TENANT else {}

    async def read(*asked: Any) -> Sequence[HistoryRow]:
        way = lane[0].way
        return await way.thread.insist(way.store.history.told, *asked)

    comparison = RunComparison(
        read=read, clean=lambda text: text, least_confidence=0.1, clock=clock, worths=worths
    )

    def prepared_by(_: Preparer, trace: TraceBytes) -> Prepared:
        prepared = read_prepared(write_prepared(preparing(lane[0].least_confidence)(trace)))
        assert prepared is not None
        return prepared

    with opened(tmp_path, prepared_by=prepared_by, compare=comparison) as way:
        lane.append(Compared(way=way))
        yield lane[0]


async def test_a_live_verdict_names_the_step_that_only_failing_runs_have(compared: Compared) -> None:
    alone = await compared.fail(998)
    compared.now = FRESH_S
    compared.keep(1, 20, Said.PASSED, paid=False)
    compared.keep(50, 3, Said.FAILED, paid=True)
    found = await compared.fail()
    assert (alone["method"], found["method"]) == ("signals", "signals+history")
    assert (found["agent"], found["status"]) == ("buyer", Status.ATTRIBUTED)
    assert found["step"] != alone["step"]
    assert found["span_id"] == f"{6:016x}"
    assert "as 4 runs that failed and 0 that passed" in str(found["reason"])
    assert found["ranking"][0]["step"] == found["step"]


async def test_other_runs_may_decide_a_verdict_that_was_too_uncertain(compared: Compared) -> None:
    compared.least_confidence = 0.5
    alone = await compared.fail(998)
    compared.now = FRESH_S
    compared.keep(1, 20, Said.PASSED, paid=False)
    found = await compared.fail()
    assert (alone["status"], found["status"]) == (Status.UNDETERMINED, Status.ATTRIBUTED)
    assert (found["agent"], found["method"]) == ("buyer", "signals+history")
    assert "Too little evidence by itself." in str(found["reason"])


async def test_labels_of_such_evidence_correct_a_live_verdict(compared: Compared) -> None:
    alone = await compared.fail(900)
    compared.worths = {str(alone["mode"]): Worth(labelled=30, right=27, stated=9)}
    found = await compared.fail(901)
    assert (found["step"], found["stated_confidence"]) == (alone["step"], alone["confidence"])
    assert found["confidence"] > alone["confidence"]
    assert "right in 27 of 30 labelled runs" in str(found["reason"])
    compared.worths = {str(alone["mode"]): Worth(labelled=300, right=1, stated=200)}
    withheld = await compared.fail(902)
    assert (withheld["status"], withheld["agent"]) == (Status.UNDETERMINED, None)
    assert json.loads(compared.way.kept[-1].noted)["blamed"] is None
    compared.worths = {"another kind": Worth(labelled=300, right=1, stated=200)}
    assert (await compared.fail(903))["confidence"] == alone["confidence"]


async def test_the_issue_is_that_of_the_corrected_verdict(compared: Compared) -> None:
    compared.keep(1, 20, Said.PASSED, paid=False)
    await compared.fail()
    noted = json.loads(compared.way.kept[-1].noted)
    assert (noted["blamed"], noted["mark"]["agent"], noted["mark"]["tool"]) == ("buyer", "buyer", "pay")
    assert compared.way.kept[-1].is_failure


async def test_a_silent_run_is_suspected_by_what_all_passing_runs_did(compared: Compared) -> None:
    compared.keep(1, 40, Said.PASSED, paid=True)
    good = await compared.fail(900, error="")
    assert good["status"] == Status.NO_FAILURE
    found = await compared.fail(901, paid=False, error="")
    assert (found["status"], found["method"]) == (Status.SUSPECTED, "history")
    assert "In 40 of 40 passing runs pay was called; here not" in str(found["reason"])


async def test_few_passing_runs_accuse_no_silent_run(compared: Compared) -> None:
    compared.keep(1, 20, Said.PASSED, paid=True)
    assert (await compared.fail(901, paid=False, error=""))["status"] == Status.NO_FAILURE


@pytest.mark.parametrize(
    ("n", "said", "about"),
    [
        pytest.param(LEAST_PASSING - 1, Said.PASSED, {}, id="too few runs passed"),
        pytest.param(50, Said.UNSAID, {}, id="nobody said that they passed"),
        pytest.param(50, Said.PASSED, {"tenant": OTHER}, id="another tenant's"),
        pytest.param(50, Said.PASSED, {"service": "other"}, id="another service's"),
        pytest.param(50, Said.PASSED, {"version": "older"}, id="another version, not shown to be equal"),
    ],
)
async def test_unusable_runs_change_no_verdict(
    n: int, said: Said, about: dict[str, object], compared: Compared
) -> None:
    compared.keep(1, n, said, paid=False, **about)  # type: ignore[arg-type]
    found = await compared.fail()
    assert found["method"] == "signals"


async def test_runs_are_read_again_after_a_while_only(compared: Compared) -> None:
    assert (await compared.fail(900))["method"] == "signals"
    compared.keep(1, 20, Said.PASSED, paid=False)
    compared.now = FRESH_S - 1
    assert (await compared.fail(901))["method"] == "signals", "the runs were read a moment ago"
    compared.now = FRESH_S
    assert (await compared.fail(902))["method"] == "signals+history"


async def test_a_run_is_not_compared_with_itself(compared: Compared) -> None:
    """A failed run that is analysed again, for late spans, is among the kept runs."""
    compared.keep(1, 20, Said.PASSED, paid=False)
    own, facts = f"{999:032x}", facts_of(999, paid=True)
    with compared.way.store.transaction():
        compared.way.store.history.note([(NO_TENANT, own, Said.FAILED, facts)])
        compared.way.store._db.execute(
            "INSERT INTO run_totals (tenant, run_id, version, decided_ns, status, service, workflow)"
            " VALUES (?, ?, 1, 99, '', 'shop', 'invoke_workflow')",
            (NO_TENANT, own),
        )
    found = await compared.fail(999)
    assert "In 20 of 20 passing runs only known tools were called; here also pay" in str(found["reason"])
    assert "runs that failed" not in str(found["reason"])


async def test_runs_of_unknown_outcome_do_not_crowd_out_the_others(compared: Compared) -> None:
    compared.keep(1, 20, Said.PASSED, paid=False)
    compared.keep(100, MOST_RUNS + 50, Said.UNSAID, paid=False)
    assert (await compared.fail(999_999))["method"] == "signals+history"


def test_what_is_compared_crosses_processes_and_is_bounded() -> None:
    steps = tuple(
        Step(index=at, agent=f"agent {at}", kind=StepKind.LLM, output="\ud800 é" if at == 3 else "text")
        for at in range(1_000)
    )
    run = failed_run(parts_of(Trajectory(run_id=TRACE, steps=steps)), "shöp")
    assert from_text(to_text(run)) == run
    assert len(run.elements) == MOST_ELEMENTS
    assert len(to_text(run)) < 100_000
    assert pack(run.elements)


def test_a_row_is_read_back_unchanged(compared: Compared) -> None:
    compared.keep(7, 1, Said.PASSED, paid=True)
    (row,) = compared.way.store.history.told(NO_TENANT, "shop", "invoke_workflow", 10)
    facts = facts_of(7, paid=True)
    assert row == HistoryRow(
        run_id="kept7", service="shop", workflow="invoke_workflow", decided_ns=7, said="passed",
        version=facts.version, release=facts.release, elements=facts.elements, invariants=facts.invariants,
    )  # fmt: skip
