"""Spans of a program's model calls: steps without instrumentation, texts for instrumentation without them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest

from analyzer.programs.call_spans import joined_with, owners_of, spans_of_calls
from analyzer.programs.model_call import PassedCall
from collector_processor.trajectory import order
from semconv.dialects import USUAL
from semconv.model import UNKNOWN_AGENT, Span, SpanStatus, StepKind, Trace, Trajectory
from semconv.record import replace
from tests.factories import at, span

SALES = {"id": "c1", "type": "function", "function": {"name": "sales", "arguments": '{"region": "north"}'}}


def ids() -> Callable[[int], str]:
    number = count(1000)
    return lambda size: f"{next(number):0{2 * size}x}"


def call(
    second: int, instructions: str, *messages: Mapping[str, Any], said: Mapping[str, Any], status: int = 200
) -> PassedCall:
    """A call that begins at a second and takes half of one."""
    asked = [{"role": "system", "content": instructions}, *messages]
    answer = {"choices": [{"message": {"role": "assistant", **said}}]}
    return PassedCall(
        path="/v1/chat/completions",
        request=json.dumps({"model": "m", "messages": asked}).encode(),
        answer=json.dumps(answer if status == 200 else {"error": {"message": "busy"}}).encode(),
        content_type="application/json",
        status=status,
        start_ns=at(1000 * second),
        end_ns=at(1000 * second + 500),
    )


TASK = {"role": "user", "content": "How many did we sell in the north?"}
ASKED = call(1, "You are the researcher.", TASK, said={"content": None, "tool_calls": [SALES]})
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"units": 1200}'}
CALLED = {"role": "assistant", "tool_calls": [SALES]}
FOUND = call(3, "You are the researcher.", TASK, CALLED, RESULT, said={"content": "1,200 units"})
UNITS = {"role": "user", "content": "1,200 units"}
TOLD = call(5, "Answer kindly.", UNITS, said={"content": "We sold 1,200."})


def steps(spans: tuple[Span, ...]) -> Trajectory:
    return order(Trace(spans=spans))


def shape(trajectory: Trajectory) -> list[tuple[str, StepKind, str]]:
    return [(step.agent, step.kind, step.output) for step in trajectory.steps]


def test_a_program_without_instrumentation_has_agents_tools_task_and_answer() -> None:
    found = steps(spans_of_calls((TOLD, FOUND, ASKED), "report", ids()))
    assert (found.task, found.output) == (TASK["content"], "We sold 1,200.")
    assert shape(found) == [
        ("researcher", StepKind.LLM, 'call sales({"region": "north"})'),
        ("researcher", StepKind.TOOL, '{"units": 1200}'),
        ("researcher", StepKind.LLM, "1,200 units"),
        ("agent 1", StepKind.LLM, "We sold 1,200."),
    ]
    assert found.steps[0].calls[0].name == "sales"


def test_agents_that_share_a_conversation_repeat_no_tool() -> None:
    shared = (TASK, CALLED, RESULT, {"role": "assistant", "content": "1,200 units"})
    heard = call(5, "You are the writer.", *shared, said={"content": "We sold 1,200."})
    found = steps(spans_of_calls((ASKED, FOUND, heard), "report", ids()))
    assert [step.agent for step in found.steps if step.kind is StepKind.TOOL] == ["researcher"]
    own = call(6, "You are the writer.", TASK, said={"content": None, "tool_calls": [SALES]})
    again = call(8, "You are the writer.", TASK, CALLED, RESULT, said={"content": "We sold 1,200."})
    found = steps(spans_of_calls((ASKED, FOUND, own, again), "report", ids()))
    assert [step.agent for step in found.steps if step.kind is StepKind.TOOL] == ["researcher", "writer"]


def test_unnamed_agents_are_distinguished_by_the_beginning_of_their_instructions() -> None:
    long = "Answer kindly and in short sentences. " * 4
    said = {"content": "yes"}
    calls = [
        call(1, f"{long} Today is Monday.", TASK, said=said),
        call(2, "Check the answer.", TASK, said=said),
        call(3, f"{long} Today is Tuesday.", TASK, said=said),
    ]
    found = steps(spans_of_calls(calls, "report", ids()))
    assert [step.agent for step in found.steps] == ["agent 1", "agent 2", "agent 1"]


@pytest.mark.parametrize(
    ("instructions", "agent"),
    [
        ("You're the analyst. Add up.", "analyst"),
        ("Act as a data analyst: add up.", "data analyst"),
        ("Role: analyst\nAdd up.", "analyst"),
        ("Your name is Anna. Add up.", "anna"),
        ("Du bist die Analystin. Addiere.", "analystin"),
        ("Eres el analista. Suma.", "analista"),
        ("你是一名分析师。请求和。", "分析师"),
        ("Act as a helpful assistant.", "agent 1"),
        ("Du bist freundlich.", "agent 1"),
        ("Role models are listed below. Act as they do.", "agent 1"),
    ],
)
def test_instructions_name_an_agent_in_several_ways(instructions: str, agent: str) -> None:
    found = steps(spans_of_calls([call(1, instructions, TASK, said={"content": "3"})], "report", ids()))
    assert [step.agent for step in found.steps] == [agent]


def test_prompts_in_place_of_instructions_distinguish_agents_and_not_the_texts_that_they_are_about() -> None:
    def prompt(second: int, text: str) -> PassedCall:
        return call(second, "", {"role": "user", "content": text}, said={"content": "3"})

    calls = (prompt(1, "Add up:\n1, 2"), prompt(2, "Answer kindly.\n3"), prompt(3, "Add up:\n3, 4"))
    found = steps(spans_of_calls((*calls, prompt(4, "You are the poet. Write.")), "report", ids()))
    assert [step.agent for step in found.steps] == ["agent 1", "agent 2", "agent 1", "poet"]


def test_a_call_that_the_provider_refused_is_an_error() -> None:
    refused = call(1, "You are the clerk.", TASK, said={}, status=429)
    root, chat = spans_of_calls([refused], "report", ids())
    assert (chat.status, chat.status_message) == (SpanStatus.ERROR, "HTTP 429: busy")
    assert root.status is SpanStatus.UNSET
    assert spans_of_calls([], "report", ids()) == ()


def text_turn(role: str, text: str, **more: str) -> dict[str, str]:
    return {"role": role, "content": text, **more}


def test_an_answer_that_is_repeated_under_a_name_names_its_agent() -> None:
    """As AutoGen does: the last agent's answer is in no request, so its own instructions must name it."""
    found = text_turn("user", "1,200 units", name="researcher")
    calls = (
        call(1, "Look it up.", TASK, said={"content": None, "tool_calls": [SALES]}),
        call(3, "Look it up.", TASK, CALLED, RESULT, said={"content": "1,200 units"}),
        call(5, "You are the clerk.", TASK, found, said={"content": "Noted."}),
        call(
            7,
            "Say it.",
            TASK,
            found,
            text_turn("assistant", "Noted.", name="desk"),
            said={"content": "1,200"},
        ),
    )
    agents = [step.agent for step in steps(spans_of_calls(calls, "sales.py", ids())).steps]
    assert agents == ["researcher", "researcher", "researcher", "desk", "agent 1"]


