"""Two runs side by side: every step once, in order, and as many pairs as there can be."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.history import align_steps
from analyzer.history.align_steps import align
from analyzer.history.run_diff import Change, Way, compare_runs, departure_in_words, nearest_run
from analyzer.inquiry.whole_run import WholeRun, WholeStep, whole_steps
from semconv.model import Trajectory
from tests.operations import operations
from tests.runs import failed_tool, run, step, tool


def whole(trajectory: Trajectory) -> WholeRun:
    return whole_steps(trajectory, lambda one: one)


def changes(left: WholeRun, right: WholeRun) -> list[tuple[Change, int | None, int | None]]:
    return [(pair.change, pair.left, pair.right) for pair in compare_runs(left, right).pairs]


FAILED = whole(run(step("planner", "go"), failed_tool("clerk"), step("writer", "sorry"), run_id="failed"))
PASSED = whole(
    run(
        step("planner", "go"),
        failed_tool("clerk"),
        tool("clerk", "85"),
        step("writer", "85"),
        run_id="passed",
    )
)


def test_steps_are_paired_by_what_they_are_and_the_first_difference_is_named() -> None:
    found = compare_runs(FAILED, PASSED)
    assert changes(FAILED, PASSED) == [
        (Change.SAME, 0, 0),
        (Change.SAME, 1, 1),
        (Change.ONLY_RIGHT, None, 2),
        (Change.TEXT, 2, 3),
    ]
    assert (found.first_divergence, found.pairs[3].differs) == (2, ("output",))
    assert (found.left_totals.errors, found.right_totals.steps) == (1, 4)


def test_a_run_is_the_same_as_itself() -> None:
    found = compare_runs(PASSED, PASSED)
    assert found.first_divergence is None
    assert {pair.change for pair in found.pairs} == {Change.SAME}
    assert found.same_output


def test_runs_without_steps_are_compared() -> None:
    empty = whole(run())
    assert compare_runs(empty, empty).pairs == ()
    assert changes(empty, FAILED) == [(Change.ONLY_RIGHT, None, place) for place in range(3)]


def test_differences_of_numbers_are_the_second_minus_the_first() -> None:
    left, right = (
        replace(FAILED, steps=(replace(FAILED.steps[0], duration_s=seconds, input_tokens=tokens),))
        for seconds, tokens in ((1.0, 10), (1.5, None))
    )
    (pair,) = compare_runs(left, right).pairs
    assert (pair.duration_s, pair.input_tokens) == (0.5, None)
    assert compare_runs(left, right).right_totals.input_tokens is None


def test_among_equal_steps_the_same_text_is_paired() -> None:
    left = whole(run(step("a", "x")))
    right = whole(run(step("a", "1"), step("a", "x"), step("a", "2")))
    assert changes(left, right)[1] == (Change.SAME, 0, 1)


texts = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), max_size=9)


@given(texts, texts)
def test_an_alignment_has_every_step_once_and_the_best_score(
    left: list[tuple[str, str]], right: list[tuple[str, str]]
) -> None:
    ours, theirs = (whole(run(*[step(agent, text) for agent, text in each])).steps for each in (left, right))
    pairs = align(ours, theirs)
    assert [one for one, _ in pairs if one is not None] == list(range(len(left)))
    assert [other for _, other in pairs if other is not None] == list(range(len(right)))
    score = sum(
        worth(ours[one], theirs[other]) for one, other in pairs if one is not None and other is not None
    )
    assert score == best(ours, theirs)


def worth(left: WholeStep, right: WholeStep) -> int:
    assert left.agent == right.agent
    return 3 if left.output == right.output else 2


def best(left: tuple[WholeStep, ...], right: tuple[WholeStep, ...]) -> int:
    """The whole table, as a textbook has it."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for row, one in enumerate(left, 1):
        for column, other in enumerate(right, 1):
            pair = worth(one, other) if one.agent == other.agent else 0
            table[row][column] = max(
                table[row - 1][column],
                table[row][column - 1],
                pair + table[row - 1][column - 1] if pair else 0,
            )
    return table[-1][-1]


@pytest.mark.whole
@pytest.mark.parametrize("size", [1_000])
def test_long_runs_need_little_memory(size: int) -> None:
    chance = Random(7)
    left, right = (
        whole(run(*[step(f"a{chance.randrange(5)}", f"t{chance.randrange(50)}") for _ in range(size)]))
        for _ in range(2)
    )
    tracemalloc.start()
    pairs = align(left.steps, right.steps)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(pairs) < 2 * size
    assert peak < 4 << 20, "a table of all pairs would need 8 MB at least"


def test_hostile_runs_of_many_different_steps_are_aligned_in_linear_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(align_steps, "_MOST_CELLS", 4_000)

    def cost(count: int) -> int:
        left = whole(run(*(step(f"a{number % 7}", f"left {number}") for number in range(count))))
        right = whole(run(*(step(f"a{number % 5}", f"right {number}") for number in range(count))))
        return operations(lambda: align(left.steps, right.steps))

    assert cost(800) < 3 * cost(400)


def test_long_runs_are_aligned_in_sections_that_lose_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align_steps, "_MOST_CELLS", 10)
    left = whole(run(*(step("a", f"{number}") for number in range(50)), step("b", "x")))
    right = whole(run(step("c", "y"), *(step("a", f"{number}") for number in range(1, 40))))
    found = align(left.steps, right.steps)
    assert [one for one, _ in found if one is not None] == list(range(51))
    assert [other for _, other in found if other is not None] == list(range(40))


GOOD = whole(run(step("planner"), step("buyer"), step("writer"), run_id="good"))


def test_an_additional_step_is_where_a_run_departs_from_the_nearest() -> None:
    bad = whole(run(step("planner"), step("buyer"), tool("buyer", "x", "pay"), step("writer")))
    far = whole(run(step("a"), step("b"), run_id="far"))
    assert nearest_run(bad, [far, GOOD]) is GOOD
    found = compare_runs(bad, GOOD, 2)
    assert found.departure is not None
    assert (found.departure.way, found.departure.step) == (Way.EXTRA, 2)
    assert (found.departure.found, found.departure.expected) == ("buyer: tool pay", "writer: llm")
    assert (found.distance, found.compared) == (round(1 - 6 / 7, 4), 2)
    assert departure_in_words(found.departure, found.distance).startswith(
        "The first step without a counterpart: the first run does buyer: tool pay (step 2),"
        " the second does writer: llm. 14% of"
    )


def test_a_missing_step_is_named_by_what_was_expected() -> None:
    found = compare_runs(whole(run(step("planner"), step("writer"))), GOOD).departure
    assert found is not None
    assert (found.way, found.step, found.expected) == (Way.MISSING, 1, "buyer: llm")
    ended = compare_runs(whole(run(step("planner"), step("buyer"))), GOOD).departure
    assert ended is not None
    assert (ended.way, ended.step, ended.expected, ended.found) == (Way.MISSING, None, "writer: llm", "")
    assert "the first has ended" in departure_in_words(ended, 0.2)


def test_equal_steps_with_different_texts_are_no_departure() -> None:
    found = compare_runs(replace(GOOD, run_id="bad"), GOOD)
    assert (found.departure, found.distance) == (None, 0.0)
    assert compare_runs(whole(run()), whole(run())).distance == 0.0
