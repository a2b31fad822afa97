"""Each format as other programs pass it on: in wrappers and pages, encoded twice, newest first."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.file_text import split_text
from analyzer.recordings.formats import FORMATS
from analyzer.recordings.read_files import read_recording
from semconv.model import Status
from tests.message_runs import ANSWER, CALL, ERROR, TASK, USER, run, told, tools

EXAMPLES = Path(__file__).parents[2] / "examples" / "files"
JSON = [one.example for one in FORMATS if (EXAMPLES / one.example).suffix != ".txt"]
each_json = pytest.mark.parametrize("name", JSON)


def records(name: str) -> list[Any]:
    text = split_text((EXAMPLES / name).read_bytes())
    assert text is not None
    return list(text.records)


def document(name: str) -> Any:
    found = records(name)
    return found[0] if len(found) == 1 else found


def steps(data: str) -> list[list[tuple[str, str, str]]]:
    return [told(one.trajectory) for one in read_runs(data.encode())]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


WRITTEN: dict[str, Callable[[Any], str]] = {
    "an API's answer": lambda found: json.dumps({"data": found, "meta": {"cursor": "x"}}),
    "results of a query": lambda found: json.dumps({"results": [found], "next": None, "count": 1}),
    "objects in objects": lambda found: json.dumps({"data": {"run": {"trace": found}}}),
    "hits of a search": lambda found: json.dumps({"took": 1, "hits": {"hits": [{"_source": found}]}}),
    "encoded twice": lambda found: json.dumps(json.dumps(found)),
    "no nulls": lambda found: json.dumps(without_nulls(found)),
    "YAML": lambda found: yaml.safe_dump(found, sort_keys=False),
    "with a byte order mark": lambda found: "\ufeff" + json.dumps(found),
}


@pytest.mark.parametrize("written", WRITTEN)
@each_json
def test_a_format_is_read_as_other_programs_pass_it_on(name: str, written: str) -> None:
    if "hits" in written and len(records(name)) > 1:
        pytest.skip("a search has a hit for each record")
    found = document(name)
    assert sorted(steps(WRITTEN[written](found))) == sorted(steps(json.dumps(found)))


CLOSED: Final = {"zipkin-spans.json", "langgraph-updates.jsonl", "ag2-chat-messages.json"}
"""Formats whose keys are few or names of agents: another key makes them another format."""


@each_json
def test_a_key_that_a_later_version_adds_changes_nothing_or_is_refused(name: str) -> None:
    def later(one: Any) -> Any:
        return {**one, "addedInV9": "x"} if isinstance(one, dict) else one

    found = document(name)
    added = json.dumps(list(map(later, found)) if isinstance(found, list) else later(found))
    if name in CLOSED:
        with pytest.raises(UnreadableInput, match="addedInV9"):
            steps(added)
    else:
        assert steps(added) == steps(json.dumps(found))


@pytest.mark.parametrize("name", [name for name in JSON if len(records(name)) > 1])
def test_pages_of_an_api_are_read_as_one(name: str) -> None:
    found = records(name)
    half = len(found) // 2
    pages = [json.dumps({"data": page, "next": "x"}) for page in (found[:half], found[half:])]
    assert steps("\n".join(pages)) == steps(json.dumps(found))


@pytest.mark.parametrize(
    "name",
    [
        *("openai-chat.json", "pydantic-ai-messages.json", "autogen-messages.json", "codex.jsonl"),
        *("llama-index-messages.json", "agent-framework-messages.json", "langgraph-updates.jsonl"),
        *("haystack-messages.json", "openhands.json", "openai-agents.jsonl", "langsmith-runs.json"),
        "claude-code.jsonl",
    ],
)
def test_the_newest_may_stand_first(name: str) -> None:
    found = records(name)
    assert steps(json.dumps(found[::-1])) == steps(json.dumps(found))


def test_messages_with_times_may_stand_in_any_order() -> None:
    def at(second: int, **fields: Any) -> dict[str, Any]:
        return {
            "type": fields.pop("type"),
            "created_at": f"2026-05-04T08:00:0{second}Z",
            "metadata": {},
            **fields,
        }

    call = {"id": "c1", "name": "tide_table", "arguments": "{}"}
    asked = {**call, "call_id": "c1", "content": ERROR, "is_error": True}
    again, failed = {**call, "id": "c2"}, {**asked, "call_id": "c2"}
    messages = [
        at(1, type="TextMessage", source="user", content=TASK),
        at(2, type="ToolCallRequestEvent", source="desk", content=[call]),
        at(3, type="ToolCallExecutionEvent", source="desk", content=[asked]),
        at(4, type="ToolCallRequestEvent", source="desk", content=[again]),
        at(5, type="ToolCallExecutionEvent", source="desk", content=[failed]),
        at(6, type="TextMessage", source="desk", content=ANSWER),
    ]
    moved = [messages[place] for place in (2, 1, 5, 0, 3, 4)]
    assert told(run(moved)) == told(run(messages))


def test_files_of_several_exports_are_read_each_by_itself() -> None:
    names = ("langfuse.json", "jaeger.json", "opencode.json", "opencode.json")
    exports = [document(name) for name in names]
    expected = sorted(one for name in dict.fromkeys(names) for one in steps(json.dumps(document(name))))
    for data in (json.dumps(exports), "\n".join(map(json.dumps, exports))):
        assert sorted(steps(data)) == expected


def renamed(value: Any) -> Any:
    """Return a copy with other ids of the session and its messages."""
    if isinstance(value, dict):
        return {
            key: f"{one}-2" if key in _IDS and isinstance(one, str) else renamed(one)
            for key, one in value.items()
        }
    return [renamed(one) for one in value] if isinstance(value, list) else value


_IDS = frozenset({"id", "uuid", "parentUuid", "sessionId", "session_id", "call_id", "tool_use_id"}) | {
    "parent_tool_use_id",
    "sourceToolAssistantUUID",
    "sessionID",
}


@pytest.mark.parametrize("name", ["codex.jsonl", "claude-code.jsonl", "gemini-cli.json", "opencode.json"])
def test_sessions_that_were_joined_stay_sessions(name: str) -> None:
    found = records(name)
    (one,) = steps(json.dumps(document(name)))
    assert steps("\n".join(map(json.dumps, [*found, *renamed(found)]))) == [one, one]


def test_a_fork_of_a_codex_session_repeats_the_head_of_its_origin() -> None:
    head, *lines = records("codex.jsonl")
    assert len(steps("\n".join(map(json.dumps, [renamed(head), head, *lines])))) == 1


def test_runs_of_openhands_that_were_joined_are_told_by_their_numbers() -> None:
    found = records("openhands.json")
    other = json.loads(json.dumps(found).replace("Dover", "Deal"))
    (one,), (two,) = steps(json.dumps(found)), steps(json.dumps(other))
    assert sorted(steps(json.dumps([*found, *other]))) == sorted([one, two])
    overlapping = [*found[:4], *found[2:]]
    assert steps(json.dumps(overlapping)) == [one]


def test_events_of_openhands_whose_ids_are_no_numbers_are_read_in_the_order_of_their_times() -> None:
    found = records("openhands.json")
    timed = [{**one, "timestamp": f"2026-01-01T00:00:{place:02}"} for place, one in enumerate(found)]
    named = [{**one, "id": f"event-{one['id']}"} for one in timed]
    assert steps(json.dumps(named[::-1])) == steps(json.dumps(named))


def test_resource_spans_may_stand_alone_in_a_list() -> None:
    groups = [group for one in records("otlp.jsonl") for group in one["resourceSpans"]]
    expected = steps("\n".join(map(json.dumps, records("otlp.jsonl"))))
    assert steps(json.dumps(groups)) == expected
    assert steps("\n".join(map(json.dumps, groups))) == expected


def test_a_print_of_python_is_refused_with_what_to_write() -> None:
    for text in (repr([USER]), repr(USER), "[ChatMessage(role='user', content='?')]"):
        with pytest.raises(UnreadableInput, match=r"Python's print of values, not JSON: write json\.dumps"):
            read_recording(text.encode())


@pytest.mark.parametrize("keys", [("data", "results"), ("data", "spans")])
def test_an_object_with_two_lists_is_not_opened(keys: tuple[str, str]) -> None:
    messages = records("openai-chat.json")
    with pytest.raises(UnreadableInput, match="unknown format"):
        read_recording(json.dumps({keys[0]: messages, keys[1]: [{"x": 1}]}).encode())


def test_settings_beside_what_an_api_returns_do_not_hide_it() -> None:
    found = document("phoenix-spans.json")
    around = {"data": {"trace": found, "config": {"limit": 5}}, "agent": {"name": "x"}}
    assert steps(json.dumps(around)) == steps(json.dumps(found))


def test_a_table_with_quoted_names_is_no_json() -> None:
    (found,) = read_runs(b'"role","content","at"\n"user","?","1"\n"assistant","!","2"\n')
    assert told(found.trajectory) == [("assistant", "llm", "!")]


# --- chat messages of other programs ---


@pytest.mark.parametrize(
    "roles", [("human", "ai"), ("USER", "ASSISTANT"), ("customer", "bot"), ("user", "gpt")]
)
def test_dialogues_with_other_names_of_the_roles_are_judged_like_the_apis(roles: tuple[str, str]) -> None:
    messages = [{"role": role, "content": text} for role, text in zip(roles, (TASK, ANSWER), strict=True)]
    found = run(messages)
    assert (found.task, told(found)) == (TASK, [("assistant", "llm", ANSWER)])
    assert attribute(json.dumps(messages).encode()).status is Status.NO_FAILURE


def asked_and_answered(result: str = ERROR) -> list[dict[str, Any]]:
    """Return the messages of a dialogue with one call of a tool."""
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    answered = {"role": "tool", "tool_call_id": "c1", "content": result}
    return [USER, called, answered, {"role": "assistant", "content": ANSWER}]


def cells(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


KEPT: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "by name": lambda found: json.dumps({"first": {"messages": found}, "2": {"messages": found[::3]}}),
    "lists by name": lambda found: json.dumps({"thread-1": found}),
    "a history among other keys": lambda found: json.dumps({"id": "7", "history": found}),
    "a conversation in objects": lambda found: json.dumps({"result": {"conversation": {"history": found}}}),
    "cells of a table": lambda found: cells([{"id": 1, "messages": json.dumps(found), "score": 0}]),
    "rows of a database": lambda found: "\n".join(
        json.dumps({"id": place, "session_id": "a", "message_data": json.dumps(one)})
        for place, one in enumerate(found)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kept", KEPT)
def test_a_dialogue_is_read_from_where_programs_keep_it(kept: str) -> None:
    failed, right = (KEPT[kept](asked_and_answered(result)) for result in (f"Error: {ERROR}", "14:20"))
    first, *_ = read_runs(failed.encode())
    assert told(first.trajectory)[-1] == ("assistant", "llm", ANSWER)
    assert [call[:2] for call in tools(first.trajectory)] == [("assistant", "tide_table")]
    assert first.trajectory.task == TASK
    assert attribute(first).agent == "assistant"
    again, *_ = read_runs(right.encode())
    assert attribute(again).status is Status.NO_FAILURE


def test_rows_of_several_sessions_and_cells_with_lists_stay_apart() -> None:
    messages = asked_and_answered("14:20")
    other = [{"role": "user", "content": "And at Calais?"}, {"role": "assistant", "content": "At 13:05."}]
    rows = [
        {"session_id": session, "message_data": json.dumps(one)}
        for session, found in (("a", messages), ("b", other))
        for one in found
    ]
    lines = "\n".join(map(json.dumps, rows))
    table = cells(
        [{"id": place, "n": 0, "messages": json.dumps(one)} for place, one in enumerate((messages, other))]
    )
    for text in (lines, table):
        assert sorted(one.trajectory.task for one in read_runs(text.encode())) == ["And at Calais?", TASK]


@pytest.mark.parametrize(
    "document",
    [
        {"en": {"messages": {"hello": "Hello"}}, "de": {"messages": {"hello": "Hallo"}}},
        {"comments": [{"name": "ann", "content": "Broken."}, {"name": "bob", "content": "Works."}]},
        {"first": {"messages": [USER]}, "second": {"kind": "settings"}},
        {"level": "INFO", "text": "started"},
    ],
    ids=["translations", "comments", "one of several", "texts"],
)
def test_other_objects_by_name_are_no_dialogues(document: Any) -> None:
    with pytest.raises(UnreadableInput, match=r"unknown format|application"):
        read_recording(json.dumps(document).encode())


def test_a_stream_of_empty_states_is_no_run_and_says_so() -> None:
    for stream in (json.dumps(["values", None]), '["values", null]\n[[], "values", null]\n'):
        with pytest.raises(UnreadableInput, match="empty states only, which is no run"):
            read_recording(stream.encode())
    asked = {"type": "human", "content": TASK}
    state = {"messages": [asked, {"type": "ai", "name": "desk", "content": ANSWER}]}
    found = run(["values", None], ["values", {"messages": [asked]}], ["values", state])
    assert (found.task, told(found)) == (TASK, [("desk", "llm", ANSWER)])


def test_of_the_checkpoints_of_a_thread_the_last_one_counts() -> None:
    said = [{"type": "human", "content": TASK}, {"type": "ai", "name": "desk", "content": ANSWER}]
    rows = [
        {"thread_id": "1", "checkpoint": {"v": 4, "channel_values": {"messages": said[:count]}}}
        for count in (1, 2)
    ]
    assert told(run(*rows)) == [("desk", "llm", ANSWER)]


def capital(messages: list[dict[str, Any]]) -> Any:
    """Return messages with keys as .NET writes those of a class; the arguments of a call are text."""
    spelled = {"role": "Role", "content": "Content", "tool_calls": "ToolCalls", "tool_call_id": "ToolCallId"}
    spelled |= {"id": "Id", "type": "Type", "function": "Function", "name": "Name", "arguments": "Arguments"}
    text = json.dumps(messages)
    for key, other in spelled.items():
        text = text.replace(f'"{key}":', f'"{other}":')
    return json.loads(text)


def test_keys_may_begin_with_capitals() -> None:
    messages = records("openai-chat.json")
    for document in (capital(messages), {"Messages": capital(messages), "Model": "m"}):
        assert told(run(document)) == told(run(messages))
        assert tools(run(document)) == tools(run(messages))


@pytest.mark.parametrize(
    "document",
    [
        [{"Role": "Nurse", "Content": "Ward 4."}, {"Role": "Surgeon", "Content": "Theatre 2."}],
        [{"Role": "User", "Content": "May log in."}, {"Role": "Harbour master", "Content": "May do all."}],
        [{"Role": "Assistant", "Title": "Library assistant"}],
        {"Messages": [{"From": "jo@example.org", "Content": "Hello."}]},
        {"Messages": "12"},
    ],
    ids=["jobs", "rights", "without content", "e-mails", "a number"],
)
def test_tables_of_roles_are_no_messages(document: Any) -> None:
    with pytest.raises(UnreadableInput, match="unknown format"):
        read_recording(json.dumps(document).encode())


def test_a_person_who_talks_with_one_program_is_no_record_of_a_failure() -> None:
    chat = [{"from": "human", "value": TASK}, {"from": "gpt", "value": ANSWER}]
    labelled = {"conversations": chat, "mistake_agent": "gpt", "mistake_step": 1}
    assert attribute(json.dumps({"conversations": chat}).encode()).status is Status.NO_FAILURE
    assert attribute(json.dumps(labelled).encode()).agent == "gpt"


@pytest.mark.parametrize(
    "said",
    [
        [{"role": "agent", "content": "Hello"}, {"role": "customer", "content": "Hello"}],
        [{"sender": "ann", "message": "At five?"}, {"sender": "bob", "message": "At six."}],
        [{"agent": "bk-linux-1", "output": "built"}, {"agent": "bk-linux-2", "output": "tested"}],
    ],
    ids=["a call", "a chat of people", "machines"],
)
def test_a_list_without_anything_around_it_is_no_record_of_a_failure(said: list[Any]) -> None:
    assert attribute(json.dumps(said).encode()).status is Status.NO_FAILURE
    assert attribute(json.dumps({"history": said}).encode()).status is not Status.NO_FAILURE


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ({"id": "c1", "name": "tide_table", "arguments": {}}, {"id": "c1", "error": True, "content": ERROR}),
        (
            {"id": "c1", "function": "tide_table", "args": {}},
            {"tool_call_id": "c1", "content": "", "error": ERROR},
        ),
        (
            {"id": "c1", "function": "tide_table", "arguments": {}, "type": "function"},
            {"tool_call_id": "c1", "content": "", "error": {"type": "ConnectionError", "message": "away"}},
        ),
        (CALL, {"tool_call_id": "c1", "content": ERROR, "error": ERROR}),
    ],
    ids=["flat", "a name and args", "Inspect AI", "the API's call"],
)
def test_calls_of_benchmarks_are_read_with_the_errors_of_their_results(call: Any, result: Any) -> None:
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call], "source": "generate"},
        {"role": "tool", "source": "input", **result},
        {"role": "assistant", "content": ANSWER},
    ]
    for held in ({"samples": [{"id": 1, "messages": messages}]}, {"simulations": [{"messages": messages}]}):
        found = run({"status": "success", **held})
        ((agent, tool, _, error),) = tools(found)
        assert (agent, tool, error.split(":")[0]) == ("assistant", "tide_table", "ConnectionError")


def test_a_source_that_is_no_name_of_inspect_is_of_another_program() -> None:
    with pytest.raises(UnreadableInput):
        read_recording(json.dumps([{"role": "user", "content": "?", "source": {}}]).encode())


def test_a_thread_of_the_assistants_api_is_listed_newest_first() -> None:
    def message(second: int, role: str, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": {"value": text, "annotations": []}}]
        return {"object": "thread.message", "created_at": second, "role": role, "content": content}

    found = run({"object": "list", "data": [message(2, "assistant", ANSWER), message(1, "user", TASK)]})
    assert (found.task, found.output) == (TASK, ANSWER)


def _calls(right: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two calls of a model: it asks a tool, and answers."""
    asked = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "14:20" if right else ERROR}
    answers = ({"choices": [{"message": one}]} for one in (asked, {"role": "assistant", "content": ANSWER}))
    first, last = ({"object": "chat.completion", **one} for one in answers)
    return {"messages": [USER], "response": first}, {"messages": [USER, asked, result], "response": last}