def test_words_that_two_agents_say_and_names_of_people_name_no_agent() -> None:
    done = text_turn("user", "Done.", name="painter")
    calls = (
        call(1, "Paint.", text_turn("user", "Paint the hall.", name="alice"), said={"content": "Done."}),
        call(3, "Sweep.", TASK, said={"content": "Done."}),
        call(5, "Report.", TASK, done, said={"content": "Both did."}),
    )
    agents = [step.agent for step in steps(spans_of_calls(calls, "hall.py", ids())).steps]
    assert agents == ["agent 1", "agent 2", "agent 3"]


def conversation(answer: Mapping[str, Any], *behind: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """The steps of two calls, of which the second repeats the first one's answer."""
    calls = (
        call(1, "Look it up. Action: sales\nAction Input: north", TASK, said=answer),
        call(3, "Look it up. Action: sales\nAction Input: north", TASK, *behind, said={"content": "1,200."}),
    )
    found = steps(spans_of_calls(calls, "sales.py", ids())).steps
    return [(step.kind.value, step.target or "", step.input, step.output) for step in found][1:-1]


REACT = "Thought: look.\nAction: sales\nAction Input: north"
HERMES = '<tool_call>\n{"name": "sales", "arguments": {"region": "north"}}\n</tool_call>'
LISTED = f"Calling tools:\n{[{'id': 'c1', 'function': {'name': 'sales', 'arguments': {'region': 'north'}}}]}"
IN_CODE = 'Look.\n<code>\nprint(sales("north"))\n</code>'


@pytest.mark.parametrize(
    ("answer", "behind", "target", "given"),
    [
        pytest.param(
            {"content": None, "tool_calls": [SALES]},
            [text_turn("assistant", LISTED), text_turn("user", "Observation:\n1200")],
            "sales", '{"region": "north"}', id="a call repeated as text",
        ),
        pytest.param(
            {"content": REACT},
            [text_turn("assistant", REACT), text_turn("user", "Observation: 1200")],
            "sales", "north", id="an action",
        ),
        pytest.param(
            {"content": REACT},
            [text_turn("assistant", f"{REACT}\nObservation: 1200")],
            "sales", "north", id="an observation in the same message",
        ),
        pytest.param(
            {"content": REACT},
            [text_turn("user", f"So far:\n{REACT}\nObservation: 1200\nThought: ")],
            "sales", "north", id="a scratchpad in the prompt",
        ),
        pytest.param(
            {"content": HERMES},
            [text_turn("assistant", HERMES), text_turn("user", "<tool_response>\n1200")],
            "sales", '{"region": "north"}', id="a call of a local model",
        ),
        pytest.param(
            {"content": IN_CODE},
            [text_turn("assistant", IN_CODE), text_turn("user", "Observation:\n1200")],
            "python_interpreter", '{"code": "print(sales(\\"north\\"))"}', id="code",
        ),
    ],
)  # fmt: skip
def test_a_call_that_an_answer_writes_is_a_step_with_its_observation(
    answer: Mapping[str, Any], behind: list[Mapping[str, Any]], target: str, given: str
) -> None:
    assert conversation(answer, *behind) == [("tool", target, given, "1200")]


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(
            [text_turn("assistant", REACT), text_turn("user", "Thanks, go on.")], id="no observation"
        ),
        pytest.param(
            [text_turn("user", "Action: refund\nAction Input: 4711\nObservation: 1200")], id="an example"
        ),
    ],
)
def test_a_call_that_no_answer_wrote_or_nothing_answers_is_no_step(behind: list[Mapping[str, Any]]) -> None:
    assert conversation({"content": REACT}, *behind) == []


