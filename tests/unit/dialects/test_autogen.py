"""AutoGen's own spans: turns, tools, and the messages that a runtime carries between traces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from semconv.model import Link, Span, TraceId, Trajectory
from tests.factories import agent, ordered, outline, span, tool

TEAM = "599c723a-8908-4131-9f13-750a9a98bbf1"
MANAGER = f"Manager_{TEAM}"
RUNTIME = "autogen SingleThreadedAgentRuntime"
QUESTION = {"messages": [{"id": "0", "source": "user", "content": "How many?", "type": "TextMessage"}]}


def trace_of(number: int) -> TraceId:
    return TraceId(f"{number:032x}")


def creates(number: int, kind: str, **more: Any) -> Span:
    attributes = {"messaging.message.type": kind}
    return span(number, name="autogen create topic", scope=RUNTIME, attributes=attributes, **more)


def receives(number: int, who: str, message: Mapping[str, Any], *, of: Span, **more: Any) -> Span:
    """Make the span in which an agent receives the message that span ``of`` created."""
    attributes = {"recipient_agent_type": who, "message": json.dumps(message)}
    link = Link(trace_id=of.trace_id, span_id=of.span_id)
    told = {"scope": RUNTIME, "attributes": attributes, "links": [link], **more}
    return span(number, name=f"autogen process {who}.(x)-A", **told)


def turn(number: int, name: str, **more: Any) -> Span:
    return agent(number, name, parent=None, scope="autogen-core", end=number * 10 + 200, **more)


def message(number: int, kind: str, content: Any, source: str = "clerk") -> dict[str, Any]:
    return {"id": str(number), "source": source, "content": content, "type": kind}


def reported(*each: Mapping[str, Any]) -> list[Span]:
    """Make a turn of the clerk with one tool, and the recipients of each message."""
    using = tool(3, "look_up", parent=2, call_id="c", scope="autogen-core", start=30)
    spans = [turn(2, "clerk"), using]
    for index, one in enumerate(each):
        made = creates(10 + index, "GroupChatMessage", parent=2, start=50 + index)
        spans += [
            made,
            receives(20 + index, MANAGER, {"message": one}, of=made, trace_id=trace_of(index + 1)),
        ]
    return spans


def read(*spans: Span) -> Trajectory:
    return ordered(*spans)


ASKING = message(1, "ToolCallRequestEvent", [{"id": "c", "name": "look_up", "arguments": '{"x": 1}'}])
DONE = {"call_id": "c", "name": "look_up", "content": "16", "is_error": False}
RESULT = message(2, "ToolCallExecutionEvent", [DONE])


def test_a_tool_is_told_by_the_messages_of_its_turn() -> None:
    (step,) = read(*reported(ASKING, RESULT)).steps
    assert (step.agent, step.input, step.output, step.status) == ("clerk", '{"x": 1}', "16", "unset")


def test_a_tools_error_is_told_by_its_message() -> None:
    failing = message(2, "ToolCallExecutionEvent", [{"call_id": "c", "content": "no", "is_error": True}])
    (step,) = read(*reported(ASKING, failing)).steps
    assert (step.status, step.error) == ("error", "no")


def test_words_after_tools_are_a_step_at_the_turns_end() -> None:
    trajectory = read(*reported(ASKING, RESULT, message(3, "TextMessage", "Sixteen.")))
    assert outline(trajectory) == [("clerk", "tool"), ("clerk", "llm")]
    assert (trajectory.steps[1].output, trajectory.output) == ("Sixteen.", "Sixteen.")


def test_a_summary_of_tools_is_an_answer_and_no_step() -> None:
    trajectory = read(*reported(ASKING, RESULT, message(3, "ToolCallSummaryMessage", "16")))
    assert outline(trajectory) == [("clerk", "tool")]
    assert trajectory.output == "16"


def test_an_answer_that_waited_for_a_person_is_a_persons() -> None:
    spans = reported(message(1, "UserInputRequestedEvent", ""), message(2, "TextMessage", "Go on."))
    trajectory = read(*(each for each in spans if "execute_tool" not in each.name))
    assert outline(trajectory) == [("clerk", "human")]
    assert trajectory.steps[0].output == "Go on."


def started() -> list[Span]:
    """Make a team's start: the manager receives the question, in a trace that links to its creation."""
    made = creates(1, "GroupChatStart", trace_id=trace_of(100))
    sent = span(2, name="autogen send Manager", scope=RUNTIME, links=[_to(made)], trace_id=trace_of(101))
    heard = receives(3, MANAGER, QUESTION, of=made, parent=2, trace_id=trace_of(101))
    return [made, sent, heard]


def _to(other: Span) -> Link:
    return Link(trace_id=other.trace_id, span_id=other.span_id)


def test_the_task_is_what_started_the_team() -> None:
    trajectory = read(*started(), turn(9, "clerk", trace_id=trace_of(101)))
    assert trajectory.task == "How many?"
    assert outline(trajectory) == [("clerk", "llm")]


