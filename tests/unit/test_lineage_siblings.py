"""Answers, deeds and figures that belong to something else than was asked for, beside right twins."""

from __future__ import annotations

import json

import pytest

from semconv.model import Step
from tests.lineage import called, found, mistake
from tests.runs import hearing, step


def count(sample: str, result: str) -> tuple[Step, Step]:
    return called("bash", json.dumps({"command": f"view -H vcf/{sample}.vcf.gz | wc -l"}), result)


def read(file: str, result: str) -> tuple[Step, Step]:
    return called("read_csv", json.dumps({"file": f"fuel_2027-03_{file}.csv"}), result)


def test_figures_of_another_sample_than_the_one_asked_for() -> None:
    clue = mistake(
        "How many variants has S12?",
        *count("S12", "1204"),
        *count("S21", "1318"),
        step("porter", "S12 has 1,318 variants."),
    )
    assert (clue.reason, clue.step) == ("answered for S12 with what bash returned for S21", 4)


def test_figures_of_another_house_of_a_street() -> None:
    clue = mistake(
        "Qual é a renda na Rua das Flores 12?",
        *called("ler", '{"ficheiro": "rua-das-flores-12.pdf"}', "Rua das Flores 12: 980 €, até 31/08/2027"),
        *called("ler", '{"ficheiro": "rua-das-flores-21.pdf"}', "Rua das Flores 21: 1.150 €, até 31/12/2027"),
        step("porter", "A renda da Rua das Flores 12 é de 1.150 €."),
    )
    assert clue.reason.endswith("for flores 12 with what ler returned for flores 21")


def test_figures_of_an_earlier_version_than_the_one_asked_for() -> None:
    clue = mistake(
        "What did diesel cost by the corrected report?",
        *read("prelim", "depot,km,l_per_100km\nKiel,84000,31.4"),
        *read("corrected_v2", "depot,km,l_per_100km,remark\nKiel,84000,29.8,sensor 14"),
        step("porter", "By the corrected report, Kiel used 31.4 l per 100 km."),
    )
    assert clue.reason.endswith("answered for corrected with what read_csv returned for prelim")


@pytest.mark.parametrize(
    ("task", "calls", "answer"),
    [
        ("Variants of S12?", [count("S21", "1318"), count("S12", "1204")], "S12 has 1,204 variants."),
        ("Variants of S12 and S21?", [count("S12", "1204"), count("S21", "1318")], "1,318 in S21."),
        (
            "Variants of S12?",
            [count("S12", "1204"), count("S21", "1318")],
            "1,204; S21, for comparison: 1,318.",
        ),
        (
            "Variants of S12?",
            [count("S12", "1204 (replaced by S21)"), count("S21", "1318")],
            "1,318 variants.",
        ),
        (
            "Variants of S12?",
            [count("S12", "no such file"), count("S21", "1318 (the new name of S12)")],
            "1,318.",
        ),
        (
            "Variants of S12?",
            [count("S12", "1204"), count("S21", "1318")],
            "It has 114 fewer than the other.",
        ),
        (
            "Top 10 of the list?",
            [called("top", '{"limit": 10}', "121 340"), called("top", '{"limit": 20}', "121 340 977")],
            "They are 121, 340 and 977.",
        ),
        (
            "What did diesel cost by the corrected report?",
            [read("prelim", "depot,km\nKiel,31.4"), read("corrected_v2", "depot,km\nKiel,29.8")],
            "Kiel used 29.8 l per 100 km.",
        ),
        (
            "What was the revenue in the quarter before Q3?",
            [
                called("revenue", '{"quarter": "Q3"}', "512340"),
                called("revenue", '{"quarter": "Q2"}', "478910"),
            ],
            "In the quarter before Q3 it was 478,910.",
        ),
        (
            "Which towns ban stoves, and what is the fine?",
            [
                called(
                    "open", '{"url": "county.example/stoves"}', "No fines are listed; 3 pages, 118 visitors."
                ),
                called("open", '{"url": "county.example/orders/77"}', "Fine: 450 euros."),
            ],
            "The fine is 450 euros.",
        ),
    ],
    ids=["right", "both", "said", "led", "renamed", "derived", "limit", "corrected", "before", "pages"],
)
def test_figures_of_what_was_asked_for_or_led_to(
    task: str, calls: list[tuple[Step, Step]], answer: str
) -> None:
    assert found(task, *(one for call in calls for one in call), step("porter", answer)) is None