def test_an_observation_ends_at_the_next_action() -> None:
    south = "Action: sales\nAction Input: south"
    told = f"So far:\n{REACT}\nObservation: 1200\n{south}\nObservation: 900\nThought: "
    outputs = [step[-1] for step in conversation({"content": f"{REACT}\n{south}"}, text_turn("user", told))]
    assert outputs == ["1200", "900"]


@pytest.mark.parametrize(
    ("listed", "steps_of_tools"),
    [
        ("[{[]: 1}]", []),
        (
            "[{'function': {'name': 'sales', 'arguments': {(1, 2): 3}}}]",
            [("tool", "sales", "{}", "1200")],
        ),
    ],
)
def test_a_list_of_calls_that_json_cannot_have_is_read_as_far_as_it_goes(
    listed: str, steps_of_tools: list[tuple[str, ...]]
) -> None:
    said = f"Calling tools:\n{listed}"
    behind = [text_turn("assistant", said), text_turn("user", "Observation:\n1200")]
    assert conversation({"content": said}, *behind) == steps_of_tools


def test_calls_of_one_answer_keep_their_order_whatever_the_ids_of_their_spans() -> None:
    regions = ("north", "south", "east")
    asked = [wanted(f"c{number}", region) for number, region in enumerate(regions)]
    results = [answered(f"c{number}", region) for number, region in enumerate(regions)]
    calls = (
        call(1, "Look it up.", TASK, said={"content": None, "tool_calls": asked}),
        call(
            3,
            "Look it up.",
            TASK,
            {"role": "assistant", "tool_calls": asked},
            *results,
            said={"content": "1"},
        ),
    )
    falling = count(9000, -1)
    found = spans_of_calls(calls, "sales.py", lambda size: f"{next(falling):0{2 * size}x}")
    assert [step.output for step in steps(found).steps if step.kind is StepKind.TOOL] == [*regions]


