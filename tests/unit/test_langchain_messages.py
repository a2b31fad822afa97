"""Messages of langchain and streams of langgraph, in all their forms."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.inquiry.errors import UnreadableInput
from tests.message_runs import ANSWER, ERROR, TASK, run, told, tools


def ai(text: str = "", name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "ai", "content": text, "name": name, "tool_calls": [], **more}


def lc_call(name: str, call_id: str) -> dict[str, Any]:
    return {"name": name, "args": {}, "id": call_id, "type": "tool_call"}


def lc_result(text: str, call_id: str, status: str = "success") -> dict[str, Any]:
    return {"type": "tool", "content": text, "tool_call_id": call_id, "status": status}


HUMAN = {"type": "human", "content": TASK}
TEAM = [
    HUMAN,
    ai("", "supervisor", tool_calls=[lc_call("transfer_to_harbour_desk", "c1")]),
    lc_result("Successfully transferred", "c1"),
    ai("", "harbour_desk", tool_calls=[lc_call("tide_table", "c2")]),
    lc_result(ERROR, "c2", "error"),
    ai(ANSWER, "harbour_desk"),
]


def as_dict(one: dict[str, Any]) -> dict[str, Any]:
    return {"type": one["type"], "data": one}


def as_constructor(one: dict[str, Any]) -> dict[str, Any]:
    names = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}
    path = ["langchain_core", "messages", names[one["type"]]]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": one}


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([TEAM], id="model_dump"),
        pytest.param(TEAM, id="lines"),
        pytest.param([list(map(as_dict, TEAM))], id="messages_to_dict"),
        pytest.param([list(map(as_constructor, TEAM))], id="dumpd"),
        pytest.param([{"messages": TEAM, "next": "FINISH"}], id="state"),
        pytest.param([{"values": {"messages": TEAM}, "next": [], "tasks": []}], id="thread"),
        pytest.param([{"messages": TEAM[:many]} for many in (1, 3, 6)], id="values"),
        pytest.param([{"values": {"messages": TEAM[:many]}} for many in (6, 3, 1)], id="history"),
    ],
)
def test_langchain_is_read_alike_in_all_its_forms(records: list[Any]) -> None:
    found = run(*records)
    assert found.agents == ("supervisor", "harbour_desk")
    assert tools(found)[1] == ("harbour_desk", "tide_table", ERROR, ERROR)
    assert (found.task, found.output) == (TASK, ANSWER)


def test_calls_that_langchain_could_not_parse_are_calls() -> None:
    broken = [
        {"name": "tide_table", "args": "{", "id": "c1", "error": "bad JSON", "type": "invalid_tool_call"}
    ]
    old = {"tool_calls": [{"id": "c2", "function": {"name": "tide_table", "arguments": "{}"}}]}
    found = run(
        [
            HUMAN,
            ai("", invalid_tool_calls=broken),
            lc_result("bad", "c1"),
            {"type": "ai", "content": "", "additional_kwargs": old},
            lc_result("14:20", "c2"),
            ai(ANSWER),
        ]
    )
    assert [one[1:3] for one in tools(found)] == [("tide_table", "bad"), ("tide_table", "14:20")]


def test_orders_to_remove_a_message_and_blocks_of_a_provider_say_nothing() -> None:
    blocks = [{"type": "web_search_call", "id": "w1"}, {"type": "text", "text": ANSWER}]
    found = run([HUMAN, {"type": "remove", "content": "", "id": "7"}, {**ai(), "content": blocks}])
    assert told(found) == [("assistant", "llm", ANSWER)]


def update(node: str, *messages: dict[str, Any]) -> dict[str, Any]:
    return {node: {"messages": list(messages)}}


def test_the_nodes_of_a_graph_are_its_agents_unless_they_are_parts_of_one() -> None:
    found = run(
        update("planner", ai("", tool_calls=[lc_call("tide_table", "c1")])),
        update("tools", lc_result(ERROR, "c1", "error")),
        {"router": {"next": "writer"}},
        update("writer", ai(ANSWER)),
        {"__interrupt__": [{"value": "ok?"}]},
        {"writer": None},
    )
    assert found.agents == ("planner", "router", "writer")
    assert tools(found) == [("planner", "tide_table", ERROR, ERROR)]
    assert found.output == ANSWER


def test_a_message_that_a_subgraph_yielded_counts_once() -> None:
    inner = ai("", "desk", tool_calls=[lc_call("tide_table", "c1")])
    result = lc_result(ERROR, "c1", "error")
    found = run(
        [["desk:1a"], update("agent", inner)],
        [["desk:1a"], update("tools", result)],
        [[], update("desk", HUMAN, {**inner, "id": "7"}, {**result, "id": "8"}, ai(ANSWER, "desk"))],
    )
    assert [one[:2] for one in told(found)] == [("desk", "llm"), ("desk", "tool"), ("desk", "llm")]


ASKED = ai("", tool_calls=[lc_call("tide_table", "c1")], id="a1")
SAID = [HUMAN, ASKED, lc_result(ERROR, "c1", "error"), ai(ANSWER, id="a2")]
UPDATES = [update(node, one) for node, one in zip(("desk", "tools", "writer"), SAID[1:], strict=True)]
STATES: list[dict[str, Any]] = [{"messages": SAID[:many], "plan": "ask"} for many in (1, 2, 3, 4)]
MIXED = [
    ["values", STATES[0]],
    *(
        one
        for pair in zip(UPDATES, STATES[1:], strict=True)
        for one in (["updates", pair[0]], ["values", pair[1]])
    ),
]
CHUNK = ["messages", [{**ai(ANSWER, id="a2"), "type": "AIMessageChunk"}, {"langgraph_node": "writer"}]]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(MIXED, id="values and updates"),
        pytest.param([["custom", "50 %"], *MIXED[:3], CHUNK, *MIXED[3:]], id="and chunks"),
        pytest.param([[["team:1"], *one] for one in MIXED], id="in a subgraph"),
    ],
)
def test_of_several_modes_states_tell_the_task_and_updates_the_agents(records: list[Any]) -> None:
    found = run(*records)
    assert [one[:2] for one in told(found)] == [("desk", "llm"), ("desk", "tool"), ("writer", "llm")]
    assert (found.task, found.output) == (TASK, ANSWER)
    assert tools(found) == [("desk", "tide_table", ERROR, ERROR)]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([[["desk:1"], one] for one in STATES], id="one mode"),
        pytest.param([[["desk:1"], "values", one] for one in STATES], id="named mode"),
        pytest.param([["values", one] for one in STATES], id="without namespaces"),
    ],
)
def test_states_behind_a_namespace_or_a_mode_are_no_nodes(records: list[Any]) -> None:
    found = run(*records)
    assert "messages" not in found.agents
    assert [one[1] for one in told(found)] == ["llm", "tool", "llm"]
    assert found.output == ANSWER


def test_nodes_may_write_their_messages_with_roles() -> None:
    def wrote(*messages: dict[str, Any]) -> dict[str, Any]:
        return {"messages": list(messages)}

    call = {"id": "c2", "type": "function", "function": {"name": "tide_table", "arguments": "{}"}}
    found = run(
        {"desk": wrote({"role": "assistant", "content": None, "tool_calls": [call]})},
        {"tools": wrote({"role": "tool", "content": ERROR, "tool_call_id": "c2"})},
        {"check": wrote()},
        {"writer": {"messages": {"role": "assistant", "content": ANSWER}}},
    )
    assert [one[:2] for one in told(found)] == [("desk", "llm"), ("desk", "tool"), ("writer", "llm")]
    assert tools(found) == [("desk", "tide_table", ERROR, "")]
    assert found.output == ANSWER


def test_what_is_around_a_conversation_is_no_node() -> None:
    spoken = [{"role": "user", "content": TASK}, {"role": "assistant", "content": ANSWER}]
    found = run({"thread": {"messages": spoken}})
    assert (found.agents, found.task, found.output) == (("assistant",), TASK, ANSWER)


def test_what_is_said_again_stands_twice_in_states_without_ids() -> None:
    said = [HUMAN, ai("Please wait."), HUMAN, ai("Please wait."), ai(ANSWER)]
    found = run(*(["values", {"messages": said[: many + 1]}] for many in range(len(said))))
    assert [step.output for step in found.steps] == ["Please wait.", "Please wait.", ANSWER]


def test_chunks_of_a_stream_are_put_together() -> None:
    def chunk(node: str, key: str, text: str = "", **more: Any) -> list[Any]:
        one = {"type": "AIMessageChunk", "content": text, "id": key, "tool_calls": [], **more}
        return [one, {"langgraph_node": node, "langgraph_checkpoint_ns": f"desk:1|{node}:2"}]

    def part(**more: Any) -> dict[str, Any]:
        return {"tool_call_chunks": [{"index": 0, "name": None, "id": None, **more}]}

    found = run(
        chunk("agent", "1", **part(name="tide_table", id="c1", args="")),
        chunk("agent", "1", **part(args='{"port": ')),
        chunk("agent", "1", **part(args='"Dover"}')),
        [lc_result(ERROR, "c1", "error"), {"langgraph_node": "tools"}],
        chunk("agent", "2", "High tide at Dover "),
        chunk("agent", "2", "is at 14:20 tomorrow."),
    )
    assert tools(found) == [("desk", "tide_table", ERROR, ERROR)]
    assert found.steps[1].input == '{"port": "Dover"}'
    assert found.output == ANSWER


@pytest.mark.parametrize("key", ["desk", "messages"])
def test_messages_that_python_printed_are_refused_with_what_to_write(key: str) -> None:
    printed = "content='High tide' additional_kwargs={} response_metadata={} id='1'"
    found = {"messages": [printed]} if key == "messages" else {key: {"messages": [printed]}}
    with pytest.raises(UnreadableInput, match=r"default=lambda one: one\.model_dump"):
        run(found, found)
