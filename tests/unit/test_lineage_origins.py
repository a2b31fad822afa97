"""Values whose origin or unit stands where few look: other languages, exchanged counts, ends of sentences."""

from __future__ import annotations

import json

import pytest

from analyzer.lineage.clue import ClueKind
from analyzer.lineage.dates import dates_in
from semconv.model import Step, StepKind
from tests.lineage import found, mistake
from tests.runs import calling, failed_tool, step, tool


def looked_up(name: str, arguments: str, result: str) -> tuple[Step, Step]:
    return calling("reader", (name, arguments)), tool("reader", result, name, input=arguments)


def test_a_limit_at_the_end_of_an_english_sentence_is_no_date() -> None:
    assert dates_in("The swell must stay below 1.2. We sail at noon.") == ()
    assert dates_in("Das Schiff fährt am 1.2. und kommt am 3.2. wieder.") != ()
    failed = failed_tool("reader", "busy", target="swell", input="{}")
    said = step("reader", "The swell is 0.8 m.")
    host = step("host", "You may sail: the swell of 0.8 m is below the limit of 1.2.")
    clue = mistake(
        "May we sail? The swell must stay below 1.2.", calling("reader", ("swell", "{}")), failed, said, host
    )
    assert (clue.step, clue.kind) == (2, ClueKind.INVENTED)


def test_a_count_with_exchanged_digits_is_no_product_of_a_count_with_itself() -> None:
    task, rows = "How many logs has stack 8?", looked_up("stack", '{"no": 8}', "Stack 8: 46 logs")
    heard = step("reader", "Stack 8 has 46 logs.")
    asked = f"{task}\n{heard.output}"
    clue = mistake(task, *rows, heard, step("host", "Stack 8 has 64 logs.", input=asked))
    assert clue.step == 3
    assert "64 logs" in clue.reason
    assert found(task, *rows, heard, step("host", "Stack 8 has 46 logs.", input=asked)) is None


@pytest.mark.parametrize(("said", "is_wrong"), [("312 Gigabyte", True), ("31,2 Gigabyte", False)])
def test_a_unit_is_read_as_a_word_of_other_languages(said: str, is_wrong: bool) -> None:
    rows = looked_up("ordner", '{"name": "bilder"}', '{"name": "bilder", "groesse_mb": 31200}')
    clue = found("Wie groß ist der Ordner?", *rows, step("host", f"Der Ordner belegt {said}."))
    assert (clue is not None) is is_wrong


@pytest.mark.parametrize(("amount", "step_of_mistake"), [(31950, 3), (319.5, None)])
def test_cents_that_a_deed_takes_as_euros(amount: float, step_of_mistake: int | None) -> None:
    rows = looked_up("get_bill", '{"no": "B-7"}', '{"no": "B-7", "amount_cents": 31950}')
    arguments = json.dumps({"no": "B-7", "amount_eur": amount})
    paid = calling("cashier", ("pay", arguments)), tool("cashier", '{"ok": true}', "pay", input=arguments)
    said = step("reader", "Bill B-7 is for 319.50 euros.")
    clue = found("Pay bill B-7.", *rows, said, *paid, step("cashier", "Bill B-7 is paid."))
    assert (clue.step if clue else None) == step_of_mistake


@pytest.mark.parametrize(
    ("result", "arguments", "answer", "is_wrong"),
    [
        ('{"date": "2029-07-04", "low": "11:08"}', "{}", "Low water is at 11:08.", True),
        ('{"date": "2030-07-04", "low": "11:08"}', "{}", "Low water is at 11:08.", False),
        ('{"date": "2029-07-04", "low": "11:08"}', "{}", "In 2029 low water was at 11:08.", False),
        ('{"date": "2029-07-04", "low": "11:08"}', '{"day": "2029-07-04"}', "Low water is at 11:08.", False),
        ('{"since": "2029-07-04", "low": "11:08"}', "{}", "Low water is at 11:08.", False),
        ('{"date": "2029-07-04", "low": "11:08"}', "{}", "Low water is at 11:08 every year.", False),
        (
            '{"date": "2029-07-04", "low": "11:08", "note": "a guess for later"}',
            "{}",
            "It is at 11:08.",
            False,
        ),
        ('{"date": "2029-07-04", "months": 12}', "{}", "From 4 July 2030 there are 12 months.", False),
    ],
)
def test_the_same_day_of_another_year(result: str, arguments: str, answer: str, is_wrong: bool) -> None:
    rows = looked_up("tides", arguments, result)
    clue = found("When is low water on 4 July 2030?", *rows, step("host", answer))
    assert (clue is not None) is is_wrong
    assert clue is None or clue.kind is ClueKind.OUT_OF_DATE


