"""Where the values of an answer came from, and by which steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyses.composition import open_analyst
from analyzer.lineage.chains import MOST_VALUES, lineage_of, path_in
from analyzer.texts.run_view import read
from collector_processor.settings import load_settings
from semconv.model import Change, Origin, Passed, Status, Step, Trajectory, ValueOrigin
from tests.runs import calling, run, step, tool

OFFER = '{"ferries": [{"id": "F-118", "fare": 86.5}, {"id": "F-204", "fare": 71.25}], "sails": "2027-04-09"}'


def crossing(*steps: Step) -> Trajectory:
    """Return a run whose first two steps look up ferries."""
    return run(
        calling("scout", ("ferries", '{"to": "Naxos"}')),
        tool("scout", OFFER, "ferries", input='{"to": "Naxos"}'),
        *steps,
        task="Two seats to Naxos on ferry F-118, please; I pay at most 180 EUR.",
        output=steps[-1].output,
    )


def found(trajectory: Trajectory, value: str, decisive: int | None = None) -> ValueOrigin:
    return next(one for one in lineage_of(read(trajectory), decisive) if one.value == value)


def test_a_returned_value_has_its_step_and_its_path() -> None:
    one = found(
        crossing(step("scout", "F-204 for 71.25 EUR."), step("clerk", "Take F-204 for 71.25 EUR.")),
        "71.25 EUR",
    )
    assert (one.origin, one.step, one.path) == (Origin.RETURNED, 1, "ferries[1].fare")
    assert one.chain == (
        Passed(step=2, value="71.25 EUR", change=Change.SAID),
        Passed(step=3, value="71.25 EUR", change=Change.REPEATED),
    )


def test_a_value_of_the_task_is_given() -> None:
    one = found(crossing(step("clerk", "F-118 is full; it was for 180 EUR at most.")), "180 EUR")
    assert (one.origin, one.step, one.path) == (Origin.GIVEN, None, "")


@pytest.mark.parametrize(
    ("answer", "value", "formula"),
    [
        ("Two seats on F-118 cost 173 EUR.", "173 EUR", "86.5 x 2"),
        ("86.5 EUR and 71.25 EUR are 157.75 EUR.", "157.75 EUR", "86.5 + 71.25"),
        ("F-118 is 15.25 EUR dearer.", "15.25 EUR", "86.5 - 71.25"),
        ("In cents: 8650", "8650", "86.5 x 100"),
    ],
)
def test_a_computed_value_has_its_formula(answer: str, value: str, formula: str) -> None:
    one = found(crossing(step("clerk", answer)), value)
    assert (one.origin, one.step) == (Origin.DERIVED, None)
    assert one.formula in {formula, " x ".join(reversed(formula.split(" x ")))}


def test_a_value_that_nothing_gives_comes_from_nowhere_at_the_step_that_says_it_first() -> None:
    one = found(
        crossing(step("scout", "That is 911.37 EUR."), step("clerk", "It costs 911.37 EUR.")), "911.37 EUR"
    )
    assert (one.origin, one.step) == (Origin.NOWHERE, 2)
    assert [link.change for link in one.chain] == [Change.SAID, Change.REPEATED]


@pytest.mark.parametrize(
    ("said", "value", "was"),
    [
        ("Fare: 71.52 EUR.", "71.52 EUR", "71.25"),
        ("It sails on 19 April 2027.", "19 April 2027", "2027-04-09"),
    ],
)
def test_a_value_close_to_a_returned_one_was_changed(said: str, value: str, was: str) -> None:
    one = found(crossing(step("scout", said), step("clerk", said)), value)
    assert one.origin is Origin.NOWHERE
    assert one.chain[0] == Passed(step=1, value=was, change=Change.SAID)
    assert [(link.step, link.change) for link in one.chain[1:]] == [(2, Change.CHANGED), (3, Change.REPEATED)]


def test_the_decisive_steps_values_are_shown_beside_the_answers() -> None:
    trajectory = crossing(step("scout", "F-204 sails for 72 EUR."), step("clerk", "Take F-204."))
    assert [one.value for one in lineage_of(read(trajectory))] == ["F-204"]
    assert [one.value for one in lineage_of(read(trajectory), 2)] == ["F-204", "72 EUR"]


def test_figures_keep_their_unit_and_drop_the_word_beside_them() -> None:
    one = lineage_of(read(crossing(step("clerk", "It is 71.25 cheaper."))))
    assert [each.value for each in one] == ["71.25"]


@pytest.mark.parametrize(
    "trajectory",
    [
        run(step("clerk", "It costs 71.25 EUR."), task="How much?", output="It costs 71.25 EUR."),
        crossing(step("clerk", "I cannot say.")),
    ],
    ids=["no result", "no value"],
)
def test_without_results_or_values_there_is_no_lineage(trajectory: Trajectory) -> None:
    assert lineage_of(read(trajectory)) == ()


def test_a_long_answer_shows_its_first_values() -> None:
    answer = " ".join(f"{number}.75 EUR" for number in range(100, 400))
    assert len(lineage_of(read(crossing(step("clerk", answer))))) == MOST_VALUES


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a": {"b": [1, 7]}}', "a.b[1]"),
        ("[[5, 7]]", "[0][1]"),
        ('{"7": 1}', ""),
        ("7", ""),
        ("{7", ""),
        ("[" * 100_000, ""),
    ],
)
def test_paths_are_found_in_json_alone(text: str, path: str) -> None:
    is_seven: Callable[[object], bool] = lambda leaf: leaf == 7  # noqa: E731 - one line
    assert path_in(text, is_seven) == path


def judged(export_text: str, tmp_path: Path) -> list[dict[str, Any]]:
    given = {"BLAMESPAN_EXPORT_TEXT": export_text, "BLAMESPAN_REDACT": "none"}
    settings = load_settings(given, directory=tmp_path)
    passing = crossing(step("clerk", "Take F-204; mail the captain at ann.lee@example.com about 71.25 EUR."))
    analysis = open_analyst(settings).unasked(passing)
    assert analysis is not None
    assert analysis.attribution.status is Status.NO_FAILURE
    values: list[dict[str, Any]] = json.loads(analysis.document)["lineage"]
    return values


def test_verdicts_on_passing_runs_have_the_lineage_too(tmp_path: Path) -> None:
    values = judged("full", tmp_path)
    assert [one["value"] for one in values] == ["F-204", "ann.lee@example.com", "71.25 EUR"]
    assert values[2] == {
        "value": "71.25 EUR",
        "origin": "returned",
        "step": 1,
        "path": "ferries[1].fare",
        "formula": None,
        "chain": [{"step": 2, "value": "71.25 EUR", "change": "said"}],
    }


def test_values_are_shown_as_the_export_of_text_allows(tmp_path: Path) -> None:
    assert "ann.lee" not in str(judged("redacted", tmp_path))
    assert judged("none", tmp_path) == []


def test_a_key_with_half_a_surrogate_pair_leaves_a_path_that_can_be_written() -> None:
    result = '{"\\ud83d": {"id": "F-118"}}'
    steps = (calling("scout", ("ferries", "{}")), tool("scout", result, "ferries", input="{}"))
    (one,) = lineage_of(
        read(run(*steps, step("clerk", "Take F-118."), task="Which one?", output="Take F-118."))
    )
    assert one.path.encode() == "\N{REPLACEMENT CHARACTER}.id".encode()