def _spend_rows(right: bool) -> Any:
    return [
        {"request_id": "x", **{key: json.dumps(held) for key, held in one.items()}} for one in _calls(right)
    ]


def _bedrock_log(right: bool) -> Any:
    call = {"toolUse": {"toolUseId": "c1", "name": "tide_table", "input": {}}}
    status, text = ("success", "14:20") if right else ("error", ERROR)
    result = {"toolResult": {"toolUseId": "c1", "status": status, "content": [{"text": text}]}}
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": [{"text": TASK}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"text": ANSWER}]},
    ]
    return [
        {
            "schemaType": "ModelInvocationLog",
            "input": {"inputBodyJson": {"messages": turns[:end]}},
            "output": {"outputBodyJson": {"output": {"message": turns[end]}, "stopReason": "end_turn"}},
        }
        for end in (1, 3)
    ]


def _steps_of_generate_text(right: bool) -> Any:
    call = {"toolCallId": "c1", "toolName": "tide_table", "input": {}}
    got = (
        {"type": "tool-result", "output": {"time": "14:20"}}
        if right
        else {"type": "tool-error", "error": ERROR}
    )
    contents: list[Any] = [
        [{"type": "tool-call", **call}, {**call, **got}],
        [{"type": "text", "text": ANSWER}],
    ]
    return [{"steps": [{"content": one, "finishReason": "stop"} for one in contents], "totalUsage": {}}]


