"""Which spans are steps, their order and agents, and the run's task, answer and outcome."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

import pytest

from semconv.model import (
    AgentSource,
    Completion,
    ContentState,
    Event,
    Outcome,
    OutcomeSource,
    Span,
    SpanStatus,
    StepKind,
)
from semconv.record import replace
from tests.factories import (
    agent,
    chat,
    messages,
    openinference,
    ordered,
    outline,
    said,
    span,
    span_id,
    tool,
    workflow,
)

WORKFLOW: Final = {"gen_ai.operation.name": "invoke_workflow"}

# Leaves and containers --------------------------------------------------------


def test_leaves_are_steps_and_what_encloses_them_is_not() -> None:
    cycle = {"gen_ai.operation.name": "execute_event_loop_cycle"}
    trajectory = ordered(
        workflow(),
        agent(2, "researcher", end=900),
        span(3, parent=2, name="turn", end=800, attributes=cycle),
        chat(4, parent=3, calls=[("search", "{}", "c1")]),
        tool(5, "search", parent=3, call_id="c1", result="found"),
    )
    assert outline(trajectory) == [("researcher", "llm"), ("researcher", "tool")]
    assert [step.agent_source for step in trajectory.steps] == [AgentSource.ANCESTOR, AgentSource.ANCESTOR]
    assert trajectory.steps[1].target == "search"


def test_an_agent_with_nothing_below_is_a_step_of_its_model() -> None:
    trajectory = ordered(workflow(), agent(2, "writer"))
    assert outline(trajectory) == [("writer", "llm")]
    assert trajectory.steps[0].agent_source is AgentSource.SPAN


def test_an_agent_that_shows_only_tools_speaks_after_them() -> None:
    """CrewAI has no spans of model calls: only the agent has the task's answer."""
    answer = messages(said("assistant", "it is 16"))
    trajectory = ordered(
        workflow(),
        agent(2, "researcher", end=500, attributes={"gen_ai.output.messages": answer}),
        tool(3, "search", parent=2, result="16"),
        agent(60, "analyst"),
    )
    assert outline(trajectory) == [("researcher", "tool"), ("researcher", "llm"), ("analyst", "llm")]
    assert trajectory.steps[1].output == "it is 16"


def test_an_agent_that_only_repeats_its_last_call_adds_no_step() -> None:
    answer = messages(said("assistant", "done"))
    trajectory = ordered(
        agent(1, "team", parent=None, end=900, attributes={"gen_ai.output.messages": answer}),
        agent(2, "writer", attributes={"gen_ai.output.messages": answer}),
    )
    assert outline(trajectory) == [("writer", "llm")]


def test_an_agent_inside_itself_is_one_agent() -> None:
    """Two instrumentations of one framework; the outer one has the state as its answer."""
    state = messages(said("assistant", "{'messages': [...]}"))
    trajectory = ordered(
        workflow(),
        agent(2, "a", end=900, attributes={"gen_ai.output.messages": state}),
        agent(3, "a", parent=2, end=890),
        chat(4, parent=3, answer="done"),
    )
    assert outline(trajectory) == [("a", "llm")]


def test_a_tool_that_encloses_an_agent_is_no_step() -> None:
    trajectory = ordered(
        agent(1, "boss", parent=None, end=900),
        chat(2, calls=[("ask_expert", "{}", "c1")]),
        tool(3, "ask_expert", call_id="c1", end=500),
        agent(4, "expert", parent=3, end=490),
        chat(5, parent=4, answer="42"),
        chat(60, answer="42, says the expert"),
    )
    assert outline(trajectory) == [("boss", "llm"), ("expert", "llm"), ("boss", "llm")]


def test_a_delegation_whose_agent_runs_beside_it_is_no_step() -> None:
    """agno: the member's run is a sibling of the call that delegates."""
    given = json.dumps({"member_id": "expert", "task": "x"})
    call = {"tool.name": "delegate_task_to_member", "input.value": given}
    trajectory = ordered(
        openinference(1, "AGENT", parent=None, end=900, attributes={"agent.name": "leader"}),
        openinference(2, "LLM"),
        openinference(3, "TOOL", start=30, end=200, attributes=call),
        openinference(4, "AGENT", start=40, end=190, attributes={"agent.name": "expert"}),
        openinference(5, "LLM", parent=4, start=50, end=150),
        openinference(30, "LLM"),
    )
    assert outline(trajectory) == [("leader", "llm"), ("expert", "llm"), ("leader", "llm")]


def test_a_delegation_without_a_trace_of_the_delegate_is_a_handoff() -> None:
    call = {"tool.name": "Delegate work to coworker", "input.value": json.dumps({"coworker": "expert"})}
    trajectory = ordered(
        openinference(1, "AGENT", parent=None, end=900, attributes={"agent.name": "manager"}),
        openinference(2, "LLM"),
        openinference(3, "TOOL", attributes=call),
    )
    assert outline(trajectory) == [("manager", "llm"), ("manager", "handoff")]
    assert trajectory.steps[1].target == "expert"


