from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyzer.history.elements import MAX_ELEMENTS, agents_in, digest_of, elements_of, pack, unpack
from analyzer.history.spectrum import LEAST_PASSING, Count, Said, Spectrum, compare, increase, spectrum_of
from semconv.model import SpanStatus, StepKind, Trajectory
from tests.runs import calling, failed_tool, run, step, tool

GOOD = run(step("planner", "plan"), step("buyer", "price 3"), step("writer", "done"))
BAD = run(
    step("planner", "plan"), step("buyer", "price 3"), tool("buyer", "paid", "pay"), step("writer", "done")
)


def known(*runs: tuple[Said, Trajectory]) -> Spectrum:
    return spectrum_of((said, unpack(pack(elements_of(each)))) for said, each in runs)


def keys(trajectory: Trajectory) -> set[str]:
    return {element.key for element in elements_of(trajectory)}


def test_the_step_that_passing_runs_do_not_have_stands_out() -> None:
    others = known(*[(Said.PASSED, GOOD)] * 20, *[(Said.FAILED, BAD)] * 3)
    found = compare(BAD, others)
    assert found.scores.index(max(found.scores)) == 2
    assert found.increases[0].element.step == 2
    assert found.increases[0].interval.low > 0
    assert found.runs == Count(passed=20, failed=3)


def test_a_run_like_all_others_has_nothing_that_stands_out() -> None:
    found = compare(GOOD, known(*[(Said.PASSED, GOOD)] * 20, *[(Said.FAILED, GOOD)] * 10))
    assert not found.is_any
    assert found.scores == (0.0, 0.0, 0.0)
    assert len(set(found.shares())) == 1


def test_an_element_of_some_passing_runs_is_no_fault() -> None:
    """Rare in both: three of twenty passing runs paid too."""
    past = [(Said.PASSED, GOOD)] * 17 + [(Said.PASSED, BAD)] * 3
    assert not compare(BAD, known(*past, (Said.FAILED, BAD))).is_any


def speaking(*, twice: str = "") -> Trajectory:
    """Return a run of three agents that speak in turn, one of them perhaps twice."""
    agents = [each for one in ("planner", "buyer", "writer") for each in [one] * (1 + (one == twice))]
    return run(*(step(agent, f"{agent} speaks") for agent in agents))


def test_a_habit_of_the_other_agents_is_no_fault_of_this_one() -> None:
    """Planner and buyer often repeat themselves; that the writer has not yet is chance."""
    past = [speaking(twice=agent) for agent in ("planner", "buyer", "planner", "buyer", *[""] * 16)]
    failing = [speaking(twice="writer"), *[speaking()] * 8]
    others = known(*[(Said.PASSED, each) for each in past], *[(Said.FAILED, each) for each in failing])
    assert not compare(speaking(twice="writer"), others).is_any


def test_an_element_that_no_passing_run_has_stands_out() -> None:
    failed = speaking(twice="writer")
    others = known(*[(Said.PASSED, speaking())] * 20, (Said.FAILED, failed))
    assert compare(failed, others).increases[0].element.step == 3


def test_an_agent_that_is_long_known_not_to_have_the_others_habit_stands_out() -> None:
    past = [(Said.PASSED, speaking(twice=agent)) for agent in ("planner", "buyer", *[""] * 8)] * 12
    failed = speaking(twice="writer")
    assert compare(failed, known(*past, (Said.FAILED, failed))).increases[0].element.step == 3


def test_names_of_agents_with_braces_are_only_names() -> None:
    odd = run(step("{0}", "x"), step("{0}", "y"), step("{agent}", "z"), step("{agent}", "z"))
    assert not compare(odd, known(*[(Said.PASSED, odd)] * 20, (Said.FAILED, odd))).is_any


def test_a_run_without_a_stated_outcome_does_not_count_as_passed() -> None:
    found = compare(BAD, known(*[(Said.UNSAID, GOOD)] * 100))
    assert (found.runs, found.is_any) == (Count(), False)


def test_without_passing_runs_there_is_no_evidence() -> None:
    few = [(Said.PASSED, GOOD)] * (LEAST_PASSING - 1)
    assert not compare(BAD, known(*few, *[(Said.FAILED, BAD)] * 50)).is_any
    assert compare(BAD, known(*few, (Said.PASSED, GOOD), *[(Said.FAILED, BAD)])).scores != ()


