"""Totals of a run: as recorded, once a span, and within what a database stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.core.runs import MOST_NAME, Run, RunTotals, workflow_of
from collector_processor.rebuild.runs import total_up
from collector_processor.trajectory import order
from semconv.model import Span
from semconv.record import replace
from tests.factories import agent, at, chat, span, tool, trace, workflow

MOST_STORED = (1 << 63) - 1


def totals(*spans: Span) -> RunTotals:
    found = trace(*spans)
    return total_up(Run(trace=found, trajectory=order(found)))


def test_steps_time_tokens_and_cost_are_summed_over_the_model_calls() -> None:
    usage = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 3, "gen_ai.usage.cost": 0.25}
    found = totals(
        span(1, name="refunds"),
        agent(2, "clerk", parent=1, start=100, end=900),
        chat(3, parent=2, start=100, end=300, attributes=usage),
        tool(4, "look", parent=2, start=300, end=400, attributes=usage),
        chat(5, parent=2, start=400, end=900, attributes=usage),
    )
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (20, 6, 0.5)
    assert (found.started_ns, found.duration_ns) == (at(100), at(900) - at(100))
    assert found.workflow == "refunds"


def test_what_no_span_says_is_not_known() -> None:
    found = totals(workflow(1), agent(2, "clerk", parent=1), chat(3, parent=2))
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "workflow_name"),
    [
        ("Crew_4f0c2d1e-9a3b-4c5d-8e7f-001122334455.kickoff", "Crew_*.kickoff"),
        ("run 20260131", "run *"),
        ("order 7", "order 7"),
        ("a\0b\ud800\u202ec", "abc"),
        ("x" * 5_000, "x" * MOST_NAME),
        ("", ""),
    ],
)
def test_a_workflow_has_one_name_in_all_its_runs(name: str, workflow_name: str) -> None:
    assert workflow_of([span(1, name=name)]) == workflow_name


def test_a_declared_name_comes_before_the_roots() -> None:
    declared = {"gen_ai.workflow.name": "refunds"}
    root, inner = span(1, name="POST /chat"), span(2, name="inner", parent=1)
    assert workflow_of([root, replace(inner, attributes=declared)]) == "refunds"
    assert workflow_of([root, replace(inner, attributes={"gen_ai.workflow.name": 7})]) == "POST /chat"


@given(
    st.lists(st.integers(0, 1 << 70), min_size=1, max_size=4),
    st.lists(st.floats(allow_nan=True), min_size=1, max_size=4),
    st.integers(0, (1 << 64) - 1),
)
def test_whatever_spans_say_a_database_can_store_the_totals(
    tokens: list[int], costs: list[float], end_ns: int
) -> None:
    calls = [
        chat(number + 2, parent=1, attributes={"gen_ai.usage.input_tokens": count, "gen_ai.usage.cost": cost})
        for number, (count, cost) in enumerate(zip(tokens, costs, strict=False))
    ]
    last = replace(calls[-1], end_ns=end_ns)
    found = totals(workflow(1), *calls[:-1], last)
    for number in (found.started_ns, found.duration_ns, found.input_tokens, found.output_tokens):
        assert number is None or 0 <= number <= MOST_STORED
    assert found.cost_usd is None or 0 <= found.cost_usd < float("inf")