def _of_opencode_run(right: bool) -> Any:
    state = {"status": "completed", "output": "14:20"} if right else {"status": "error", "error": ERROR}
    tool = {"type": "tool", "callID": "c1", "tool": "tide_table", "state": {"input": {}, **state}}
    parts = [{"type": "step-start"}, tool, {"type": "text", "text": ANSWER}]
    return [{"type": "tool_use", "timestamp": 1, "sessionID": "s", "part": part} for part in parts]


def _langgraph_debug(right: bool) -> Any:
    call = {"type": "ai", "content": "", "tool_calls": [{"name": "tide_table", "args": {}, "id": "c1"}]}
    status, text = ("success", "14:20") if right else ("error", ERROR)
    result = {"type": "tool", "content": text, "tool_call_id": "c1", "status": status}
    said = {"type": "ai", "content": ANSWER, "tool_calls": []}
    nodes = [("desk", call), ("tools", result), ("desk", said)]
    found: list[Any] = [{"type": "task", "step": 0, "payload": {"name": "desk", "input": {}}}]
    for name, message in nodes:
        done = {"name": name, "result": [["messages", [message]]]}
        found.append({"type": "task_result", "step": 1, "payload": done})
    return found


def _langchain_events(right: bool) -> Any:
    call = {"type": "ai", "content": "", "tool_calls": [{"name": "tide_table", "args": {}, "id": "c1"}]}
    said = {"type": "ai", "content": ANSWER, "tool_calls": []}
    got = {"type": "tool", "content": "14:20", "tool_call_id": "c1"}
    returned = ("on_tool_end", {"output": got}) if right else ("on_tool_error", {"error": ERROR})
    told: list[tuple[str, str, Any]] = [
        ("on_chain_start", "LangGraph", {"input": {"messages": [{"type": "human", "content": TASK}]}}),
        ("on_chat_model_end", "ChatOpenAI", {"output": call}),
        (returned[0], "tide_table", returned[1]),
        ("on_chat_model_end", "ChatOpenAI", {"output": said}),
        ("on_chain_end", "LangGraph", {"output": {"messages": [call, got, said]}}),
    ]
    return [
        {"event": kind, "name": name, "run_id": "r", "data": data, "metadata": {"langgraph_node": "desk"}}
        for kind, name, data in told
    ]


