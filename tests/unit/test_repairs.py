"""Which failures a later success of the same tool repairs."""

from __future__ import annotations

import json

import pytest

from analyzer.methods.without_model import judge_by_signals
from analyzer.texts.run_view import read
from semconv.model import Blame, Stop
from tests.runs import calling, failed_tool, run, step, tool


def is_repaired(first: object, then: object, task: str = "t") -> bool:
    before, after = (json.dumps(each) if isinstance(each, dict) else str(each) for each in (first, then))
    reading = read(run(failed_tool("a", input=before), tool("a", "done", input=after), task=task))
    return reading.repaired[0]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"city": "Oslo"}, {"city": "Oslo"}),
        ({"city": "Oslo", "timeout": 5}, {"timeout": 60, "city": "Oslo"}),
        ({"timeout": 5}, {"timeout": 60}),
        ({"city": "Osol"}, {"city": "Oslo"}),
        ({"city": "Munchen"}, {"city": "München"}),
        ({"path": "sales.csv"}, {"path": "data/sales.csv"}),
        ({"query": "how many people live in Paris"}, {"query": "Paris population"}),
        ({"query": "Paris"}, {"query": "Paris population"}),
        ("", {"city": "Oslo"}),
        ({}, {"city": "Oslo"}),
        ("SELECT name FROM users", "SELECT names FROM users"),
        ("[" * 5_000, "[" * 5_001),
    ],
)
def test_a_retry_with_the_same_or_corrected_arguments_is_a_repair(first: object, then: object) -> None:
    assert is_repaired(first, then)


@pytest.mark.parametrize("stop", [Stop.WAITING, Stop.CANCELLED, Stop.GUARDED])
def test_a_retry_that_waits_or_was_cancelled_repairs_nothing(stop: Stop) -> None:
    again = tool("a", "", input="x", stop=stop, error="Interrupted")
    assert not read(run(failed_tool("a", input="x"), again, task="t")).repaired[0]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"to": "alice"}, {"to": "bob"}),
        ({"to": "alice@example.com"}, {"to": "bob@example.com"}),
        ({"cluster": "falcon-1"}, {"cluster": "falcon-2"}),
        ({"text": "the first chapter"}, {"text": "an appendix on horses"}),
        ("alice", "bob"),
    ],
)
def test_a_success_on_another_object_is_none(first: object, then: object) -> None:
    assert not is_repaired(first, then)


def test_what_the_task_asks_for_one_by_one_is_not_made_good_by_one_another() -> None:
    alice, bob = ({"to": name, "subject": "Report", "body": "See there."} for name in ("alice", "bob"))
    assert not is_repaired(alice, bob, task="Mail the report to Alice and to Bob.")
    assert not is_repaired({"order": 4711}, {"order": 4712}, task="Refund orders 4711 and 4712.")
    assert is_repaired({"order": 4711}, {"order": 4712}, task="Refund the order of last week.")


def test_what_was_asked_for_before_the_failure_is_no_answer_to_it() -> None:
    asking = calling("a", ("mail", '{"to": "x", "s": 1}'), ("mail", '{"to": "y", "s": 1}'))
    failed = failed_tool("a", target="mail", input='{"to": "x", "s": 1}', causes=(0,))
    other = tool("a", "sent", "mail", input='{"to": "y", "s": 1}', causes=(0,))
    again = tool("a", "sent", "mail", input='{"to": "x", "s": 1}', causes=(0,))
    assert not read(run(asking, failed, other)).repaired[1]
    assert read(run(asking, failed, again)).repaired[1]


def test_the_mail_that_was_never_sent_is_blamed() -> None:
    verdict = judge_by_signals(
        run(
            step("writer", "I mail Alice."),
            failed_tool("writer", "SMTPError: alice refused", "mail", input='{"to":"alice"}'),
            step("writer", "Now Bob."),
            tool("writer", "sent to bob", "mail", input='{"to":"bob"}'),
            step("writer", "Both mails went out."),
            task="Mail Alice and Bob.",
            output="Both mails went out.",
        )
    )
    assert isinstance(verdict, Blame)
    assert (verdict.step, verdict.mode) == (1, "unhandled_error")


def test_the_only_error_of_a_run_leads_over_where_the_answer_comes_from() -> None:
    verdict = judge_by_signals(
        run(
            calling("hotelier", ("book_hotel", '{"city": "Oslo"}')),
            failed_tool("hotelier", "ConnectionError: hotel API down", "book_hotel", causes=(0,)),
            calling("pilot", ("book_flight", '{"city": "Oslo"}')),
            tool("pilot", "flight SK12 booked", "book_flight", causes=(2,)),
            step("pilot", "Flight SK12 is booked."),
            output="Flight SK12 is booked.",
        )
    )
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step) == ("hotelier", 1)
    assert "ConnectionError: hotel API down" in verdict.reason
