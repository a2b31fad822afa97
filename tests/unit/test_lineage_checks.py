"""Refused deeds, unread pages, figures passed on with a slip; each kind with runs that are right."""

from __future__ import annotations

import json

import pytest

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.entries import lists_in
from semconv.model import Step, StepKind
from tests.lineage import called, found, mistake
from tests.runs import hearing, step

REFUSED = called("check_berth", '{"ship": "IMO-9301", "berth": "B7"}', '{"berth": "B7", "accepted": false}')
BOOK = called("book_berth", '{"ship": "IMO-9301", "berth": "B7"}', '{"ok": true}')
TASK = "Book berth B7 for IMO-9301."


@pytest.mark.parametrize(
    "check",
    [
        REFUSED,
        called("check_berth", '{"ship": "IMO-9301"}', '{"decision": "REJECTED - too long"}'),
        called("pruefe_platz", '{"schiff": "IMO-9301"}', '{"zulässig": false}'),
        called("comprueba", '{"barco": "IMO-9301"}', '{"permitido": false}'),
    ],
)
def test_a_deed_that_a_check_had_just_refused_is_the_mistake(check: tuple[Step, Step]) -> None:
    clue = mistake(TASK, *check, *BOOK, step("porter", "Booked."))
    assert (clue.step, clue.kind) == (2, ClueKind.EXCEEDED)
    assert "called book_berth although" in clue.reason


@pytest.mark.parametrize(
    "between",
    [
        called("check_berth", '{"ship": "IMO-9301", "berth": "B7"}', '{"berth": "B7", "accepted": true}'),
        (step("harbour master", "I allow it.", StepKind.HUMAN),),
    ],
)
def test_a_deed_after_a_later_permission_is_right(between: tuple[Step, ...]) -> None:
    assert found(TASK, *REFUSED, *between, *BOOK, step("porter", "Booked.")) is None


@pytest.mark.parametrize(
    "deed",
    [
        called("book_berth", '{"ship": "IMO-9999", "berth": "C1"}', '{"ok": true}'),
        called("notify_captain", '{"ship": "IMO-9301", "text": "B7 is not possible."}', '{"ok": true}'),
        called("cancel_request", '{"ship": "IMO-9301"}', '{"ok": true}'),
        called("find_berths", '{"ship": "IMO-9301"}', "[]"),
    ],
)
def test_what_follows_from_a_refusal_is_right(deed: tuple[Step, Step]) -> None:
    assert found(TASK, *REFUSED, *deed, step("porter", "B7 is not possible.")) is None


def told(result: str, first: str, second: str) -> Clue | None:
    return found(
        "How much gravel do we need, and what does it cost at 31 EUR?",
        *called("volumes", "{}", result),
        step("planner", first),
        hearing(step("buyer", second), ("user", first)),
    )


def test_a_figure_that_an_agent_passes_on_with_exchanged_digits_was_changed() -> None:
    clue = told('{"paths": 41.7, "yard": 26.2}', "We need 67.9 m³.", "69.7 m³ cost 2,160.70 EUR.")
    assert clue is not None
    assert (clue.step, clue.kind) == (3, ClueKind.CHANGED)
    assert "69.7 m³, where it had heard 67.9 m³" in clue.reason


@pytest.mark.parametrize(
    "second",
    [
        "67.9 m³ cost 2,104.90 EUR.",
        "67.9 m³, with a tenth for waste 74.7 m³.",
        "We need 68 m³.",
        "Order 67.9 m³, not 69.7 m³.",
    ],
)
def test_a_figure_that_is_repeated_rounded_or_computed_is_right(second: str) -> None:
    assert told('{"paths": 41.7, "yard": 26.2}', "We need 67.9 m³.", second) is None