def _studio(right: bool) -> Any:
    call = {"id": "c1", "name": "tide_table", "arguments": "{}"}
    result = {"content": "14:20" if right else ERROR, "call_id": "c1", "is_error": not right}
    told: list[dict[str, Any]] = [
        {"type": "TextMessage", "source": "user", "content": TASK},
        {"type": "ToolCallRequestEvent", "source": "desk", "content": [call]},
        {"type": "ToolCallExecutionEvent", "source": "desk", "content": [result]},
        {"type": "TextMessage", "source": "desk", "content": ANSWER},
    ]
    messages = [{"id": place, "run_id": 1, "config": one} for place, one in enumerate(told)]
    return [{"status": True, "data": {"runs": [{"id": 1, "task": told[0], "messages": messages}]}}]


@pytest.mark.parametrize(
    "made",
    [
        _spend_rows,
        _bedrock_log,
        _steps_of_generate_text,
        _of_opencode_run,
        _langgraph_debug,
        _langchain_events,
        _studio,
    ],
    ids=lambda made: made.__name__,
)
def test_neighbours_of_a_format_are_read_as_it_is(made: Callable[[bool], Any]) -> None:
    failed, right = (
        "".join(json.dumps(one) + "\n" for one in made(is_right)).encode() for is_right in (False, True)
    )
    (found,) = read_runs(failed)
    assert [(tool, error or output) for _, tool, output, error in tools(found.trajectory)] == [
        ("tide_table", ERROR)
    ]
    assert found.trajectory.output == ANSWER
    assert attribute(failed).status in {Status.ATTRIBUTED, Status.SUSPECTED}
    assert attribute(right).status is Status.NO_FAILURE


