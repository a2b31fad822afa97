"""Deeds, their limits and their reports, in several languages; each kind with runs that are right."""

from __future__ import annotations

import pytest

from analyzer.lineage.clue import ClueKind
from analyzer.lineage.deeds import acts_in
from analyzer.texts.tool_names import deed_of
from semconv.model import Step
from tests.lineage import called, found, mistake
from tests.runs import failed_tool, step, tool

CHECKED = called("check_grant", '{"pupil": "P-88"}', '{"max_grant_eur": 240.5, "reason": "half orphan"}')


def test_a_call_beyond_the_maximum_that_a_check_returned_is_the_mistake() -> None:
    clue = mistake(
        "Pay out the grant of pupil P-88.",
        *CHECKED,
        *called("pay_grant", '{"pupil": "P-88", "amount_eur": 310}', '{"paid_eur": 310.0}'),
        step("porter", "Paid."),
    )
    assert (clue.step, clue.kind) == (2, ClueKind.EXCEEDED)
    assert "310" in clue.reason
    assert "max_grant_eur 240.5 that check_grant returned" in clue.reason


@pytest.mark.parametrize(
    "deed",
    [
        called("pay_grant", '{"amount_eur": 240.50}', '{"paid_eur": 240.5}'),
        called("pay_grant", '{"amount_eur": 100}', '{"paid_eur": 100.0}'),
        called("pay_grant", '{"instalments": 310}', "{}"),
        called("find_grants", '{"above_eur": 310}', "[]"),
    ],
)
def test_a_call_within_the_maximum_or_of_something_else_is_right(deed: tuple[Step, Step]) -> None:
    assert found("Pay out the grant of pupil P-88.", *CHECKED, *deed, step("porter", "Done.")) is None


def test_a_later_maximum_replaces_an_earlier_one() -> None:
    again = called("check_grant", '{"pupil": "P-88", "year": 2}', '{"max_grant_eur": 400}')
    deed = called("pay_grant", '{"amount_eur": 310}', '{"paid_eur": 310}')
    assert found("Pay out the grant of pupil P-88.", *CHECKED, *again, *deed, step("porter", "Done.")) is None


REFUNDED = called("refund_ticket", '{"ticket": "T-5512"}', '{"refunded_eur": 61.2, "ticket": "T-5512"}')


@pytest.mark.parametrize(
    "answer",
    [
        "I have refunded 68.00 EUR.",
        "Ich habe Ihnen 68,00 EUR erstattet.",
        "我已退款 68 EUR。",
        "Le he reembolsado 68 EUR.",
    ],
)
def test_a_report_of_another_figure_than_the_result_of_the_deed_is_wrong(answer: str) -> None:
    price = called("ticket_price", '{"ticket": "T-5512"}', '{"paid_eur": 68.0}')
    clue = mistake("Refund ticket T-5512.", *price, *REFUNDED, step("porter", answer))
    assert (clue.step, clue.kind) == (4, ClueKind.MISREPORTED)
    assert "refund_ticket returned 61.2 EUR" in clue.reason


@pytest.mark.parametrize(
    "answer",
    [
        "I have refunded 61.20 EUR.",
        "I have refunded 61,20 EUR of the 68 EUR that you paid.",
        "The ticket cost 68 EUR; the rest is on its way.",
        "I have refunded the ticket.",
    ],
)
def test_a_report_with_the_result_or_without_a_figure_is_right(answer: str) -> None:
    price = called("ticket_price", '{"ticket": "T-5512"}', '{"paid_eur": 68.0}')
    assert found("Refund ticket T-5512.", *price, *REFUNDED, step("porter", answer)) is None


@pytest.mark.parametrize(
    "answer",
    [
        "I have refunded 61.20 EUR. I have also cancelled your season pass.",
        "I have refunded 61.20 EUR. Your season pass has been cancelled as well.",
        "Ich habe 61,20 EUR erstattet. Ihr Jahresabo wurde storniert.",
        "J'ai remboursé 61,20 EUR. Votre abonnement a été annulé.",
    ],
)
def test_a_claimed_deed_without_a_call_of_its_own_comes_from_nowhere(answer: str) -> None:
    clue = mistake("Refund ticket T-5512.", *REFUNDED, step("porter", answer))
    assert (clue.step, clue.kind) == (2, ClueKind.CLAIMED)


@pytest.mark.parametrize(
    "answer",
    [
        "I have refunded 61.20 EUR.",
        "I have refunded 61.20 EUR. Nothing else was cancelled.",
        "I have refunded 61.20 EUR. Shall I cancel the season pass? It has not been cancelled.",
        "I have refunded 61.20 EUR. Once the pass is cancelled, you get the rest.",
        "I have checked the ticket and refunded 61.20 EUR.",
        "Ich habe 61,20 EUR erstattet. Das Jahresabo wurde nicht storniert.",
    ],
)
def test_a_claim_with_its_call_and_a_deed_that_is_denied_are_right(answer: str) -> None:
    assert found("Refund ticket T-5512.", *REFUNDED, step("porter", answer)) is None