ALERT = called("alert", '{"id": "A-9931"}', '{"id": "A-9931", "host": "WS-0417", "user": "hb"}')
TREE = called("tree", '{"host": "WS-0417"}', "winword.exe, powershell.exe")


def test_a_deed_on_an_id_with_exchanged_digits() -> None:
    isolated = called("edr_isolate", '{"host": "WS-0471"}', '{"isolated": true}')
    clue = mistake("Triage A-9931.", *ALERT, *TREE, *isolated, step("porter", "The host is isolated."))
    assert "with the host WS-0471, where alert gave WS-0417" in clue.reason


@pytest.mark.parametrize("host", ["WS-0417", "WS-0418"])
def test_a_deed_on_the_id_itself_or_on_the_next_one(host: str) -> None:
    isolated = called("edr_isolate", json.dumps({"host": host}), '{"isolated": true}')
    assert found("Triage A-9931.", *ALERT, *TREE, *isolated, step("porter", "Done.")) is None


def test_a_tool_in_another_language_that_looked_at_both() -> None:
    ours = called("jegyzokonyv", '{"szerzodes": "B-4107"}', '{"szerzodes": "B-4107", "ft": 28000}')
    next_door = called("jegyzokonyv", '{"szerzodes": "B-4170"}', '{"szerzodes": "B-4170", "tetelek": []}')
    assert found("Mennyi a kár (B-4107)?", *ours, *next_door, step("porter", "28 000 Ft.")) is None


PEOPLE = called(
    "find",
    '{"name": "Maria Santos"}',
    '[{"customer": "C-20117", "name": "Maria Santos", "email": "maria84@mail.example", "booking": "KX7PL"},'
    ' {"customer": "C-31890", "name": "Maria Santos", "email": "ms@net.example", "booking": "K94TQ"}]',
)
ASKED = "Maria Santos here, maria84@mail.example: how much refund will I get?"


def test_an_agent_that_passes_on_the_wrong_entry_is_blamed_and_not_the_one_that_believes_it() -> None:
    clue = mistake(
        ASKED,
        *PEOPLE,
        step("desk", "Found her: customer C-31890, booking K94TQ."),
        *called("get_booking", '{"ref": "K94TQ"}', '{"fare": 251.0}'),
        step("refunds", "You get 251.00 on booking K94TQ."),
    )
    assert clue.step == 2
    assert "C-31890" in clue.reason or "K94TQ" in clue.reason


def test_an_agent_that_rules_a_namesake_out() -> None:
    words = step("desk", "C-31890 is her namesake, not her.")
    assert found(ASKED, *PEOPLE, words, step("desk", "You get it back on booking KX7PL.")) is None


@pytest.mark.parametrize(
    "words", ["Found her: customer C-20117, booking KX7PL.", "Two of them: C-20117 and C-31890. Which one?"]
)
def test_an_agent_that_passes_on_the_right_entry_or_all(words: str) -> None:
    assert found(ASKED, *PEOPLE, step("desk", words)) is None


PATIENTS = called(
    "find",
    '{"name": "João Pereira"}',
    '[{"num": "10442", "name": "João Pereira", "born": "1958-04-12"},'
    ' {"num": "30871", "name": "João Pereira", "born": "1990-08-03"}]',
)
VISITS = (
    *called("visits", '{"num": "30871"}', '[{"id": "K-551"}]'),
    *called("visits", '{"num": "10442"}', '[{"id": "K-560"}]'),
)