def test_events_of_langgraphs_server_begin_with_the_runs_id() -> None:
    said = {"desk": {"messages": [{"type": "ai", "content": ANSWER}]}}
    events = [("metadata", {"run_id": "r", "attempt": 1}), ("updates", said), ("end", None)]
    text = "".join(f"event: {name}\ndata: {json.dumps(one)}\n\n" for name, one in events)
    (found,) = read_runs(text.encode())
    assert [step.agent for step in found.trajectory.steps] == ["desk"]


def test_members_of_a_team_of_agno_work_inside_the_calls_that_delegate_to_them() -> None:
    def turn(role: str, content: str | None = None, **more: Any) -> dict[str, Any]:
        return {"role": role, "content": content, **more}

    asked = {"id": "d1", "function": {"name": "delegate_task_to_member", "arguments": "{}"}}
    result = turn("tool", ERROR, tool_call_id="c1", tool_name="tide_table", tool_call_error=True)
    member = {
        "run_id": "m",
        "agent_name": "Desk",
        "messages": [
            turn("user", TASK),
            turn("assistant", tool_calls=[CALL]),
            result,
            turn("assistant", ANSWER),
        ],
    }
    team = {
        "run_id": "t",
        "team_name": "Harbour",
        "messages": [
            turn("user", TASK),
            turn("assistant", tool_calls=[asked]),
            turn("tool", ANSWER, tool_call_id="d1"),
            turn("assistant", ANSWER),
        ],
        "member_responses": [member],
    }
    (found,) = read_runs(json.dumps(team).encode())
    agents = {step.agent for step in found.trajectory.steps}
    assert agents == {"Harbour", "Desk"}
    assert [agent for agent, tool, _, _ in tools(found.trajectory) if tool == "tide_table"] == ["Desk"]
    assert attribute(json.dumps(team).encode()).agent == "Desk"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PK\x03\x04\x14\x00", "a zip archive: unpack it"),
        (b"trace.json".ljust(257, b"\0") + b"ustar\x0000" + bytes(247), "a tar archive: unpack it"),
        (b"{\n  resource: {\n    attributes: {} },\n  traceId: 'a'\n}\n", "Node's print of values, not JSON"),
        (
            b"Activity.TraceId:            4bf9\nActivity.SpanId: 1\n",
            "activities that .NET's ConsoleExporter printed",
        ),
    ],
)
def test_prints_and_archives_are_refused_with_what_to_do(data: bytes, said: str) -> None:
    with pytest.raises(UnreadableInput, match=said):
        read_recording(data)