def test_a_tool_with_work_of_its_own_inside_comes_after_it() -> None:
    trajectory = ordered(
        agent(1, "solver", parent=None, end=900),
        tool(2, "summarise", end=300, result="short"),
        chat(3, parent=2, answer="short"),
    )
    assert outline(trajectory) == [("solver", "llm"), ("solver", "tool")]


def test_final_answer_tools_are_no_steps_unless_they_fail() -> None:
    def final(number: int, **more: Any) -> Span:
        return openinference(number, "TOOL", attributes={"tool.name": "final_answer"}, **more)

    root = openinference(1, "AGENT", parent=None, end=900, name="solver.run")
    calls = (openinference(2, "LLM"), openinference(4, "LLM"))
    trajectory = ordered(root, *calls, final(3, error="refused"), final(5))
    assert outline(trajectory) == [("solver", "llm"), ("solver", "tool"), ("solver", "llm")]


def test_double_instrumentation_is_one_step_with_the_knowledge_of_both() -> None:
    said_so = {"tool.name": "search", "output.value": "timed out"}
    outer = openinference(3, "TOOL", parent=20, end=50, attributes=said_so)
    inner = tool(4, "search", parent=3, call_id="c9", start=31, end=49, error="TimeoutError: timed out")
    trajectory = ordered(
        workflow(),
        agent(2, "a", end=900),
        agent(20, "a", parent=2, start=20, end=890),
        outer,
        inner,
        openinference(50, "LLM", parent=20, end=600, attributes={"output.value": "hello"}),
        chat(51, parent=50, end=550),
    )
    assert outline(trajectory) == [("a", "tool"), ("a", "llm")]
    assert trajectory.steps[0].status is SpanStatus.ERROR
    assert trajectory.steps[0].error == "TimeoutError: timed out"
    assert trajectory.steps[0].output == "timed out"
    assert trajectory.steps[1].output == "hello"


def test_setup_and_evaluation_spans_are_no_steps() -> None:
    trajectory = ordered(
        workflow(),
        span(2, parent=1, attributes={"gen_ai.operation.name": "create_agent", "gen_ai.agent.name": "a"}),
        agent(3, "a", end=500),
        chat(4, parent=3, answer="x"),
        openinference(5, "EVALUATOR"),
    )
    assert outline(trajectory) == [("a", "llm")]


# Handoffs ---------------------------------------------------------------------


def test_a_transfer_is_a_handoff_to_the_agent_by_its_own_spelling() -> None:
    trajectory = ordered(
        workflow(),
        agent(2, "triage", end=100),
        tool(3, "transfer_to_research_agent", parent=2),
        agent(11, "Research Agent", end=300),
        chat(12, parent=11, answer="x"),
    )
    assert outline(trajectory) == [("triage", "handoff"), ("Research Agent", "llm")]
    assert trajectory.steps[0].target == "Research Agent"


@pytest.mark.parametrize("name", ["transfer_to_agent", "handoff_to_agent"])
def test_a_transfer_may_name_its_target_in_an_argument(name: str) -> None:
    trajectory = ordered(agent(1, "a", parent=None, end=900), tool(2, name, arguments='{"agent_name": "b"}'))
    assert (trajectory.steps[0].kind, trajectory.steps[0].target) == (StepKind.HANDOFF, "b")


def test_a_tool_that_is_only_named_like_a_transfer_is_a_tool() -> None:
    given = '{"amount": 5}'
    banker = agent(1, "banker", parent=None, end=900)
    trajectory = ordered(banker, tool(2, "transfer_to_savings", arguments=given))
    assert (trajectory.steps[0].kind, trajectory.steps[0].target) == (StepKind.TOOL, "transfer_to_savings")