def own(number: int, begin_s: float, end_s: float, parent: int | None = None, **attributes: str) -> Span:
    """A span of the program; in names of attributes, ``__`` is a dot."""
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return span(number, parent=parent, start=1000 * begin_s, end=1000 * end_s, attributes=named)


CHAT: Any = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "m"}


def test_spans_without_texts_get_them_and_nothing_appears_twice() -> None:
    spans = (
        own(1, 0, 9, gen_ai__operation__name="invoke_workflow"),
        own(2, 0.9, 1.4, 1, **CHAT),  # ends before we saw the end of the answer
        own(3, 2.9, 4, 1, **CHAT),
        own(4, 4.9, 6, 1, **CHAT),
    )
    joined, left = joined_with(spans, (ASKED, FOUND, TOLD), USUAL, ids())
    assert left == ()
    found = steps(joined)
    assert [one for one in shape(found) if one[1] is StepKind.LLM] == [
        ("researcher", StepKind.LLM, 'call sales({"region": "north"})'),
        ("researcher", StepKind.LLM, "1,200 units"),
        (UNKNOWN_AGENT, StepKind.LLM, "We sold 1,200."),
    ]
    assert [one for one in shape(found) if one[1] is StepKind.TOOL] == [
        ("researcher", StepKind.TOOL, '{"units": 1200}')
    ]


def test_a_programs_own_texts_agents_and_tools_stay() -> None:
    recorded = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "the program's"}]}])
    spans = (
        own(1, 0, 9, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="mara"),
        own(2, 0.9, 1.4, 1, **CHAT, gen_ai__input__messages=recorded),
        own(3, 1.5, 2.9, 1, gen_ai__operation__name="execute_tool", gen_ai__tool__name="sales"),
        own(4, 2.95, 4, 1, **CHAT),
    )
    joined, left = joined_with(spans, (ASKED, FOUND), USUAL, ids())
    assert left == ()
    assert len(joined) == len(spans)
    assert joined[1] == spans[1]
    assert {step.agent for step in steps(joined).steps} == {"mara"}


def test_the_repeated_call_of_a_client_counts_and_not_the_refused_one() -> None:
    spans = (own(1, 0, 9, **CHAT),)
    refused = call(1, "You are the clerk.", TASK, said={}, status=500)
    answered = call(3, "You are the clerk.", TASK, said={"content": "1,200"})
    joined, _ = joined_with(spans, (refused, answered), USUAL, ids())
    assert [step.output for step in steps(joined).steps] == ["1,200"]


def test_calls_inside_a_run_without_model_spans_become_its_steps_and_others_are_left() -> None:
    spans = (
        own(1, 0, 4.9, gen_ai__operation__name="invoke_workflow"),
        own(2, 0.5, 4.5, 1, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="mara"),
    )
    joined, left = joined_with(spans, (ASKED, FOUND, TOLD), USUAL, ids())
    assert left == (TOLD,)
    added = joined[2:]
    assert [one.name for one in added] == ["chat m", "chat m", "execute_tool sales"]
    assert {one.parent_id for one in added} == {spans[1].span_id}


