"""The picture of a run: every step once, in its lane and order, with the decisive one marked."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

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
from semconv.model import Step, StepKind
from tests.runs import failed_tool, run, step, tool
from tests.security.test_hostile_text import HOSTILE

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
