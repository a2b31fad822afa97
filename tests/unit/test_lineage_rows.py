"""Calls for another entry of a list than the one asked for, and calls that what was asked allows."""

from __future__ import annotations

import json

import pytest

from analyzer.lineage.clue import Clue, weigh
from analyzer.lineage.known import Known
from analyzer.lineage.other_calls import calls_for_other_rows
from analyzer.lineage.readers import LineageReader
from analyzer.texts.run_view import read
from semconv.model import Step
from tests.runs import calling, run, step, tool

EVEN = 0.5


def found(reader: LineageReader, task: str, *steps: Step) -> Clue | None:
    return next(reader(Known(read(run(*steps, task=task, output=steps[-1].output)))), None)


def called(name: str, arguments: object, result: object) -> tuple[Step, Step]:
    asked = json.dumps(arguments, ensure_ascii=False)
    told = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return calling("clerk", (name, asked)), tool("clerk", told, name, input=asked)


TENANTS = [
    {"tenant": "T-208", "name": "M. Okoro", "flat": "14B"},
    {"tenant": "T-331", "name": "N. Okoro", "flat": "4B"},
]
PEOPLE = [
    {"id": "P-204", "name": "Ada García", "born": "1986-03-14"},
    {"id": "P-118", "name": "Ada García", "born": "1968-03-14"},
]
MORE_PEOPLE = [*PEOPLE, {"id": "P-077", "name": "Ada García-Ruiz", "born": "1971-01-30"}]
OFFERS = "carrier;price;insured;arrives\nAdria;148,00;5000;2027-11-06\nFuma;172,50;12000;2027-11-07"
ROOMS = [
    {"id": "R-11", "name": "Blauer Saal", "seats": 40, "free": True},
    {"id": "R-12", "name": "Grüner Saal", "seats": 60, "free": True},
]


@pytest.mark.parametrize(
    ("task", "entries", "name", "arguments", "right"),
    [
        ("What does N. Okoro in 4B owe?", TENANTS, "ledger", {"tenant": "T-208"}, "T-331 (N. Okoro)"),
        ("Buche den Grüner Saal für Montag.", ROOMS, "buchen", {"raum": "R-11"}, "R-12 (Grüner Saal)"),
        ("La analítica de Ada García, nacida el 14/03/1968.", PEOPLE, "ver", {"nhc": "P-204"}, "P-118"),
        ("The tests of Ada García, born 14 March 1968.", MORE_PEOPLE, "view", {"no": "P-204"}, "P-118"),
    ],
)
def test_a_call_for_another_entry_than_the_one_asked_for_is_the_mistake(
    task: str, entries: object, name: str, arguments: object, right: str
) -> None:
    steps = (*called("find", {}, entries), *called(name, arguments, "ok"), step("clerk", "Done."))
    clue = found(calls_for_other_rows, task, *steps)
    assert clue is not None
    assert clue.step == 2
    assert right in clue.reason
    assert weigh([clue]).probability > EVEN


@pytest.mark.parametrize(
    ("task", "entries", "calls"),
    [
        ("What does N. Okoro in 4B owe?", TENANTS, [("ledger", {"tenant": "T-331"})]),
        (
            "Compare N. Okoro with the others.",
            TENANTS,
            [("ledger", {"tenant": t}) for t in ("T-208", "T-331")],
        ),
        ("Which room has 40 seats?", ROOMS, [("room", {"id": "R-11"})]),
        ("Consegna entro il 7 novembre 2027.", OFFERS, [("prenota", {"vettore": "Adria"})]),
        ("What do all Okoros owe?", TENANTS, [("ledger", {"tenant": "T-208"})]),
        (
            "Buche den Grüner Saal, sonst einen anderen.",
            [ROOMS[0], {**ROOMS[1], "free": False}],
            [("buchen", {"raum": "R-11"})],
        ),
    ],
)
def test_calls_that_what_was_asked_allows_are_right(
    task: str, entries: object, calls: list[tuple[str, object]]
) -> None:
    later = (each for name, arguments in calls for each in called(name, arguments, "ok"))
    steps = (*called("find", {}, entries), *later, step("clerk", "Done."))
    assert found(calls_for_other_rows, task, *steps) is None
