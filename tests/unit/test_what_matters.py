"""The first difference of two runs that matters: not an id at step 0, but the value that the answer takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.history.run_diff import Matter, Reach, compare_runs, matter_in_words, nearest_run
from analyzer.inquiry.whole_run import WholeRun, whole_steps
from semconv.model import Outcome, Step, StepKind, Trajectory
from tests.operations import operations
from tests.runs import calling, failed_tool, run, step, tool

TASK = "What do nine crates of 75 and one of 90 kg weigh?"


def whole(trajectory: Trajectory) -> WholeRun:
    return whole_steps(trajectory, lambda one: one)


def crates(order: str, total: str, *, wording: str = "I look it up.") -> Trajectory:
    """Return a run whose first steps have an id and a time of their own."""
    at = f"17644{order[-5:]}"
    return run(
        step("clerk", f"Order {order}, opened 2026-11-{order[-2:]}T10:0{order[-1]}:00Z, at {at}."),
        step("clerk", wording, input=f"order {order} at 17644{order[-5:]}"),
        tool("clerk", '{"crates": 9, "kg": 75}', target="stock", input=f'{{"order": "{order}"}}'),
        step("clerk", "Nine crates of 75 kg, one of 90 kg."),
        step("clerk", "", StepKind.HANDOFF, target="adder"),
        calling("adder", ("multiply", '{"a": 9, "b": 75}'), input="Nine crates of 75 kg, one of 90 kg."),
        step("adder", f"9 * 75 + 90 = {total}", input="675"),
        step("writer", f"They weigh {total} kg. (Order {order})", input=f"9 * 75 + 90 = {total}"),
        task=TASK,
        output=f"They weigh {total} kg. (Order {order})",
        run_id=order,
    )


def matters(left: Trajectory, right: Trajectory) -> Matter | None:
    return compare_runs(whole(left), whole(right)).matters


def acting(place: int, reach: Reach) -> Matter:
    return Matter(place=place, reach=reach, left="", right="")


def test_the_wrong_sum_matters_and_neither_the_ids_nor_the_times_before_it() -> None:
    wrong = crates("A-93412", "765", wording="Let me see.")
    found = compare_runs(whole(crates("A-81211", "675")), whole(wrong))
    assert found.first_divergence == 0
    assert found.matters == Matter(place=6, reach=Reach.VALUE, left="675", right="765")
    assert matter_in_words(found) == (
        "The first difference that matters: adder wrote 675 (step 6), the second run 765 (step 6), and the"
        " answer depends on it."
    )


def test_runs_with_the_same_values_differ_in_nothing_that_matters() -> None:
    left, right = crates("A-81211", "765"), crates("A-81211", "765", wording="Let me see.")
    assert matters(left, right) is None
    found = compare_runs(whole(left), whole(right))
    assert matter_in_words(found).startswith("No difference matters")
    assert matter_in_words(compare_runs(whole(left), whole(left))) == ""


def test_a_value_matters_that_a_later_step_computes_the_answer_from() -> None:
    def priced(price: str, total: str) -> Trajectory:
        return run(
            step("buyer", f"Request R-{total}"),
            tool("buyer", f'{{"price": {price}, "at": 17644{total}001}}', target="price"),
            step("buyer", f"Three at {price} are {total} euros.", input=f"{price} 17644{total}001"),
            output=f"{total} euros.",
        )

    assert matters(priced("11", "33"), priced("12", "36")) == Matter(
        place=1, reach=Reach.VALUE, left="11", right="12"
    )


def test_the_request_with_other_arguments_matters_before_its_result() -> None:
    def asked(city: str, seats: str) -> Trajectory:
        return run(
            calling("desk", ("seats", f'{{"ship": "{city}"}}')),
            tool("desk", f"{seats} seats", target="seats", input=f'{{"ship": "{city}"}}'),
            step("desk", f"It has {seats} seats."),
            output=f"It has {seats} seats.",
        )

    found = matters(asked("Marianne", "120"), asked("Marina", "85"))
    assert found is not None
    assert (found.place, found.left, found.right) == (0, "Marianne", "Marina")


@pytest.mark.parametrize(
    ("extra", "place"),
    [
        pytest.param((tool("clerk", "ok", target="delete"),), 1, id="a call"),
        pytest.param((step("stranger", "hello"),), 1, id="another agent"),
        pytest.param((step("clerk", "hm"),), None, id="one more turn"),
        pytest.param((failed_tool("clerk", target="seats", input="x"),), None, id="a failed call, repeated"),
    ],
)
def test_another_call_matters_and_another_turn_does_not(extra: tuple[Step, ...], place: int | None) -> None:
    seats = tool("clerk", "120 seats", target="seats", input="x")
    end = step("writer", "120 seats.")
    left = run(step("clerk", "I ask."), *extra, seats, end, output="120 seats.")
    right = run(step("clerk", "I ask."), seats, end, output="120 seats.")
    for found, reach in ((matters(left, right), Reach.EXTRA), (matters(right, left), Reach.MISSING)):
        assert found == (None if place is None else acting(place, reach))


def test_a_call_that_failed_in_one_run_only_matters() -> None:
    def of(one: Step) -> Trajectory:
        return run(step("desk", "I ask."), one, step("desk", "Done."), output="Done.")

    failed, good = whole(of(failed_tool("desk"))), whole(of(tool("desk", "85")))
    for left, right, which in ((failed, good, "the first run"), (good, failed, "the second")):
        found = compare_runs(left, right)
        assert found.matters is not None
        assert (found.matters.place, found.matters.reach) == (1, Reach.FAILURE)
        assert f"desk: tool lookup failed only in {which} (step 1)" in matter_in_words(found)


def test_names_count_if_the_answers_differ_in_nothing_else() -> None:
    def told(city: str) -> Trajectory:
        return run(step("guide", "Hello there."), step("guide", f"I choose {city}."), output=f"Go to {city}.")

    found = matters(told("Lisbon"), told("Vienna"))
    assert found == Matter(place=1, reach=Reach.VALUE, left="Lisbon", right="Vienna")


def test_values_of_two_tasks_are_no_difference_of_the_runs() -> None:
    def of(count: str, total: str) -> Trajectory:
        return run(
            step("a", f"You have {count} crates."),
            step("a", f"{count} crates weigh {total} kg."),
            task=f"Weigh {count} crates.",
            output=f"{count} crates weigh {total} kg.",
        )

    found = matters(of("40", "400"), of("50", "500"))
    assert found is not None
    assert (found.place, found.left, found.right) == (1, "400", "500")


texts = st.lists(
    st.tuples(st.sampled_from("abc"), st.text(alphabet="0123456789 .,-/:aZ€", max_size=12)), max_size=6
)


@given(texts, texts)
def test_the_difference_that_matters_is_one_of_the_differences(
    left: list[tuple[str, str]], right: list[tuple[str, str]]
) -> None:
    runs = [
        whole(
            run(
                *(step(agent, text, input=text[::-1]) for agent, text in each),
                output=each[-1][1] if each else "",
            )
        )
        for each in (left, right)
    ]
    found = compare_runs(runs[0], runs[1])
    if found.matters is not None:
        assert found.first_divergence is not None
        assert found.matters.place >= found.first_divergence
        assert found.pairs[found.matters.place].change != "same"
    assert bool(matter_in_words(found)) == (found.first_divergence is not None)


def test_long_hostile_texts_are_read_in_part() -> None:
    def cost(side: str, count: int) -> int:
        left, right = (
            whole(run(*[step("a", f"{end}{side} " * count)] * 3, output=f"{end}{side} " * count))
            for end in "12"
        )
        return operations(lambda: compare_runs(left, right))

    assert cost("3", 40_000) < 2 * cost("4", 4_000)


# Siblings of a parallel group.


def fleet(*inner: Step) -> WholeRun:
    grouped = [
        step(one.agent, one.output, one.kind, target=one.target, group=0, start_ns=10 + place, end_ns=1_000)
        for place, one in enumerate(inner)
    ]
    return whole(run(step("lead", "Split."), *grouped, step("lead", "200 seats."), output="200 seats."))


NORTH, SOUTH = tool("north", "120", target="seats"), tool("south", "80", target="seats")


def test_siblings_of_a_parallel_group_have_no_order() -> None:
    found = compare_runs(fleet(NORTH, SOUTH), fleet(SOUTH, NORTH))
    assert found.first_divergence is None
    assert [(pair.left, pair.right) for pair in found.pairs] == [(0, 0), (1, 2), (2, 1), (3, 3)]


def test_calls_of_one_agent_in_parallel_are_paired_by_their_texts() -> None:
    calls = [tool("desk", text, target="seats") for text in ("85", "120", "70")]
    other = tool("desk", "71", target="seats")
    found = compare_runs(fleet(*calls), fleet(other, calls[1], calls[0]))
    assert [(pair.left, pair.right) for pair in found.pairs[1:4]] == [(1, 3), (2, 2), (3, 1)]
    assert [pair.change for pair in found.pairs[1:4]] == ["same", "same", "text"]


def test_a_sibling_that_one_run_lacks_is_reported_once() -> None:
    found = compare_runs(fleet(SOUTH), fleet(NORTH, SOUTH))
    assert [pair.change for pair in found.pairs] == ["same", "only_right", "same", "same"]
    assert found.matters == acting(1, Reach.MISSING)


def test_outside_a_group_an_exchange_of_steps_is_a_difference() -> None:
    """The twin: outside a group the same exchange is a difference."""
    left, right = (whole(run(step("lead"), *each)) for each in ((NORTH, SOUTH), (SOUTH, NORTH)))
    assert compare_runs(left, right).first_divergence is not None


members = st.lists(st.sampled_from([NORTH, SOUTH, step("north", "x"), step("south", "y")]), max_size=6)


@given(members, members)
def test_every_step_of_a_group_is_in_one_pair(left: list[Step], right: list[Step]) -> None:
    pairs = compare_runs(fleet(*left), fleet(*right)).pairs
    assert [pair.left for pair in pairs if pair.left is not None] == [*range(len(left) + 2)]
    assert sorted(pair.right for pair in pairs if pair.right is not None) == [*range(len(right) + 2)]


# The nearest run.


def test_the_nearest_run_has_the_same_task_then_passed_then_the_nearest_texts() -> None:
    def of(name: str, text: str, *, task: str = "Weigh it.", outcome: Outcome | None = None) -> WholeRun:
        one = run(step("a", text), step("a", "done"), task=task, run_id=name, outcome=outcome)
        return whole(one)

    failed = of("failed", "nine crates of seventy kg")
    other_task = of("other task", "nine crates of seventy kg", task="Ship it.", outcome=Outcome.SUCCESS)
    far, near = of("far", "x"), of("near", "nine crates of eighty kg", task="weigh  it.")
    passed = of("passed", "y", outcome=Outcome.SUCCESS)
    assert nearest_run(failed, [other_task, far]).run_id == "far"
    assert nearest_run(failed, [far, near]).run_id == "near"
    assert nearest_run(failed, [near, far, passed]).run_id == "passed"
    assert nearest_run(failed, [near, far], {"far"}).run_id == "far"