@pytest.mark.parametrize(
    ("listed", "total", "is_wrong"),
    [
        ("Three berths: 270. Fuel: 148. Water: 35. Total: {}", "473", True),
        ("Three berths: 270. Fuel: 148. Water: 35. Total: {}", "453", False),
        ("Drei Plätze: 270; Diesel: 148; Wasser: 35; Summe: {}", "435", True),
        ("Three berths: 270. Deposit back: 148. Water: 35. Total: {}", "157", False),
    ],
)
def test_a_total_on_the_line_of_its_parts(listed: str, total: str, is_wrong: bool) -> None:
    rows = looked_up("prices", "{}", '{"berth": 90, "fuel": 148, "water": 35}')
    said = step("reader", listed.format(total))
    clue = found("What does the stay cost?", *rows, said, step("host", f"The stay costs {total}."))
    assert (clue is not None) is is_wrong
    assert clue is None or clue.step == 2


@pytest.mark.parametrize(("told", "total", "is_wrong"), [("2.760", "5.075", True), ("2.670", "4.985", False)])
def test_a_misread_figure_that_only_a_sum_shows(told: str, total: str, is_wrong: bool) -> None:
    first = looked_up("bilheteira", '{"mes": "maio"}', '{"mes": "maio", "total": 2670}')
    second = looked_up("bilheteira", '{"mes": "junho"}', '{"mes": "junho", "total": 2315}')
    heard = '{"mes": "maio", "total": 2670}\n{"mes": "junho", "total": 2315}'
    said = step("reader", f"Maio: R$ {told}; junho: R$ 2.315.", input=heard)
    last = step("host", f"Nos dois meses foram R$ {total}.", input=said.output)
    clue = found("Quanto foi em maio e junho, no total?", *first, *second, said, last)
    assert (clue.step if clue else None) == (4 if is_wrong else None)


CARS = [
    {"car": "Fjord", "gearbox": "manual", "eur": 40, "pets": True},
    {"car": "Tundra", "gearbox": "automatic", "eur": 52, "pets": False},
    {"car": "Delta", "gearbox": "automatic", "eur": 70, "pets": False},
]


@pytest.mark.parametrize(
    ("task", "car", "told", "reason"),
    [
        ("Book a car with an automatic gear for Monday.", "Fjord", "Fjord is booked.", "asks for automatic"),
        ("Book a car with an automatic gear for Monday.", "Tundra", "Tundra is booked.", ""),
        ("Book a car for Monday.", "Fjord", "Fjord is booked.", ""),
        ("Book a car, not an automatic.", "Fjord", "Fjord is booked.", ""),
        ("Book a car, automatic or manual.", "Fjord", "Fjord is booked.", ""),
        ("Book the cheapest car; my last one was an automatic.", "Fjord", "Fjord is booked.", ""),
        ("I drive an automatic, but book me the cheapest car.", "Fjord", "Fjord is booked.", ""),
        ("Book a car for the automatic wash.", "Fjord", "Fjord is booked.", ""),
        ("I have no pets. Book me a car.", "Fjord", "Fjord is booked.", ""),
        ("Book an automatic car.", "Fjord", "Fjord is booked; it is a manual, the others are taken.", ""),
        ("Book a car for the two of us; we come with no pets.", "Fjord", "Fjord is booked.", ""),
        ("Book a battery for an automatic car.", "Fjord", "Fjord is booked.", ""),
    ],
)
def test_a_column_of_which_the_task_names_a_word(task: str, car: str, told: str, reason: str) -> None:
    left_out = "gearbox" if "pets" in task else "pets"
    cars = [{key: value for key, value in one.items() if key != left_out} for one in CARS]
    deed = looked_up("book_car", json.dumps({"car": car}), '{"ref": "B1"}')
    clue = found(task, *looked_up("cars", "{}", json.dumps(cars)), *deed, step("desk", told))
    assert (clue is not None) is bool(reason)
    assert clue is None or reason in clue.reason


