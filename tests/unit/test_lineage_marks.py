"""What results and tasks say outright: replaced, cut off, nothing done, not on that day; with right twins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.lineage.clue import Clue, ClueKind
from semconv.model import Step
from tests.lineage import called, found, mistake
from tests.runs import step


def said(clue: Clue | None) -> str:
    return "" if clue is None else clue.reason


TARIFFS = (
    '[{{"doc": "FEE-21", "state": "{mark}", "text": "A copy costs 4.50 EUR."}},'
    ' {{"doc": "FEE-25", "state": "in force", "text": "A copy costs 6.20 EUR."}}]'
)


@pytest.mark.parametrize(
    ("task", "mark", "answer"),
    [
        ("What does a copy cost?", "superseded by FEE-25", "A copy costs 4.50 EUR."),
        ("Was kostet eine Kopie?", "aufgehoben", "Eine Kopie kostet 4,50 EUR."),
        ("¿Cuánto cuesta una copia?", "DEROGADO", "Una copia cuesta 4,50 EUR."),
        ("Ile kosztuje kopia?", "uchylone 2025-01-01", "Kopia kosztuje 4,50 EUR."),
        ("副本多少钱?", "已废止", "每份4.50欧元。"),
    ],
)
def test_a_figure_of_a_version_that_its_source_marks_as_replaced(task: str, mark: str, answer: str) -> None:
    clue = mistake(task, *called("search", "{}", TARIFFS.format(mark=mark)), step("porter", answer))
    assert (clue.step, clue.kind) == (2, ClueKind.OUT_OF_DATE)
    assert "from what search marks as" in clue.reason


@pytest.mark.parametrize(
    ("task", "mark", "answer"),
    [
        ("What does a copy cost?", "superseded by FEE-25", "A copy costs 6.20 EUR."),
        ("What does a copy cost?", "superseded by FEE-25", "6.20 EUR; the superseded list had 4.50 EUR."),
        ("What does a copy cost?", "superseded by FEE-25", "6.20 EUR. It is no longer 4.50 EUR."),
        ("What did the superseded list ask?", "superseded by FEE-25", "A copy was 4.50 EUR."),
        ("Was kostet eine Kopie?", "gültig", "Eine Kopie kostet 4,50 EUR."),
    ],
)
def test_the_version_in_force_or_one_that_was_asked_for_is_right(task: str, mark: str, answer: str) -> None:
    assert found(task, *called("search", "{}", TARIFFS.format(mark=mark)), step("porter", answer)) is None


PARTS = (
    '[{"part": "KX-10", "state": "obsolete", "stock": 310},'
    ' {"part": "KX-20", "state": "active", "stock": 745}]'
)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("How many KX-10 are left?", "310 are left."),
        ("Wie viele Teile sind es je Sorte?", "310 und 745 Stück."),
        ("部品ごとの在庫", "310個と745個です。"),
    ],
)
def test_things_of_which_one_is_obsolete_are_no_versions(task: str, answer: str) -> None:
    assert found(task, *called("stock", "{}", PARTS), step("porter", answer)) is None


def test_a_document_that_was_opened_is_that_of_its_entry() -> None:
    steps = (
        *called("search", "{}", '{"hits": [{"id": "DR-8-C", "status": "OBSOLETE"}, {"id": "DR-8-D", "status": "CURRENT"}]}'),  # noqa: E501 - as an API returns it
        *called("open", '{"id": "DR-8-C"}', "Tighten to 22.5 Nm.")
    )  # fmt: skip
    assert "marks as “OBSOLETE”" in said(found("Which torque?", *steps, step("porter", "Use 22.5 Nm.")))
    newer = [replace(one, input=one.input.replace("8-C", "8-D")) for one in steps]
    assert found("Which torque?", *newer, step("porter", "Use 22.5 Nm.")) is None


@pytest.mark.parametrize(
    ("task", "answer", "is_old"),
    [
        ("How much data do I have left now?", "You have 18.4 GB left.", True),
        ("Wie viel Datenvolumen habe ich aktuell?", "Sie haben noch 18,4 GB.", True),
        ("지금 남은 데이터는 얼마인가요?", "18.4GB가 남아 있습니다.", True),
        ("How much data do I have left now?", "You have 2.1 GB left.", False),
        ("How much data do I have left now?", "2.1 GB; it was 18.4 GB some days ago.", False),
        ("How much data did I have on 9 June 2025?", "18.4 GB.", False),
        ("How much data did I have?", "18.4 GB.", False),
    ],
)
def test_the_older_of_two_values_is_not_what_holds_now(task: str, answer: str, is_old: bool) -> None:
    cached = called("profile", "{}", '{"left_gb": 18.4, "cached_at": "2025-06-09T08:00:12"}')
    live = called("usage", "{}", '{"left_gb": 2.1, "at": "2025-06-12T14:20:55"}')
    clue = found(task, *cached, *live, step("porter", answer))
    assert ("has as 2.1 at 2025-06-12" in said(clue)) is is_old


def test_records_of_different_things_do_not_replace_each_other() -> None:
    orders = '[{"order": "A-1", "total": 18.4, "at": "2025-06-09"}, {"order": "A-2", "total": 2.1, "at": "2025-06-12"}]'  # noqa: E501 - as an API returns it
    answer = step("porter", "The dearest is 18.4 EUR.")
    assert found("Which order is the dearest right now?", *called("orders", "{}", orders), answer) is None


def test_what_is_still_to_come_does_not_replace_what_holds_now() -> None:
    plays = (
        '[{"play": "Gull", "from": "2027-05-02", "nights": 40},'
        ' {"play": "Bull", "from": "2027-05-25", "nights": 25}]'
    )
    for today, is_right in (("5 May 2027", True), ("5 June 2027", False)):
        task = f"Today is {today}. How many nights does the current play run?"
        clue = found(task, *called("plays", "{}", plays), step("porter", "The Gull runs for 40 nights."))
        assert (clue is None) is is_right


def booked(task: str, arguments: str, answer: str, tool_name: str = "book_visit") -> Clue | None:
    return found(task, *called(tool_name, arguments, '{"ok": true}'), step("porter", answer))


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("Book the plumber for next week, but not on a Wednesday.", "book_visit"),
        ("Any day but Wednesday, please book it.", "book_visit"),
        ("Bitte einen Termin buchen, nur nicht mittwochs.", "termin"),
        ("Fissi l'intervento, ma non di mercoledì.", "prenota"),
        ("予約してください。水曜日は避けてください。", "予約する"),
    ],
)
def test_a_day_that_the_task_rules_out(task: str, name: str) -> None:
    clue = booked(task, '{"start": "2025-12-10T08:30"}', "Done: 10/12/2025 8:30. 12月10日", name)
    assert clue is not None
    assert (clue.step, clue.kind) == (0, ClueKind.CONSTRAINT)
    assert "took 2025-12-10 (Wednesday)" in clue.reason


@pytest.mark.parametrize(
    ("task", "start", "answer"),
    [
        ("Book it, but not on a Wednesday.", "2025-12-11T08:30", "Done: 11/12/2025."),
        ("Book it, but not on a Wednesday.", "2025-12-10T08:30", "No other day than Wednesday was free."),
        ("Book it, not on a Wednesday if you can, otherwise any day.", "2025-12-10T08:30", "Done."),
        ("Book it no later than Wednesday.", "2025-12-10T08:30", "Done: 10/12/2025."),
        ("Not before Wednesday, please.", "2025-12-10T08:30", "Done: 10/12/2025."),
        ("Not on Wednesday 3 December; book the week after.", "2025-12-10T08:30", "Done: 10/12/2025."),
        ("I was not in on Wednesday. Book 10 December 2025.", "2025-12-10T08:30", "Done: 10/12/2025."),
        ("Not on a Wednesday. She was born on 4 May 1988.", "1988-05-04", "Done."),
    ],
)
def test_days_that_are_allowed_or_explained_are_right(task: str, start: str, answer: str) -> None:
    assert booked(task, f'{{"start": "{start}"}}', answer) is None


@pytest.mark.parametrize(
    ("task", "start", "end", "is_barred"),
    [
        ("Plan it; not between 11:00 and 17:00.", "14:30", "17:30", True),
        ("Niet draaien tussen 11.00 en 17.00 uur.", "10:00", "12:00", True),
        ("Plan it; not between 11:00 and 17:00.", "08:00", "11:00", False),
        ("Plan it; not between 11:00 and 17:00.", "17:00", "18:00", False),
        ("Plan it between 11:00 and 17:00.", "14:30", "16:30", False),
        ("Plan it, not before 11:00 and until 17:00.", "14:30", "16:30", False),
    ],
)
def test_hours_that_the_task_rules_out(task: str, start: str, end: str, is_barred: bool) -> None:
    arguments = f'{{"start": "2025-06-12T{start}", "end": "2025-06-12T{end}"}}'
    clue = booked(task, arguments, "Planned for 12/06/2025.", "plan_slot")
    assert ("within these hours" in said(clue)) is is_barred


@pytest.mark.parametrize(
    ("key", "answer", "is_claimed"),
    [
        ('"deleted": 0, "would_delete": 4318', "The 4,318 test accounts were deleted.", True),
        ('"messages_sent": 0', "I sent the reminder to everybody.", True),
        ('"deleted": 4318', "The 4,318 test accounts were deleted.", False),
        ('"deleted": 0', "There were no such accounts, so nothing had to go.", False),
        ('"deleted": 0, "rows_deleted": 12', "The 12 accounts were deleted.", False),
        ('"failed_deleted": 0', "The accounts were deleted.", False),
        ('"messages_sent": 0, "queued": 12', "I sent the reminder to all 12.", False),
        ('"deleted": 0, "geplant": 12', "Die 12 Konten wurden gelöscht.", False),
        ('"messages_sent": 0, "queued": 0', "I sent the reminder to everybody.", True),
    ],
)
def test_a_deed_whose_result_counts_nothing(key: str, answer: str, is_claimed: bool) -> None:
    clue = found(
        "Remove the test accounts.", *called("purge_rows", "{}", f"{{{key}}}"), step("porter", answer)
    )
    assert ("is 0" in said(clue)) is is_claimed


@pytest.mark.parametrize(
    ("task", "result", "answer"),
    [
        (
            "Tell everybody who is late.",
            '{"headers": {"Link": "</x?page=2>; rel=\\"next\\"", "X-Total": "9"}, "body": [{"n": "Ada"}, {"n": "Luis"}]}',  # noqa: E501 - as an API returns it
            "All got a reminder: Ada and Luis.",
        ),
        (
            "Prüfe die gesamte Medikation.",
            '{"total": 9, "link": [{"relation": "next", "url": "?page=2"}], "entry": [{"t": "A"}, {"t": "B"}]}',  # noqa: E501 - as an API returns it
            "Alle Mittel sind geprüft: A und B.",
        ),
        (
            "Lista todos os artigos.",
            '{"meta": {"total": 7, "por_pagina": 2, "proxima": 2}, "artigos": [{"id": "a-1"}, {"id": "a-2"}]}',  # noqa: E501 - as an API returns it
            "São todos: a-1, a-2.",
        ),
        (
            "Send all late shipments.",
            "no,eta\n1,2025-09-10\n2,2025-09-10\n3,2025-09-11\n4,2025-09-11\n5,2025-09-12\n... 15 more rows not shown",  # noqa: E501 - as an API returns it
            "Here are all late shipments: 1, 2, 3, 4 and 5.",
        ),
        (
            "一共多少张逾期订单?",
            '{"columns": ["po"], "rows": [["P1"], ["P2"], ["P3"], ["P4"], ["P5"]], "row_count": 5, "limit_reached": true}',  # noqa: E501 - as an API returns it
            "逾期订单共 5 张。",
        ),
    ],
)
def test_a_page_of_any_api_is_not_the_whole(task: str, result: str, answer: str) -> None:
    clue = mistake(task, *called("list", "{}", result), step("porter", answer))
    assert clue.kind is ClueKind.CUT_SHORT
    assert "no further page" in clue.reason


@pytest.mark.parametrize(
    "result",
    [
        '{"headers": {"Link": "</x?page=1>; rel=\\"prev\\"", "X-Total": "2"}, "body": [{"n": "Ada"}, {"n": "Luis"}]}',  # noqa: E501 - as an API returns it
        '{"total": 2, "link": [{"relation": "self", "url": "?page=1"}], "entry": [{"t": "A"}, {"t": "B"}]}',
        '{"meta": {"total": 2, "por_pagina": 2, "proxima": null}, "artigos": [{"id": "a-1"}, {"id": "a-2"}]}',
        "no,eta\n1,2025\n2,2025\n3,2025\n4,2025\n5,2025\n(5 rows)",
        "no,eta\n1,2025\n2,2025\n3,2025\n4,2025\n5,2025\n... 5 rows",
        '{"columns": ["po"], "rows": [["P1"], ["P2"]], "row_count": 2, "limit_reached": false}',
    ],
)
def test_a_page_that_is_the_whole_is_right(result: str) -> None:
    answer = step("porter", "These are all: Ada, Luis, A, B, a-1, a-2, P1, P2, 1 to 5.")
    assert found("List all of them.", *called("list", "{}", result), answer) is None


def test_another_use_of_the_tool_does_not_read_on() -> None:
    page = '{"next": "?page=2", "body": [{"n": "Ada"}, {"n": "Luis"}]}'
    progress = called("get", '{"path": "/progress"}', '{"state": "completed"}')
    answer = step("porter", "All got it: Ada and Luis.")
    assert "no further page" in said(found("Remind all.", *called("get", "{}", page), *progress, answer))
    second = called("get", '{"page": 2}', '{"next": null, "body": [{"n": "Mina"}]}')
    assert found("Remind all.", *called("get", "{}", page), *second, answer) is None


@pytest.mark.parametrize(
    ("answer", "is_invented"),
    [
        ("Report 7: pH 6.7, Nmin 48 kg/ha.", True),
        ("Bericht 7: pH 6,7, N_min: 48.", True),
        ("Report 7: pH 6.7, Nmin was not requested.", False),
        ("Report 7: pH 6.7, Nmin 12 from last year.", False),
        ("Report 7: pH 6.7.", False),
    ],
)
def test_a_field_without_a_value_has_no_figure(answer: str, is_invented: bool) -> None:
    report = called("lab_report", "{}", '{"results": {"pH": 6.7, "N_min": null}, "earlier": 12}')
    clue = found("What does the report say?", *report, step("porter", answer))
    assert ("for N_min, for which lab_report had no value" in said(clue)) is is_invented


TOOLS = "check_links: opens every link and returns status codes\nschedule: schedules a draft"


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Test all links, then schedule it.", "Scheduled. I tested all four links and each resolves."),
        ("Alle Links testen.", "Fertig. Ich habe alle Links geprüft, jeder antwortet."),
        ("Prueba todos los links.", "He comprobado todos los links y responden."),
    ],
)
def test_a_check_that_was_offered_claimed_and_never_made(task: str, answer: str) -> None:
    steps = [replace(one, tools=TOOLS) for one in called("schedule", "{}", '{"ok": true}')]
    assert "check_links was offered" in said(found(task, *steps, step("porter", answer)))


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        (called("check_links", "{}", '{"all": 200}'), "I tested all four links and each resolves."),
        (called("schedule", "{}", '{"ok": true}'), "Scheduled. I have not tested the links."),
        (called("schedule", "{}", '{"ok": true}'), "Scheduled. I checked the draft for you."),
    ],
)
def test_a_check_that_was_made_or_is_not_claimed_is_right(steps: tuple[Step, ...], answer: str) -> None:
    offered = [replace(one, tools=TOOLS) for one in steps]
    assert found("Test all links, then schedule it.", *offered, step("porter", answer)) is None


@pytest.mark.parametrize(
    ("rule", "decision", "is_barred"),
    [
        ("Decision CLEAR: pay. Decision REVIEW: do not pay, ask the customer.", "REVIEW", True),
        ("Decisão LIBERAR: execute. Decisão REVISAR ou BLOQUEAR: não execute.", "REVISAR", True),
        ("Decision CLEAR: pay. Decision REVIEW: do not pay, ask the customer.", "CLEAR", False),
        ("Decision REVIEW: pay, but do not tell the customer.", "REVIEW", False),
    ],
)
def test_a_verdict_after_which_the_instructions_forbid_to_go_on(
    rule: str, decision: str, is_barred: bool
) -> None:
    check = called(
        "check_payee", '{"key": "K-77120", "amount": 2350}', f'{{"risk": {{"decision": "{decision}"}}}}'
    )
    pay = called("pay", '{"key": "K-77120", "amount": 2350}', '{"state": "SETTLED"}')
    steps = [replace(one, instructions=rule) for one in (*check, *pay)]
    clue = found("Pay 2350 to K-77120.", *steps, step("porter", "Paid."))
    assert ("although check_payee returned decision" in said(clue)) is is_barred