def test_a_call_that_is_made_again_with_what_was_heard_is_mended() -> None:
    wrong = called("get_order", '{"order": 55210}', '{"order": 55210, "state": "SHIPPED"}')
    right = called("get_order", '{"order": 55120}', '{"order": 55120, "state": "PACKING"}')
    end = step("porter", "Order 55120 will go to 4 Mill Lane.")
    heard = hearing(wrong[0], ("user", "Order 55120 goes to 4 Mill Lane."))
    assert found("Order 55120 goes to 4 Mill Lane.", heard, wrong[1], *right, end) is None


PAGE = '{"items": [{"id": "PL-1041"}, {"id": "PL-1077"}], "total": 5, "next_cursor": "abc"}'


def test_an_answer_from_the_first_of_several_pages_is_cut_short() -> None:
    clue = mistake(
        "List all plots for sale.", *called("plots", "{}", PAGE), step("porter", "PL-1041 and PL-1077.")
    )
    assert (clue.step, clue.kind) == (2, ClueKind.CUT_SHORT)
    assert "2 of the 5 entries" in clue.reason


@pytest.mark.parametrize(
    ("task", "steps"),
    [
        (
            "List all plots.",
            [*called("plots", "{}", PAGE), *called("plots", '{"cursor": "abc"}', '{"items": []}')],
        ),
        ("Name a plot for sale.", [*called("plots", "{}", PAGE)]),
        ("List all plots.", [*called("plots", "{}", PAGE.replace('"abc"', "null"))]),
    ],
)
def test_pages_that_were_read_or_not_asked_for_are_right(task: str, steps: list[Step]) -> None:
    assert found(task, *steps, step("porter", "PL-1041 and PL-1077.")) is None


def test_an_answer_that_says_how_many_there_are_is_right() -> None:
    answer = step("porter", "The first two of 5: PL-1041 and PL-1077.")
    assert found("List all plots for sale.", *called("plots", "{}", PAGE), answer) is None


@pytest.mark.parametrize(
    "text",
    [
        "| no | owner |\n|---|---|\n| PL-1041 | Ito |\n| PL-1077 | Berg |\n| PL-1090 | Ruiz |",
        "no,owner\nPL-1041,Ito\nPL-1077,Berg\nPL-1090,Ruiz",
        "no\towner\nPL-1041\tIto\nPL-1077\tBerg\nPL-1090\tRuiz",
    ],
)
def test_tables_are_read_as_lists(text: str) -> None:
    (listed,) = lists_in(text)
    assert [entry.fields["owner"] for entry in listed.entries] == ["Ito", "Berg", "Ruiz"]


@pytest.mark.parametrize(
    "text", ["One, two, three.\nFour, five.\nSix.", "a,b\n1,2", "", "no,owner\nPL-1041\nPL-1077,Ito,3"]
)
def test_prose_and_ragged_lines_are_no_table(text: str) -> None:
    assert lists_in(text) == ()


def test_the_agent_that_leaves_rows_out_is_blamed_and_not_the_one_before() -> None:
    table = "no,owner\n" + "\n".join(f"PL-10{n},Owner {chr(n + 54)}" for n in range(11, 18))
    whole = ", ".join(f"PL-10{n}" for n in range(11, 18))
    part = ", ".join(f"PL-10{n}" for n in range(11, 18) if n != 14)
    clue = mistake(
        "List all plots.", *called("plots", "{}", table), step("porter", whole), step("clerk", part)
    )
    assert (clue.step, clue.kind) == (3, ClueKind.CUT_SHORT)


def test_an_amount_in_another_currency_with_its_digits_was_changed() -> None:
    record = '{"loan": "L-7", "value": "240000", "currency": "CHF"}'
    clue = mistake(
        "Value in euros?", *called("loan", "{}", record), step("porter", "It is worth EUR 240,000.")
    )
    assert "where loan returned 240000 chf" in clue.reason
    assert found("Value?", *called("loan", "{}", record), step("porter", "It is worth CHF 240,000.")) is None


LOG_EMPTY = called("service_log", '{"lift": "L-4"}', "[]")
FIRMS = called("firms", '{"trade": "lifts"}', '[{"firm": "Ott", "no": "77120"}]')


