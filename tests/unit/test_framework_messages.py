"""Messages of other frameworks, data sets by column, and documents that are none of these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_text import split_pairs
from analyzer.recordings.read_files import read_recording
from semconv.model import Status
from tests.message_runs import ANSWER, CALL, ERROR, TASK, USER, run, runs, told, tools


def test_model_messages_of_the_ai_sdk_say_which_result_is_an_error() -> None:
    def result(output: Any, **more: Any) -> dict[str, Any]:
        part = {"type": "tool-result", "toolCallId": "c1", "toolName": "tide_table", "output": output, **more}
        return {"role": "tool", "content": [part]}

    called = {"type": "tool-call", "toolCallId": "c1", "toolName": "tide_table", "input": {}}
    call = {"role": "assistant", "content": [called]}
    last = {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]}
    failed = run([USER, call, result({"type": "error-text", "value": ERROR}), last])
    works = run([USER, call, result({"type": "json", "value": {"high": "14:20"}}), last])
    assert tools(failed) == [("assistant", "tide_table", ERROR, ERROR)]
    assert tools(works) == [("assistant", "tide_table", '{"high": "14:20"}', "")]


def test_a_whole_result_of_the_ai_sdk_has_its_messages_in_the_response() -> None:
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "tide_table", "input": {}}
    failed = {**call, "type": "tool-result", "output": {"type": "error-text", "value": ERROR}}
    said = [
        {"role": "assistant", "content": [call]},
        {"role": "tool", "content": [failed]},
        {"role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
    ]
    steps = [{"content": [call], "response": {"messages": said[:2]}}, {"response": {"messages": said}}]
    whole, kept = run({"steps": steps}), run({"messages": [USER], "text": ANSWER, "steps": steps})
    assert tools(whole) == tools(kept) == [("assistant", "tide_table", ERROR, ERROR)]
    assert whole.output == kept.output == ANSWER
    assert kept.task == TASK


def test_version_4_of_the_ai_sdk_nests_the_call() -> None:
    done = {"state": "result", "toolCallId": "c1", "toolName": "tide_table", "args": {}, "result": "14:20"}
    parts = [
        {"type": "step-start"},
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "tool-invocation", "toolInvocation": done},
        {"type": "text", "text": ANSWER},
    ]
    asked = {"role": "user", "content": TASK, "parts": [{"type": "text", "text": TASK}]}
    answer = {"role": "assistant", "content": ANSWER, "parts": parts}
    newer = run({"id": "chat", "messages": [asked, answer]})
    older = run([USER, {"role": "assistant", "content": ANSWER, "toolInvocations": [done]}])
    assert tools(newer) == tools(older) == [("assistant", "tide_table", "14:20", "")]
    assert newer.output == older.output == ANSWER


def test_a_call_that_waits_or_was_denied_is_no_failure() -> None:
    waits = {"type": "tool-pay", "toolCallId": "c1", "state": "approval-requested", "input": {}}
    asked = {"role": "user", "parts": [{"type": "text", "text": "Pay."}]}
    found = run([asked, {"role": "assistant", "parts": [waits]}])
    assert [step.error for step in found.steps] == [""]


def sk(role: str, kind: str, *, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """A message of Semantic Kernel in .NET."""
    return {"Role": {"Label": role}, "AuthorName": name, "Items": [{"$type": kind, **fields}]}


def sk_python(role: str, kind: str, **fields: Any) -> dict[str, Any]:
    author = {"name": "desk"} if role == "assistant" else {}
    return {"role": role, **author, "items": [{"content_type": kind, **fields}]}


def framework(role: str, kind: str, **fields: Any) -> dict[str, Any]:
    """A message of Agent Framework in .NET."""
    author = {"authorName": "desk"} if role == "assistant" else {}
    return {"role": role, **author, "contents": [{"$type": kind, **fields}]}


PLUGIN = {"PluginName": "harbour", "FunctionName": "tides"}
NET = [
    sk("user", "TextContent", Text=TASK),
    sk("assistant", "FunctionCallContent", name="desk", Id="c1", Arguments={}, **PLUGIN),
    sk("tool", "FunctionResultContent", CallId="c1", Result=ERROR, **PLUGIN),
    sk("assistant", "TextContent", name="desk", Text=ANSWER),
]
PYTHON = [
    sk_python("user", "text", text=TASK),
    sk_python("assistant", "function_call", id="c1", name="harbour-tides", arguments="{}"),
    sk_python("tool", "function_result", id="c1", name="harbour-tides", result=ERROR),
    sk_python("assistant", "text", text=ANSWER),
]
THREAD = [
    framework("user", "text", text=TASK),
    framework("assistant", "functionCall", callId="c1", name="harbour-tides", arguments={}),
    framework("tool", "functionResult", callId="c1", result=ERROR),
    framework("assistant", "text", text=ANSWER),
]


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(NET, id="Semantic Kernel, .NET"),
        pytest.param({"messages": PYTHON}, id="Semantic Kernel, Python"),
        pytest.param({"storeState": {"messages": THREAD}}, id="Agent Framework, .NET thread"),
    ],
)
def test_microsofts_frameworks_are_read_in_each_spelling(messages: Any) -> None:
    found = run(messages)
    assert tools(found) == [("desk", "harbour-tides", ERROR, "")]
    assert (found.task, found.output, found.agents) == (TASK, ANSWER, ("desk",))


def test_a_store_of_llama_index_holds_dialogues() -> None:
    def message(role: str, text: str, **more: Any) -> dict[str, Any]:
        return {"role": role, "additional_kwargs": more, "blocks": [{"block_type": "text", "text": text}]}

    asks = message("assistant", "", tool_calls=[CALL])
    result = message("tool", "14:20", tool_call_id="c1")
    chat = [message("user", TASK), asks, result, message("assistant", ANSWER)]
    found = runs({"chat_store": {"store": {"anna": chat, "ben": chat[:1] + chat[-1:]}}, "token_limit": 9})
    assert sorted(map(tools, found)) == [[], [("assistant", "tide_table", "14:20", "")]]


def test_a_code_agent_of_smolagents_runs_its_code() -> None:
    def ran(number: int, code: str, words: str, observed: str | None, **more: Any) -> dict[str, Any]:
        function = {"name": "python_interpreter", "arguments": code}
        call = {"id": f"c{number}", "type": "function", "function": function}
        said = {"step_number": number, "model_output": words, "tool_calls": [call]}
        return {**said, "observations": observed, "error": None, **more}

    error = {"type": "AgentExecutionError", "message": "ZeroDivisionError"}
    steps = [
        {"system_prompt": "You are the clerk."},
        {"task": TASK},
        {"plan": "First divide.", "model_output_message": {}},
        ran(1, "print(1/0)", "I divide.", None, error=error),
        ran(2, "final_answer(3)", "Done.", "Last output: 3", action_output=3, is_final_answer=True),
    ]
    found = run({"output": 3, "state": "success", "steps": steps})
    assert tools(found) == [
        ("clerk", "python_interpreter", "ZeroDivisionError", "ZeroDivisionError"),
        ("clerk", "python_interpreter", "Last output: 3", ""),
    ]
    assert (found.task, found.output) == (TASK, "3")


PILOT = 'task_name="find", task="Find the "high" tide.", agent="Pilot"'
WRITER = 'task_name="write", task="Write it.", agent="Writer"'
LOG = f'''2026-05-14 09:30:00: {PILOT}, status="started"
2026-05-14 09:30:05: {PILOT}, status="completed", output="It is:
- 14:20, says "agent="Pilot"""
2026-05-14 09:30:06: {WRITER}, status="started"
2026-05-14 09:30:09: {WRITER}, status="completed", output="At 14:20."
'''


def logged(folder: Path, text: str, name: str = "crew.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_log_of_crewai_has_values_with_quotes_and_lines(tmp_path: Path) -> None:
    (found,) = [run.trajectory for run in read_runs(logged(tmp_path, LOG))]
    assert told(found) == [
        ("Pilot", "llm", 'It is:\n- 14:20, says "agent="Pilot""'),
        ("Writer", "llm", "At 14:20."),
    ]
    assert found.task == 'Find the "high" tide.\nWrite it.'


def test_the_last_entry_of_a_log_that_is_cut_short_is_left_out(tmp_path: Path) -> None:
    path = logged(tmp_path, LOG[:-9])
    assert read_recording(path.read_bytes()).warnings == ("the last entry is cut short and was left out",)
    (found,) = [run.trajectory for run in read_runs(path)]
    assert found.agents == ("Pilot",)


def test_a_log_of_crewai_may_be_json_and_hold_two_runs() -> None:
    def entries(day: int) -> list[dict[str, str]]:
        entry = {"timestamp": f"2026-05-{day} 09:30:00", "task_name": "find", "task": TASK, "agent": "Pilot"}
        return [{**entry, "status": "started"}, {**entry, "status": "completed", "output": ANSWER}]

    assert [one.output for one in runs([*entries(14), *entries(15)])] == [ANSWER, ANSWER]


def entry(
    status: str, task: str = TASK, agent: str = "Pilot", *, name: str | None = "find", **more: str
) -> str:
    known = {"task_name": name, "task": task, "agent": agent, "status": status, **more}
    return "2026-05-14 09:30:00: " + ", ".join(f'{key}="{value}"' for key, value in known.items()) + "\n"


def judged(folder: Path, *entries: str, form: str = "txt") -> list[tuple[str, str | None]]:
    """Return the status and the agent of each run of a log, in the ``.txt`` or the ``.json`` form."""
    text = "".join(entries)
    path = logged(folder, json.dumps(split_pairs(text)[0]) if form == "json" else text, f"crew.{form}")
    return [(one.status.value, one.agent) for one in map(attribute, read_runs(path))]


@pytest.mark.parametrize("form", ["txt", "json"])
@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("How many berths has the quay?", "I could not find the number of berths."),
        ("Wie viele Liegeplätze hat der Kai?", "Leider konnte ich die Zahl nicht finden."),
        ("¿Cuántos amarres tiene el muelle?", "Lo siento, no pude encontrar esa información."),
        ("码头有多少个泊位?", "抱歉,我无法找到这个信息。"),
    ],
)
def test_an_agent_of_a_crew_that_gives_up_is_suspected(
    tmp_path: Path, task: str, answer: str, form: str
) -> None:
    """Its tools are not in the log, so that it had none cannot be its excuse."""
    log = (entry("started", task), entry("completed", task, output=answer))
    assert judged(tmp_path, *log, form=form) == [("suspected", "Pilot")]


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("How many berths has the quay?", "The quay has berths on both sides."),
        (
            "How many berths has the quay?",
            "I could not find a plan, but the harbour master counts 14 berths.",
        ),
        ("Write a letter that says no to the applicant.", "Sorry, we could not offer you the place."),
    ],
)
def test_an_agent_of_a_crew_that_answers_is_not(tmp_path: Path, task: str, answer: str) -> None:
    log = (entry("started", task), entry("completed", task, output=answer))
    assert judged(tmp_path, *log) == [("no_failure", None)]


def test_a_lone_message_of_an_agent_that_gives_up_stays_unjudged(tmp_path: Path) -> None:
    told = [{"role": "user", "content": TASK}, {"role": "assistant", "content": "I could not find the tide."}]
    assert attribute(logged(tmp_path, json.dumps(told), "chat.json")).status is Status.NO_FAILURE


@pytest.mark.parametrize("form", ["txt", "json"])
def test_a_task_of_a_crew_without_an_end_has_failed(tmp_path: Path, form: str) -> None:
    """CrewAI logs no errors: a task that raises one is started, and nothing more."""
    done = (entry("started"), entry("completed", output="High tide is at 14:20."))
    begun = entry("started", "Write it.", "Writer\n", name="write")
    assert judged(tmp_path, *done, begun, form=form) == [("attributed", "Writer")]
    both = judged(tmp_path, *done, begun, *done, form=form)
    assert sorted(both) == [("attributed", "Writer"), ("no_failure", None)]


def test_tasks_of_a_crew_that_run_side_by_side_have_their_ends_later(tmp_path: Path) -> None:
    other = {"task": "Find the wind.", "agent": "Mate", "name": "wind"}
    log = (
        entry("started"),
        entry("started", **other),
        entry("completed", output="14:20."),
        entry("completed", **other, output="North."),
    )
    assert judged(tmp_path, *log) == [("no_failure", None)]


def test_the_end_of_a_task_that_is_cut_short_is_no_failure(tmp_path: Path) -> None:
    log = "".join((entry("started"), entry("completed", output="High tide is at 14:20.")))
    for end in (2, 40, 100):
        with pytest.raises(UnreadableInput):  # no agent has spoken
            judged(tmp_path, log[:-end])
        assert judged(tmp_path, log, log[:-end].replace("find", "write"))[0] == ("no_failure", None)


def test_a_crew_that_runs_for_each_of_its_inputs_has_a_run_for_each(tmp_path: Path) -> None:
    log = [
        line
        for port in ("Dover", "Calais")
        for line in (
            entry("started", f"Tide at {port}?"),
            entry("completed", f"Tide at {port}?", output="14:20."),
        )
    ]
    assert len(judged(tmp_path, *log)) == 2
    assert len(judged(tmp_path, *(line.replace('task_name="find"', 'task_name="None"') for line in log))) == 1


def test_an_agent_of_a_crew_called_none_has_no_name(tmp_path: Path) -> None:
    log = entry("started", agent="None") + entry("completed", agent="None", output="14:20.")
    (found,) = [run.trajectory for run in read_runs(logged(tmp_path, log))]
    assert found.agents == ("assistant",)


def test_the_output_of_a_crew_holds_its_tools_failures() -> None:
    failure = {"tool_name": "tide_table", "tool_args": {"port": "Dover"}, "failure": {"message": ERROR}}
    task = {"description": TASK, "raw": ANSWER, "agent": "Pilot", "tool_failures": [failure]}
    found = run({"raw": ANSWER, "tasks_output": [task], "token_usage": {}})
    assert tools(found) == [("Pilot", "tide_table", ERROR, ERROR)]


def test_jobs_of_other_agents_are_no_crew() -> None:
    job = {"timestamp": "2026-05-14 09:30:00", "task": "backup", "agent": "node-7", "status": "ok"}
    with pytest.raises(UnreadableInput):
        runs(job, job)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        pytest.param(entry("started") + '2026-05-14 09:30:01: tus="started"\n', None, id="no known key"),
        pytest.param(
            '2026-05-14 09:30:00: level="INFO", message="started"\n', "application", id="another log"
        ),
    ],
)
def test_other_entries_are_no_crew(tmp_path: Path, text: str, refusal: str | None) -> None:
    with pytest.raises(UnreadableInput, match=refusal):
        read_runs(logged(tmp_path, text, "app.log"))


ROWS: list[dict[str, Any]] = [
    {
        "question": f"Q{number}",
        "mistake_agent": "Writer",
        "mistake_step": "1",
        "history": [
            {"role": "human", "content": f"Q{number}", "name": "human"},
            {"role": "assistant", "content": "Because of Mars.", "name": "Writer"},
        ],
    }
    for number in range(2)
]


def by_column(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {key: [row[key] for row in rows] for key in rows[0]}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(by_column(ROWS), id="columns"),
        pytest.param(by_column([{**row, "history": by_column(row["history"])} for row in ROWS]), id="twice"),
        pytest.param([{**row, "history": by_column(row["history"])} for row in ROWS], id="rows with columns"),
        pytest.param({"rows": [{"row_idx": 0, "row": row} for row in ROWS]}, id="viewer"),
        pytest.param(ROWS, id="rows"),
    ],
)
def test_a_data_set_is_read_by_row_or_by_column(document: Any) -> None:
    found = read_recording(json.dumps(document).encode()).conversations
    assert [one.trajectory.task for one in found] == ["Q0", "Q1"]
    assert [(one.label.agent, one.label.step) for one in found if one.label] == [("Writer", 1)] * 2
    assert [[step.agent for step in one.trajectory.steps] for one in found] == [["human", "Writer"]] * 2


@pytest.mark.parametrize(
    "document",
    [
        pytest.param([{"type": "function_call_output"}, 5], id="a number among items"),
        pytest.param([{"role": "user", "parts": [{"text": "only a question"}]}], id="no answer of Gemini"),
        pytest.param(
            [{"kind": "request", "parts": [{"part_kind": "user-prompt"}]}], id="no answer of pydantic-ai"
        ),
        pytest.param(
            {"input": [{"role": "user", "content": "x"}], "output": [{"role": "a", "content": "y"}]},
            id="lists",
        ),
        pytest.param({"events": [{"author": "x", "title": "a book"}]}, id="authors of books"),
        pytest.param({"steps": [{"task": "cook"}, {"task": "eat"}]}, id="tasks"),
        pytest.param({"a": {"messages": "none"}, "b": {"x": 1}}, id="no updates"),
        pytest.param({"contents": [{"parts": ["bolt"]}]}, id="parts of machines"),
        pytest.param({"store": {"milk": [{"role": "x"}]}}, id="a shop"),
    ],
)
def test_other_documents_are_refused_in_one_line(document: Any) -> None:
    with pytest.raises(UnreadableInput) as refused:
        read_recording(json.dumps(document).encode())
    assert "\n" not in str(refused.value)
