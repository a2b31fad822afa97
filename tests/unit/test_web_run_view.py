"""A run's page: evidence at its step, long texts truncated, its picture, and its links."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.web.front import TraceLink, local
from analyzer.web.pages.picture import (
    MOST_LANES,
    OTHERS,
    Place,
    Suspicion,
    draw,
    lanes_of,
    name_board,
    places,
)
from analyzer.web.pages.run_page import MOST_ROWS, view
from analyzer.web.pages.step_page import WINDOW, Wanted
from analyzer.web.pages.step_texts import MOST_TEXT, Piece, highlighted
from analyzer.web.rendering import telling
from semconv.model import Step, StepKind
from tests.runs import failed_tool, run, step, tool
from tests.security.test_hostile_text import HOSTILE

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


SVG = "{http://www.w3.org/2000/svg}"
NOBODY = Suspicion(probabilities={})


def drawn(*steps: Step, suspicion: Suspicion = NOBODY) -> ET.Element:
    return ET.fromstring(draw(run(*steps).steps, suspicion))


def links(picture: ET.Element) -> list[ET.Element]:
    return list(picture.iter(f"{SVG}a"))


def of_class(picture: ET.Element, kind: str) -> list[ET.Element]:
    return [node for node in picture.iter() if kind in node.get("class", "").split()]


def test_every_step_is_there_once_and_leads_to_its_text() -> None:
    picture = drawn(step("a"), tool("a"), step("b"))
    assert [link.get("href") for link in links(picture)] == ["#step-0", "#step-1", "#step-2"]


def test_an_agent_has_one_lane_and_a_step_one_column() -> None:
    steps = run(step("a"), step("b"), step("a")).steps
    assert lanes_of(steps) == ("a", "b")
    assert places(steps) == (Place(column=0, lane=0), Place(column=1, lane=1), Place(column=2, lane=0))


def test_agents_of_a_parallel_group_stand_side_by_side_and_what_follows_stands_after_all() -> None:
    steps = run(step("lead"), step("b", group=1), step("c", group=1), step("c", group=1), step("lead")).steps
    assert [place.column for place in places(steps)] == [0, 1, 1, 2, 3]
    assert len(of_class(drawn(*steps), "parallel")) == 1


def test_two_successive_groups_are_drawn_apart() -> None:
    steps = run(step("b", group=1), step("c", group=1), step("b", group=2), step("c", group=2)).steps
    assert [place.column for place in places(steps)] == [0, 0, 1, 1]


def test_work_that_passes_to_another_lane_is_an_arrow_and_within_a_lane_a_line() -> None:
    picture = drawn(step("a"), step("a"), step("b"))
    assert [len(of_class(picture, kind)) for kind in ("flow", "passage")] == [1, 1]
    assert of_class(picture, "passage")[0].get("marker-end") == "url(#tip)"


def test_a_group_is_entered_and_left_by_an_arrow_for_each_lane() -> None:
    picture = drawn(step("lead"), step("b", group=1), step("c", group=1), step("lead"))
    assert len(of_class(picture, "passage")) == 4


def test_the_decisive_step_alone_has_flag_ring_and_word() -> None:
    suspicion = Suspicion(decisive=1, probabilities={1: 0.6, 0: 0.2})
    picture = drawn(step("a"), tool("b"), step("c"), suspicion=suspicion)
    decisive = of_class(picture, "decisive")
    assert [one.get("href") for one in decisive] == ["#step-1"]
    assert [len(of_class(picture, kind)) for kind in ("pointer", "ring", "mark")] == [1, 1, 1]
    assert [one.get("aria-hidden") for one in of_class(picture, "pointer")] == ["true"]
    assert (decisive[0].get("aria-label") or "").startswith("decisive: step 1, b, tool call")
    assert "step 1 of b is decisive" in (picture.get("aria-label") or "")


def test_the_likelier_a_step_is_to_blame_the_taller_it_stands() -> None:
    suspicion = Suspicion(decisive=0, probabilities={0: 0.6, 1: 0.3, 2: 0.001})
    picture = drawn(step("a"), step("a"), step("a"), suspicion=suspicion)
    tall = [float(bar.get("height", "0")) for bar in of_class(picture, "blame")]
    assert len(tall) == 2
    assert tall[0] > tall[1]


def test_an_error_is_marked_and_said() -> None:
    picture = drawn(failed_tool("a"), step("a"))
    assert [one.get("href") for one in of_class(picture, "failed")] == ["#step-0"]
    assert "error" in (links(picture)[0].get("aria-label") or "")


@pytest.mark.parametrize("kind", StepKind)
def test_every_kind_of_step_can_be_drawn(kind: StepKind) -> None:
    assert len(of_class(drawn(step("a", kind=kind)), "node")) == 1


def test_a_crowd_of_agents_shares_the_last_lane() -> None:
    steps = run(*(step(f"agent {number}") for number in range(60))).steps
    assert (len(lanes_of(steps)), lanes_of(steps)[-1]) == (MOST_LANES, OTHERS)
    assert max(place.lane for place in places(steps)) == MOST_LANES - 1


def test_a_run_without_steps_has_a_picture() -> None:
    assert not links(drawn())


def test_every_lane_is_named_once_on_the_board_and_the_guilty_one_is_marked() -> None:
    steps = run(step("planner"), step("clerk"), step("planner")).steps
    board = ET.fromstring(name_board(steps, Suspicion(decisive=1, probabilities={})))
    assert [text.text for text in board] == ["planner", "clerk"]
    assert [text.text for text in of_class(board, "guilty")] == ["clerk"]
    assert not of_class(drawn(*steps), "name"), "not twice"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_escaped_on_the_board(name: str) -> None:
    steps = run(step(HOSTILE[name] or "x")).steps
    (text,) = ET.fromstring(name_board(steps, NOBODY))
    assert text.tag == f"{SVG}text"
    assert not list(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_escaped_in_the_picture(name: str) -> None:
    text = HOSTILE[name]
    picture = drawn(
        step(text or "x"), tool(text, target=text), suspicion=Suspicion(decisive=1, probabilities={})
    )
    plain = drawn(step("a"), tool("a", target="t"), suspicion=Suspicion(decisive=1, probabilities={}))
    assert [node.tag for node in picture.iter()] == [node.tag for node in plain.iter()]
    assert {key for node in picture.iter() for key in node.keys()} == {  # noqa: SIM118 - an element is no dict
        key
        for node in plain.iter()
        for key in node.keys()  # noqa: SIM118 - as above
    }


JAEGER = TraceLink(template="http://jaeger:16686/trace/{trace_id}?uiFind={span_id}")


def test_the_template_leads_to_the_trace_and_its_span() -> None:
    trace, span = "ab" * 16, "cd" * 8
    assert JAEGER.to(trace, span) == f"http://jaeger:16686/trace/{trace}?uiFind={span}"
    assert JAEGER.to(trace, None) == f"http://jaeger:16686/trace/{trace}?uiFind="
    assert TraceLink(template="https://g/x#{trace_id}").to(trace, span) == f"https://g/x#{trace}"


def test_a_trace_id_cannot_change_the_rest_of_the_link() -> None:
    address = JAEGER.to("../../x?y#z{span_id}", None)
    assert address == "http://jaeger:16686/trace/..%2F..%2Fx%3Fy%23z%7Bspan_id%7D?uiFind="


def test_without_a_trace_or_a_template_there_is_no_link() -> None:
    assert JAEGER.to(None, None) == ""
    assert TraceLink().to("ab" * 16, None) == ""


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "javascript:x", "/x\\y"],
)
def test_signing_in_redirects_to_no_other_site(path: str) -> None:
    assert local(path) == "/runs"


def test_signing_in_leads_back_to_the_requested_page() -> None:
    assert local("/runs/abc?from=3") == "/runs/abc?from=3"