@pytest.mark.parametrize(("visit", "is_right"), [("K-551", False), ("K-560", True)])
def test_a_deed_on_what_belongs_to_the_wrong_entry(visit: str, *, is_right: bool) -> None:
    deed = called("cancel_visit", json.dumps({"id": visit}), '{"state": "CANCELLED"}')
    clue = found(
        "Cancel the visit of João Pereira, born 12 April 1958.",
        *PATIENTS,
        *VISITS,
        *deed,
        step("porter", "His visit is cancelled."),
    )
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("The hall weighs 45,510 kg, that is 4.551 t.", False),
        ("Das sind 45.510 kg, also 4,551 t.", False),
        ("Das sind 45.510 kg, also 45,51 t.", True),
        ("272.000 cm², es decir 272 m².", False),
        ("272.000 cm², es decir 27,2 m².", True),
        ("We ran 1,240 m, and the lake is 124 km away.", True),
        ("It has 512 MB of RAM, 512 GB of disk.", True),
        ("325 W, 325 kW in all.", True),
    ],
)
def test_the_same_digits_in_another_unit_beside_each_other(answer: str, *, is_right: bool) -> None:
    clue = found("How much is it?", *called("look", "{}", '{"n": 7}'), step("porter", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("耳机退货率为6.4%。", False),
        ("The return rate is 6.4%.", False),
        ("The return rate is 4.6%.", True),
        ("It was 4.6%, and 6.4% last year.", True),
    ],
)
def test_a_percentage_with_exchanged_digits(answer: str, *, is_right: bool) -> None:
    clue = found(
        "What is the return rate?",
        *called("sql", "{}", '{"rate": "4.6%"}'),
        step("writer", answer, input="It is 4.6%."),
    )
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("task", "call", "is_right"),
    [
        ("Zaplať fakturu 2026-0481.", ("platba", '{"faktura": "2026-0418"}'), False),
        ("Zaplať fakturu 2026-0481.", ("platba", '{"faktura": "2026-0481"}'), True),
        ("Zaplať faktury 2026-0481 a 2026-0418.", ("platba", '{"faktura": "2026-0418"}'), True),
        ("77120 no'lu siparişi iade et.", ("para_iade", '{"siparis": "77102"}'), False),
        ("77120 no'lu siparişi iade et.", ("para_iade", '{"siparis": "77120"}'), True),
        ("Call variants of T-0457.", ("sh", '{"cmd": "call --tumor /bam/T-0475.bam -o out"}'), False),
        ("Call variants of T-0457.", ("sh", '{"cmd": "call --tumor /bam/T-0457.bam -o out"}'), True),
        ("How did sales go in 2024-2026?", ("report", '{"years": "2024-2025"}'), True),
    ],
)
def test_exchanged_digits_of_what_was_asked_for(task: str, call: tuple[str, str], *, is_right: bool) -> None:
    listed = called("list", "{}", "no\n2026-0418\n2026-0481\n77102\n77120")
    clue = found(task, *listed, *called(*call, '{"ok": true}'), step("porter", f"Done: {task}"))
    assert (clue is None) is is_right


def test_an_address_that_is_passed_on_with_exchanged_digits() -> None:
    log = called("log", "{}", "3 failed logins from 203.0.113.46")
    clue = mistake("Who attacks us?", *log, step("porter", "The address is 203.0.113.64."))
    assert "gave the number 203.0.113.64, where log gave 203.0.113.46" in clue.reason
    assert found("Who attacks us?", *log, step("porter", "The address is 203.0.113.46.")) is None


REFUND = '{"order": "88431", "sku": "LMP-09"}'
ONE, OTHER = '{"status": "accepted", "refund": "rf_7741"}', '{"status": "accepted", "refund": "rf_7742"}'


