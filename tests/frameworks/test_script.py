"""The scripted model gives the story in every form that frameworks ask for."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.frameworks.kit.story import CONCIERGE, INSTRUCTIONS, PURSER, REGISTRAR, TOOL, question
from tests.frameworks.model_request import Asked, Call, Message, Result, Tool
from tests.frameworks.script import GIVING_UP, MISREAD, PATIENCE, UNAVAILABLE, WRONG_ANSWER, reply, speaker

FOUND: Final = "The Marianne has 85 seats."


def asked(
    who: str,
    *,
    tools: tuple[Tool, ...] = (),
    results: tuple[tuple[str, str, str], ...] = (),
    said: str = question("normal"),
) -> Asked:
    """A request of one agent; ``results`` are earlier calls: tool, arguments and result."""
    calls = [
        Call(name=tool, arguments=arguments, id=str(index))
        for index, (tool, arguments, _) in enumerate(results)
    ]
    return Asked(
        model="m",
        messages=(
            Message(role="system", text=INSTRUCTIONS.get(who, who)),
            Message(role="user", text=said),
        ),
        calls=tuple(calls),
        results=tuple(Result(call_id=str(index), text=text) for index, (_, _, text) in enumerate(results)),
        tools=tools,
        stream=False,
        wants_usage=False,
    )


def tool(name: str, **properties: Any) -> Tool:
    return Tool(name=name, schema={"properties": properties, "required": list(properties)})


@pytest.mark.parametrize(
    ("offered", "arguments"),
    [
        (tool("transfer_to_registrar"), {}),
        (tool("registrar", task={"type": "string"}), {"task": question("normal")}),
        (tool("transfer_to_agent", agent_name={"type": "string"}), {"agent_name": REGISTRAR}),
        (
            tool(
                "delegate",
                coworker={"type": "string", "enum": ["Purser", "Registrar"]},
                all={"type": "boolean"},
            ),
            {"coworker": "Registrar", "all": False},
        ),
    ],
    ids=["by name", "as a tool", "by argument", "by enum"],
)
def test_the_concierge_reaches_the_registrar_by_what_is_offered(offered: Tool, arguments: object) -> None:
    other = tool("ask_purser", agent={"type": "string"})

    said = reply(asked(CONCIERGE, tools=(other, offered)), "normal")

    (call,) = said.calls
    assert (call.name, json.loads(call.arguments), said.target) == (offered.name, arguments, REGISTRAR)


def test_a_concierge_who_asks_others_asks_the_purser_next_and_then_repeats_the_answer() -> None:
    tools = (tool("ask_registrar"), tool("ask_purser"))
    first = ("ask_registrar", "{}", f"The register says: {FOUND}")
    then = reply(asked(CONCIERGE, tools=tools, results=(first,)), "normal")
    assert then.target == PURSER

    answered = ("ask_purser", "{}", reply(asked(PURSER), "normal").text)
    last = reply(asked(CONCIERGE, tools=tools, results=(first, answered)), "normal")

    assert WRONG_ANSWER in last.text
    assert not last.calls


def test_a_concierge_asked_once_more_after_handing_over_does_not_hand_over_again() -> None:
    over = ("transfer_to_registrar", "{}", "done")

    said = reply(asked(CONCIERGE, tools=(tool("transfer_to_registrar"),), results=(over,)), "normal")

    assert not said.calls


def test_a_registrar_without_anyone_to_pass_on_to_says_what_was_found() -> None:
    looked = ((TOOL, "{}", UNAVAILABLE), (TOOL, "{}", FOUND))

    assert FOUND in reply(asked(REGISTRAR, tools=(tool(TOOL),), results=looked), "normal").text


def test_a_registrar_looks_up_only_what_is_missing_of_two_vessels() -> None:
    looked = ((TOOL, "{}", UNAVAILABLE), (TOOL, "{}", "The Odile has 40 seats."))

    (call,) = reply(asked(REGISTRAR, tools=(tool(TOOL),), results=looked), "parallel").calls

    assert "Marianne" in call.arguments


def test_a_registrar_gives_up_at_last() -> None:
    looked = ((TOOL, "{}", UNAVAILABLE),) * PATIENCE

    assert not reply(asked(REGISTRAR, tools=(tool(TOOL),), results=looked), "max_turns").calls


def test_a_registrar_who_misreads_says_so_aloud_also_where_a_handoff_takes_no_words() -> None:
    found = ((TOOL, "{}", "The Marianne has 850 seats."),)
    said = reply(asked(REGISTRAR, tools=(tool(TOOL), tool("transfer_to_purser")), results=found), "misread")

    assert f"{MISREAD} seats" in said.text
    assert said.target == PURSER


def test_a_registrar_gives_up_after_one_failure_and_the_others_repeat_it() -> None:
    tools = (tool(TOOL), tool("transfer_to_purser"))
    looked = ((TOOL, "{}", "Error"),)
    assert reply(asked(REGISTRAR, tools=tools), "given_up").calls
    assert reply(asked(REGISTRAR, tools=tools, results=looked), "given_up").text == GIVING_UP

    told = (("ask_registrar", "{}", GIVING_UP),)
    assert reply(asked(CONCIERGE, tools=(tool("ask_registrar"),), results=told), "given_up").text == GIVING_UP


def test_what_a_strict_schema_demands_and_need_not_be_said_is_null() -> None:
    limit = {"anyOf": [{"type": "number"}, {"type": "null"}]}

    said = reply(asked(CONCIERGE, tools=(tool("ask_registrar", limit=limit),)), "normal")

    assert json.loads(said.calls[0].arguments) == {"limit": None}


def test_an_answer_is_given_by_the_tool_for_answers_where_there_is_one() -> None:
    said = reply(asked(PURSER, tools=(tool("final_answer", answer={"type": "string"}),)), "normal")

    (call,) = said.calls
    assert WRONG_ANSWER in json.loads(call.arguments)["answer"]


def test_a_call_that_none_of_the_three_makes_gets_an_answer_too() -> None:
    planner = asked("Make a plan.", tools=(tool(TOOL),), said="What next?")

    assert speaker(planner) == ""
    assert reply(planner, "normal").text


def test_an_entry_is_given_where_a_list_must_have_one_and_an_agents_name_in_a_list_of_agents() -> None:
    said = {"role": {"enum": ["user"]}, "content": {"type": "string"}}
    listed = {"type": "array", "minItems": 1, "items": {"type": "object", "properties": said}}
    agents = {"type": "array", "items": {"type": "string"}}
    offered = tool("ask_registrar", messages=listed, targetAgents=agents, files={"type": "array"})
    (call,) = reply(asked(CONCIERGE, tools=(offered,)), "normal").calls
    assert json.loads(call.arguments) == {
        "messages": [{"role": "user", "content": question("normal")}],
        "targetAgents": [REGISTRAR],
        "files": [],
    }


def test_a_structured_answer_is_passed_on_as_it_is() -> None:
    answer = reply(asked(PURSER), "structured").text
    assert json.loads(answer)["total"] == 6840
    results = (("ask_registrar", REGISTRAR, FOUND), ("ask_purser", PURSER, answer))
    assert reply(asked(CONCIERGE, results=results), "structured").text == answer


def test_a_plugins_name_before_a_tools_is_ignored() -> None:
    offered = Tool(name=f"Register-{TOOL}", schema={"properties": {"name": {"type": "string"}}})
    (call,) = reply(asked(REGISTRAR, tools=(offered,)), "reported").calls
    assert call.name == f"Register-{TOOL}"