def test_a_plain_tool_named_after_the_next_speaker_is_a_handoff() -> None:
    """AG2; its tool executor owns every call, but the requesting agent acted."""
    trajectory = ordered(
        workflow(),
        agent(2, "triage", end=30),
        chat(3, parent=2, start=21, end=29, calls=[("go_researcher", "{}", "c1")]),
        agent(4, "_Group_Tool_Executor", end=50),
        tool(5, "go_researcher", parent=4, start=41, call_id="c1"),
        agent(6, "researcher", end=90),
        chat(7, parent=6, answer="x"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("researcher", "llm")]
    assert trajectory.steps[1].agent_source is AgentSource.METADATA


TRANSFER = ("transfer_to_writer", "{}", "c1")


def heard_by_the_writer(call_id: str) -> list[dict[str, Any]]:
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": "ok"}]}
    return [said("assistant", "", TRANSFER), result]


def test_a_transfer_that_got_its_result_is_a_handoff_though_no_span_shows_it() -> None:
    """The official conventions have no span for handoffs."""
    asking = agent(2, "triage", end=40)
    trajectory = ordered(
        workflow(),
        asking,
        chat(3, parent=2, calls=[TRANSFER]),
        agent(5, "writer", end=100),
        chat(6, parent=5, heard=heard_by_the_writer("c1"), answer="text"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("writer", "llm")]
    handoff = trajectory.steps[1]
    assert (handoff.target, handoff.span_id) == ("writer", span_id(3))
    assert handoff.start_ns == trajectory.steps[0].end_ns


@pytest.mark.parametrize("shown", ["transfer_to_writer", "handoff to writer"])
def test_a_handoff_that_a_span_shows_is_not_shown_twice(shown: str) -> None:
    trajectory = ordered(
        workflow(),
        agent(2, "triage", end=45),
        chat(3, parent=2, calls=[TRANSFER]),
        tool(4, shown, parent=2),
        agent(5, "writer", end=100),
        chat(6, parent=5, heard=heard_by_the_writer("c1"), answer="text"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("writer", "llm")]


def test_a_handoff_span_that_lost_its_target_learns_it_from_the_request() -> None:
    half = {"gen_ai.operation.name": "handoff", "gen_ai.handoff.from_agent": "triage"}
    lost = span(4, parent=2, attributes=half)
    trajectory = ordered(
        workflow(),
        agent(2, "triage", end=45),
        chat(3, parent=2, calls=[TRANSFER]),
        lost,
        agent(5, "writer", end=100),
        chat(6, parent=5, heard=heard_by_the_writer("c1"), answer="text"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("triage", "handoff"), ("writer", "llm")]
    assert trajectory.steps[1].target == "writer"


def test_a_transfer_without_a_result_is_only_a_hint_of_its_target() -> None:
    """langgraph's goto: the model names a tool, which the graph uses as a direction."""
    trajectory = ordered(
        workflow(),
        agent(2, "triage", end=40),
        chat(3, parent=2, calls=[TRANSFER]),
        agent(5, "writer", end=100),
        chat(6, parent=5, heard=[said("user", "question")], answer="text"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("writer", "llm")]


def test_nameless_calls_after_a_handoff_are_the_targets() -> None:
    trajectory = ordered(
        chat(1, parent=None, end=900, agent_name="triage", calls=[("transfer_to_writer", "{}", "")]),
        chat(2, parent=None, start=1000, end=1100, answer="text"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("writer", "llm")]
    assert trajectory.steps[1].agent_source is AgentSource.HANDOFF


def test_a_nameless_call_is_not_given_to_an_agent_that_has_its_own_spans() -> None:
    trajectory = ordered(
        workflow(),
        chat(2, agent_name="triage", calls=[("transfer_to_writer", "{}", "")]),
        agent(3, "writer", end=60),
        chat(4, parent=3, answer="text"),
        chat(10, answer="whose?"),
    )
    assert outline(trajectory) == [("triage", "llm"), ("writer", "llm"), ("unknown", "llm")]


def test_a_nameless_call_is_named_by_the_message_that_quotes_it() -> None:
    """Official langchain: nodes that are plain functions have no agent span."""
    quote = messages(said("assistant", "it costs $450", name="analyst"))
    root = span(1, end=900, attributes=WORKFLOW | {"gen_ai.output.messages": quote})
    trajectory = ordered(root, chat(2, answer="let me see"), chat(3, answer="it costs $450"))
    assert outline(trajectory) == [("unknown", "llm"), ("analyst", "llm")]


# Order ------------------------------------------------------------------------


def test_steps_are_ordered_by_start_to_the_nanosecond_then_by_end() -> None:
    trajectory = ordered(
        workflow(),
        chat(4, start=20, end=30, answer="long"),
        chat(3, start=20, end=20, answer="instant"),
        chat(2, start=20.000001, end=25, answer="a nanosecond later"),
    )
    assert [step.output for step in trajectory.steps] == ["instant", "long", "a nanosecond later"]


def test_a_step_that_begins_as_another_ends_is_not_parallel() -> None:
    trajectory = ordered(workflow(), chat(2, start=20, end=30, answer="a"), tool(3, "t", start=30, end=40))
    assert [step.group for step in trajectory.steps] == [None, None]


def test_equal_times_do_not_depend_on_arrival() -> None:
    twins = [chat(number, start=20, end=30, answer=str(number)) for number in (2, 3, 4)]
    assert ordered(workflow(), *twins).steps == ordered(*reversed(twins), workflow()).steps


def test_parallel_agents_are_one_group_and_what_follows_is_not() -> None:
    trajectory = ordered(
        workflow(),
        agent(2, "left", start=20, end=100),
        chat(3, parent=2, start=21, end=40, answer="l1"),
        chat(4, parent=2, start=60, end=90, answer="l2"),
        agent(5, "right", start=30, end=80),
        chat(6, parent=5, start=45, end=55, answer="r"),
        agent(20, "after", end=300),
        chat(21, parent=20, answer="a"),
    )
    groups = [(step.output, step.group) for step in trajectory.steps]
    assert groups == [("l1", 0), ("r", 0), ("l2", 0), ("a", None)]


def test_a_tool_that_begins_while_the_reply_that_asked_for_it_still_streams_is_not_parallel_to_it() -> None:
    trajectory = ordered(
        agent(1, "a", parent=None, end=900),
        chat(2, start=20, end=60, answer="asks for two"),
        tool(3, "x", start=30, end=50),
        tool(4, "y", start=55, end=70),
        chat(5, start=80, end=120, answer="asks for one"),
        tool(6, "x", start=90, end=130),
    )
    assert [step.group for step in trajectory.steps] == [None] * 5


def test_a_tool_still_running_beside_a_later_model_call_is_parallel_to_it() -> None:
    trajectory = ordered(
        agent(1, "a", parent=None, end=900),
        tool(2, "in the background", start=20, end=90),
        chat(3, start=30, end=60, answer="meanwhile"),
    )
    assert [step.group for step in trajectory.steps] == [0, 0]


def test_parallel_tools_are_a_group_each_time() -> None:
    trajectory = ordered(
        agent(1, "a", parent=None, end=900),
        tool(2, "x", start=20, end=40),
        tool(3, "y", start=30, end=50),
        chat(4, start=60, end=70, answer="between"),
        tool(5, "x", start=80, end=95),
        tool(6, "y", start=90, end=99),
    )
    assert [step.group for step in trajectory.steps] == [0, 0, None, 1, 1]


# Texts ------------------------------------------------------------------------


def test_a_step_shows_only_what_is_new() -> None:
    question, call = said("user", "how many?"), said("assistant", "", ("count", "{}", "c1"))
    result, answer = said("tool", "3"), said("assistant", "three")
    system = said("system", "be brief")
    trajectory = ordered(
        agent(1, "a", parent=None, end=900),
        chat(2, heard=[system, question], calls=[("count", "{}", "c1")]),
        chat(3, heard=[system, question, call, result], answer="three"),
        chat(4, heard=[system, question, call, result, answer, said("user", "sure?")], answer="yes"),
    )
    assert [step.input for step in trajectory.steps] == ["user: how many?", "tool: 3", "user: sure?"]
    assert [step.output for step in trajectory.steps] == ["call count({})", "three", "yes"]
    assert {step.instructions for step in trajectory.steps} == {"be brief"}


def test_an_agents_first_call_leaves_out_what_others_heard() -> None:
    question, note = said("user", "how many?"), said("user", "the researcher found 3")
    trajectory = ordered(
        workflow(),
        chat(2, heard=[question], answer="go", agent_name="a"),
        chat(3, heard=[question, note], answer="3", agent_name="b"),
        chat(4, heard=[question], answer="4", agent_name="c"),
    )
    asked = "user: how many?"
    assert [step.input for step in trajectory.steps] == [asked, "user: the researcher found 3", asked]


def test_an_evicted_output_is_recovered_from_the_next_call() -> None:
    """The limit of 128 attributes evicts the oldest ones; each call repeats the conversation."""
    turns = 45
    history: list[dict[str, Any]] = [said("user", "begin")]
    spans = [agent(1, "a", parent=None, end=90_000)]
    for turn in range(turns):
        attributes: dict[str, Any] = {}
        for index, message in enumerate(history):
            attributes[f"llm.input_messages.{index}.message.role"] = message["role"]
            attributes[f"llm.input_messages.{index}.message.content"] = message["parts"][0]["content"]
        kept = dict(list(attributes.items())[-7:])  # an odd number: the oldest message loses its role
        dropped = max(0, len(attributes) - 7)
        spans.append(openinference(turn + 2, "LLM", attributes=kept, dropped_attributes=dropped))
        history += [said("assistant", f"answer {turn}"), said("user", f"question {turn}")]
    trajectory = ordered(*spans)
    assert len(trajectory.steps) == turns
    for turn, step in enumerate(trajectory.steps[4:-1], start=4):
        assert step.output == f"answer {turn}"
        assert step.content is ContentState.TRUNCATED
        assert step.input == f"user: question {turn - 1}"
    assert trajectory.steps[-1].content is ContentState.DROPPED
    assert any("lost content" in warning for warning in trajectory.warnings)


@pytest.mark.parametrize(
    ("step", "state"),
    [
        pytest.param(chat(2), ContentState.ABSENT, id="capture off"),
        pytest.param(chat(2, answer="__REDACTED__"), ContentState.REDACTED, id="hidden on purpose"),
        pytest.param(chat(2, answer="x"), ContentState.COMPLETE, id="there"),
        pytest.param(chat(2, answer="x" * 300_000), ContentState.TRUNCATED, id="cut by us"),
        pytest.param(chat(2, dropped_attributes=3), ContentState.DROPPED, id="dropped by a limit"),
    ],
)
def test_a_step_has_the_state_of_its_content(step: Span, state: ContentState) -> None:
    assert ordered(agent(1, "a", parent=None, end=900), step).steps[0].content is state


def test_a_huge_text_is_cut_in_the_middle() -> None:
    trajectory = ordered(chat(1, parent=None, answer="a" * 50_000_000 + "end"))
    output = trajectory.steps[0].output
    assert len(output) < 300_000
    assert "end" in output[-20:]
    assert "characters left out" in output


def test_messages_cut_short_by_a_length_limit_are_shown_as_they_stand() -> None:
    cut = messages(said("assistant", "the answer is 42"))[:-6]
    broken = span(2, parent=1, attributes={"gen_ai.operation.name": "chat", "gen_ai.output.messages": cut})
    assert ordered(agent(1, "a", parent=None, end=900), broken).steps[0].output == cut


def test_content_may_come_from_joined_logs() -> None:
    """Google ADK writes content only into log events."""
    details = Event(
        name="gen_ai.client.inference.operation.details",
        attributes={
            "gen_ai.input.messages": messages(said("user", "how many?")),
            "gen_ai.output.messages": messages(said("assistant", "three")),
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "count"}]),
        },
    )
    trajectory = ordered(agent(1, "a", parent=None, end=900), chat(2, logs=[details]))
    (step,) = trajectory.steps
    assert (step.input, step.output, step.instructions) == ("user: how many?", "three", "count")
    assert trajectory.task == "how many?"


# The run ----------------------------------------------------------------------


def test_the_task_and_the_answer_come_from_the_top() -> None:
    trajectory = ordered(
        workflow(task="the question", answer="the answer"),
        chat(2, heard=[said("user", "a part")], answer="part"),
    )
    assert (trajectory.task, trajectory.output) == ("the question", "the answer")


def test_without_a_root_task_and_answer_come_from_the_first_and_last_calls() -> None:
    heard = [said("user", "earlier"), said("assistant", "done"), said("user", "the question")]
    trajectory = ordered(workflow(), chat(2, heard=heard, answer="hm"), chat(3, answer="the answer"))
    assert (trajectory.task, trajectory.output) == ("the question", "the answer")


def test_a_crash_below_an_ok_root_is_the_runs_error() -> None:
    trajectory = ordered(
        workflow(),
        agent(2, "a", end=200, error="Max turns (2) exceeded"),
        chat(3, parent=2, answer="still looking"),
    )
    assert trajectory.root_status is SpanStatus.UNSET
    assert trajectory.root_error == "Max turns (2) exceeded"


def test_an_error_that_was_repaired_is_not_the_runs() -> None:
    trajectory = ordered(
        workflow(),
        agent(2, "a", end=50, error="boom"),
        chat(3, parent=2, end=40, error="boom"),
        agent(10, "a", end=200),
        chat(11, parent=10, answer="better"),
    )
    assert trajectory.root_error == ""
    assert trajectory.steps[0].error == "boom"


def test_a_failed_root_says_why() -> None:
    raised = {"exception.type": "x.TimeoutError", "exception.message": "late"}
    failed = span(1, end=900, error="Traceback", events=[Event(name="exception", attributes=raised)])
    trajectory = ordered(failed, agent(2, "a"), chat(3, parent=2, error="late"))
    assert (trajectory.root_status, trajectory.root_error) == (SpanStatus.ERROR, "TimeoutError: late")
    assert trajectory.root_span_id == span_id(1)


def turn(number: int, request: str, *, error: str | None = None, agent_name: str = "barista") -> list[Span]:
    """A turn of an agent: its span, a model call and a tool call, which fails if there is an error."""
    asked = {"gen_ai.input.messages": messages(said("user", request))} if request else {}
    start = number * 100
    return [
        agent(number, agent_name, start=start, end=start + 90, error=error, attributes=asked),
        chat(number + 1, parent=number, start=start + 10, calls=[("brew", json.dumps({"of": request}), "c")]),
        tool(number + 2, "brew", parent=number, start=start + 20, error=error),
        *([] if error else [chat(number + 3, parent=number, start=start + 40, answer="Here you are.")]),
    ]


@pytest.mark.parametrize(
    "session", [span(1, end=9_000), workflow(end=9_000), span(1, end=9_000, error="late")]
)
def test_a_turn_that_crashed_counts_wherever_it_stands(session: Span) -> None:
    turns = [turn(10, "an espresso"), turn(20, "a mocha", error="boiler is cold"), turn(30, "a tea")]
    trajectory = ordered(session, *itertools.chain(*turns))
    if session.status is SpanStatus.ERROR:
        assert (trajectory.root_error, trajectory.failed_turn) == ("late", None)
    else:
        assert (trajectory.root_error, trajectory.failed_turn) == ("boiler is cold", (3, 4))
    first = ordered(session, *itertools.chain(turns[1], turns[2]))
    if session.status is not SpanStatus.ERROR:
        assert (first.root_status, first.failed_turn) == (SpanStatus.UNSET, (0, 1))


def test_a_turn_that_was_retried_is_repaired() -> None:
    for request in ("a mocha", "A  MOCHA", ""):
        turns = [turn(10, "a mocha" if request else "", error="boiler is cold"), turn(20, request)]
        trajectory = ordered(span(1, end=9_000), *itertools.chain(*turns))
        assert (trajectory.root_status, trajectory.root_error) == (SpanStatus.UNSET, "")
    before = [turn(10, "a mocha"), turn(20, "a mocha", error="boiler is cold"), turn(30, "a tea")]
    assert ordered(span(1, end=9_000), *itertools.chain(*before)).failed_turn == (3, 4)


def test_successive_agents_are_not_turns() -> None:
    turns = [turn(10, "a tea"), turn(20, "a mocha", error="cold", agent_name="roaster"), turn(30, "a cake")]
    trajectory = ordered(span(1, end=9_000), *itertools.chain(*turns))
    assert (trajectory.root_error, trajectory.failed_turn) == ("", None)


def test_a_run_whose_last_turn_crashed_ended_in_it() -> None:
    turns = [turn(10, "a tea", error="spilled"), turn(20, "a mocha", error="boiler is cold")]
    trajectory = ordered(span(1, end=9_000), *itertools.chain(*turns))
    assert (trajectory.root_error, trajectory.failed_turn) == ("boiler is cold", None)


def judged(name: str, label: str, **more: Any) -> Event:
    attributes = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.label": label, **more}
    return Event(name="gen_ai.evaluation.result", attributes=attributes)


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        pytest.param(judged("quality", "fail"), Outcome.FAILURE, id="failed"),
        pytest.param(judged("quality", "PASS"), Outcome.SUCCESS, id="passed"),
        pytest.param(judged("q", "", **{"gen_ai.evaluation.score.value": 0}), Outcome.FAILURE, id="score 0"),
        pytest.param(judged("q", "", **{"gen_ai.evaluation.score.value": 0.7}), None, id="score between"),
        pytest.param(judged("task_success", "fail"), Outcome.FAILURE, id="another's"),
        pytest.param(judged("task_success", "fail", **{"blamespan.failure.id": "7"}), None, id="our own"),
    ],
)
def test_an_evaluators_result_is_the_outcome(event: Event, outcome: Outcome | None) -> None:
    trajectory = ordered(workflow(logs=[event]), chat(2, answer="x"))
    assert trajectory.outcome is outcome
    assert trajectory.outcome_source is (OutcomeSource.EVALUATOR if outcome else None)


def test_an_evaluation_of_one_step_is_not_the_runs() -> None:
    relevance, correctness = judged("relevance", "fail"), judged("answer_correctness", "fail")
    assert ordered(workflow(), chat(2, answer="x", logs=[relevance])).outcome is None
    assert ordered(workflow(), chat(2, answer="x", logs=[correctness])).outcome is Outcome.FAILURE


def listed(prefix: str, name: str, label: str | None = None, **more: Any) -> dict[str, Any]:
    """The attributes of OpenInference's first annotation under ``prefix``."""
    entry = f"{prefix}.0.{'evaluation' if prefix == 'evaluations' else 'annotation'}"
    fields = {"name": name} | ({"label": label} if label else {}) | more
    return {f"{entry}.{field}": value for field, value in fields.items()}


@pytest.mark.parametrize("prefix", ["evaluations", "annotations", "trace.annotations", "session.annotations"])
def test_annotations_on_the_root_are_evaluations_of_the_run(prefix: str) -> None:
    for dialect in (WORKFLOW, {"traceloop.span.kind": "workflow"}, {}):
        root = span(1, attributes=dialect | listed(prefix, "correctness", "incorrect"), end=1000)
        trajectory = ordered(root, agent(2, "baker", end=900), chat(3, parent=2, answer="x"))
        assert trajectory.outcome is Outcome.FAILURE
        assert trajectory.outcome_source is OutcomeSource.EVALUATOR


def test_an_annotation_of_the_trace_is_of_the_run_wherever_it_stands() -> None:
    for prefix, outcome in (("trace.annotations", Outcome.FAILURE), ("annotations", None)):
        baker = chat(2, answer="x", attributes=listed(prefix, "order_correctness", "fail"))
        assert ordered(workflow(), baker, chat(3, answer="y")).outcome is outcome


@pytest.mark.parametrize(
    ("name", "failed", "passed"),
    [
        ("UserFeedback", Outcome.FAILURE, Outcome.SUCCESS),
        ("factual correctness", Outcome.FAILURE, Outcome.SUCCESS),
        ("", Outcome.FAILURE, Outcome.SUCCESS),
        ("cites_the_recipe", Outcome.FAILURE, None),
        ("answer_latency_ms", None, None),
        ("AnswerTone", None, None),
        ("toxicity", None, None),
        ("total cost", None, None),
        ("ContextualRelevancy", None, None),
        ("tool_call_accuracy", None, None),
        ("milestone_customer_costume", Outcome.FAILURE, None),
    ],
)
def test_an_evaluations_name_says_what_it_is_about(
    name: str, failed: Outcome | None, passed: Outcome | None
) -> None:
    assert ordered(workflow(logs=[judged(name, "fail")]), chat(2, answer="x")).outcome is failed
    assert ordered(workflow(logs=[judged(name, "pass")]), chat(2, answer="x")).outcome is passed


@pytest.mark.parametrize(
    ("name", "fields", "outcome"),
    [
        ("user_feedback", {"label": "thumbs-down"}, Outcome.FAILURE),
        ("user_feedback", {"label": "👍"}, Outcome.SUCCESS),
        ("thumbs", {"score": 0.0}, Outcome.FAILURE),
        ("thumbs", {"score": True}, Outcome.SUCCESS),
        ("star_rating_of_answer", {"score": 1}, None),
        ("task_error_rate", {"score": 0}, None),
        ("answer hallucination", {"label": "hallucinated", "score": 1}, Outcome.FAILURE),
    ],
)
def test_labels_and_scores_of_feedback_are_read(
    name: str, fields: dict[str, Any], outcome: Outcome | None
) -> None:
    root = span(1, attributes=WORKFLOW | listed("annotations", name, **fields), end=1000)
    assert ordered(root, chat(2, answer="x")).outcome is outcome


def test_a_person_outranks_a_program() -> None:
    person = listed("annotations", "user_feedback", "thumbs up", annotator_kind="HUMAN")
    root = span(1, attributes=WORKFLOW | person, logs=[judged("correctness", "fail")], end=1000)
    trajectory = ordered(root, chat(2, answer="x"))
    assert (trajectory.outcome, trajectory.outcome_source) == (Outcome.SUCCESS, OutcomeSource.USER)


def by(judge: str, event: Event) -> Event:
    attributes = {**event.attributes, "gen_ai.evaluation.evaluator.type": judge}
    return replace(event, attributes=attributes)


@pytest.mark.parametrize("judge", ["llm_judge", "deterministic", "humanoid", ""])
def test_an_event_of_a_persons_evaluation_outranks_a_program(judge: str) -> None:
    person, program = by("human", judged("correctness", "pass")), by(judge, judged("correctness", "fail"))
    trajectory = ordered(workflow(logs=[program, person]), chat(2, answer="x"))
    assert (trajectory.outcome, trajectory.outcome_source) == (Outcome.SUCCESS, OutcomeSource.USER)


def test_an_evaluator_that_failed_states_no_outcome() -> None:
    event = judged("correctness", "fail")
    broken = replace(event, attributes={**event.attributes, "error.type": "timeout"})
    assert ordered(workflow(logs=[broken]), chat(2, answer="x")).outcome is None


def test_a_step_keeps_the_evaluations_that_it_failed() -> None:
    judge = openinference(9, "EVALUATOR", parent=2, logs=[judged("dose_check", "fail")])
    spans = [
        chat(2, answer="x", logs=[judged("politeness", "fail"), judged("unit_check", "pass")]),
        tool(3, "lookup", logs=[judged("document_relevance", "fail")]),
        chat(4, answer="y", logs=[judged("answer_correctness", "fail")]),
    ]
    steps = ordered(workflow(), *spans, judge).steps
    assert [step.failed_evaluations for step in steps] == [("dose_check",), ("document_relevance",), ()]


SAYS_SO: Final = {"blamespan.task.outcome": "success"}
PASSED: Final = judged("task_success", "pass")
FAILED: Final = judged("answer_correctness", "fail")


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(agent(2, "clerk", attributes=SAYS_SO), id="a sub-agent's word"),
        pytest.param(agent(2, "clerk", logs=[PASSED]), id="an evaluation of a sub-agent"),
        pytest.param(span(2, parent=1, attributes=WORKFLOW | SAYS_SO), id="a workflow within"),
        pytest.param(workflow(2, parent=1, logs=[PASSED]), id="an evaluation of a workflow within"),
        pytest.param(chat(2, answer="x", logs=[PASSED]), id="an evaluation of a step"),
    ],
)
def test_a_statement_about_a_part_is_no_outcome_of_the_run(inner: Span) -> None:
    """A sub-agent that says "success" acquitted a run that crashed."""
    trajectory = ordered(workflow(error="out of memory"), inner, chat(3, parent=2, answer="x", error="late"))
    assert trajectory.outcome is None
    assert trajectory.root_status is SpanStatus.ERROR