@pytest.mark.parametrize(
    ("tool_name", "answer"),
    [
        ("terminate_contract", "I have cancelled your contract."),
        ("notify_landlord", "I have told the landlord that the flat was cancelled."),
        ("processRequest", "Your booking has been cancelled."),
    ],
)
def test_a_claim_may_mean_a_call_of_another_name(tool_name: str, answer: str) -> None:
    assert found("End my contract.", *called(tool_name, "{}", '{"ok": true}'), step("porter", answer)) is None


def test_a_fact_that_a_result_gives_is_no_claim_of_a_deed() -> None:
    status = called("parcel_status", "{}", '{"status": "cancelled by sender"}')
    assert found("Where is my parcel?", *status, step("porter", "Your parcel was cancelled.")) is None


def test_a_deed_that_failed_does_not_stand_for_a_claim() -> None:
    broken = failed_tool("porter", "HTTP 500", "process_pass", input="{}")
    answer = "I have refunded 61.20 EUR. I have also cancelled the pass."
    clue = mistake("Refund and end the pass.", *REFUNDED, broken, step("porter", answer))
    assert clue.kind is ClueKind.CLAIMED


READ = called("find_member", '{"name": "Ito"}', '{"member": "MEM-4471", "card": "CRD-90210"}')


def test_an_id_from_nowhere_in_place_of_the_one_just_returned_is_invented() -> None:
    clue = mistake(
        "Which books has Ito borrowed?",
        *READ,
        *called("loans", '{"card": "CRD-12345"}', "[]"),
        step("porter", "None."),
    )
    assert (clue.step, clue.kind) == (2, ClueKind.CHANGED)
    assert "the card CRD-12345, where find_member gave CRD-90210" in clue.reason


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("loans", '{"card": "CRD-90210"}'),
        ("loans", '{"card": "X1"}'),
        ("loans", '{"shelf": "CRD-12345"}'),
        ("create_card", '{"card": "CRD-12345"}'),
    ],
)
def test_ids_that_were_returned_or_that_the_caller_may_choose_are_right(name: str, arguments: str) -> None:
    assert (
        found("Which books has Ito borrowed?", *READ, *called(name, arguments, "[]"), step("porter", "None."))
        is None
    )


@pytest.mark.parametrize(
    ("text", "acts"),
    [
        ("Ich habe das Zimmer gebucht", {"book"}),
        ("Я отменил заказ", {"cancel"}),
        ("予約しました", {"book"}),
        ("I ordered two", {"order"}),
        ("in the order of dates", set()),
    ],
)
def test_what_was_done_is_read_in_many_languages(text: str, acts: set[str]) -> None:
    assert acts_in(text) == acts


def test_names_of_tools_have_their_own_words() -> None:
    assert acts_in("cancel order", with_tools=True) == {"cancel", "order"}


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ('{"id": "M-7", "status": "draft"}', "The letter was sent to Mrs Lund."),
        ('{"status": "gespeichert, nicht gesendet"}', "Erledigt: Frau Lund wurde benachrichtigt."),
        ('{"state": "pending approval"}', "I've booked the hall for Monday."),
        ('{"statut": "en attente de validation"}', "C'est fait : la salle a été réservée."),
        ('{"sent": false, "queued": true}', "The letter has been sent."),
        ('{"status": "waitlisted"}', "We've registered you for the course."),
    ],
)
def test_a_deed_that_its_result_calls_undone_is_no_deed(result: str, answer: str) -> None:
    clue = mistake(
        "Please do it.", *called("put_letter", '{"to": "Mrs Lund"}', result), step("porter", answer)
    )
    assert clue.kind is ClueKind.CLAIMED
    assert clue.reason.startswith("claimed what put_letter had not done")


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ('{"id": "M-7", "status": "draft"}', "The letter was saved as a draft."),
        ('{"status": "gespeichert, nicht gesendet"}', "Erledigt: der Entwurf liegt bereit."),
        ('{"state": "pending approval"}', "I've booked the hall; the warden still has to approve it."),
        ('{"status": "no errors found"}', "The letter was sent."),
        ('{"status": "sent, reply not required"}', "The letter was sent."),
        ('{"sent": false}', "The letter was written and not sent yet."),
        ('{"status": "waitlisted"}', "We've put you on the waiting list."),
        ('{"status": "queued"}', "The letter was sent."),
    ],
)
def test_a_deed_that_is_told_as_it_stands_is_right(result: str, answer: str) -> None:
    steps = (*called("put_letter", '{"to": "Mrs Lund"}', result), step("porter", answer))
    assert found("Please do it.", *steps) is None


def test_a_draft_that_was_asked_for_is_what_was_asked_for() -> None:
    written = called("put_letter", '{"to": "Mrs Lund"}', '{"id": "M-7", "status": "draft"}')
    assert found("Draft a letter to Mrs Lund.", *written, step("porter", "I've prepared the letter.")) is None


