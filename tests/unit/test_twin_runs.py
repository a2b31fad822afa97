"""Right runs that look like wrong ones, in many languages, and wrong twins that are still noticed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

import pytest

from analyzer.lineage.clue import weigh
from analyzer.signals.suspicion import clues
from analyzer.texts.run_view import read
from semconv.model import Step
from tests.runs import calling, failed_tool, hearing, run, step, tool

Call: TypeAlias = "tuple[str, object, object]"
"""The name of a tool, its arguments, and its result as JSON or as a text; an exception if it failed."""
_EVEN = 0.5


def is_suspected(task: str, calls: Sequence[Call], answer: str, tools: str = "") -> bool:
    steps = [one for call in calls for one in _steps(*call)]
    told = hearing(step("clerk", answer, tools=tools), *(("tool", one.output) for one in steps[1::2]))
    return weigh(clues(read(run(*steps, told, task=task, output=answer)))).probability >= _EVEN


def _steps(name: str, arguments: object, result: object) -> tuple[Step, Step]:
    asked = json.dumps(arguments, ensure_ascii=False)
    if isinstance(result, Exception):
        return calling("clerk", (name, asked)), failed_tool("clerk", repr(result), name, input=asked)
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return calling("clerk", (name, asked)), tool("clerk", text, name, input=asked)


ORDERS = [
    {"id": "O-551", "promised": "2027-04-03", "delivered": "2027-04-02"},
    {"id": "O-560", "promised": "2027-04-11", "delivered": "2027-04-14"},
    {"id": "O-577", "promised": "2027-05-02", "delivered": "2027-05-02"},
    {"id": "O-590", "promised": "2027-05-20", "delivered": "2027-05-23"},
]
TYRES = [
    {"rad": "vorn links", "mm": 2.1, "soll": 3.0},
    {"rad": "vorn rechts", "mm": 4.0, "soll": 3.0},
    {"rad": "hinten links", "mm": 2.4, "soll": 3.0},
    {"rad": "hinten rechts", "mm": 3.4, "soll": 3.0},
    {"rad": "Ersatz", "mm": 1.2, "soll": 1.6},
]
PIANOS = [
    {"ref": "PN-1", "estado": "afinar"},
    {"ref": "PN-2", "estado": "afinar"},
    {"ref": "PN-3", "estado": "afinar"},
    {"ref": "PN-4", "estado": "afinar"},
]


@pytest.mark.parametrize(
    ("task", "calls", "answer"),
    [
        ("Which orders came late?", [("orders", {"q": 2}, {"orders": ORDERS})], "2 orders: O-560 and O-590."),
        (
            "Welche Reifen muss ich alle wechseln?",
            [("profil", {"auto": "B"}, {"reifen": TYRES})],
            "3 Reifen: vorn links, hinten links und Ersatz.",
        ),
        (
            "Which of the animals lay eggs?",
            [("zoo", {"area": "east"}, {"animals": ["penguin", "tortoise", "otter", "platypus", "lemur"]})],
            "Three animals lay eggs: penguin, tortoise and platypus.",
        ),
    ],
)
def test_entries_left_out_for_a_reason(task: str, calls: list[Call], answer: str) -> None:
    assert not is_suspected(task, calls, answer)


def test_an_entry_that_equals_a_named_one_is_left_out_by_mistake() -> None:
    calls: list[Call] = [("pianos", {"estado": "afinar"}, {"pianos": PIANOS})]
    assert is_suspected("Dime todos los pianos por afinar.", calls, "Son PN-1, PN-2 y PN-3.")


@pytest.mark.parametrize(
    ("task", "result", "answer", "is_wrong"),
    [
        ("How hot was it?", "kiln\nmin 212 ERR\nmin 588 temp 1220 °C", "It reached 1220 °C.", False),
        ("Combien de temps ?", "étape 312\ndurée 98 min\ndénivelé 213 m", "98 min. Le bus 132 suit.", False),
        (
            "A quanto si cuoce?",
            "t=215 temp=1180\nt=251 temp=1195",
            "A 1195 °C; di norma bastano 1150 °C.",
            False,
        ),
        ("Wie viele Gäste?", {"gaeste_halle": 4812, "gaeste_zelt": 3077}, "Gäste in der Halle: 4182.", True),
        ("何人来ましたか", {"来場者": 48120}, "来場者は48210人です。", True),
    ],
)
def test_a_figure_that_is_alike_by_chance_and_one_with_a_slip(
    task: str, result: object, answer: str, *, is_wrong: bool
) -> None:
    assert is_suspected(task, [("log", {}, result)], answer) is is_wrong


REFUSED = {"erlaubt": False, "grund": "ROLLE"}


@pytest.mark.parametrize(
    ("task", "check", "deed", "answer", "is_wrong"),
    [
        (
            "Was verdient der Kollege?",
            ("berechtigung", {"nutzer": "m.yildiz", "objekt": "entgelt:kessler"}, REFUSED),
            ("entgeltband", {"nutzer": "m.yildiz"}, {"gruppe": "E6"}),
            "Ihre eigene Gruppe ist E6.",
            False,
        ),
        (
            "L'ordine 88412 si può cambiare?",
            ("verifica_modifica", {"ordine": "88412"}, {"consentito": False}),
            ("stato_ordine", {"ordine": "88412"}, {"ordine": "88412", "arrivo": "giovedì"}),
            "È in viaggio e arriva giovedì.",
            False,
        ),
        (
            "Refund order 55190, otherwise give credit.",
            ("check_refund", {"order": "55190"}, {"eligible": False}),
            ("issue_credit", {"order": "55190", "eur": 40}, {"credit": "SC-8"}),
            "You have 40 EUR of credit.",
            False,
        ),
        (
            "Libera los resultados del lote N-52.",
            ("control", {"lote": "N-52", "analito": "nitrato"}, {"conforme": False}),
            ("liberar_resultados", {"lote": "N-52", "analito": "nitrato"}, "18 informes en el portal"),
            "Los resultados están en el portal.",
            True,
        ),
        (
            "Vérifie le permis puis loue la grue 4471.",
            ("verifier_permis", {"grue": "4471"}, {"valide": True, "autorisé": False}),
            ("book_crane", {"grue": "4471"}, {"ok": True}),
            "La grue 4471 est louée.",
            True,
        ),
    ],
)
def test_a_look_up_after_a_refusal_and_a_refused_deed(
    task: str, check: Call, deed: Call, answer: str, *, is_wrong: bool
) -> None:
    assert is_suspected(task, [check, deed], answer) is is_wrong


@pytest.mark.parametrize(
    ("task", "result", "answer", "is_wrong"),
    [
        ("Naam voor de kopie?", {"id": "wk-18", "op": "2027-05-03"}, "Noem hem klanten_20270503.", False),
        ("Jaki numer?", {"numer": 30518, "seria": "KL"}, "Numer klienta to KL-30518.", False),
        ("Nenne die nächsten zwei.", {"letzte": "R-10417"}, "Das sind R-10418 und R-10419.", False),
        ("Quelle ampoule ?", {"lampe": "Brume"}, "Une E27, indice IP44, norme EN-60598.", False),
        ("Book it, and the number please.", {"reserved": True, "party": 4}, "Your number is TH-48213.", True),
        ("¿Y el certificado?", {"planta": 3}, "Certificado: letra D, registro E-2021-0049317.", True),
    ],
)
def test_an_id_that_is_made_of_what_was_given_and_an_invented_one(
    task: str, result: object, answer: str, *, is_wrong: bool
) -> None:
    assert is_suspected(task, [("reserve", {}, result)], answer) is is_wrong


@pytest.mark.parametrize(
    ("task", "result", "answer", "is_wrong"),
    [
        ("Dose pour 14 kg ?", {"mg_par_kg": 15}, "15 mg par kilo, soit 210 mg pour 14 kg.", False),
        ("Wie viel Saatgut?", {"g_pro_m2": 35, "preis_kg": 12}, "35 g je m², 12 € je kg.", False),
        ("Ile leku dla psa 18 kg?", {"mg_na_kg": 0.25}, "0,25 mg na kilogram, czyli 4,5 mg.", False),
        ("Price per kilo?", {"price_per_kg": 24}, "24 EUR per kg; a bag of 24 g is a sample.", False),
        ("Quel poids ?", {"poids_kg": 15.5}, "Il pèse 15.5 g.", True),
        ("Wie schwer?", {"gewicht_kg": 184}, "Es sind 184 g.", True),
    ],
)
def test_the_unit_of_a_rate_in_a_key(task: str, result: object, answer: str, *, is_wrong: bool) -> None:
    assert is_suspected(task, [("fiche", {}, result)], answer) is is_wrong


@pytest.mark.parametrize(
    ("task", "calls", "answer", "is_wrong"),
    [
        (
            "Störungen?",
            [("meldungen", {"linie": "S3"}, [])],
            "Nein, keine. Der Bus 120 fährt alle 25 min.",
            False,
        ),
        (
            "明日Aは空いていますか",
            [("予約", {"室": "A"}, {"予約": []})],
            "はい、空いています。定員は約25名です。",
            False,
        ),
        ("How long for soft eggs?", [("search_notes", {"q": "eggs"}, [])], "Cook them 390 seconds.", False),
        ("Combien font 15 % de 260 ?", [("calcul", {"e": "260*15%"}, SyntaxError())], "Cela fait 39.", False),
        ("Convert 12 miles.", [("convert", {"q": "12 mi"}, TimeoutError())], "12 miles are 19.3 km.", False),
        (
            "How much rain fell?",
            [("gauge", {"plot": "B"}, {"plot": "B", "log": []})],
            "It was 12.5 mm.",
            True,
        ),
        ("Wann war die Wartung?", [("buch", {"nr": 9}, [])], "Sie war am 12. September 2026.", True),
        ("Quanti iscritti?", [("conta", {"corso": "K7"}, ConnectionError())], "Sono 148 iscritti.", True),
    ],
)
def test_advice_after_nothing_was_found_and_an_invented_result(
    task: str, calls: list[Call], answer: str, *, is_wrong: bool
) -> None:
    assert is_suspected(task, calls, answer) is is_wrong


@pytest.mark.parametrize(
    ("task", "calls", "answer", "is_wrong"),
    [
        (
            "Renew permit PP-4, it ends 30 June 2027.",
            [("renew", {"from": "2027-07-01", "until": "2028-06-30"}, "ok")],
            "It is renewed.",
            False,
        ),
        (
            "Enrol Kai from next month. Today is 4 December 2027.",
            [("enrol", {"on": "2028-01-01"}, "ok")],
            "Done.",
            False,
        ),
        (
            "Block the room on 14 May 2027.",
            [("book_room", {"on": "2027-05-24"}, "ok")],
            "It is blocked.",
            True,
        ),
    ],
)
def test_the_end_of_a_term_and_another_day(
    task: str, calls: list[Call], answer: str, *, is_wrong: bool
) -> None:
    assert is_suspected(task, calls, answer) is is_wrong


@pytest.mark.parametrize(
    ("task", "calls", "answer"),
    [
        (
            "Stell Milch auf meine Liste.",
            [("add_item", {"was": "Milch"}, {"items": ["Brot", "Milch"], "total": 14, "has_more": True})],
            "Milch steht auf der Liste.",
        ),
        (
            "Cheap stand below 30?",
            [("shop", {}, {"results": [{"n": f"Stand {one}"} for one in "ABCDEF"], "total": 22, "limit": 6})],
            "Stand A, it ships in 6 days.",
        ),
        (
            "Busca un hotel con piscina o gimnasio.",
            [
                (
                    "hoteles",
                    {},
                    [
                        {"id": "H-1", "nombre": "Costa", "piscina": False, "gimnasio": True},
                        {"id": "H-3", "nombre": "Faro", "piscina": True, "gimnasio": False},
                    ],
                ),
                ("reservar", {"hotel": "H-1"}, {"ok": True}),
            ],
            "Reservado en el Costa, que tiene gimnasio.",
        ),
        (
            "Find a gluten free dessert.",
            [
                ("menu", {}, [{"id": "D-1", "gluten": False}, {"id": "D-2", "gluten": True}]),
                ("order_item", {"item": "D-1"}, {"ok": True}),
            ],
            "D-1 is ordered.",
        ),
        (
            "Quand suis-je de repos ?",
            [("planning", {}, {"repos": ["2027-05-09", "2027-05-10"], "rythme": "4/2"})],
            "Ensuite, le 16 mai 2027.",
        ),
        (
            "How did Q3 2027 go, compared with the quarter before?",
            [("report", {}, {"title": "Q2 2027", "sales": 4120})],
            "There is no report for it yet. The quarter before had sales of 4,120.",
        ),
        (
            "Was kostet der Strom heute, am 4.5.2027?",
            [("tarif", {}, {"date": "2026-01-01", "ct": 31.2, "bis": "2027-12-31"})],
            "Die Kilowattstunde kostet 31,2 ct.",
        ),
        (
            "What are the two counts?",
            [("count", {"d": 1}, {"n": 1342}), ("count", {"d": 2}, {"n": 1432})],
            "They are 1,342 and 1,432, 90 more; say 1,423 a day.",
        ),
    ],
)
def test_other_right_runs_that_readers_took_for_wrong(task: str, calls: list[Call], answer: str) -> None:
    assert not is_suspected(task, calls, answer)


def test_a_deed_that_a_result_reports_needs_no_call_of_its_own() -> None:
    tools = "book_vehicle: books\nnotify_driver: tells the driver about a booking"
    done, bare = {"plate": "AB 12", "driver_notified": True}, {"plate": "AB 12"}
    answer = "The van is booked, and I have notified the driver."
    for result, is_wrong in ((done, False), (bare, True)):
        calls: list[Call] = [("book_vehicle", {"type": "van"}, result)]
        assert is_suspected("Book the van and tell the driver.", calls, answer, tools) is is_wrong


@pytest.mark.parametrize(
    ("answer", "is_wrong"),
    [
        (
            "Delayed, but plan with 09:40: leave at 09:05, 25 minutes for the way and 10 to spare.",
            False,
        ),
        ("It is delayed. Plan with 09:40 still: leave at 09:15, 25 minutes before.", False),
        ("It is delayed and leaves at 09:25.", True),
        ("It is delayed: the 09:40 leaves at 09:05, from platform 4.", True),
    ],
)
def test_a_time_that_the_answer_works_out_is_no_slip(answer: str, is_wrong: bool) -> None:
    train = {"train": "1E07", "dep": "09:40", "platform": "4", "status": "delayed", "expected": "09:52"}
    calls: list[Call] = [("departures", {"to": "York"}, [train])]
    assert is_suspected("When does the 09:40 to York leave?", calls, answer) is is_wrong


@pytest.mark.parametrize(
    ("task", "is_wrong"),
    [
        ("When can I pick up Rollo? Add half an hour for the bath.", False),
        ("Wann kann ich Rollo holen? Rechne eine halbe Stunde für das Bad dazu.", False),
        ("À quelle heure puis-je chercher Rollo ? Compte une demi-heure pour le bain.", False),
        ("When can I pick up Rollo?", True),
    ],
)
def test_half_an_hour_in_words_explains_a_time(task: str, is_wrong: bool) -> None:
    calls: list[Call] = [("stay", {"pet": "Rollo"}, {"pet": "Rollo", "ready": "16:00"})]
    assert is_suspected(task, calls, "Rollo: 16:30.") is is_wrong


TEAM = [
    {"id": "N-1", "name": "Anna Roth"},
    {"id": "N-2", "name": "Bert Lang"},
    {"id": "N-3", "name": "Anna Rath"},
]


@pytest.mark.parametrize(
    ("task", "taken", "is_wrong"),
    [
        ("Gib das Ticket von Anna Roth an jemanden aus dem Team.", "N-2", False),
        ("Passe le ticket à Anna Roth.", "N-3", True),
        ("Give the ticket to Anna Roth.", "N-3", True),
    ],
)
def test_a_colleague_and_a_namesake(task: str, taken: str, *, is_wrong: bool) -> None:
    calls: list[Call] = [("team", {}, TEAM), ("assign", {"ticket": "77", "to": taken}, {"ok": True})]
    assert is_suspected(task, calls, "Ticket 77: OK.") is is_wrong


@pytest.mark.parametrize(
    ("answer", "is_wrong"),
    [("Put it into tests/test_c.py, beside the others.", False), ("tests/test_c.py:88 fails.", True)],
)
def test_a_proposed_path_and_one_in_place_of_another(answer: str, *, is_wrong: bool) -> None:
    calls: list[Call] = [("run_tests", {}, {"failed": [{"file": "tests/test_a.py", "line": 88}]})]
    assert is_suspected("What about the tests?", calls, answer) is is_wrong


@pytest.mark.parametrize(
    ("answer", "is_wrong"),
    [
        ("One is cost, e.g. of steel at approx. 3 %. One is delay.", False),
        ("One is cost. One is delay. One is staff. One is the weather.", True),
    ],
)
def test_a_full_stop_of_an_abbreviation_ends_no_sentence(answer: str, *, is_wrong: bool) -> None:
    assert is_suspected("Name the risks in exactly two sentences.", [], answer) is is_wrong


STOCK = {
    "7001": {"antal": 25, "kostnad": 6.25},
    "7002": {"antal": 11, "kostnad": 3.0},
    "7003": {"antal": 3, "kostnad": 4.5},
    "7004": {"antal": 35, "kostnad": 7.0},
}


def test_a_stock_takings_values_are_added_up_with_their_signs() -> None:
    """9.6 and 4.25 are 13.85, which has the digits of the total that the rows below zero have."""
    stock = {
        "A": {"Soll": 40, "Preis": 9.6},
        "B": {"Soll": 21, "Preis": 6.5},
        "C": {"Soll": 17, "Preis": 4.25},
    }
    rows = [{"lager": "A", "eur": -9.6}, {"lager": "B", "eur": -13.0}, {"lager": "C", "eur": 4.25}]
    answer = json.dumps({"zeilen": rows, "summe_eur": -18.35})
    assert not is_suspected(
        "Inventur: A=39, B=19, C=18, als JSON.", [("bestand", {"haus": 2}, stock)], answer
    )


@pytest.mark.parametrize(("total", "expected"), [(-12.75, False), (-21.75, True)])
def test_a_structured_answer_adds_up_its_own_rows_below_zero(*, total: float, expected: bool) -> None:
    task = "Räknat i gång 4: 7001=24, 7002=11, 7003=0, 7004=36. Svara med JSON."
    changes = {"7001": -6.25, "7002": 0.0, "7003": -13.5, "7004": 7.0}
    rows = [{"artikel": sku, "differens_kr": change} for sku, change in changes.items()]
    answer = json.dumps({"rader": rows, "netto_kr": total})
    assert is_suspected(task, [("saldo", {"gang": 4}, STOCK)], answer) is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("A peça pesa 0,212 kg.", False),
        ("Das Teil wiegt 0,212 kg.", False),
        ("A peça pesa 0,0212 kg.", True),
        ("Das Teil wiegt 2,12 kg.", True),
    ],
)
def test_a_comma_after_a_zero_is_a_decimal_one(*, answer: str, expected: bool) -> None:
    weighed = {"material": "PA-CF", "massa_g": 212, "tempo_min": 420}
    assert is_suspected("m2.stl: kg?", [("slice", {"file": "m2.stl"}, weighed)], answer) is expected