def test_a_retry_that_succeeds_is_one_call() -> None:
    """Retries go along with failures without causing them."""
    retried = run(
        step("a", "plan"), failed_tool("a", input="x"), tool("a", "ok", input="x"), step("a", "end")
    )
    once = run(step("a", "plan"), tool("a", "ok", input="x"), step("a", "end"))
    assert keys(retried) == keys(once)
    other = run(step("a", "plan"), failed_tool("a", input="x"), tool("a", "ok", input="y"), step("a", "end"))
    assert keys(other) != keys(once)


def test_a_loop_is_shown_by_its_first_repetition() -> None:
    turn = step("critic", "no")
    looped = run(step("a", "plan"), turn, turn, turn, turn, step("a", "end"))
    assert {one.step for one in elements_of(looped) if one.key.startswith("L|")} == {2}


def test_the_end_and_the_order_are_elements() -> None:
    short = run(step("planner", "plan"), step("buyer", "price 3"))
    assert {key for key in keys(short) if key.startswith("E|")} == {"E|buyer|llm|"}
    swapped = run(step("buyer", "price 3"), step("planner", "plan"))
    assert keys(short) != keys(swapped)


def test_increase_is_relative_to_the_site() -> None:
    """All runs of a bad agent fail, so its calls add nothing to its mere presence."""
    bad = run(step("planner", "plan"), step("stranger", "x", StepKind.TOOL, target="t"))
    spectrum = known(*[(Said.PASSED, GOOD)] * 10, *[(Said.FAILED, bad)] * 10)
    by_key = {one.key: increase(one, spectrum) for one in elements_of(bad)}
    assert by_key["G|stranger"].value == 0.5
    assert by_key["A|stranger|tool|t"].value == 0.0
    assert by_key["A|stranger|tool|t"].evidence == 0.0


def test_outputs_and_errors_are_traits() -> None:
    traits = [
        ("", "empty"), ('{"a": 1}', "json"), ("42.", "number"), ("yes", "text"),
    ]  # fmt: skip
    for output, kind in traits:
        assert f"P|{kind}|a|llm|" in keys(run(step("a", output)))
    assert "P|call|a|llm|" in keys(run(calling("a", ("pay", "{}"))))
    assert "P|text|a|llm|" in keys(run(step("a", "call pay({})"))), "prose that looks like a call"
    assert "P|error|a|llm|" in keys(run(step("a", "x", status=SpanStatus.ERROR)))
    assert "P|call pay|a|llm|" in keys(run(calling("a", ("pay", "{}"), words="so:")))


names = st.sampled_from(["a", "b", "c", "ünïcode", "", "x" * 300, "|", "\ud800"])
steps = st.builds(tool, names, names, names)


@given(st.lists(steps, max_size=60))
def test_any_run_packs_into_its_bound(taken: list[object]) -> None:
    trajectory = run(*taken)  # type: ignore[arg-type]
    packed = pack(elements_of(trajectory))
    assert len(packed) <= 1 + 3 * MAX_ELEMENTS <= 300
    assert agents_in(packed) <= unpack(packed)
    assert len(agents_in(packed)) <= len(set(trajectory.agents))


@given(st.binary(max_size=300))
def test_damaged_bytes_are_read_without_error(packed: bytes) -> None:
    assert agents_in(packed) <= unpack(packed)


def test_agents_come_first_in_a_long_run() -> None:
    long = run(*(tool(f"agent {n % 30}", f"{n}", f"tool {n}") for n in range(200)))
    packed = pack(elements_of(long))
    assert agents_in(packed) == {digest_of(f"G|agent {n}") for n in range(30)}


def test_an_element_that_cut_runs_lack_is_not_new() -> None:
    """Runs of 200 different calls are kept in part: what is left out must not look new."""
    long = run(*(tool("a", "x", f"tool {n}") for n in range(200)))
    found = compare(long, known(*[(Said.PASSED, long)] * 20, *[(Said.FAILED, long)] * 2))
    assert not found.is_any
