"""Sessions of coding agents: who did what, what failed, and what is no failure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.cli.recorded_runs import load_runs
from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from semconv.model import Status, StepKind, Stop, Trajectory

TASK = "Rename the function total to subtotal and make the tests pass."


def jsonl(rows: Iterable[object]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def run_of(data: bytes) -> Trajectory:
    (run,) = read_runs(data)
    return run.trajectory


def steps_of(run: Trajectory) -> list[tuple[str, str, str]]:
    """Return agent, kind and text of each step; a tool's text is its result."""
    return [(step.agent, step.kind.value, step.output.strip()) for step in run.steps]


class Claude:
    """Writes a session of Claude Code, event by event."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def _add(self, kind: str, content: Any, **fields: Any) -> str:
        number = len(self.rows)
        own = {
            "type": kind,
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "sessionId": "s1",
            "isSidechain": False,
            "timestamp": f"2026-05-04T08:{number // 60:02}:{number % 60:02}.000Z",
            "message": {"role": kind, "content": content, "id": f"msg_{number}"},
        }
        message = own["message"] | fields.pop("message", {})
        self.rows.append(own | fields | {"message": message})
        return f"u{number}"

    def user(self, text: str, **fields: Any) -> str:
        return self._add("user", text, **fields)

    def says(self, text: str, **fields: Any) -> str:
        return self._add("assistant", [{"type": "text", "text": text}], **fields)

    def calls(self, call_id: str, name: str, given: Mapping[str, Any], **fields: Any) -> str:
        return self._add(
            "assistant", [{"type": "tool_use", "id": call_id, "name": name, "input": given}], **fields
        )

    def result(self, call_id: str, text: str, *, failed: bool = False, **fields: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": failed}
        return self._add("user", [block], **fields)

    def read(self) -> Trajectory:
        return run_of(jsonl(self.rows))

    @property
    def status(self) -> Status:
        return Status(attribute(jsonl(self.rows)).status)


def failing_tests() -> Claude:
    session = Claude()
    session.user(TASK)
    session.calls("t1", "Edit", {"file_path": "shop.py", "old_string": "total", "new_string": "subtotal"})
    session.result("t1", "The file shop.py has been updated.")
    session.calls("t2", "Bash", {"command": "pytest -q"})
    session.result("t2", "Exit code 1\nFAILED test_shop.py::test_total - NameError: total", failed=True)
    return session


def test_a_failed_command_that_is_repaired_is_no_failure() -> None:
    session = failing_tests()
    edit = {"file_path": "test_shop.py", "old_string": "total", "new_string": "subtotal"}
    session.calls("t3", "Edit", edit)
    session.result("t3", "The file test_shop.py has been updated.")
    session.calls("t4", "Bash", {"command": "pytest -q"})
    session.result("t4", "3 passed in 0.02s")
    session.says("I renamed total to subtotal in shop.py and test_shop.py; the 3 tests pass.")
    assert session.status is Status.NO_FAILURE


def test_success_claimed_after_failing_tests_is_suspected() -> None:
    session = failing_tests()
    session.says("Done: the function is renamed and all tests pass.")
    assert session.status is Status.SUSPECTED


def test_a_session_that_a_person_interrupts_is_cancelled() -> None:
    session = failing_tests()
    session.user("[Request interrupted by user]")
    assert session.read().stop is Stop.CANCELLED
    assert session.status is Status.CANCELLED


def test_an_interruption_after_which_the_person_goes_on_does_not_end_the_session() -> None:
    session = failing_tests()
    session.user("[Request interrupted by user]")
    session.user("Rename it in the test too.")
    session.calls("t5", "Bash", {"command": "pytest -q"})
    session.result("t5", "3 passed in 0.02s")
    session.says("The 3 tests pass now.")
    assert session.read().stop is None
    assert session.status is Status.NO_FAILURE


def test_a_persons_no_to_a_call_is_no_failure() -> None:
    session = Claude()
    session.user("Clean up the branch.")
    session.calls("t1", "Bash", {"command": "git push --force"})
    refusal = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    session.result("t1", refusal, failed=True)
    session.says("I have not pushed anything.")
    assert not session.read().steps[1].is_failed
    assert session.status is Status.NO_FAILURE


def test_the_later_of_two_prompts_with_one_parent_counts() -> None:
    session = Claude()
    start = session.says("Hello.")
    session.user("Delete everything.", parentUuid=start)
    session.says("Deleted.")
    session.user("List the files.", parentUuid=start)
    session.says("shop.py, test_shop.py")
    assert [step.output for step in session.read().steps] == ["Hello.", "shop.py, test_shop.py"]


def test_lines_of_one_answer_are_one_step() -> None:
    session = Claude()
    session.user("Read both files.")
    whole = {"message": {"id": "msg_7"}}
    session.says("I read both.", **whole)
    session.calls("t1", "Read", {"file_path": "a.py"}, **whole)
    session.calls("t2", "Read", {"file_path": "b.py"}, **whole)
    session.result("t1", "a = 1")
    session.result("t2", "b = 2")
    session.says("They define a and b.")
    first, *_ = session.read().steps
    assert [call.call_id for call in first.calls] == ["t1", "t2"]
    assert first.output.startswith("I read both.")
    assert len(session.read().steps) == 4


def test_subagents_that_work_side_by_side_are_told_apart_by_their_ids() -> None:
    session = Claude()
    session.user("Check both services.")
    agents = {"ta": ("billing-checker", "a1"), "tb": ("search-checker", "b2")}
    whole = {"message": {"id": "msg_0"}}
    for call_id, (name, _) in agents.items():
        session.calls(call_id, "Task", {"subagent_type": name, "prompt": f"check {name}"}, **whole)
    for _, agent_id in agents.values():
        session.says(f"working as {agent_id}", isSidechain=True, agentId=agent_id, parentUuid=None)
    for call_id, (_, agent_id) in agents.items():
        session.result(call_id, "healthy", toolUseResult={"agentId": agent_id})
    session.says("Both are healthy.")
    found = {step.output: step.agent for step in session.read().steps if step.kind is StepKind.LLM}
    assert found["working as a1"] == "billing-checker"
    assert found["working as b2"] == "search-checker"
    assert found["Both are healthy."] == "claude"


def test_the_stream_of_a_printed_run_names_subagents_by_their_call() -> None:
    def event(kind: str, content: Any, parent: str | None = None) -> dict[str, Any]:
        message = {"role": kind, "content": content}
        return {"type": kind, "session_id": "s", "parent_tool_use_id": parent, "message": message}

    asked = {"type": "tool_use", "id": "t1", "name": "Task", "input": {"subagent_type": "clerk"}}
    rows = [
        {"type": "system", "subtype": "init", "session_id": "s", "tools": ["Task"]},
        event("user", [{"type": "text", "text": "How many open orders are there?"}]),
        event("assistant", [asked]),
        event("assistant", [{"type": "text", "text": "There are 14."}], "t1"),
        event("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "There are 14."}]),
        event("assistant", [{"type": "text", "text": "14 orders are open."}]),
        {"type": "result", "subtype": "success", "is_error": False, "result": "14 orders are open."},
    ]
    assert [agent for agent, *_ in steps_of(run_of(jsonl(rows)))] == ["claude", "clerk", "claude"]
    failed = {"type": "result", "subtype": "error_max_turns", "is_error": True, "session_id": "s"}
    assert run_of(jsonl([*rows[:-1], failed])).root_error == "error_max_turns"


def test_a_subagents_own_file_is_a_session() -> None:
    session = Claude()
    session.user("check billing", isSidechain=True, agentId="a1")
    session.says("Billing is healthy.", isSidechain=True, agentId="a1")
    assert session.read().output == "Billing is healthy."


def test_a_session_of_thousands_of_messages_keeps_them_all() -> None:
    session = Claude()
    session.user("Count to a thousand.")
    for number in range(1000):
        session.calls(f"t{number}", "Bash", {"command": f"echo {number}"})
        session.result(f"t{number}", str(number))
    session.says("Done.")
    assert len(session.read().steps) == 2001


def test_a_long_prompt_is_not_repeated_for_each_message_of_a_session() -> None:
    session = Claude()
    prompt = {"systemPrompt": ["Be careful. " * 5_000]}
    session.rows.append({"type": "attachment", "sessionId": "s1", "attachment": prompt})
    session.user("Count to a hundred.")
    for number in range(100):
        session.says(str(number))
    data = jsonl(session.rows)
    (request,) = read_recording(data).bodies(Signal.TRACES)
    assert len(request) < 10 * len(data)
    assert session.read().steps[0].instructions.startswith("Be careful.")


# Codex ---------------------------------------------------------------------


def rollout(*payloads: dict[str, Any], kind: str = "response_item") -> list[dict[str, Any]]:
    head = {"timestamp": "2026-05-04T08:00:00Z", "type": "session_meta", "payload": {"id": "c1"}}
    lines = [
        {"timestamp": f"2026-05-04T08:00:{number:02}Z", "type": each.pop("line", kind), "payload": each}
        for number, each in enumerate(payloads, start=1)
    ]
    return [head, *lines]


def codex_says(text: str, role: str = "assistant") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def shell(call_id: str, command: str, output: Any) -> list[dict[str, Any]]:
    arguments = json.dumps({"command": ["bash", "-lc", command]})
    return [
        {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": call_id},
        {"type": "function_call_output", "call_id": call_id, "output": output},
    ]


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        (json.dumps({"output": "2 failed", "metadata": {"exit_code": 1}}), True),
        (json.dumps({"output": "2 passed", "metadata": {"exit_code": 0}}), False),
        ("Chunk ID: 1\nProcess exited with code 2\nOutput:\nno such file", True),
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\nmain.py", False),
        ("plain text of a tool", False),
        ("{not json", False),
    ],
)
def test_the_exit_code_of_a_command_says_whether_it_failed(output: str, failed: bool) -> None:
    lines = rollout(codex_says("Run it.", "user"), *shell("c", "run", output), codex_says("It ran."))
    tool = run_of(jsonl(lines)).steps[1]
    assert (tool.kind, tool.target, tool.is_failed) == (StepKind.TOOL, "shell", failed)


def test_an_aborted_turn_ends_a_codex_session_only_if_it_is_the_last_word() -> None:
    aborted = {"line": "event_msg", "type": "turn_aborted", "reason": "interrupted"}
    asked = [codex_says("Fix it.", "user"), codex_says("I look at it.")]
    assert run_of(jsonl(rollout(*asked, dict(aborted)))).stop is Stop.CANCELLED
    assert run_of(jsonl(rollout(*asked, dict(aborted), codex_says("Fixed.")))).stop is None


def test_what_a_call_is_asked_with_is_one_step_with_the_call() -> None:
    lines = rollout(
        codex_says("Fix it.", "user"), codex_says("I run the tests."), *shell("c", "pytest", "ok")
    )
    first = run_of(jsonl(lines)).steps[0]
    assert [call.name for call in first.calls] == ["shell"]
    assert first.output.startswith("I run the tests.")


def test_items_of_an_old_rollout_stand_alone() -> None:
    head = {"id": "c1", "timestamp": "2025-08-01T00:00:00Z", "instructions": None}
    lines = [head, codex_says("Fix it.", "user"), *shell("c", "ls", "a.py"), codex_says("Fixed.")]
    assert [kind for _, kind, _ in steps_of(run_of(jsonl(lines)))] == ["llm", "tool", "llm"]


def test_events_of_codex_exec_hold_call_and_result_in_one() -> None:
    ran = {"aggregated_output": "no such directory", "exit_code": 2, "status": "failed"}
    command = {"id": "i1", "type": "command_execution", "command": "ls", **ran}
    answer = {"id": "i2", "type": "agent_message", "text": "There is nothing."}
    lines = [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": command},
        {"type": "item.completed", "item": answer},
        {"type": "turn.failed", "error": {"message": "usage limit reached"}},
    ]
    run = run_of(jsonl(lines))
    called, spoke = ("codex", "tool", "no such directory"), ("codex", "llm", "There is nothing.")
    assert steps_of(run)[1:] == [called, spoke]
    assert run.steps[1].is_failed
    assert run.root_error == "usage limit reached"


# Others --------------------------------------------------------------------


def test_a_gemini_session_in_lines_replaces_records_by_their_id() -> None:
    lines = [
        {"sessionId": "g", "projectHash": "h"},
        {"id": "1", "type": "user", "content": [{"text": "Hello"}]},
        {"id": "2", "type": "gemini", "content": "He"},
        {"id": "2", "type": "gemini", "content": "Hello, how can I help?"},
        {"id": "3", "type": "info", "content": "Request cancelled."},
    ]
    run = run_of(jsonl(lines))
    assert steps_of(run) == [("gemini", "llm", "Hello, how can I help?")]
    assert run.stop is Stop.CANCELLED


def test_the_stream_of_a_gemini_run_is_read_piece_by_piece() -> None:
    output, tox = "FAILED (errors=1)\nExit Code: 1\nProcess Group PGID: 7", {"command": "tox"}
    lines = [
        {"type": "init", "session_id": "g", "model": "gemini-3-pro"},
        {"type": "message", "role": "user", "content": "Run the tests."},
        {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "1", "parameters": tox},
        {"type": "tool_result", "tool_id": "1", "status": "success", "output": output},
        {"type": "message", "role": "assistant", "content": "One test ", "delta": True},
        {"type": "message", "role": "assistant", "content": "fails.", "delta": True},
        {"type": "result", "status": "success", "stats": {}},
    ]
    run = run_of(jsonl(lines))
    assert steps_of(run)[1:] == [("gemini", "tool", output), ("gemini", "llm", "One test fails.")]
    assert run.steps[1].is_failed


def test_subagents_beside_a_claude_code_session_are_read_with_it(tmp_path: Path) -> None:
    main, aside = Claude(), Claude()
    main.user("Check billing.")
    main.calls("t1", "Agent", {"subagent_type": "checker", "prompt": "look at billing"})
    main.result("t1", "It is healthy.", toolUseResult={"agentId": "a1"})
    main.says("Billing is healthy.")
    aside.user("look at billing", isSidechain=True, agentId="a1")
    aside.says("It is healthy.", isSidechain=True, agentId="a1")
    for row in aside.rows:
        row["timestamp"] = "2026-05-04T08:00:01.500Z"
        row["uuid"] = f"a{row['uuid']}"
    session = tmp_path / "s1.jsonl"
    session.write_bytes(jsonl(main.rows))
    beside = tmp_path / "s1" / "subagents"
    beside.mkdir(parents=True)
    (beside / "agent-a1.jsonl").write_bytes(jsonl(aside.rows))
    (run,) = load_runs(session, [])
    assert [step.agent for step in run.trajectory.steps] == ["claude", "checker", "claude"]


def opencode(*parts: dict[str, Any], **info: Any) -> bytes:
    asked = {"info": {"role": "user", "sessionID": "s"}, "parts": [{"type": "text", "text": "Clean up."}]}
    answer = {"info": {"role": "assistant", "agent": "build", **info}, "parts": list(parts)}
    return json.dumps({"info": {"id": "s"}, "messages": [asked, answer]}).encode()


def test_a_rejected_permission_of_opencode_is_no_failure() -> None:
    error = "The user rejected permission to use this specific tool call."
    state = {"status": "error", "input": {"command": "rm -r build"}, "error": error}
    run = run_of(opencode({"type": "tool", "callID": "c", "tool": "bash", "state": state}))
    assert [step.is_failed for step in run.steps] == [False, False]


@pytest.mark.parametrize(
    ("name", "stop"), [("MessageAbortedError", Stop.CANCELLED), ("ProviderAuthError", None)]
)
def test_the_error_of_opencodes_last_message_ends_the_session(name: str, stop: Stop | None) -> None:
    reason = f"{name}: no key"
    error = {"name": name, "data": {"message": "no key"}}
    run = run_of(opencode({"type": "text", "text": "I start."}, error=error))
    assert run.stop is stop
    assert run.root_error == (reason if stop is None else "KeyboardInterrupt: interrupted by the user")


@pytest.mark.parametrize("place", [slice(None), slice(None, None, -1), slice(None, None, 2)])
def test_a_delegate_of_openhands_acts_until_its_observation(place: slice) -> None:
    """In whichever order the events stand."""

    def event(number: int, **fields: Any) -> dict[str, Any]:
        return {"id": number, "timestamp": f"2026-05-04T08:00:0{number}", "source": "agent", **fields}

    run_args = {"command": "curl shop.test", "thought": "I open the page."}
    events = [
        event(0, action="message", args={"content": "Is the shop up?"}) | {"source": "user"},
        event(1, action="delegate", args={"agent": "BrowsingAgent", "inputs": {"task": "open it"}}),
        event(2, action="run", args=run_args),
        event(3, observation="run", content="503", cause=2, extras={"metadata": {"exit_code": 22}}),
        event(4, action="finish", args={"final_thought": "It is down."}),
        event(5, observation="delegate", content="It is down.", cause=1, extras={}),
        event(6, action="finish", args={"final_thought": "The shop is down."}),
    ]
    moved = [*events[place], *(one for one in events if one not in events[place])]
    found = [(agent, kind) for agent, kind, _ in steps_of(run_of(json.dumps(moved).encode()))]
    main = found[0][0]
    assert ("BrowsingAgent", "tool") in found
    assert found[-1] == (main, "llm")
    assert main != "BrowsingAgent"


def test_events_of_the_openhands_sdk_are_read_too() -> None:
    def tool(kind: str, **fields: Any) -> dict[str, Any]:
        return {"kind": kind, "source": "agent", "tool_name": "terminal", "tool_call_id": "c", **fields}

    told = {"role": "user", "content": [{"type": "text", "text": "List the files."}]}
    seen = {"kind": "TerminalObservation", "content": [{"type": "text", "text": "denied"}], "exit_code": 1}
    events = [
        {"kind": "MessageEvent", "source": "user", "llm_message": told},
        tool("ActionEvent", thought=[], action={"kind": "TerminalAction", "command": "ls"}),
        tool("ObservationEvent", observation=seen) | {"source": "environment"},
        {"kind": "ConversationErrorEvent", "source": "agent", "code": "LLMError", "detail": "no credit"},
    ]
    timed = [one | {"timestamp": f"2026-05-04T08:00:0{place // 2}"} for place, one in enumerate(events)]
    for listed in (events, timed, timed[::-1]):
        run = run_of(jsonl(listed))
        assert [(step.target, step.is_failed) for step in run.steps] == [(None, False), ("terminal", True)]
        assert run.steps[1].input == '{"command": "ls"}'
        assert run.root_error == "LLMError: no credit"


def test_the_answer_of_an_openhands_run_is_no_tool_as_well() -> None:
    done = {"tool_name": "finish", "tool_call_id": "c"}
    said = [{"type": "text", "text": "It is 3."}]
    events = [
        {"kind": "ActionEvent", "source": "agent", "thought": [], "action": {"message": "It is 3."}, **done},
        {"kind": "ObservationEvent", "source": "environment", "observation": {"content": said}, **done},
    ]
    run = run_of(jsonl(events))
    assert [(step.kind.value, step.output) for step in run.steps] == [("llm", "It is 3.")]


def test_a_swe_agent_run_that_spent_its_budget_failed() -> None:
    step = {"action": "ls", "observation": "a.py", "thought": "I look."}
    document = {"trajectory": [step], "history": [], "info": {"exit_status": "exit_cost"}}
    assert run_of(json.dumps(document).encode()).root_error == "the run ended with exit_cost"


def test_mini_swe_agents_observations_are_results_of_its_commands() -> None:
    messages = [
        {"role": "system", "content": "You solve issues."},
        {"role": "user", "content": "Fix the bug."},
        {"role": "assistant", "content": "I look.", "extra": {"actions": [{"command": "ls"}]}},
        {"role": "user", "content": "a.py", "extra": {"returncode": 0}},
        {"role": "exit", "content": "", "extra": {"exit_status": "LimitsExceeded"}},
    ]
    info = {"exit_status": "LimitsExceeded"}
    document = {"trajectory_format": "mini-swe-agent-1.1", "info": info, "messages": messages}
    run = run_of(json.dumps(document).encode())
    assert [(step.kind.value, step.target) for step in run.steps] == [("llm", None), ("tool", "bash")]
    assert run.task == "Fix the bug."
    assert run.root_error == "the run ended with LimitsExceeded"
