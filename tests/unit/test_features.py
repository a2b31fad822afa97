from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analyzer.methods.ranker_features import FEATURES, Table, featurise
from semconv.model import StepKind, Trajectory
from tests.runs import run, step, tool


def column(table: Table, feature: str) -> list[float]:
    return [row[FEATURES.index(feature)] for row in table.rows]


def test_every_feature_has_a_name_of_its_own() -> None:
    assert len(set(FEATURES)) == len(FEATURES) > 40


def test_a_run_without_steps_has_an_empty_table() -> None:
    assert featurise(Trajectory(run_id="r", steps=())).rows == ()


def test_neighbours_words_are_this_steps_features_too() -> None:
    table = featurise(run(step("a", "plan"), step("b", "an error"), step("a", "done")))
    here = column(table, "error_words")
    assert here[1] > 0
    assert column(table, "error_words_after") == [here[1], 0.0, 0.0]
    assert column(table, "error_words_before") == [0.0, 0.0, here[1]]


def test_a_tools_fault_is_seen_from_the_step_before_and_after() -> None:
    table = featurise(
        run(step("a", "run it"), tool("t", "exitcode: 1 (execution failed)"), step("a", "what now"))
    )
    assert column(table, "fault") == [0.0, 1.0, 0.0]
    assert column(table, "fault_after") == [1.0, 0.0, 0.0]
    assert column(table, "before_tool") == [1.0, 0.0, 0.0]


def test_novelty_is_what_neither_the_task_nor_a_step_before_said() -> None:
    table = featurise(run(step("a", "apples"), step("b", "apples pears"), task="count apples"))
    assert column(table, "novelty") == [0.0, 0.5]


def test_the_names_of_agents_change_nothing_but_the_names() -> None:
    one = run(step("Planner", "plan"), step("Coder", "```python\nx```"), tool("Coder", "error"))
    other = replace(
        one, steps=tuple(replace(s, agent={"Planner": "p", "Coder": "q"}[s.agent]) for s in one.steps)
    )
    assert featurise(one).rows == featurise(other).rows
    assert featurise(one).agents == ("planner", "coder", "coder")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=200), st.sampled_from(StepKind)), min_size=1)
)
def test_every_run_has_a_row_of_finite_figures_a_step(steps: list[tuple[str, str, StepKind]]) -> None:
    table = featurise(run(*(step(agent, text, kind) for agent, text, kind in steps), task="t"))
    assert len(table.rows) == len(table.agents) == len(steps)
    assert all(len(row) == len(FEATURES) for row in table.rows)
    assert all(math.isfinite(value) for row in table.rows for value in row)