def test_a_manager_that_speaks_is_an_agent_and_one_that_only_passes_on_is_not() -> None:
    speaking = creates(5, "GroupChatAgentResponse", parent=3, trace_id=trace_of(101))
    response = {"response": {"chat_message": message(1, "TextMessage", "Look it up.", "Manager")}}
    heard = receives(6, f"clerk_{TEAM}", response, of=speaking, trace_id=trace_of(102))
    (spoken,) = read(*started(), speaking, heard).steps
    assert (spoken.agent, spoken.kind, spoken.output) == ("Manager", "llm", "Look it up.")
    passing = creates(5, "GroupChatRequestPublish", parent=3, trace_id=trace_of(101))
    assert read(*started(), passing).steps == ()


def test_a_turn_hears_what_its_container_kept_for_it() -> None:
    made = creates(1, "GroupChatStart", trace_id=trace_of(1))
    keeping = receives(2, f"clerk_{TEAM}", QUESTION, of=made, trace_id=trace_of(2))
    asking = creates(3, "GroupChatRequestPublish", trace_id=trace_of(3))
    called = receives(4, f"clerk_{TEAM}", {}, of=asking, trace_id=trace_of(4), end=900)
    speaking = agent(5, "clerk", parent=4, scope="autogen-core", trace_id=trace_of(4))
    (step,) = read(made, keeping, asking, called, speaking).steps
    assert (step.agent, step.input) == ("clerk", "How many?")


def test_before_0_7_tools_have_a_scope_of_their_own_and_turns_are_processing() -> None:
    made = creates(1, "GroupChatRequestPublish", trace_id=trace_of(1))
    called = receives(2, f"clerk_{TEAM}", {}, of=made, trace_id=trace_of(2), end=900)
    using = span(
        3,
        name="transfer_to_boss",
        scope="base_tool",
        parent=2,
        trace_id=trace_of(2),
        attributes={"tool_name": "transfer_to_boss", "tool_args": "{}"},
    )
    answered = creates(4, "GroupChatAgentResponse", parent=2, trace_id=trace_of(2))
    assert outline(read(made, called, using, answered)) == [("clerk", "handoff")]
    assert outline(read(made, called, answered)) == [("clerk", "llm")]


def test_an_agent_of_plain_core_acts_by_receiving_and_its_sender_has_the_reply() -> None:
    made = creates(1, "Order")
    sent = span(2, name="autogen send worker", scope=RUNTIME, trace_id=trace_of(1), end=900)
    taken = receives(3, "worker", {"order": 7}, of=made, parent=2, trace_id=trace_of(1))
    reply = {"message": '{"done": true}'}
    told = span(4, name="autogen ack", scope=RUNTIME, attributes=reply, links=[_to(sent)])
    trajectory = read(made, sent, taken, told)
    (step,) = trajectory.steps
    assert (step.agent, step.input, step.output) == ("worker", '{"order": 7}', '{"done": true}')
    assert trajectory.output == '{"done": true}'


def test_messages_that_are_no_json_or_of_a_strange_shape_do_no_harm() -> None:
    for odd in ("{", "[]", '"x"', '{"message": 3}', '{"messages": [[1]], "response": {"chat_message": []}}'):
        made = creates(10, "GroupChatMessage", parent=2)
        heard = receives(20, f"clerk_{TEAM}", {}, of=made)
        heard = replace(heard, attributes={**heard.attributes, "message": odd})
        assert outline(read(turn(2, "clerk"), made, heard)) == [("clerk", "llm")]


def test_a_tool_that_has_a_team_work_is_no_step_and_what_it_is_asked_no_answer() -> None:
    asking = turn(2, "boss")
    using = tool(3, "team", parent=2, scope="autogen-core", end=180)
    made = creates(4, "GroupChatStart", parent=3)
    sent = span(5, name="autogen send Manager", scope=RUNTIME, links=[_to(made)], trace_id=trace_of(1))
    heard = receives(6, MANAGER, QUESTION, of=made, parent=5, trace_id=trace_of(1))
    working = agent(7, "clerk", parent=None, scope="autogen-core", trace_id=trace_of(2))
    trajectory = read(asking, using, made, sent, heard, working)
    assert outline(trajectory) == [("boss", "llm"), ("clerk", "llm")]
    assert trajectory.steps[0].output == ""


def test_a_team_in_a_team_is_told_by_its_own_agents() -> None:
    made = creates(1, "GroupChatRequestPublish", trace_id=trace_of(1))
    called = receives(2, f"inner_{TEAM}", {}, of=made, trace_id=trace_of(2), end=900)
    answered = creates(4, "GroupChatTeamResponse", parent=2, trace_id=trace_of(2))
    working = agent(3, "clerk", parent=None, scope="autogen-core", trace_id=trace_of(3))
    assert outline(read(made, called, answered, working)) == [("clerk", "llm")]