@pytest.mark.parametrize(
    "log",
    [LOG_EMPTY, called("service_log", '{"lift": "L-4"}', '{"lift": "L-4", "entries": []}')],
)
def test_a_date_from_nowhere_after_an_empty_look_up_is_invented(log: tuple[Step, Step]) -> None:
    clue = mistake(
        "When was lift L-4 serviced?", *log, *FIRMS, step("porter", "On 3 May 2026, by Ott (77120).")
    )
    assert (clue.step, clue.kind) == (4, ClueKind.INVENTED)
    assert "gave 3 May 2026, although service_log had returned nothing" in clue.reason


@pytest.mark.parametrize(
    ("log", "answer"),
    [
        (LOG_EMPTY, "The log has no entry for lift L-4; firms that do it: Ott (77120)."),
        (called("service_log", '{"lift": "L-4"}', '[{"on": "2026-05-03"}]'), "On 3 May 2026."),
        (called("open_faults", '{"lift": "L-4"}', "[]"), "Lift L-4 has no open faults, so it may run."),
    ],
)
def test_an_answer_that_says_or_needs_no_more_than_was_found_is_right(
    log: tuple[Step, Step], answer: str
) -> None:
    assert found("When was lift L-4 serviced?", *log, *FIRMS, step("porter", answer)) is None


@pytest.mark.parametrize(
    ("task", "label"),
    [
        ("How many members had we in 2024-25?", "season 2023-24"),
        ("Mitglieder in KW 12?", "KW 10"),
        ("Members in Q3 2026?", "2025Q3"),
    ],
)
def test_a_result_of_another_period_is_out_of_date(task: str, label: str) -> None:
    result = f"{label}: 812 members, 47 new"
    clue = mistake(task, *called("members", "{}", result), step("porter", "812 members, 47 of them new."))
    assert clue.kind is ClueKind.OUT_OF_DATE
    told_so = step("porter", f"For {label}, the latest there is: 812 members.")
    assert found(task, *called("members", "{}", result), told_so) is None


@pytest.mark.parametrize(
    ("second", "is_right"),
    [
        ("The crates weigh 1,843.2 kg, the lorry is booked.", False),
        ("Die Kisten wiegen 1.843,2 kg, der Wagen ist bestellt.", False),
        ("The crates weigh 1,843.2 lb, the lorry is booked.", True),
        ("The crates weigh 836 kg, the lorry is booked.", True),
    ],
)
def test_a_figure_that_an_agent_passes_on_in_another_unit_was_changed(second: str, is_right: bool) -> None:
    first = "32 crates of 57.6 lb weigh 1,843.2 lb."
    listed = called("crates", "{}", '{"crates": 32, "each_lb": 57.6}')
    clue = found(
        "Book a lorry.", *listed, step("packer", first), hearing(step("buyer", second), ("user", first))
    )
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("task", "answer", "is_right"),
    [
        ("How many plots have a well?", "2 plots have a well.", False),
        ("Wie viele Parzellen haben einen Brunnen?", "Es sind zwei Parzellen.", False),
        ("How many plots have a well?", "2 plots of 5 that I could read have a well.", True),
        ("Name two plots with a well.", "2 plots: PL-1041 and PL-1077.", True),
    ],
)
def test_the_length_of_a_page_is_not_the_number_that_was_asked_for(
    task: str, answer: str, is_right: bool
) -> None:
    page = '{"items": [{"id": "PL-1041"}, {"id": "PL-1077"}], "paging": {"page": 1, "pages": 3, "total": 5}}'
    clue = found(task, *called("plots", "{}", page), step("porter", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        (
            "| Item | € |\n|---|---|\n| Rope | 3,996.00 |\n| Nets | 1,785.00 |\n| **Total** | **5,871.00** |",
            False,
        ),
        ("- Seil: 1.250,40 €\n- Netze: 820,35 €\n- Boje: 310,00 €\n\nSumme: 2.308,75 €", False),
        ("绳子: 3996元\n渔网: 1785元\n合计: 5871元", False),
        (
            "| Item | € |\n|---|---|\n| Rope | 3,996.00 |\n| Nets | 1,785.00 |\n| **Total** | **5,781.00** |",
            True,
        ),
        ("- Seil: 1.250,40 €\n- Netze: 820,35 €\n- Boje: 310,00 €\n\nSumme: 2.380,75 €", True),
        ("- Rope: 3,996 EUR\n- Nets: 1,785 EUR\n- Total: 5,681 EUR, as 100 EUR are off for members", True),
        ("- Rope: 3,996 EUR\n- Nets: 1,785 EUR\n- Total (mean): 2,890.50 EUR", True),
        ("- Rope: 12.4 %\n- Nets: 40.0 %\n- Total: 51.4 %", True),
        ("- Rope: 3,996 EUR\n- Total of the year before: 5,871 EUR", True),
    ],
)
def test_a_total_is_what_the_lines_above_it_add_up_to(answer: str, is_right: bool) -> None:
    items = '{"rope": 3996.0, "nets": 1785.0, "seil": "1.250,40", "netze": "820,35", "boje": 310.0}'
    clue = found("What does it cost?", *called("prices", "{}", items), step("porter", answer))
    assert (clue is None) is is_right
    assert clue is None or clue.kind is ClueKind.WRONG_SUM