@pytest.mark.parametrize(
    ("task", "call", "is_barred"),
    [
        ("Pause the plan PN-4; do not cancel it.", "cancel_plan", True),
        ("Pausiere den Tarif PN-4, aber nicht kündigen.", "kuendigen", False),
        ("Congela el plan PN-4; no lo borres.", "borrar_plan", True),
        ("Pause the plan PN-4; do not cancel the insurance.", "cancel_plan", False),
        ("Do not forget to cancel the plan PN-4.", "cancel_plan", False),
        ("Do not cancel the plan PN-4 before it is paid.", "cancel_plan", False),
        ("Cancel the plan PN-4; do not cancel PN-5.", "cancel_plan", False),
        ("Pause the plan PN-4; do not cancel it.", "pause_plan", False),
        ("Pause the plan PN-4; do not cancel it. Its reminder may go.", "cancel_reminder", False),
        ("If PN-4 is still paid, do not cancel it.", "cancel_plan", False),
        ("Why did you not cancel the plan PN-4?", "cancel_plan", False),
        ("Do not cancel it yet: PN-4 must be paid.", "cancel_plan", False),
        ("My plan PN-4 was not cancelled, see to it.", "cancel_plan", False),
        ("There is no cancel fee. End PN-4.", "cancel_fee", False),
        ("Nobody has cancelled the plan PN-4 so far.", "cancel_plan", False),
        ("No cancelaron el plan PN-4, hazlo hoy.", "cancelar_plan", False),
        ("Congela el plan PN-4; no lo canceles.", "cancelar_plan", True),
    ],
)
def test_a_deed_that_the_task_rules_out(task: str, call: str, is_barred: bool) -> None:
    clue = found(
        task, *looked_up(call, '{"plan": "PN-4"}', '{"plan": "PN-4"}'), step("desk", "PN-4: settled.")
    )
    assert (clue is not None) is is_barred
    assert clue is None or (clue.kind, clue.step) == (ClueKind.EXCEEDED, 0)


@pytest.mark.parametrize(
    ("day", "is_wrong"), [("2031-10-07", True), ("2031-10-27", False), ("2031-10-26", False)]
)
def test_a_day_that_is_only_near_the_old_one(day: str, is_wrong: bool) -> None:
    rows = looked_up("termin", '{"nr": "T-9"}', '{"nr": "T-9", "tag": "2031-10-10"}')
    moved = looked_up("termin_verschieben", json.dumps({"nr": "T-9", "tag": day}), '{"ok": true}')
    clue = found(
        "Verschiebe T-9 auf den 27. Oktober 2031.", *rows, *moved, step("reader", "T-9 ist verschoben.")
    )
    assert (clue is not None) is is_wrong
    assert clue is None or clue.step == 2


@pytest.mark.parametrize("is_fit", [True, False])
def test_a_deed_with_a_german_name_after_a_check_that_refuses(is_fit: bool) -> None:
    about = '{"pferd": "PF-12"}'
    check = looked_up("tauglichkeit_pruefen", about, json.dumps({"pferd": "PF-12", "geeignet": is_fit}))
    deed = looked_up("start_anlegen", '{"pferd": "PF-12", "lauf": 3}', '{"start": "S-4"}')
    clue = found(
        "Melde PF-12 für Lauf 3, wenn es geeignet ist.", *check, *deed, step("reader", "Start S-4 steht.")
    )
    assert (clue is None) is is_fit
    assert clue is None or (clue.kind, clue.step) == (ClueKind.EXCEEDED, 2)


BOATS = [
    {"boat": "Anouk", "due": "2031-05-02", "late": True},
    {"boat": "Brise", "due": "2031-05-20", "late": False},
    {"boat": "Corail", "due": "2031-05-04", "late": True},
    {"boat": "Dauphin", "due": "2031-05-05", "late": True},
    {"boat": "Ecume", "due": "2031-05-07", "late": True},
]


@pytest.mark.parametrize(
    ("task", "answer", "lost"),
    [
        ("Name every late boat at pier 70, please.", "Late: Anouk, Corail and Dauphin.", False),
        ("Name every late boat of the harbour, please.", "Three: Anouk, Corail and Dauphin.", True),
        ("Name every late boat of the harbour, please.", "First Anouk, Corail and Dauphin.", False),
        ("Name every late wooden boat built abroad.", "Three: Anouk, Corail and Dauphin.", False),
        ("Name every late boat of the harbour, please.", "Late: Anouk, Corail, Dauphin and Ecume.", False),
        ("Name three late boats of the harbour.", "Late: Anouk, Corail and Dauphin.", False),
        ("Name the boats of the harbour.", "Anouk, Corail and Dauphin are there.", False),
    ],
)
def test_an_entry_that_says_yes_to_what_every_one_was_asked_for(task: str, answer: str, lost: bool) -> None:
    rows = looked_up("boats", '{"place": "harbour"}', json.dumps({"boats": BOATS}))
    clue = found(task, *rows, step("host", answer))
    assert (clue is not None) is lost
    assert clue is None or ("3 of the 4 boats" in clue.reason and "ecume" in clue.reason)