def wanted(call_id: str, region: str) -> dict[str, Any]:
    arguments = json.dumps({"region": region})
    return {"id": call_id, "type": "function", "function": {"name": "sales", "arguments": arguments}}


def answered(call_id: str, result: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": result}


def _asking(region: str) -> list[Mapping[str, Any]]:
    asked = {"role": "assistant", "tool_calls": [wanted("call_0", region)]}
    return [{"role": "user", "content": f"{region}?"}, asked]


def test_results_belong_to_calls_of_their_own_conversation_whatever_the_ids() -> None:
    """Some servers use one id for every call, and two agents may ask at the same time."""
    done = {"content": "done"}
    north, south = (_asking(one) for one in ("north", "south"))
    more: list[Mapping[str, Any]] = [
        answered("call_0", "12"),
        {"role": "assistant", "tool_calls": [wanted("call_0", "west")]},
        answered("call_0", "no data"),
    ]
    calls = [
        call(1, "You are the northerner.", *north, answered("call_0", "12"), said=done),
        call(2, "You are the southerner.", *south, answered("call_0", "34"), said=done),
        call(3, "You are the northerner.", *north, *more, said=done),
    ]
    tools = [one for one in steps(spans_of_calls(calls, "report", ids())).steps if one.kind is StepKind.TOOL]
    assert [(one.agent, one.input, one.output) for one in tools] == [
        ("northerner", '{"region": "north"}', "12"),
        ("southerner", '{"region": "south"}', "34"),
        ("northerner", '{"region": "west"}', "no data"),
    ]


def test_calls_without_ids_are_answered_in_their_order() -> None:
    asked = {"role": "assistant", "tool_calls": [wanted("", "north"), wanted("", "south")]}
    results = (answered("", "12"), answered("", "34"))
    one = call(1, "You are the clerk.", TASK, asked, *results, said={"content": "46"})
    made = steps(spans_of_calls([one], "report", ids())).steps
    tools = [(each.input, each.output) for each in made if each.kind is StepKind.TOOL]
    assert tools == [('{"region": "north"}', "12"), ('{"region": "south"}', "34")]


def test_calls_in_flight_together_go_to_the_spans_that_enclose_them_most_closely() -> None:
    spans = (
        own(1, 0, 9, gen_ai__operation__name="invoke_workflow"),
        own(2, 0.9, 1.6, 1, **CHAT, gen_ai__agent__name="adder"),
        own(3, 0.95, 3.6, 1, **CHAT, gen_ai__agent__name="greeter"),
    )
    quick = call(1, "", TASK, said={"content": "3,530"})
    slow = call(1, "", {"role": "user", "content": "greet"}, said={"content": "hello"})
    slow = replace(slow, end_ns=at(3500))
    joined, left = joined_with(spans, (slow, quick), USUAL, ids())
    assert left == ()
    assert {step.agent: step.output for step in steps(joined).steps} == {"adder": "3,530", "greeter": "hello"}


def test_an_agent_that_the_program_names_keeps_its_name() -> None:
    spans = (
        own(1, 0, 9, gen_ai__operation__name="invoke_workflow"),
        own(2, 0.5, 8, 1, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="analyst"),
    )
    joined, _ = joined_with(spans, (call(1, "Be brief.", TASK, said={"content": "1"}),), USUAL, ids())
    assert [step.agent for step in steps(joined).steps] == ["analyst"]


def test_runs_of_one_process_get_the_calls_that_began_in_them() -> None:
    one = (own(1, 0, 6, gen_ai__operation__name="invoke_workflow"),)
    other = (own(2, 2, 6, gen_ai__operation__name="invoke_workflow"),)
    late = call(8, "", TASK, said={"content": "?"})
    assert owners_of((ASKED, FOUND, TOLD, late), (one, other)) == ([[ASKED], [FOUND, TOLD]], [late])