@pytest.mark.parametrize(
    ("check", "deed", "answer", "is_right"),
    [
        (
            ("verify_payee", '{"iban": "FR76-4021"}', '{"result": "NO_MATCH"}'),
            ("executer_virement", "FR76-4021"),
            "La facture est réglée.",
            False,
        ),
        (
            ("check_allergies", '{"order": "O-118"}', '{"findings": [{"with": "nuts", "action": "hold"}]}'),
            ("send_order", "O-118"),
            "The order has gone to the kitchen.",
            False,
        ),
        (
            ("controle_lote", '{"lote": "N-52"}', '{"lote": "N-52", "conforme": false}'),
            ("liberar_resultados", "N-52"),
            "Os resultados foram liberados.",
            False,
        ),
        (
            ("verify_payee", '{"iban": "FR76-4021"}', '{"result": "NO_MATCH"}'),
            ("executer_virement", "FR76-4021"),
            "Le virement n'a pas pu être exécuté, le bénéficiaire est introuvable.",
            True,
        ),
        (
            ("verify_payee", '{"iban": "FR76-4021"}', '{"result": "NO_MATCH"}'),
            ("notify_payee", "FR76-4021"),
            "I wrote to them.",
            True,
        ),
        (
            ("get_order", '{"order": "O-118"}', '{"status": "rejected"}'),
            ("resubmit_form", "O-118"),
            "I submitted it again.",
            True,
        ),
        (
            ("verify_payee", '{"iban": "FR76-4021"}', '{"result": "MATCH"}'),
            ("executer_virement", "FR76-4021"),
            "La facture est réglée.",
            True,
        ),
    ],
)
def test_a_deed_of_any_name_after_a_check_that_refused_it(
    check: tuple[str, str, str], deed: tuple[str, str], answer: str, is_right: bool
) -> None:
    done = called(deed[0], json.dumps({"ref": deed[1]}), '{"ok": true}')
    clue = found("Please see to it.", *called(*check), *done, step("porter", answer))
    assert (clue is None) is is_right


CRANES = [
    {"ref": "Q1", "firm": "Aske Lifting", "operator": "not included (+210)", "rate": 545},
    {"ref": "Q2", "firm": "Dunmore Cranes", "operator": "included", "rate": 640},
]
ADUBOS = "cod;produto;cert. orgânica\nA14;Serra Verde;sim\nA22;Cama;não\nA31;Torta;sim"