OFFERED = "change_address(): sets the address\nnotify_carrier(): tells the carrier about an order"
ANGEBOTEN = "adresse_aendern(): neue Adresse\nspediteur_benachrichtigen(): Nachricht an den Spediteur"
OFRECIDAS = "cambiar_direccion(): nueva dirección\navisar_transportista(): mensaje al transportista"


@pytest.mark.parametrize(
    ("tools", "task", "first", "answer"),
    [
        (
            OFFERED,
            "Change the address and notify the carrier.",
            "change_address",
            "I have changed the address and notified the carrier.",
        ),
        (
            ANGEBOTEN,
            "Ändere die Adresse und benachrichtige den Spediteur.",
            "adresse_aendern",
            "Erledigt: Die Adresse ist geändert. Der Spediteur weiß Bescheid und ist benachrichtigt.",
        ),
        (
            OFRECIDAS,
            "Cambia la dirección y avisa al transportista.",
            "cambiar_direccion",
            "Todo hecho. He avisado al transportista de la nueva dirección.",
        ),
        (
            OFFERED,
            "Change the address.",
            "change_address",
            "I have changed the address, and I have notified the carrier.",
        ),
    ],
)
def test_a_claim_in_the_words_of_a_tool_that_was_never_called_is_the_mistake(
    tools: str, task: str, first: str, answer: str
) -> None:
    clue = mistake(task, *called(first, "{}", '{"ok": true}'), step("porter", answer, tools=tools))
    assert clue.kind is ClueKind.CLAIMED
    assert "was offered, and did not call it" in clue.reason


@pytest.mark.parametrize(
    ("task", "first", "answer"),
    [
        (
            "Change the address and notify the carrier.",
            "change_address",
            "I have changed the address. I could not notify the carrier.",
        ),
        (
            "Change the address and notify the carrier.",
            "change_address",
            "I have changed the address. Shall I notify the carrier?",
        ),
        (
            "Change the address and notify the carrier.",
            "change_address",
            "I have changed the address. Please notify the carrier yourself once it has left.",
        ),
        ("Change the address.", "change_address", "I have changed the address; the carrier follows."),
        (
            "Change the address and notify the carrier.",
            "notify_carrier",
            "I have notified the carrier of the new address.",
        ),
        ("Notify the carrier of the new address.", "send_mail", "I have sent the carrier a mail."),
    ],
)
def test_what_is_left_open_or_done_by_another_tool_is_right(task: str, first: str, answer: str) -> None:
    assert found(task, *called(first, "{}", '{"ok": true}'), step("porter", answer, tools=OFFERED)) is None


def test_a_tool_with_another_word_for_it_may_have_done_it() -> None:
    tools = "notify_carrier(): tells the carrier about an order"
    answer = step("porter", "I have notified the carrier.", tools=tools)
    assert found("Change the address.", *called("carrier_mail", "{}", '{"ok": true}'), answer) is None


def test_what_was_done_by_others_long_ago_is_no_claim() -> None:
    census = called("census_search", '{"name": "Wybrow"}', '[{"name": "Rose Wybrow", "age": 1}]')
    answer = "Rose is aged 1; a Rose Wybrow was registered at Braintree in 1889."
    assert found("Find Rose Wybrow in the census.", *census, step("porter", answer)) is None


@pytest.mark.parametrize(
    ("tool", "verb"),
    [
        ("release_file", "release"),
        ("mes.release", "release"),
        ("release_notes", ""),
        ("release_status", ""),
        ("latest_release_info", ""),
        ("github_release_create", "create"),
        ("patch_notes", ""),
        ("refund_lookup", ""),
        ("refund_order", "refund"),
        ("process_refund", "refund"),
        ("update_status", "update"),
        ("patch_server", "patch"),
    ],
)
def test_a_verb_that_is_a_noun_as_often_counts_first_or_last(tool: str, verb: str) -> None:
    assert deed_of(tool) == verb


RESTORED = called("restore_backup", '{"month": "March"}', '{"restored": true}')
UNREAD = failed_tool("porter", "manifest missing", "verify_checksum", input='{"backup": "March"}')
VERIFIED = step("porter", "The March backup is restored and its checksum verified.")
ASK = "Restore the March backup, and verify its checksum."


def test_a_check_that_failed_was_not_made() -> None:
    clue = mistake(ASK, *RESTORED, UNREAD, VERIFIED)
    assert (clue.step, clue.kind) == (3, ClueKind.CLAIMED)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([UNREAD, tool("porter", "9f31", "verify_checksum"), VERIFIED], id="made again"),
        pytest.param([UNREAD, tool("porter", "9f31", "read_checksum"), VERIFIED], id="made otherwise"),
        pytest.param([UNREAD, step("porter", "Its checksum could not be verified.")], id="told"),
        pytest.param([UNREAD, step("porter", "The March backup is restored.")], id="not claimed"),
    ],
)
def test_a_check_that_failed_may_be_made_otherwise(steps: list[Step]) -> None:
    assert found(ASK, *RESTORED, *steps) is None
