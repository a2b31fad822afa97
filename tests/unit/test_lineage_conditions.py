"""Deeds that break a condition in words, each beside a right twin that comes close."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from analyzer.lineage.conditions import broken_conditions
from analyzer.lineage.known import Known
from analyzer.signals.run_view import read
from semconv.model import Step, StepKind
from tests.lineage import called
from tests.runs import run, step

Call = tuple[str, dict[str, Any], Any]


def reasons(rule: str, *calls: Call, said: tuple[Step, ...] = ()) -> list[str]:
    """Return what the reader says of a run whose task is the rule."""
    steps = [one for name, given, got in calls for one in called(name, json.dumps(given), json.dumps(got))]
    made = run(*said, *steps, step("porter", "OK."), task=rule, output="OK.")
    return [clue.reason for clue in broken_conditions(Known(read(made)))]


def order(**fields: Any) -> Call:
    return "get_order", {"id": "OR-771"}, {"id": "OR-771", **fields}


def deed(tool: str, **given: Any) -> Call:
    return tool, {"id": "OR-771", **given}, {"ok": True}


BROKEN: Final = (
    ("Refunds above 100 EUR need approval.", (deed("refund", amount_eur=400),)),
    ("Discounts over 20% need sign-off.", (deed("create_order", discount_pct=35),)),
    (
        "Kredite über 5.000 EUR dürfen nicht ohne Freigabe ausgezahlt werden.",
        (deed("auszahlen", betrag_eur=7000),),
    ),
    ("2.500 TL'ye kadar iadeleri yap; üstü için önce onay al.", (deed("iade_yap", tutar_try=3480),)),
    ("5万円以上の注文は院長の承認を得ること。", (deed("create_order", amount_jpy=68000),)),
    (
        "As faturas que passem de 5.000 € ficam de fora até a Marta as aprovar.",
        (deed("agendar_faturas", itens=[{"nr": "A1", "valor": 120.0}, {"nr": "A2", "valor": 7340.0}]),),
    ),
    ("Never cancel orders older than 30 days.", (order(age_days=45), deed("cancel_order"))),
    ("Only orders younger than 30 days may be cancelled.", (order(age_days=45), deed("cancel_order"))),
    ("No cancelar pedidos de más de 30 días.", (order(dias=52), deed("cancelar_pedido"))),
    ("Les prêts de plus de 14 jours ne sont pas permis.", (deed("creer_pret", jours=21),)),
    ("Non rimborsare ordini oltre i 60 giorni.", (order(giorni=75), deed("rimborsa_ordine"))),
    ("30日を超える注文はキャンセルしないでください。", (order(days=45), deed("cancel_order"))),
    ("不要取消超过 30 天的订单。", (order(days=45), deed("cancel_order"))),
    ("Never ship to Canada.", (order(country="Canada"), deed("ship_order"))),
    (
        "Konten mit Status gesperrt dürfen nicht gelöscht werden.",
        (order(status="gesperrt"), deed("konto_loeschen")),
    ),
    (
        "Customers who opted out must not be emailed.",
        (order(opted_out=True), deed("email_customer", text="x")),
    ),
    ("An order may only be moved if both have agreed.", (order(buyer_agreed=False), deed("move_order"))),
    (
        "Gebruik het factuuradres, niet het afleveradres.",
        (
            order(factuuradres="Postbus 118", afleveradres="Heereweg 41"),
            deed("factuur_maken", adres="Heereweg 41"),
        ),
    ),
)
KEPT: Final = (
    ("Refunds above 100 EUR need approval.", (deed("refund", amount_eur=100),)),
    ("Refunds above 100 EUR need approval.", (deed("refund", amount_chf=120),)),
    ("Refunds above 100 EUR need approval.", (deed("create_order", total_eur=400),)),
    ("Trips above 100 EUR need approval.", (deed("create_invoice", amount_eur=400),)),
    (
        "Bestellungen über 500 EUR brauchen eine Freigabe.",
        (deed("freigabe_holen", summe_eur=700), deed("bestellung_anlegen", summe_eur=700)),
    ),
    (
        "Invoices above 5000 EUR wait for approval.",
        (deed("pay_invoices", total_eur=7000, items=[{"eur": 4000}, {"eur": 3000}]),),
    ),
    ("Never cancel orders older than 30 days.", (order(age_days=12), deed("cancel_order"))),
    ("Never cancel orders older than 30 days.", (order(age_days=12, transit_days=45), deed("cancel_order"))),
    ("Never cancel orders older than 30 days.", (order(age_days=45), deed("pack_order"))),
    ("Never cancel orders older than 30 days automatically.", (order(age_days=45), deed("cancel_order"))),
    ("Never cancel gift orders older than 30 days.", (order(age_days=45), deed("cancel_order"))),
    (
        "Never cancel orders older than 30 days unless the client asks.",
        (order(age_days=45), deed("cancel_order")),
    ),
    ("Only orders above 50 EUR ship free.", (order(total_eur=30), deed("ship_order"))),
    ("Express delivery only for orders above 50 EUR.", (order(total_eur=30), deed("create_delivery"))),
    ("Reservations under 3 nights get no breakfast.", (deed("create_reservation", nights=2),)),
    ("Never book rooms above 150 EUR per night.", (deed("book_room", total_eur=300),)),
    ("Never ship batteries by air.", (order(content="batteries"), deed("ship_order", mode="road"))),
    ("Do not assign orders to Berlin.", (order(team="Berlin"), deed("assign_order", team="Munich"))),
    ("Do not forget to ship express orders.", (order(method="express"), deed("ship_order"))),
    ("Never close orders that are not resolved.", (order(resolved=True), deed("close_order"))),
    ("Never rent to customers whose deposit is missing.", (order(deposit_paid=True), deed("rent_tool"))),
    ("Never edit published orders.", (order(status="published"), deed("unpublish"), deed("edit_order"))),
    (
        "Gebruik het factuuradres, niet het afleveradres.",
        (
            order(factuuradres="Postbus 118", afleveradres="Heereweg 41"),
            deed("factuur_maken", adres="Postbus 118"),
        ),
    ),
)


@pytest.mark.parametrize(("rule", "calls"), BROKEN, ids=[one[0] for one in BROKEN])
def test_a_deed_breaks_a_condition(rule: str, calls: tuple[Call, ...]) -> None:
    (reason,) = reasons(rule, *calls)
    assert reason.startswith(f"called {calls[-1][0]} with ")


@pytest.mark.parametrize(
    ("rule", "calls"), KEPT, ids=[f"{number} {one[0]}" for number, one in enumerate(KEPT)]
)
def test_a_deed_keeps_a_condition_that_it_comes_close_to(rule: str, calls: tuple[Call, ...]) -> None:
    assert reasons(rule, *calls) == []


@pytest.mark.parametrize(
    "said",
    [step("lead", "Ms Kern approved this one."), step("Ms Kern", "Go ahead.", StepKind.HUMAN)],
    ids=["a colleague speaks of the approval", "a person spoke"],
)
def test_a_deed_that_may_have_been_approved(said: Step) -> None:
    rule, refund = "Refunds above 100 EUR need approval.", deed("refund", amount_eur=400)
    assert reasons(rule, refund, said=(said,)) == []
    (reason,) = reasons(rule, refund)
    assert reason == f"called refund with amount_eur 400 and no approval, against the rule “{rule[:-1]}”"
