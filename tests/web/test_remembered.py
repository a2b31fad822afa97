"""Results in memory: bounded, and never those of another run or verdict."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.whole_run import whole_steps
from analyzer.web.front import TraceLink
from analyzer.web.pages.compare_page import prepared_comparison
from analyzer.web.pages.run_page import prepared_run
from analyzer.web.pages.step_page import Wanted
from analyzer.web.remembered import PreparedParts, Remembered
from analyzer.web.rendering import renderer
from tests.runs import run, step


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=80))
def test_the_cache_keeps_its_bounds_of_number_and_size(put: list[tuple[int, int]]) -> None:
    remembered: Remembered[tuple[int, int]] = Remembered(4, 100)
    newest: dict[int, tuple[int, int]] = {}
    for key, size in put:
        remembered.put(key, (key, size), size)
        newest[key] = (key, size)
        kept = [found for number in range(10) if (found := remembered.get(number)) is not None]
        assert len(kept) <= 4
        assert sum(size for _, size in kept) <= 100
        assert all(newest[found[0]] == found for found in kept)
        assert remembered.get(key) == (key, size)


async def test_a_list_of_steps_is_made_once_for_a_run_a_verdict_and_a_part() -> None:
    parts = PreparedParts(renderer().text)
    whole = whole_steps(run(step("planner", "one"), step("clerk", "two")), lambda one: one)
    verdict = {"run_id": "r1", "status": "attributed", "step": 1, "confidence": 0.7}
    first = await prepared_run(parts, TraceLink(), whole, verdict, Wanted())
    assert (
        await prepared_run(
            parts, TraceLink(), whole, {**verdict, "reason": "elsewhere on the page"}, Wanted()
        )
        is first
    )
    assert "planner" in first.steps
    blamed = await prepared_run(parts, TraceLink(), whole, {**verdict, "step": 0}, Wanted())
    assert blamed.shown.steps[0].is_decisive
    assert (await prepared_run(parts, TraceLink(), whole, verdict, Wanted(find="two"))).shown.found == 1
    other = replace(whole, steps=(replace(whole.steps[0], agent="critic"), whole.steps[1]))
    assert (await prepared_run(parts, TraceLink(), other, verdict, Wanted())) is not first


async def test_a_comparison_is_made_once_for_two_runs_in_their_order() -> None:
    parts = PreparedParts(renderer().text)
    left, right = (
        whole_steps(run(step("planner", text), step("clerk", "two")), lambda one: one)
        for text in ("one", "other")
    )
    first = await prepared_comparison(parts, left, right)
    assert await prepared_comparison(parts, left, right) is first
    swapped = await prepared_comparison(parts, right, left)
    assert "<del>other</del>" in swapped.body
    assert "<del>one</del>" in first.body
