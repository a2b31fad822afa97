"""Values and calls of another entry, and results about something else; each kind with runs that are right."""

from __future__ import annotations

import json

import pytest

from analyzer.lineage.clue import Clue, ClueKind, weigh
from analyzer.lineage.echoes import answers_to_other_questions
from analyzer.lineage.known import Known
from analyzer.lineage.other_calls import calls_for_other_rows
from analyzer.lineage.other_values import values_of_other_rows
from analyzer.lineage.readers import LineageReader
from analyzer.signals.run_view import read
from semconv.model import Step
from tests.runs import calling, run, step, tool

EVEN = 0.5


def found(reader: LineageReader, task: str, *steps: Step) -> Clue | None:
    return next(reader(Known(read(run(*steps, task=task, output=steps[-1].output)))), None)


def called(name: str, arguments: object, result: object) -> tuple[Step, Step]:
    asked = json.dumps(arguments, ensure_ascii=False)
    told = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return calling("clerk", (name, asked)), tool("clerk", told, name, input=asked)


RACE = "Harbour race\n1 LUND Ada 4:12.08\n2 BECKER Jo 4:15.37\n3 OKORO Ife 4:15.73"
KILNS = [
    {"kiln": "Nord", "peak_c": 1184, "hours": 11.25},
    {"kiln": "Süd", "peak_c": 1236, "hours": 12.75},
    {"kiln": "Hof", "peak_c": 1090, "hours": 9.5},
]
TABLE = "vélo;loyer;état\nAlizé;118,50;neuf\nBrise;94,20;bon\nMistral;101,75;bon"


@pytest.mark.parametrize(
    ("task", "result", "answer", "right"),
    [
        ("What was Jo Becker's time?", RACE, "Jo Becker came second in 4:15.73.", "4:15.37"),
        ("Wie heiß wurde Ofen Süd?", KILNS, "Der Ofen Süd erreichte 1184 Grad.", "1236"),
        ("Combien coûte le vélo Brise ?", TABLE, "Le vélo Brise coûte 101,75 euros.", "94.2"),
    ],
)
def test_a_value_of_another_entry_was_mixed_up(task: str, result: object, answer: str, right: str) -> None:
    clue = found(values_of_other_rows, task, *called("results", {}, result), step("clerk", answer))
    assert clue is not None
    assert (clue.step, clue.kind) == (2, ClueKind.CHANGED)
    assert f"returned {right} for this one" in clue.reason
    assert weigh([clue]).probability > EVEN


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (RACE, "Jo Becker came second in 4:15.37."),
        (RACE, "Jo Becker (4:15.37) was just ahead of the third, who needed 4:15.73."),
        (RACE, "Jo Becker came second. Ife Okoro needed 4:15.73."),
        (RACE, "Behind Jo Becker came Ife Okoro in 4:15.73."),
        (KILNS, "Ofen Süd war mit 1236 Grad heißer als Ofen Nord mit 1184."),
        (KILNS, "Süd: 1236 Grad, 12,75 Stunden."),
        (TABLE, "Brise coûte 94,20 euros ; le plus cher coûte 118,50."),
        ([{"kiln": "Nord", "peak_c": 1184}, {"kiln": "Hof", "peak_c": 1184}], "Nord: 1184 Grad."),
        ([{"kiln": "Nord", "built": 1998}, {"kiln": "Hof", "built": 2021}], "Nord was relined in 2021."),
    ],
)
def test_an_entrys_own_value_and_comparisons_are_right(result: object, answer: str) -> None:
    steps = (*called("results", {}, result), step("clerk", answer))
    assert found(values_of_other_rows, "How was it?", *steps) is None


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


@pytest.mark.parametrize(
    ("arguments", "result", "answer"),
    [
        ({"kw": 12}, {"kw": 10, "percent": 8.5}, "In KW 12 sind es 8,5 %."),
        ({"date": "2027-06-22"}, {"date": "2027-06-15", "duty": "Ada"}, "On 22 June 2027 Ada is on duty."),
        ({"booking": "AB-4711"}, {"booking": "AB-4712", "total": 80}, "Booking AB-4711 comes to 80."),
    ],
)
def test_a_result_of_something_else_given_for_what_was_asked_is_the_mistake(
    arguments: object, result: object, answer: str
) -> None:
    clue = found(
        answers_to_other_questions, "?", *called("look_up", arguments, result), step("clerk", answer)
    )
    assert clue is not None
    assert clue.step == 2
    assert weigh([clue]).probability > EVEN


@pytest.mark.parametrize(
    ("arguments", "result", "answer"),
    [
        ({"kw": 12}, {"kw": 10, "percent": 8.5}, "Für KW 12 fehlt der Wert; in KW 10 waren es 8,5 %."),
        ({"kw": 12}, {"kw": "12", "percent": 8.5}, "In KW 12 sind es 8,5 %."),
        ({"city": "Lyon"}, {"city": "Lyon, Rhône", "gates": 3}, "Lyon has 3 gates."),
        ({"date": "2027-06-22"}, {"date": "22.06.2027", "duty": "Ada"}, "On 22 June 2027 it is Ada."),
        ({"limit": 5}, {"limit": 50, "total": 3}, "The first 5 of 3."),
        ({"stadt": "Köln"}, {"stadt": "Cologne", "tore": 12}, "Köln hat 12 Tore."),
        ({"currency": "euro"}, {"currency": "EUR", "rate": 1.09}, "The euro stands at 1.09."),
        ({"booking": "4711"}, {"booking": "AB-4711", "total": 80}, "Booking 4711 comes to 80."),
        ({"price": 40}, {"price": 38.5}, "It costs 38.50."),
        (
            {"artikel": "trilplaat 90 kg"},
            {"artikel": "TP-90", "dag": 45},
            "Een trilplaat 90 kg kost 45.",
        ),
    ],
)
def test_a_result_that_fits_or_is_told_is_right(arguments: object, result: object, answer: str) -> None:
    steps = (*called("look_up", arguments, result), step("clerk", answer))
    assert found(answers_to_other_questions, "?", *steps) is None