@pytest.mark.parametrize(
    ("task", "answer", "strange"),
    [
        ("Measure halls A and B.", "Hall A: 1,284.6 m². Hall B: 967.3 m².", "967.3 m² for B"),
        ("Measure halls A and B.", "Hall A: 1,284.6 m². Hall B was locked.", ""),
        ("Measure halls A and B.", "Hall A: 1,284.6 m². Hall B: 970 m² or so.", ""),
        ("Measure hall A and the yard.", "Hall A: 1,284.6 m². The yard: 967.3 m².", ""),
        ("米と味噌の在庫を調べて。", "米は1284.6kg、味噌は967.3kgです。", "967.3kg for 味噌"),
    ],
)
def test_a_figure_for_the_neighbour_of_what_was_looked_up(task: str, answer: str, strange: str) -> None:
    thing = "米" if "米" in task else "A"
    rows = looked_up("measure", json.dumps({"thing": thing}, ensure_ascii=False), '{"value": 1284.6}')
    clue = found(task, *rows, step("host", answer))
    assert (clue is not None) is bool(strange)
    assert clue is None or strange in clue.reason


@pytest.mark.parametrize(
    ("told", "arguments", "is_more"),
    [
        ("Order 130 crates, not more.", {"item": "soap", "crates": 310}, True),
        ("Order 130 crates, not more.", {"item": "soap", "crates": 130}, False),
        ("Order 130 crates, not more.", {"item": "soap", "crates": 90}, False),
        ("Order 130 crates today and 310 crates in all.", {"item": "soap", "crates": 310}, False),
        ("There are 130 crates left in the cellar.", {"item": "soap", "crates": 310}, False),
        ("Order 130 boxes, not more.", {"item": "soap", "crates": 310}, False),
        ("Order 130 crates; not 20 more as last time.", {"item": "soap", "crates": 150}, False),
        ("I order 130 crates as a rule, fill it up.", {"item": "soap", "crates": 310}, False),
    ],
)
def test_more_of_a_thing_than_people_ordered(told: str, arguments: dict[str, object], is_more: bool) -> None:
    rows = looked_up("stock", '{"item": "soap"}', '{"item": "soap", "need": 310}')
    person = step("owner", told, StepKind.HUMAN)
    deed = looked_up("order_goods", json.dumps(arguments), '{"order": "O-5"}')
    clue = found(
        "Order soap; ask the owner how much.", *rows, person, *deed, step("reader", "Ordered (O-5).")
    )
    assert (clue is not None) is is_more
    assert clue is None or (clue.kind, clue.step) == (ClueKind.EXCEEDED, 3)


@pytest.mark.parametrize(
    ("task", "is_wrong"), [("Pay bill B-8.", True), ("Pay B-8; its cents are euros.", False)]
)
def test_cents_of_which_people_say_that_they_are_none(task: str, is_wrong: bool) -> None:
    rows = looked_up("get_bill", '{"no": "B-8"}', '{"no": "B-8", "amount_cents": 31950}')
    paid = looked_up("pay", '{"no": "B-8", "amount_eur": 31950}', '{"ok": true}')
    clue = found(task, *rows, *paid, step("reader", "Bill B-8 is paid: 31,950 EUR."))
    assert (clue is not None) is is_wrong


FILLED = [
    {"tank": "Alba", "litres": 61, "state": "open"},
    {"tank": "Bora", "litres": 55, "state": "shut"},
    {"tank": "Cima", "litres": 58, "state": "open"},
    {"tank": "Dora", "litres": 52, "state": "shut"},
]


@pytest.mark.parametrize(
    ("near", "states", "lost"), [([], True, False), (["Alba", "Cima"], False, False), ([], False, True)]
)
def test_entries_that_a_column_or_another_result_sets_apart(
    near: list[str], states: bool, lost: bool
) -> None:
    rows = [{key: value for key, value in one.items() if states or key != "state"} for one in FILLED]
    first = looked_up("tanks", '{"above": 50}', json.dumps({"tanks": rows}))
    other = looked_up("roads", "{}", json.dumps({"near_roads": near}))
    task = "Name every open tank above 50 litres near a road."
    clue = found(task, *first, *other, step("host", "Two: Alba and Cima."))
    assert (clue is not None) is lost