@pytest.mark.parametrize(
    ("task", "result", "answer", "is_right"),
    [
        (
            "Hire a crane; the operator has to be included.",
            json.dumps(CRANES),
            "Aske Lifting comes on Monday.",
            False,
        ),
        ("Encomende adubo com certificação orgânica.", ADUBOS, "Pedido feito: Cama, 24 t.", False),
        ("Hire a crane; the operator has to be included.", json.dumps(CRANES), "Dunmore Cranes comes.", True),
        ("Hire a crane, without operator.", json.dumps(CRANES), "Aske Lifting comes on Monday.", True),
        (
            "Hire a crane; the operator has to be included.",
            json.dumps(CRANES),
            "Aske Lifting comes on Monday, its operator costs 210 more.",
            True,
        ),
        ("Hire a crane.", json.dumps(CRANES), "Aske Lifting comes on Monday.", True),
        ("Encomende adubo com certificação orgânica.", ADUBOS, "Pedido feito: Serra Verde.", True),
    ],
)
def test_an_entry_that_lacks_what_the_task_asks_for(
    task: str, result: str, answer: str, is_right: bool
) -> None:
    taken = next(name for name in ("Aske", "Dunmore", "Cama", "Serra Verde") if name in answer)
    order = called("confirm_order", json.dumps({"what": f"{taken} Lifting {taken}"}), '{"ok": true}')
    clue = found(task, *called("quotes", "{}", result), *order, step("porter", answer))
    assert (clue is None) is is_right
    assert clue is None or clue.kind is ClueKind.CONSTRAINT


@pytest.mark.parametrize(
    ("task", "arguments", "is_right"),
    [
        ("Release container MSKU7431902.", '{"container": "MSKU7431920"}', False),
        ("Release container MSKU7431902.", '{"container": "MSKU7431902"}', True),
    ],
)
def test_a_listed_neighbour_is_not_what_was_asked_for(task: str, arguments: str, is_right: bool) -> None:
    yard = called("yard", "{}", '{"containers": ["MSKU7431902", "MSKU7431920"]}')
    clue = found(
        task, *yard, *called("issue_release", arguments, '{"ok": true}'), step("porter", "Released.")
    )
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("result", "deed", "answer", "reason"),
    [
        (
            '{"gross_weight": 1850, "weight_unit": "LB", "boxes": 6}',
            '{"peso_kg": 1850}',
            "Reservado: 6 bultos, 1850 kg.",
            "gave 1850, where look returned 1850 lb",
        ),
        (
            '{"total": "1,260.00", "moeda": "USD"}',
            '{"valor": 1260.0, "moeda": "EUR"}',
            "Lançada: 1.260,00 EUR.",
            "gave 1.260,00 EUR, where look returned 1,260.00 usd",
        ),
        (
            '{"width_mm": 800, "depth_mm": 220, "thickness_mm": 45}',
            '{"text": "Width 80 cm, depth 22 cm, thickness 45 cm."}',
            "Saved: width 80 cm, depth 22 cm, thickness 45 cm.",
            "gave 45 cm, where look returned 45 mm",
        ),
    ],
)
def test_what_a_run_wrote_itself_is_no_source_of_its_unit(
    result: str, deed: str, answer: str, reason: str
) -> None:
    steps = (*called("look", "{}", result), *called("save", deed, deed), step("porter", answer))
    assert mistake("Copy it.", *steps).reason == reason


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ('{"width_mm": 800, "depth_mm": 450}', "Width 80 cm, depth 45 cm."),
        ('{"price": 65.0, "devise": "CHF", "paid": 1634.52}', "Il reste à peu près 65 € de marge."),
        ('{"parcels": [{"weight_lb": 22.0}, {"weight_lb": 11.0}]}', "Volumetric weight: 33.0 kg in total."),
        ('{"weight": 12, "weight_unit": "LB", "dim": 48, "dim_unit": "IN"}', "48 in wide, 12 lb."),
    ],
)
def test_figures_that_share_two_digits_are_other_figures(result: str, answer: str) -> None:
    assert found("How large is it?", *called("look", "{}", result), step("porter", answer)) is None
