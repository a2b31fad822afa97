from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analyzer.methods.investigate import Tie, influence_graph
from semconv.model import StepKind, Trajectory
from tests.runs import run, step, tool


def edges(trajectory: Trajectory) -> set[tuple[int, int, Tie]]:
    graph = influence_graph(trajectory)
    return {(edge.source, edge.target, edge.tie) for found in graph.values() for edge in found}


def test_spans_tie_steps_and_later_or_unknown_causes_do_not() -> None:
    trajectory = run(step("a"), step("b", causes=(0,)), step("c", causes=(2, 7, 1)))
    assert edges(trajectory) == {(0, 1, Tie.SPAN), (1, 2, Tie.SPAN)}


def test_a_handoff_leads_to_the_next_step_of_its_target() -> None:
    trajectory = run(
        step("boss", "go", StepKind.HANDOFF, target="b"), step("boss"), step("b"), step("b"), step("boss")
    )
    assert edges(trajectory) == {(0, 2, Tie.HANDOFF)}


def test_a_figure_is_traced_to_the_step_that_brought_it_in() -> None:
    trajectory = run(
        step("planner", "look up the price"),
        tool("clerk", "the list says 1,450 each"),
        step("writer", "a short note"),
        step("analyst", "so it is 1,450"),
    )
    graph = influence_graph(trajectory)
    (edge,) = graph[3]
    assert (edge.source, edge.tie, edge.sample) == (1, Tie.REUSE, "1,450")


def test_repeated_sentences_are_traced_and_single_phrases_are_not() -> None:
    sentence = "the museum opened its doors in the old harbour"
    trajectory = run(
        step("a", sentence), step("b", f"I read that {sentence}"), step("c", "the museum opened")
    )
    assert edges(trajectory) == {(0, 1, Tie.REUSE)}


def test_no_step_introduces_words_of_the_task() -> None:
    task = "How many of the 4,711 ships sailed in the spring of that year?"
    assert edges(run(step("a", task), step("b", task), task=task)) == set()


@given(st.lists(st.text(alphabet="ab 123.", max_size=60), max_size=10))
def test_every_edge_goes_forward(texts: list[str]) -> None:
    graph = influence_graph(run(*(step("a", text) for text in texts)))
    forward = {(e.source, e.target) for found in graph.values() for e in found}
    assert all(source < target for source, target in forward)