@pytest.mark.parametrize("step", [2, 3])
def test_a_failed_part_does_not_condemn_a_run_that_went_on(step: int) -> None:
    spans = [agent(2, "clerk"), chat(3, parent=2, answer="no"), chat(4, start=900, answer="yes")]
    spans[step - 2] = replace(spans[step - 2], logs=(FAILED,))
    assert ordered(workflow(), *spans).outcome is None


def test_spans_above_and_beside_a_run_state_its_outcome() -> None:
    within = (workflow(2, parent=1), chat(3, parent=2, answer="x"))
    root = span(1, attributes=WORKFLOW | SAYS_SO)
    assert ordered(root, *within).outcome is Outcome.SUCCESS
    for parent in (1, 2):  # beside the run, below a span of a web server, and below the run itself
        evaluator = openinference(4, "EVALUATOR", parent=parent, logs=[FAILED])
        assert ordered(span(1), *within, evaluator).outcome is Outcome.FAILURE


def test_an_evaluation_of_one_turn_does_not_cover_the_others() -> None:
    turns = (agent(2, "clerk"), agent(5, "clerk"), chat(6, parent=5, answer="x"))
    evaluators = [openinference(number + 5, "EVALUATOR", parent=number, logs=[PASSED]) for number in (2, 5)]
    assert ordered(span(1), *turns, evaluators[0]).outcome is None
    assert ordered(span(1), *turns, *evaluators).outcome is Outcome.SUCCESS


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (("success", "success"), Outcome.SUCCESS),
        (("success", None), None),
        (("failure", "success"), Outcome.FAILURE),
        (("failure", None), Outcome.FAILURE),
    ],
)
def test_a_run_of_several_turns_fails_if_one_turn_fails(
    said: tuple[str | None, ...], outcome: Outcome | None
) -> None:
    turns = [
        agent(number, "clerk", attributes={"blamespan.task.outcome": one} if one else {})
        for number, one in enumerate(said, start=2)
    ]
    assert ordered(span(1), *turns, chat(9, parent=2, answer="x")).outcome is outcome


