from __future__ import annotations

from dataclasses import replace

from analyzer.history.divergence import MAX_MEDOIDS, Way, divergence, medoids
from analyzer.history.elements import elements_of, pack
from analyzer.history.known_runs import KnownRun
from analyzer.history.spectrum import Said
from semconv.model import Trajectory
from tests.runs import run, step, tool

GOOD = run(step("planner"), step("buyer"), step("writer"), run_id="good")


def known(number: int, trajectory: Trajectory, said: Said = Said.PASSED) -> KnownRun:
    packed = pack(elements_of(trajectory))
    return KnownRun(run_id=f"r{number}", service="", workflow="", version="", said=said, elements=packed)


def test_a_further_step_is_where_a_run_departs() -> None:
    bad = run(step("planner"), step("buyer"), tool("buyer", "x", "pay"), step("writer"))
    far = run(step("a"), step("b"), run_id="far")
    found = divergence(bad, [far, GOOD])
    assert found is not None
    assert (found.nearest, found.way, found.step) == ("good", Way.EXTRA, 2)
    assert (found.found, found.expected) == ("buyer: tool pay", "writer: llm")
    assert found.distance == 1 - 6 / 7
    assert found.compared == 2
    assert found.to_json()["way"] == "extra"


def test_a_missing_step_is_named_by_what_was_expected() -> None:
    found = divergence(run(step("planner"), step("writer")), [GOOD])
    assert found is not None
    assert (found.way, found.step, found.expected) == (Way.MISSING, 1, "buyer: llm")
    ended = divergence(run(step("planner"), step("buyer")), [GOOD])
    assert ended is not None
    assert (ended.way, ended.step, ended.expected, ended.found) == (Way.MISSING, None, "writer: llm", "")


def test_equal_steps_with_other_texts_do_not_depart() -> None:
    found = divergence(replace(GOOD, run_id="bad"), [GOOD])
    assert found is not None
    assert (found.way, found.step, found.distance) == (Way.NONE, None, 0.0)
    assert divergence(GOOD, []) is None
    assert divergence(run(), [run()]) is not None


def test_medoids_stand_for_all_passing_runs() -> None:
    other = run(step("planner"), tool("buyer", "x", "pay"), step("writer"))
    runs = [known(n, GOOD) for n in range(50)] + [known(100 + n, other) for n in range(5)]
    runs += [known(200, run(step("z")), Said.FAILED), known(201, run(step("z")), Said.UNSAID)]
    chosen = medoids(runs)
    assert [run.elements for run in chosen] == [pack(elements_of(GOOD)), pack(elements_of(other))]
    assert chosen[0].run_id == "r0"  # the newest of its kind


def test_medoids_are_bounded() -> None:
    runs = [known(n, run(*(tool("a", "x", f"t{k}") for k in range(n % 40 + 1)))) for n in range(120)]
    assert len(medoids(runs)) == MAX_MEDOIDS
    assert medoids([]) == []
