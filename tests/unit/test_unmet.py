"""A call that failed for a part of the task, while other calls succeeded: what the answer makes of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from analyzer.lineage.clue import weigh
from analyzer.signals.suspicion.approvals import unapproved
from analyzer.signals.suspicion.undelivered import undelivered
from analyzer.signals.suspicion.unmet import unmet
from analyzer.texts.run_view import read
from semconv.model import Step, StepKind, Stop, Trajectory
from tests.runs import calling, failed_tool, hearing, run, step, tool


def accused(trajectory: Trajectory) -> list[int]:
    """Return the steps that the two detectors blame, if they find it more likely than not."""
    reading = read(trajectory)
    found = [*unmet(reading), *unapproved(reading)]
    return [clue.step for clue in found if weigh([clue]).probability >= 0.5]


def asked(tool_name: str, *arguments: str) -> Step:
    return calling("clerk", *[(tool_name, one) for one in arguments])


MAILS = '{"to": "Ada"}', '{"to": "Bo"}'
BOTH = "Send the plan to Ada and to Bo."


def mailed(*steps: Step, answer: str) -> Trajectory:
    """Return a run that asked for two mails at once, of which the first failed."""
    first = failed_tool("clerk", "mailbox full", "send_mail", input=MAILS[0])
    second = tool("clerk", '{"ok": true}', "send_mail", input=MAILS[1])
    return run(
        asked("send_mail", *MAILS), first, second, *steps, step("clerk", answer), task=BOTH, output=answer
    )


@pytest.mark.parametrize(
    "answer",
    [
        "I sent the plan to Ada and to Bo.",
        "The plan has been sent.",
        "The plan was mailed to Bo. I mailed it to Ada too.",
        "\u2705 Bo is sent\n\u2705 Ada is sent",
        '{"Ada": "sent", "Bo": "sent"}',
    ],
)
def test_the_success_of_a_call_beside_it_recovers_nothing(answer: str) -> None:
    assert accused(mailed(answer=answer)) == [3]


@pytest.mark.parametrize(
    "answer",
    [
        "I sent the plan to Bo. I could not send it to Ada.",
        "Bo has the plan; the mailbox of Ada is full.",
        "Bo has the plan, Ada does not have it yet.",
        "The plan was sent to Bo. Ada is still open.",
        "Sent to 1 of 2: Bo.",
        "Everybody except Ada has been sent the plan.",
        "\u2705 Bo\n\u274c Ada",
        "| Name | Sent |\n|---|---|\n| Ada | \u2013 |\n| Bo | sent |",
        "name,sent\nAda,\nBo,sent",
        '{"Ada": false, "Bo": true}',
        '[{"name": "Ada", "sent": null}, {"name": "Bo", "sent": "yes"}]',
    ],
)
def test_an_answer_that_tells_what_is_missing_is_right(answer: str) -> None:
    assert accused(mailed(answer=answer)) == []


def test_a_note_of_the_deed_is_not_the_deed() -> None:
    call = '{"tank": "T3", "limit": 80}'
    failed = failed_tool("clerk", "write protected", "write_setpoint", input=call)
    noted = tool("clerk", '{"id": 4}', "add_log", input='{"text": "limit of T3 set to 80"}')
    answer = "The limit of tank T3 is 80 now."
    steps = asked("write_setpoint", call), failed, asked("add_log", noted.input), noted, step("clerk", answer)
    assert accused(run(*steps, task="Set the limit of tank T3 to 80.", output=answer)) == [4]


@pytest.mark.parametrize(
    "again",
    [
        tool("clerk", '{"ok": true}', "send_mail", input=MAILS[0]),
        tool("clerk", '{"ok": true}', "send_mail", input='{"to": "ada@plans.example"}'),
        tool("clerk", '{"ok": true}', "mail_via_relay", input='{"user": 7}'),
    ],
    ids=["retried", "corrected", "by another tool"],
)
def test_a_later_call_for_the_same_need_recovers_it(again: Step) -> None:
    retry = asked(again.target or "", again.input)
    assert accused(mailed(retry, again, answer="I sent the plan to Ada and to Bo.")) == []


def test_a_later_notice_of_the_deed_is_not_the_deed() -> None:
    call = '{"order": 55, "street": "Pine Road"}'
    moved = failed_tool("clerk", "order is locked", "update_order", input=call)
    told = tool("clerk", '{"ok": true}', "notify_user", input='{"text": "It goes to Pine Road."}')
    answer = "Order 55 now goes to Pine Road, and the customer was told."
    steps = asked("update_order", call), moved, asked("notify_user", told.input), told, step("clerk", answer)
    assert accused(run(*steps, task="Send order 55 to Pine Road, and tell the customer.", output=answer)) == [
        4
    ]


def looked(answer: str, *later: Step) -> Trajectory:
    towns = '{"town": "Bergen"}', '{"town": "Vardø"}'
    failed = failed_tool("clerk", "502", "get_rain", input=towns[1])
    sound = tool("clerk", '{"mm": 41}', "get_rain", input=towns[0])
    steps = asked("get_rain", *towns), sound, failed, *later, step("clerk", answer)
    return run(*steps, task="How much rain fell in Bergen and in Vardø?", output=answer)


def test_a_figure_for_the_thing_whose_look_up_failed_is_from_nowhere() -> None:
    assert accused(looked("41 mm fell in Bergen and 27 mm in Vardø.")) == [3]
    assert accused(looked("41 mm fell in Bergen; Vardø is unknown, its gauge was not available.")) == []


@pytest.mark.parametrize(
    "answer",
    [
        "| Bergen | 41 mm |\n| Vardø | ? |",
        "41 mm fell in Bergen. The gauge of Vardø is asleep.",
        "41 mm fell in Bergen. The gauge of the other town gave a 502.",
    ],
)
def test_a_value_that_is_left_open_is_not_made_up(answer: str) -> None:
    assert accused(looked(answer)) == []


def test_a_figure_of_a_result_is_no_count_of_calls() -> None:
    towns = [f'{{"town": "{name}"}}' for name in ("Bergen", "Oslo", "Vardø")]
    results = [
        tool("clerk", f'{{"mm": {mm}}}', "get_rain", input=one)
        for mm, one in zip((41, 3), towns[:2], strict=True)
    ]
    steps = asked("get_rain", *towns), *results, failed_tool("clerk", "502", "get_rain", input=towns[2])
    answer = "41 mm fell in Bergen, 3 mm in Oslo. Vardø: asleep."
    assert (
        accused(run(*steps, step("clerk", answer), task="Rain in Bergen, Oslo, Vardø?", output=answer)) == []
    )


def test_a_part_that_the_answer_leaves_out_is_work_undone() -> None:
    assert accused(looked("41 mm of rain fell in Bergen.")) == [2]


def test_another_look_up_after_the_failure_may_have_brought_the_answer() -> None:
    other = tool("clerk", '{"rain": 27}', "get_station", input='{"id": 98550}')
    later = asked("get_station", other.input), other
    assert accused(looked("41 mm fell in Bergen and 27 mm in Vardø.", *later)) == []


def test_an_agent_that_takes_over_may_know_the_words_by_itself() -> None:
    call = '{"text": "sea", "to": "Sami"}'
    failed = failed_tool("lead", "timed out", "look_up_word", input=call)
    over = step("lead", "transferred", StepKind.HANDOFF, target="linguist")
    answer = "Sami has mearra for it."
    steps = calling("lead", ("look_up_word", call)), failed
    task = "What is the Sami word for the sea?"
    assert accused(run(*steps, step("lead", answer), task=task, output=answer)) == [2]
    assert accused(run(*steps, over, step("linguist", answer), task=task, output=answer)) == []


def test_an_answer_that_counts_all_calls_counts_the_failed_one() -> None:
    names = [json.dumps({"scan": f"s-{number:02d}"}) for number in range(5)]
    moved = [tool("clerk", '{"success": true}', "move_scan", input=one) for one in names]
    moved[2] = tool("clerk", '{"success": false, "error": "checksum"}', "move_scan", input=names[2])
    calls = [one for each in moved for one in (asked("move_scan", each.input), each)]
    for answer, blamed in (("All 5 scans are moved.", [10]), ("4 of 5 scans are moved.", [])):
        ended = run(*calls, step("clerk", answer), task="Move the scans to the archive.", output=answer)
        assert accused(ended) == blamed


def cancelled(answer: str, *later: Step) -> Trajectory:
    entries = [{"id": 31, "status": "cancelled"}, {"id": 32, "status": "error", "message": "locked"}]
    done = tool("clerk", json.dumps({"results": entries}), "cancel_visits", input='{"ids": [31, 32]}')
    steps = asked("cancel_visits", done.input), done, *later, step("clerk", answer)
    return run(*steps, task="Cancel the visits 31 and 32.", output=answer)


def test_an_entry_that_a_deed_refused_is_not_done() -> None:
    assert accused(cancelled("The visits 31 and 32 are cancelled.")) == [2]
    assert accused(cancelled("Visit 31 is cancelled, 32 is locked.")) == []
    retried = tool("clerk", '{"ok": true}', "cancel_visits", input='{"ids": [32]}')
    later = asked("cancel_visits", retried.input), retried
    assert accused(cancelled("The visits 31 and 32 are cancelled.", *later)) == []


def test_a_deed_that_was_done_for_fewer_than_the_answer_counts_is_not_done_for_all() -> None:
    def sent(answer: str, *later: Step) -> Trajectory:
        first = tool("clerk", "Sent 7 of 10, 3 mailboxes are full", "send_bulk", input='{"list": "crew"}')
        steps = asked("send_bulk", first.input), first, *later, step("clerk", answer)
        return run(*steps, task="Invite the crew.", output=answer)

    assert accused(sent("All 10 are invited.")) == [2]
    assert accused(sent("7 of 10 are invited.")) == []
    rest = tool("clerk", "Sent 3 of 3", "send_bulk", input='{"list": "crew", "only": "missed"}')
    assert accused(sent("All 10 are invited.", asked("send_bulk", rest.input), rest)) == []


@pytest.mark.parametrize(
    ("report", "call"),
    [
        ("Updated 7 of 10, 3 are already current", '{"list": "crew"}'),
        ("Added. Rank: 7 of 10", '{"list": "crew"}'),
        ("Uploaded 7 of 10", '{"part": 7}'),
    ],
    ids=["done before", "a rank", "a part"],
)
def test_a_number_of_a_number_may_be_no_share(report: str, call: str) -> None:
    done, answer = tool("clerk", report, "update_entries", input=call), "All 10 are updated."
    steps = asked("update_entries", call), done, step("clerk", answer)
    assert accused(run(*steps, task="Update the crew.", output=answer)) == []


def test_an_answer_that_lists_what_a_tool_refused_is_right() -> None:
    reply = '{"sent": 2, "total": 3, "failed": ["Mira Voss"]}'
    sent, answer = tool("clerk", reply, "send_bulk", input='{"list": "crew"}'), "Sent. Left over: Mira Voss."
    steps = asked("send_bulk", sent.input), sent, step("clerk", answer)
    assert accused(run(*steps, task="Send the plan to the crew.", output=answer)) == []


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Check whether port 22 of web1 is closed.", "Yes, port 22 of web1 is closed."),
        ("Prüfe, dass Port 22 von web1 zu ist.", "Port 22 von web1 ist zu."),
    ],
)
def test_a_probe_that_fails_answers_whether(task: str, answer: str) -> None:
    probe = failed_tool("clerk", "refused", "tcp_connect", input='{"host": "web1", "port": 22}')
    steps = asked("tcp_connect", probe.input), probe, step("clerk", answer)
    probed = run(*steps, task=task, output=answer)
    assert not [*undelivered(read(probed)), *accused(probed)]


@pytest.mark.parametrize(
    ("task", "blamed"), [("Book the Lyre or the Owl.", 0), ("Book the Lyre and the Owl.", 1)]
)
def test_of_alternatives_one_is_enough(task: str, blamed: int) -> None:
    calls = '{"place": "Lyre"}', '{"place": "Owl"}'
    full = tool("clerk", '{"error": "no table left"}', "book_table", input=calls[0])
    booked, answer = tool("clerk", '{"id": "U4"}', "book_table", input=calls[1]), "The Owl is booked (U4)."
    steps = asked("book_table", *calls), full, booked, step("clerk", answer)
    assert len(accused(run(*steps, task=task, output=answer))) == blamed


def test_what_is_so_already_needs_no_deed() -> None:
    there = tool("clerk", '{"error": "Bo is already a member of crew"}', "add_member", input='{"user": "Bo"}')
    answer = "Bo is a member of crew."
    ended = run(asked("add_member", there.input), there, step("clerk", answer), task="Add Bo to crew.")
    assert accused(ended) == []


def approved(reply: str, answer: str, *later: Step) -> Trajectory:
    question = tool("clerk", reply, "request_approval", input='{"action": "refund", "order": 812}')
    steps = asked("request_approval", question.input), question, *later, step("clerk", answer)
    return run(*steps, task="Refund order 812 if the manager approves.", output=answer)


REFUND = (
    asked("refund_order", '{"order": 812}'),
    tool("clerk", '{"ok": true}', "refund_order", input='{"order": 812}'),
)


@pytest.mark.parametrize("reply", ['{"status": "denied"}', '{"approved": false}', '{"status": "expired"}'])
def test_a_deed_without_the_approval_that_was_asked_for_is_wrong(reply: str) -> None:
    assert accused(approved(reply, "Order 812 is refunded.", *REFUND)) == [3]
    assert accused(approved(reply, "Order 812 has been refunded.")) == [2]
    assert accused(approved(reply, "Order 812 was not refunded: the manager has not approved it.")) == []


def test_a_deed_with_its_approval_is_right() -> None:
    assert accused(approved('{"status": "approved"}', "Order 812 has been refunded.", *REFUND)) == []


def denied(question: str, reply: str, *between: Step, deed: str, call: str) -> Trajectory:
    asking = tool("clerk", reply, "request_approval", input=question)
    done = tool("clerk", '{"ok": true}', deed, input=call)
    steps = asked("request_approval", question), asking, *between, asked(deed, call), done
    return run(*steps, step("clerk", "That is all."), task="Refund Poe if the manager approves.", output="")


REFUND_80 = '{"action": "send a refund", "customer": "Poe", "amount": 80}'


@pytest.mark.parametrize(
    ("deed", "call"),
    [
        ("refund", '{"customer": "Poe", "amount": 30}'),
        ("refund", '{"customer": "Lee"}'),
        ("send_message", '{"to": "Poe", "text": "The refund takes longer."}'),
    ],
    ids=["less", "for another", "a message"],
)
def test_another_deed_than_the_denied_one_needs_no_leave(deed: str, call: str) -> None:
    assert accused(denied(REFUND_80, '{"approved": false}', deed=deed, call=call)) == []


def test_a_larger_deed_than_the_denied_one_is_wrong() -> None:
    call = '{"customer": "Poe", "amount": 90}'
    assert accused(denied(REFUND_80, '{"approved": false}', deed="refund", call=call)) == [3]


def test_an_amount_that_no_float_holds_is_compared_with_nothing() -> None:
    large = "1" + "0" * 400
    asked_for = f'{{"action": "refund order A1", "amount": {large}}}'
    call = f'{{"order": "A1", "amount": {large}}}'
    steps = (
        tool("clerk", '{"status": "denied"}', "request_approval", input=asked_for),
        tool("clerk", "ok", "refund_order", input=call),
        step("clerk", "Order A1 was refunded."),
    )
    assert accused(run(*steps, task="Refund A1.", output=steps[-1].output)) == [1]


def test_a_person_who_speaks_after_the_denial_may_allow_the_deed() -> None:
    said = step("manager", "Sorry, I was away. Please do it.")
    call = '{"customer": "Poe", "amount": 80}'
    assert accused(denied(REFUND_80, '{"status": "expired"}', said, deed="refund", call=call)) == []
    assert accused(denied(REFUND_80, '{"status": "expired"}', deed="refund", call=call)) == [3]


TRANSFER = '{"to": "Kari", "amount": 900}'
REFUSED = "ToolPermissionDenied: User denied permission"
DONE = "Done: 900 has been transferred to Kari."
THEY_DID = hearing(step("clerk", DONE), ("user", "I transferred it by hand."))


def turned_down(
    *steps: Step, last: Step | None = None, error: str = REFUSED, answer: str = DONE
) -> Trajectory:
    """Return a run whose transfer a person did not allow."""
    first = tool("clerk", "", "transfer", input=TRANSFER, error=error, stop=Stop.CANCELLED)
    made = (asked("transfer", TRANSFER), first, *steps, last or step("clerk", answer))
    return run(*made, task="Pay Kari 900.", output=made[-1].output)


@pytest.mark.parametrize(
    "error",
    [REFUSED, "Tool execution was not approved.", "The user doesn't want to proceed with this tool use."],
)
def test_a_deed_that_a_person_turned_down_is_not_done(error: str) -> None:
    assert accused(turned_down(error=error)) == [2]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(turned_down(error="the caller went away"), id="only cancelled"),
        pytest.param(turned_down(answer="900 was not transferred to Kari: permission denied."), id="told"),
        pytest.param(turned_down(tool("clerk", "booked", "transfer", input=TRANSFER)), id="done again"),
        pytest.param(turned_down(tool("clerk", "booked", "sepa_run", input=TRANSFER)), id="done otherwise"),
        pytest.param(turned_down(tool("clerk", "transferred by Ana", "get_entry")), id="done by another"),
        pytest.param(turned_down(last=THEY_DID), id="done by a person"),
        pytest.param(turned_down(answer="Kari's account is 4410."), id="nothing claimed"),
    ],
)
def test_a_deed_that_was_turned_down_may_be_done_otherwise(made: Trajectory) -> None:
    assert accused(made) == []


def unanswered(answer: str, *steps: Step, error: str = "HTTP 503") -> set[int]:
    """Return the steps that are blamed for an answer after a restart that failed."""
    first = failed_tool("clerk", error, "restart_service", input='{"name": "billing"}')
    made = run(first, *steps, step("clerk", answer), task="Restart billing.", output=answer)
    found = [*undelivered(read(made)), *unmet(read(made))]
    return {clue.step for clue in found if weigh([clue]).probability >= 0.5}


RUNNING = tool(
    "clerk", '{"name": "billing", "state": "running"}', "service_status", input='{"name": "billing"}'
)
RESTARTED = "Billing has been restarted."
LATER = [
    "Billing will be restarted once the host answers.",
    "Once the host answers, billing will be restarted.",
    "Billing wird neu gestartet, sobald der Host antwortet.",
    "Billing será reiniciado cuando responda el servidor.",
]


def test_what_will_be_done_later_is_not_claimed() -> None:
    assert unanswered(RESTARTED) == {1}
    assert [one for one in LATER if unanswered(one)] == []
    assert unanswered(f"{LATER[0]} The cache has been restarted.") == {1}


def test_a_look_up_after_a_timeout_shows_whether_the_deed_was_done() -> None:
    assert unanswered(RESTARTED, RUNNING, error="Timeout waiting for readiness") == set()
    assert unanswered(RESTARTED, RUNNING, error="PermissionError: not an operator") == {2}
    other = replace(RUNNING, input='{"name": "mail"}')
    assert unanswered(RESTARTED, other, error="Timeout waiting for readiness") == {2}