@pytest.mark.parametrize(
    ("completion", "complete"),
    [
        (Completion.RECORDED, True),
        (Completion.ROOT_ENDED, True),
        (Completion.IDLE_OPEN, False),
        (Completion.MAX_AGE, False),
    ],
)
def test_a_run_that_was_cut_short_is_not_complete(completion: Completion, complete: bool) -> None:
    assert ordered(workflow(), chat(2, answer="x"), completion=completion).complete is complete


def test_a_tool_that_lost_its_caller_is_not_complete() -> None:
    assert not ordered(tool(1, "search", parent=None)).complete


def test_an_unknown_dialect_gives_no_steps_and_a_warning() -> None:
    strange = span(1, scope="strange", attributes={"smolagents.strange": "agent"})
    trajectory = ordered(strange)
    assert trajectory.steps == ()
    assert trajectory.warnings == ("no steps: agent spans of a dialect that is not known (strange)",)


def test_a_trace_without_agents_gives_no_steps() -> None:
    assert ordered(span(1)).warnings == ("no steps: no agent span among these",)
    assert ordered().warnings == ("no steps: no agent span among these",)


@pytest.mark.parametrize("kind", ["CHAIN", "AGENT", "LLM", "TOOL", "GUARDRAIL"])
def test_ten_thousand_levels_of_anything_are_ordered(kind: str) -> None:
    deep = [
        openinference(number, kind, parent=number - 1 or None, start=number, end=30_000 - number)
        for number in range(1, 10_001)
    ]
    assert len(ordered(*deep).steps) <= 1


def test_an_agent_that_a_tool_runs_beside_its_caller_stands_for_the_call() -> None:
    trajectory = ordered(
        workflow(end=500),
        agent(2, "clerk", end=300),
        chat(3, parent=2, start=30, end=40, calls=[("ask_writer", "{}", "c1")]),
        tool(4, "ask_writer", parent=2, start=50, end=200),
        agent(5, "writer", start=60, end=190),
        chat(6, parent=5, start=70, end=180, answer="done"),
        chat(7, parent=2, start=210, end=290, answer="done"),
    )
    assert outline(trajectory) == [("clerk", "llm"), ("writer", "llm"), ("clerk", "llm")]
