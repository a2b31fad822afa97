"""A run's page: evidence at its step, long texts truncated, long runs in pages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.web.pages.run_page import MOST_ROWS, view
from analyzer.web.pages.step_page import WINDOW, Wanted
from analyzer.web.pages.step_texts import MOST_TEXT, Piece, highlighted
from analyzer.web.rendering import telling
from tests.runs import run, step, tool

BLAME: dict[str, Any] = {
    "step": 1,
    "confidence": 0.7,
    "evidence": [{"step": 1, "quote": "14,500"}],
    "ranking": [{"step": 1, "agent": "clerk", "probability": 0.7}],
}


def pieces(text: str, *quotes: str) -> list[tuple[str, bool]]:
    return [(piece.text, piece.is_evidence) for piece in highlighted(text, quotes)]


def test_a_quote_is_found_in_the_text() -> None:
    assert pieces("it is 14,500 now", "14,500") == [("it is ", False), ("14,500", True), (" now", False)]


@pytest.mark.parametrize(
    ("quotes", "expected"),
    [
        pytest.param(("bcd", "cde"), [("a", False), ("bcde", True), ("f", False)], id="overlapping"),
        pytest.param(("bcd", "c"), [("a", False), ("bcd", True), ("ef", False)], id="one in the other"),
        pytest.param(("ab", "cd"), [("abcd", True), ("ef", False)], id="touching"),
        pytest.param(("x", "", "  "), [("abcdef", False)], id="none of it there"),
    ],
)
def test_adjoining_quotes_are_both_marked(quotes: tuple[str, ...], expected: list[tuple[str, bool]]) -> None:
    assert pieces("abcdef", *quotes) == expected


@given(st.text(max_size=60), st.lists(st.text(max_size=10), max_size=6))
def test_highlighting_loses_no_letter(text: str, quotes: list[str]) -> None:
    assert "".join(piece.text for piece in highlighted(text, quotes)) == text


def test_the_decisive_step_is_open_with_its_evidence_marked() -> None:
    shown = view(run(step("a", "go"), tool("clerk", "it is 14,500")), BLAME)
    assert [one.is_open for one in shown.steps] == [False, True]
    assert shown.steps[1].is_decisive
    assert Piece(text="14,500", is_evidence=True) in shown.steps[1].texts[0].pieces


def test_evidence_deep_in_a_long_text_is_shown_although_the_text_is_cut() -> None:
    long = "x" * 50_000 + "14,500" + "y" * 50_000
    shown = view(run(step("a"), tool("clerk", long)), BLAME).steps[1].texts[0]
    assert any(piece.is_evidence for piece in shown.pieces)
    assert sum(len(piece.text) for piece in shown.pieces) < 3 * MOST_TEXT
    assert shown.left_out > 90_000


def test_a_very_long_run_is_listed_in_parts_beginning_with_the_decisive_steps() -> None:
    long = run(*(step("a", str(number)) for number in range(3_000)))
    shown = view(long, BLAME | {"step": 1_700, "evidence": [], "ranking": []})
    assert len(shown.steps) == MOST_ROWS
    assert shown.window.first <= 1_700 < shown.window.end
    assert (shown.window.before, shown.window.after) == (550, 2_550)
    assert view(long, {}, Wanted(first=2_990)).steps[-1].step.index == 2_999
    assert view(long, {}, Wanted(first=10**8)).window.first == 2_999
    assert view(long, {}, Wanted(step=2_500)).window.first <= 2_500


@pytest.mark.parametrize(("count", "has_picture"), [(WINDOW, True), (WINDOW + 1, False)])
def test_a_long_run_has_a_map_instead_of_a_picture(count: int, *, has_picture: bool) -> None:
    shown = view(run(*(step("a", str(number)) for number in range(count))), BLAME)
    assert bool(shown.picture) is has_picture
    assert bool(shown.overview) is not has_picture


def test_steps_that_come_again_and_again_are_one_row() -> None:
    loop = [step("a", "go"), tool("clerk", "", input="same")] * 5
    shown = view(run(step("a", "first"), *loop, step("a", "last")), {})
    assert [(one.times, one.cycle) for one in shown.stretches] == [(1, 1), (5, 2), (1, 1)]
    assert [one.step.index for one in shown.steps] == list(range(12))
    assert not any(one.is_open for one in shown.stretches)
    assert view(run(*loop), BLAME).stretches[0].is_open, "the decisive step is among them"


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_every_step_is_listed_once_and_in_order(names: list[str]) -> None:
    shown = view(run(*(step(name) for name in names)), {})
    assert [one.step.index for one in shown.steps] == list(range(len(names)))


def test_a_search_lists_the_steps_that_contain_the_text() -> None:
    shown = view(
        run(step("a", "go"), tool("clerk", "it is FOURTEEN thousand"), step("b")), {}, Wanted(find="fourteen")
    )
    assert [one.step.index for one in shown.steps] == [1]
    assert shown.steps[0].found == ("it is", "FOURTEEN", "thousand")
    assert shown.found == 1


def test_a_verdict_with_few_fields_is_shown() -> None:
    shown = view(run(step("a")), {})
    assert [one.is_open for one in shown.steps] == [False]


def test_invisible_characters_are_not_shown() -> None:
    shown = view(run(step("a", "pay\u200bpal \u202egnp.exe \x1b[31mred")), {})
    assert shown.steps[0].texts[0].pieces[0].text == "paypal gnp.exe red"


def test_a_quote_that_another_of_its_step_contains_is_not_shown_beside_it() -> None:
    short, long = {"step": 1, "quote": "820"}, {"step": 1, "quote": "it is 820 EUR"}
    elsewhere = {"step": 2, "quote": "820"}
    assert telling([short, long, elsewhere, long]) == [long, elsewhere]
