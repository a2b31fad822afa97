"""A tool's failure counts against the step that requested it, never just the one before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.methods.without_model import judge_by_signals
from analyzer.texts.heard import heard_faults
from analyzer.texts.run_view import Role, read
from semconv.model import UNKNOWN_AGENT, Blame, Step, StepKind
from tests.runs import calling, failed_tool, hearing, run, step, tool


def author(*steps: Step, at: int, **fields: object) -> int:
    return read(run(*steps, **fields)).responsible_steps[at]


def test_a_failing_tool_is_not_laid_at_another_agent_that_spoke_before_it() -> None:
    trajectory = run(
        step("planner", "Writer should mail it."),
        failed_tool("writer", "SMTPError: refused", "mail"),
        step("planner", "The mail could not be sent."),
    )
    reading = read(trajectory)
    assert (reading.roles[1], reading.responsible_steps[1]) == (Role.CALL, 1)
    verdict = judge_by_signals(trajectory)
    assert isinstance(verdict, Blame)
    assert (verdict.agent, verdict.step, verdict.mode) == ("writer", 1, "unhandled_error")
    assert "SMTPError: refused" in verdict.reason


def test_a_tool_that_one_agent_runs_for_another_is_laid_at_the_call_that_the_trace_ties_it_to() -> None:
    asking = calling("coder", ("run", '{"code": "print(x)"}'))
    assert (
        author(asking, step("critic", "Good."), failed_tool("runner", target="run", causes=(0,)), at=2) == 0
    )


def test_a_tie_that_is_no_request_asks_for_nothing() -> None:
    """A span that encloses or links to a tool's step has not requested it."""
    enclosing = step("boss", "All is going well.")
    assert author(enclosing, failed_tool("clerk", causes=(0,)), at=1) == 1
    assert author(step("boss", "", StepKind.AGENT), failed_tool("clerk", causes=(0,)), at=1) == 1


def test_without_ties_the_same_name_and_arguments_were_asked_for() -> None:
    asking = calling("coder", ("run", '{"code": "print(x)"}'), words="I look.")
    other = calling("critic", ("run", '{"code": "print(y)"}'))
    failed = failed_tool("runner", target="run", input='{"code":"print(x)"}')
    assert author(asking, other, failed, at=2) == 0


def test_ones_own_call_stands_for_itself() -> None:
    asking = calling("coder", ("run", '{"code": "print(x)"}'))
    assert author(asking, failed_tool("coder", target="run", causes=(0,)), at=1) == 1


@pytest.mark.parametrize(
    ("ran", "fields"),
    [
        (step("Computer_terminal", "exitcode: 1", StepKind.TOOL), {}),
        (failed_tool("Computer_terminal"), {"is_recorded_conversation": True}),
        (failed_tool(UNKNOWN_AGENT), {}),
    ],
)
def test_where_nothing_tells_who_ran_a_tool_the_step_before_asked(
    ran: Step, fields: dict[str, object]
) -> None:
    assert author(step("coder", "```python```"), ran, at=1, **fields) == 0


def test_what_the_tool_of_a_silent_agent_returns_is_not_that_agents_word_and_no_others_either() -> None:
    reading = read(run(step("planner", "Look it up."), tool("clerk", "16 x 10 x 3 = 450")))
    assert (reading.roles[1], reading.responsible_steps[1]) == (Role.RELAYING, 1)


def test_a_tie_to_a_step_that_is_not_there_is_none() -> None:
    assert author(tool("a", "x", causes=(7, -1)), at=0) == 0


def test_prose_that_looks_like_a_call_makes_nobody_responsible() -> None:
    """A bystander explains which call it would make; only the clerk asks for it."""
    arguments = '{"to": "ACME", "amount": 900}'
    asked = calling("clerk", ("pay", arguments))
    prose = step("auditor", f"I would then run\ncall pay({arguments})")
    failed = failed_tool("teller", target="pay", input=arguments)
    assert author(asked, prose, failed, at=2) == 0
    assert author(prose, failed, at=1) == 1


def test_a_line_in_a_users_message_is_no_tools_error() -> None:
    asked = calling("clerk", ("pay", "{}"))
    pasted = hearing(step("clerk", "Paid."), ("user", "My log says\ntool: Error: connection refused"))
    assert read(run(asked, pasted)).heard_faults == ()
    answered = hearing(step("clerk", "Paid."), ("tool", "Error: connection refused"))
    assert [fault.asker for fault in read(run(asked, answered)).heard_faults] == [0]


def test_the_success_of_a_call_requested_at_the_same_time_repairs_nothing() -> None:
    two = calling("clerk", ("pay", '{"to": "Ada"}'), ("pay", '{"to": "Bo"}'))
    heard = hearing(step("clerk", "Paid."), ("tool", "Error: no funds"), ("tool", "paid"), author="pay")
    assert [fault.is_repaired for fault in read(run(two, heard)).heard_faults] == [False]
    again = hearing(calling("clerk", ("pay", '{"to": "Ada"}')), *[("tool", "Error: no funds")], author="pay")
    later = hearing(step("clerk", "Paid."), ("tool", "paid"), author="pay")
    assert [fault.is_repaired for fault in read(run(two, again, later)).heard_faults] == [True]


def test_the_state_of_a_thing_that_a_heard_result_describes_is_no_failure_of_its_call() -> None:
    lift = '{"id": "L2", "status": "error", "code": 41}'
    answered = hearing(step("clerk", "Lift 2 reports error 41."), ("tool", lift))
    looked = calling("clerk", ("get_lift", '{"id": "L2"}'))
    assert read(run(looked, answered)).heard_faults == ()
    started = calling("clerk", ("start_lift", '{"id": "L2"}'))
    assert [fault.tool for fault in read(run(started, answered)).heard_faults] == ["start_lift"]


def test_each_result_that_a_call_hears_is_read_once() -> None:
    """A run may hear thousands of failures; a later result repairs those of its own tool and agent only."""
    asked = calling("clerk", ("pay", "{}"), ("print", "{}"))
    others = hearing(replace(asked, agent="porter"), ("tool", "done"), author="pay")
    heard = [hearing(asked, ("tool", "busy"), ("tool", "done"), author=name) for name in ("pay", "print")]
    last = hearing(asked, ("tool", "busy"), author="print")
    seen: list[str] = []

    def is_busy(result: str, _tool: str, _arguments: str) -> bool:
        seen.append(result)
        return result == "busy"

    found = heard_faults(run(asked, *heard, last, others).steps, is_busy)
    assert [(fault.hearer, fault.tool, fault.is_repaired) for fault in found] == [
        (1, "pay", True),
        (2, "print", True),
        (3, "print", False),
    ]
    assert len(seen) == 5