@pytest.mark.parametrize(
    ("second", "answer", "is_right"),
    [
        ((REFUND, OTHER), "The lamp is refunded (rf_7742).", False),
        ((REFUND, OTHER), "It is refunded twice by mistake: rf_7741 and rf_7742.", True),
        ((REFUND, ONE), "The lamp is refunded (rf_7741).", True),
        (('{"order": "88431", "sku": "LMP-10"}', OTHER), "Both are refunded, the last as rf_7742.", True),
    ],
    ids=["again", "open", "same", "another"],
)
def test_a_deed_done_again_makes_a_second_thing(
    second: tuple[str, str], answer: str, *, is_right: bool
) -> None:
    steps = (*called("refund_create", REFUND, ONE), *called("refund_create", *second))
    clue = found("Refund the lamp.", *steps, step("porter", answer))
    assert (clue is None) is is_right


@pytest.mark.parametrize(
    ("tool", "between"),
    [
        ("build", ("edit_file", '{"path": "a.py"}', "ok")),
        ("refund_create", ("refund_cancel", '{"refund": "rf_7741"}', '{"status": "cancelled"}')),
        ("train_model", ("get_metrics", "{}", '{"loss": "nan"}')),
    ],
    ids=["built again", "taken back", "trained again"],
)
def test_a_deed_done_again_with_a_reason(tool: str, between: tuple[str, str, str]) -> None:
    steps = (*called(tool, REFUND, ONE), *called(*between), *called(tool, REFUND, OTHER))
    assert found("Refund or build it.", *steps, step("porter", "It is done (rf_7742).")) is None


@pytest.mark.parametrize(
    ("given", "used"),
    [("v1.4.2", "v1.4.3"), ("B41", "B42"), ("r0042", "r0043"), ("C14", "C13")],
)
def test_the_next_id_of_a_series(given: str, used: str) -> None:
    looked = called("look", "{}", json.dumps({"tag": given, "free": False}))
    deed = called("publish_tag", json.dumps({"tag": used}), '{"ok": true}')
    assert found("Publish the next one.", *looked, *deed, step("porter", f"Published {used}.")) is None


def test_an_id_with_exchanged_digits_that_a_search_gave_for_another_person() -> None:
    people = called(
        "search", '{"name": "Ito"}', '[{"id": 88231, "name": "Ito"}, {"id": 88213, "name": "Sato"}]'
    )
    deed = called("cancel", '{"id": 88231}', '{"ok": true}')
    task = "88213 is Mr Sato's booking. Cancel the one of Mr Ito."
    assert found(task, *people, *deed, step("porter", "Booking 88231 of Mr Ito is cancelled.")) is None


def test_a_deed_done_again_after_the_first_one_was_taken_back() -> None:
    steps = (
        *called("refund_create", REFUND, ONE),
        *called("refund_create", REFUND, OTHER),
        *called("refund_cancel", '{"refund": "rf_7741"}', '{"status": "cancelled"}'),
    )
    assert found("Refund the lamp.", *steps, step("porter", "It is refunded (rf_7742).")) is None


def test_a_result_heard_with_other_blanks_is_the_same_result() -> None:
    people = json.loads(PEOPLE[1].output)
    deed = called("invite", '{"customer": "C-31890"}', '{"sent": true}')
    heard = hearing(step("porter", "I invite her."), ("tool", json.dumps(people, separators=(",", ":"))))
    clue = mistake(
        "Invite Maria Santos, maria84@mail.example.", *PEOPLE, heard, *deed, step("porter", "Done.")
    )
    assert "where find has C-20117" in clue.reason


def test_a_cable_and_a_distance_with_the_same_digits() -> None:
    looked = called("look", "{}", '{"cable": "1,250 m", "site": "125 km"}')
    answer = "We need 1,250 m of cable, 125 km away."
    assert found("How much cable, and how far?", *looked, step("porter", answer)) is None
