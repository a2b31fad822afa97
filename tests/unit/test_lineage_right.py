"""Right runs that tempt a reader of the lineage: each has what another kind of run gets wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

import pytest

from analyzer.lineage.clue import Clue
from analyzer.lineage.findings import wrong_values
from analyzer.lineage.known import Known
from analyzer.lineage.readers import READERS
from analyzer.lineage.slips import wrong_figures
from analyzer.signals.suspicion.unsourced import unsourced
from analyzer.texts.run_view import read
from semconv.model import Step
from tests.runs import calling, hearing, run, step, tool

Call: TypeAlias = "tuple[str, object, object]"
"""The name of a tool, its arguments, and its result as JSON or as a text."""


def clues_of(task: str, calls: Sequence[Call], answer: str) -> list[Clue]:
    steps = [one for call in calls for one in _steps(*call)]
    reading = read(run(*steps, step("clerk", answer), task=task, output=answer))
    known = Known(reading)
    return [*(clue for reader in READERS for clue in reader(known)), *wrong_figures(reading)]


def _steps(name: str, arguments: object, result: object) -> tuple[Step, Step]:
    asked = json.dumps(arguments, ensure_ascii=False)
    told = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return calling("clerk", (name, asked)), tool("clerk", told, name, input=asked)


FIVE = [{"nr": f"N/{at}"} for at in range(5)]
FIRST, SECOND = [{"nr": "N/1"}, {"nr": "N/2"}, {"nr": "N/3"}], [{"nr": "N/4"}, {"nr": "N/5"}, {"nr": "N/6"}]


@pytest.mark.parametrize(
    "calls",
    [
        *(
            [("list", {}, {"count": 5, "items": FIVE, key: value})]
            for key, value in (
                ("took_ms", 13),
                ("size_bytes", 48213),
                ("project_id", 4711),
                ("year", 2025),
                ("amount", 510),
            )
        ),
        [
            ("list", {"offset": 0}, {"limit": 3, "total": 6, "offset": 0, "items": FIRST}),
            ("list", {"offset": 3}, {"limit": 3, "total": 6, "offset": 3, "items": SECOND}),
        ],
        [
            ("list", {"page": 1}, {"page": 1, "size": 3, "total": 6, "items": FIRST}),
            ("list", {"page": 2}, {"page": 2, "size": 3, "total": 6, "items": SECOND}),
        ],
        [
            ("list", {"page": 0}, {"page": 0, "pages": 2, "total": 6, "items": FIRST}),
            ("list", {"page": 1}, {"page": 1, "pages": 2, "total": 6, "items": SECOND}),
        ],
        [("list", {}, {"items": FIVE, "more": "https://example.org/tags"})],
        [("list", {}, "N/1 Lund\nN/2 Okoro\nfloors: from 1 to 3 of 10")],
        [("list", {}, "N/1 Lund\nN/2 Okoro\nlesson 1 - 5 of 12 weeks")],
    ],
)
def test_pages_that_are_read_and_other_numbers_beside_a_list(calls: list[Call]) -> None:
    assert clues_of("List all contracts.", calls, "These are all contracts: see above.") == []


@pytest.mark.parametrize(
    ("calls", "answer"),
    [
        ([("book", {}, {"booked": True, "delivered": False})], "I have booked the flowers."),
        (
            [("schedule_mail", {}, {"sent": False, "send_at": "2027-05-04T08:00"})],
            "I have scheduled the mail for 4 May 2027, 8:00.",
        ),
        ([("create_invoice", {}, {"invoice": "R-12", "status": "not paid"})], "I created invoice R-12."),
        ([("create_task", {}, {"task": "T-12", "status": "not started"})], "I created task T-12."),
        ([("unlock_account", {}, {"state": "not_locked"})], "I have unlocked the account."),
        (
            [
                ("create_invoice", {}, {"id": "R-12", "status": "draft"}),
                ("finalize_invoice", {"id": "R-12"}, {"id": "R-12", "status": "final"}),
            ],
            "I have sent invoice R-12.",
        ),
        (
            [("book_trip", {}, {"status": "pending approval"})],
            "I have booked the trip; your manager still has to confirm it.",
        ),
        ([("open_pr", {}, {"pr": 12, "status": "needs review"})], "I opened pull request 12."),
        ([("crear_factura", {}, {"estado": "no pagada"})], "He creado la factura."),
    ],
)
def test_deeds_whose_result_denies_another_stage(calls: list[Call], answer: str) -> None:
    assert clues_of("Please do it.", calls, answer) == []


ROOMS = [
    {"id": "R-11", "name": "Blauer Saal", "seats": 40},
    {"id": "R-12", "name": "Grüner Saal", "seats": 60},
]
HOTELS = [{"id": "H-1", "name": "Post", "area": "old town"}, {"id": "H-2", "name": "Lamm", "area": "station"}]
STAFF = [{"id": "E-1", "name": "Ada Lund"}, {"id": "E-2", "name": "Jo Berg"}]
KETTLES = [{"sku": "K-10", "name": "Kettle Alpha"}, {"sku": "K-20", "name": "Kettle Beta"}]


@pytest.mark.parametrize(
    ("task", "entries", "arguments", "answer"),
    [
        ("Book any room other than the Grüner Saal.", ROOMS, {"room": "R-11"}, "The Blauer Saal is booked."),
        ("The cheapest hotel near the station?", HOTELS, {"hotel": "H-1"}, "The Post is the cheapest."),
        ("Pass on Ada Lund's request to her manager.", STAFF, {"to": "E-2"}, "Jo Berg has it."),
        ("Kettle Alpha broke, order the successor.", KETTLES, {"sku": "K-20"}, "Kettle Beta is ordered."),
        (
            "Buche den Grüner Saal.",
            [ROOMS[0], {**ROOMS[1], "status": "belegt"}],
            {"room": "R-11"},
            "Der Grüner Saal ist belegt, ich habe den Blauer Saal gebucht.",
        ),
    ],
)
def test_calls_for_an_entry_that_the_answer_names(
    task: str, entries: object, arguments: object, answer: str
) -> None:
    assert clues_of(task, [("find", {}, entries), ("act", arguments, "ok")], answer) == []


@pytest.mark.parametrize(
    ("task", "result", "answer"),
    [
        ("How far do I swim?", {"lap": "250 m"}, "100 laps of 250 m are 25 km."),
        ("Weight of 100 pieces?", {"piece": "25 g"}, "100 pieces of 25 g weigh 2.5 kg."),
        ("How much power?", {"day": "12.5 kWh"}, "Over ten days it is 0.125 MWh."),
        ("How is it baked?", "Bake 30 min.", "Bake it for 30 min; stir for 30 seconds before."),
        ("Which dose?", {"weight": "25 kg"}, "Give 2.5 mg, as 0.1 mg per kg applies."),
        ("How much is that in cl?", {"bottle": "330 ml"}, "330 ml are 33 cl."),
        ("Thickness?", {"board": "45 mm"}, "The board is 4.5 cm thick."),
        ("How much?", {"bottle": "0.75 l"}, "The bottle has 75 cl."),
        ("Wie breit?", {"tisch": "1250 mm"}, "Der Tisch ist 125 cm breit."),
        ("Combien ?", {"bouteille": "75 cl"}, "Elle contient 0,75 l, soit 750 ml."),
    ],
)
def test_conversions_and_measures_of_several_pieces(task: str, result: object, answer: str) -> None:
    assert clues_of(task, [("look_up", {}, result)], answer) == []


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (
            {"from": "2025-11-18", "to": "2025-11-22"},
            "It runs from Monday to Friday, 18 November 2025 to 22 November 2025 without the first day.",
        ),
        ({"day": "2025-11-18"}, "It is 18 November 2025 (Monday is booked by the other team)."),
        (
            {"born": "1990-11-18", "issued": "2025-03-02", "on": "18 November"},
            "See you on Tuesday, 18 November.",
        ),
        ({"day": "2025-11-18"}, "2025年11月18日(月次締め)です。"),
    ],
)
def test_names_of_days_that_belong_to_something_else(result: object, answer: str) -> None:
    assert clues_of("When is it?", [("look_up", {}, result)], answer) == []


@pytest.mark.parametrize(
    ("task", "calls", "answer"),
    [
        (
            "How many meals?",
            [("guests", {}, {"accepted_guests": 48})],
            "48 guests have accepted; order meals for 55 guests to be safe.",
        ),
        (
            "Can we stay on the free plan?",
            [("count", {}, {"users": 48})],
            "You have 48 users, and the free plan ends at 25 users.",
        ),
        (
            "The sum?",
            [
                ("rates", {}, {"shipping": 10}),
                (
                    "orders",
                    {},
                    [{"id": "a1", "net": 1234}, {"id": "b2", "net": 2345}, {"id": "c3", "net": 3456}],
                ),
            ],
            "They come to 7,035; with shipping 7,045.",
        ),
        (
            "Remind me in 45 minutes, it is 14:02.",
            [("remind", {"minutes": 45}, {"error": None})],
            "Set for 14:47.",
        ),
        (
            "Invoice Lund.",
            [("search", {}, {"hits": []}), ("create", {"number": "INV-20452"}, {"ok": True})],
            "No invoice of Lund existed, so I created INV-20452.",
        ),
        (
            "Notice for 28 May 2027?",
            [("rules", {}, {"notice": "two weeks"})],
            "Give notice by 14 May 2027, a fortnight before 28 May.",
        ),
    ],
)
def test_figures_that_are_the_agents_own_advice(task: str, calls: list[Call], answer: str) -> None:
    assert clues_of(task, calls, answer) == []


@pytest.mark.parametrize(
    ("task", "calls", "answer"),
    [
        (
            "How much syrup, 1.5 l for each of the 12 hives?",
            [("note", {"text": "14 hives x 1.5 l = 21 l; 3 bags"}, {"ok": True})],
            "It is 21 l; I noted it.",
        ),
        (
            "Un partido de Mendoza, 1961 más o menos.",
            [("buscar", {"lugar": "Mendoza", "desde": 1958, "hasta": 1964}, {"partidos": ["Lund"]})],
            "Es el de Lund.",
        ),
        (
            "Gibt es das für ARM?",
            [("issues", {"q": "arm"}, {"items": [{"number": 655, "state": "open"}]})],
            "Nein, Ticket #655 ist noch offen.",
        ),
    ],
)
def test_figures_of_notes_ranges_around_and_numbers_with_a_sign(
    task: str, calls: list[Call], answer: str
) -> None:
    assert clues_of(task, calls, answer) == []
    steps = [one for call in calls for one in _steps(*call)]
    assert list(unsourced(read(run(*steps, step("clerk", answer), task=task, output=answer)))) == []


def test_a_figure_retold_in_a_larger_unit_of_its_column() -> None:
    heard = hearing(step("printer", '[{"id": "A-17", "width_cm": 24.5}]'), ("user", "A-17: 245x330, in mm"))
    reading = read(run(step("finder", "A-17: 245x330, in mm"), heard, task="As JSON?", output=heard.output))
    assert [clue for reader in READERS for clue in reader(Known(reading))] == []


@pytest.mark.parametrize(
    ("task", "calls", "answer"),
    [
        (
            "Which tents are free on 6 July 2027?",
            [("free_tents", {"from": "2027-07-12"}, [])],
            "None of them.",
        ),
        (
            "Wie viele Ausleihen gab es, verglichen mit 2024?",
            [("loans", {"year": 2025}, [71])],
            "Es waren 71.",
        ),
        ("Mean of the 14 plots?", [("weighted_mean", {"n": 41, "x": 3}, 8.25)], "It is 8.25."),
        (
            "Send it to 28013 Madrid; no, 28012.",
            [("order", {}, {"zip": "28012"}), ("redirect", {"to": "28012 Madrid"}, "ok")],
            "It goes to 28012 Madrid.",
        ),
        (
            "When does the metre date from?",
            [
                ("search", {"q": "metre"}, {"url": "https://example.org/si-2019"}),
                ("fetch", {"url": "https://example.net/cgpm-26"}, "It dates from 1799."),
            ],
            "From 1799.",
        ),
        (
            "Find the file of Ann Lund, about 1874.",
            [
                ("index", {"name": "Lund"}, []),
                ("index", {"name": "Lunde"}, [{"no": 21}]),
                ("scan", {"no": 21}, "aged thirty"),
            ],
            "Ann Lund, file 21, her father was 30 years old (scan).",
        ),
        (
            "Could we meet in the week of 24 November? Call me.",
            [("crm", {"mail": "a@example.org"}, [])],
            "Nobody has this address yet. Offer the week of 24 November 2025.",
        ),
    ],
)
def test_searches_around_what_was_asked_for_and_look_ups_that_a_later_one_answers(
    task: str, calls: list[Call], answer: str
) -> None:
    assert clues_of(task, calls, answer) == []


FREE = {"rooms": [{"id": "R-1", "available": True}, {"id": "R-2", "available": False}]}
DAY = "2026-05-04"


@pytest.mark.parametrize(
    ("task", "calls", "answer"),
    [
        (
            "Book a room.",
            [("search_rooms", {"date": DAY}, FREE), ("book_room", {"room": "R-1", "date": DAY}, "ok")],
            "R-1 is booked.",
        ),
        (
            "Book a room.",
            [
                ("check_room", {"room": "R-1", "date": DAY}, {"available": False}),
                ("book_room", {"room": "R-2", "date": DAY}, "ok"),
            ],
            "R-2 is booked.",
        ),
        (
            "Book a berth.",
            [
                ("check_berth", {"ship": "IMO-9301"}, {"accepted": False, "alternatives": ["C-12"]}),
                ("book_berth", {"ship": "IMO-9301", "at": "C-12"}, "ok"),
            ],
            "C-12 is booked.",
        ),
        (
            "Pay it.",
            [
                ("check_limit", {"no": "R-4711"}, {"allowed": False}),
                ("ask_manager", {"no": "R-4711"}, {"approved": True}),
                ("pay_invoice", {"no": "R-4711"}, "ok"),
            ],
            "It is paid.",
        ),
        (
            "Suggest restaurants.",
            [("search", {}, {"total_results": 120, "results": FIRST})],
            "Here are 3 of them.",
        ),
        (
            "List all items in my cart.",
            [("cart", {}, {"items": [{"qty": 2}, {"qty": 1}], "total_items": 3})],
            "These are all items.",
        ),
        (
            "Write a post.",
            [
                ("create_post", {"slug": "spring"}, {"status": "draft"}),
                ("publish_post", {"slug": "spring"}, {"published": True}),
            ],
            "I have published the post.",
        ),
        (
            "Write a mail.",
            [("write_mail", {}, {"id": 7, "status": "draft"}), ("send_mail", {"id": 7}, "ok")],
            "I have sent the mail.",
        ),
        ("How much for each of 10 glasses?", [("jug", {}, {"jug": "2.5 l"})], "Each gets 250 ml."),
        ("What is lost at 10 %?", [("meter", {}, {"load": "1.5 kWh"})], "The loss is 150 Wh."),
        ("How high is the 1 % fee?", [("order", {}, {"amount": 12500, "currency": "JPY"})], "It is 125 JPY."),
        ("How long?", [("terms", {}, {"warranty": "24 months"})], "You get a mail within 24 hours."),
        (
            "What does it cost?",
            [("list", {}, {"desk": 1234.5, "chair": 500, "discount": 100})],
            "Desk: 1,234.50 EUR\nChair: 500.00 EUR\nDiscount: 100.00 EUR\nTotal: 1,634.50 EUR",
        ),
        (
            "Renew the contract that ends on 14 May 2026.",
            [("renew", {"no": "C-9812"}, {"ok": True})],
            "Renewed.",
        ),
        (
            "Which dog has to be vaccinated?",
            [("dogs", {}, [{"dog": "Rex", "vaccinated": False}, {"dog": "Bella", "vaccinated": True}])],
            "That is Rex.",
        ),
        (
            "Pass on Ada Lund's request.",
            [
                ("staff", {}, [{"id": "E-17", "name": "Ada Lund"}, {"id": "E-21", "name": "Jo Berg"}]),
                ("get_manager", {"name": "Lund"}, {"manager": "E-21"}),
                ("assign", {"to": "E-21"}, "ok"),
            ],
            "Passed on.",
        ),
        (
            "Is the hall free, and what do 14 people cost at 23.50 EUR?",
            [("events", {}, {"events": []})],
            "The hall is free. For 14 people it is 329 EUR.",
        ),
    ],
)
def test_runs_of_which_each_tempts_one_reader(task: str, calls: list[Call], answer: str) -> None:
    assert clues_of(task, calls, answer) == []


def test_a_tool_that_only_reads_was_rightly_not_called() -> None:
    tools = "create_event(): adds an event\nsearch_calendar(): Search the calendar for meetings"
    done = step("clerk", "I have added the team meeting to your calendar.", tools=tools)
    steps = (*_steps("create_event", {}, {"id": "ev1"}), done)
    reading = read(run(*steps, task="Add the team meeting to the calendar.", output=done.output))
    assert [clue for reader in READERS for clue in reader(Known(reading))] == []


def test_a_run_without_steps_has_no_wrong_value() -> None:
    assert list(wrong_values(read(run(task="When?", output="On Monday, 18 November 2025.")))) == []


@pytest.mark.parametrize(("cost", "is_right"), [("40.04", True), ("6741.29", False)])
def test_what_a_row_lacks_at_its_price_is_computed_though_nothing_is_on_order(
    cost: str, *, is_right: bool
) -> None:
    rows = [(371 + 37 * number, 93 + 11 * number, 0.37 + 0.13 * number) for number in range(14)]
    stock = [
        {"article": f"A-{number}", "stock": stock, "least": least, "price": round(price, 2)}
        for number, (stock, least, price) in enumerate([*rows, (62, 90, 1.43)], start=61)
    ]
    calls: list[Call] = [("list_stock", {}, {"articles": stock}), ("list_orders", {}, {"orders": []})]
    clues = clues_of(
        "What does it cost to fill up what is short?", calls, f"Filling up A-75 costs {cost} EUR."
    )
    assert (not clues) == is_right
