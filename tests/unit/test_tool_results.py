"""What a tool's result says of its call, in the shapes that tools and frameworks write."""

from __future__ import annotations

import pytest

from analyzer.signals.tool_results import Fault, fault_of, reports_failure, says_absent
from tests.runs import tool


def fault(result: str, name: str = "start_bell") -> Fault:
    return fault_of(tool("a", result, target=name), result)


@pytest.mark.parametrize(
    "result",
    [
        '{"content": [{"type": "text", "text": "no token"}], "isError": true}',
        '{"content": "no token", "is_error": true}',
        "meta=None content=[TextContent(type='text', text='no token')] structuredContent=None isError=True",
        "{'content': 'no token', 'isError': True}",
        '{"success": false, "reason": "bell is stuck"}',
        '{"ok": false}',
        '{"error": "bell is stuck"}',
        '{"error": {"code": 7, "message": "stuck"}, "data": null}',
        '{"statusCode": 503, "message": "later"}',
        '{"status": "failed", "detail": "stuck"}',
        '{"status": "declined", "bell": 4}',
        '{"status": "timed out"}',
        "[exception: bell is stuck]",
        "Error - bell is stuck",
        "RuntimeError: bell is stuck",
        "Error invoking tool 'ring_bell' with kwargs {}. Please fix your mistakes.",
        "Tool execution failed",
        "Ringing at night is not supported",
        "Failed to ring the bell",
        "403 Forbidden",
        "exit code: 2\nno rope",
        "printed before\nTraceback (most recent call last):\n  File x\nKeyError: 'rope'",
        '{"error": "bad_request", "trace_id": "ab12"}',
        '{"content": [], "isError": "true"}',
        '[{"type": "text", "text": "Error: connection lost"}]',
        '{"errorMessage": "no rope", "errorType": "Lambda"}',
        "An error occurred while calling the tool",
    ],
)
def test_a_result_that_reports_a_failure_is_one(result: str) -> None:
    assert fault(result) is Fault.FAILED


@pytest.mark.parametrize(
    "result",
    [
        '{"content": [{"type": "text", "text": "rung"}], "isError": false}',
        '{"status": "ok"}',
        '{"errors": [], "rung": 3}',
        '{"error": null, "rung": 3}',
        '{"status": 200, "rung": true}',
        "The manual says: set isError to true if the bell is stuck. " * 8,
        "The bell was rung without error.",
        "10:02:07 WARN db connection refused\n10:02:09 it timed out\n10:02:11 ok",
        "def ring():\n    try:\n        pull()\n    except TimeoutError:\n        log('timed out')",
        "Status: OK, 412 units shipped",
        "Model A: 2 bells\nModel B: not supported",
        "exit code: 0\nrung",
    ],
)
def test_a_result_that_answers_is_no_failure(result: str) -> None:
    assert fault(result) is Fault.NONE


def test_what_a_tool_looks_up_may_have_failed_itself() -> None:
    payment = '{"id": "P-9", "status": "declined", "amount": 12}'
    assert fault(payment, "get_payment") is Fault.NONE
    assert fault(payment, "charge_card") is Fault.FAILED
    assert fault('{"status": "error", "text": "no such view"}', "get_payment") is Fault.FAILED


@pytest.mark.parametrize(
    "result",
    [
        *(
            "[]",
            "{}",
            "null",
            "None",
            "No results for “Basel”",
            '{"results": []}',
            '{"items": [], "total": 0}',
        ),
        *('{"data": null}', '{"hits": [], "took_ms": 4, "query": "basil"}', "{'rows': []}", "[[], []]", ""),
    ],
)
def test_a_result_without_anything_in_it_is_empty(result: str) -> None:
    assert fault(result, "find_bell") is Fault.EMPTY


@pytest.mark.parametrize(
    "result",
    [
        '{"expired": [], "next": {"bell": 4, "days": 19}}',
        '{"bell": 4, "repairs": []}',
        "[0]",
        '{"count": 0}',
        "There is nothing wrong with the bell.",
    ],
)
def test_a_result_with_something_beside_an_empty_list_answers(result: str) -> None:
    assert fault(result, "find_bell") is Fault.NONE


def test_an_agents_words_on_errors_are_no_result() -> None:
    assert reports_failure("Error: it is stuck")
    spoken = "Error: it is stuck"
    assert fault_of(tool("a", spoken, target="x"), spoken) is Fault.FAILED


@pytest.mark.parametrize(
    ("text", "is_absent"),
    [
        ("HTTP 404", True),
        ("bell 77 not found", True),
        ("NotFoundError: no such bell", True),
        ("the bell does not exist", True),
        ("connection refused", False),
        ("the key has expired", False),
    ],
)
def test_an_error_may_say_that_there_is_no_such_thing(text: str, is_absent: bool) -> None:
    assert says_absent(text) is is_absent
