"""Tapes read from recorded spans of every framework, and what cannot be replayed."""

from __future__ import annotations

import pytest

from analyzer.experiment.replay.canonical import canonical
from analyzer.experiment.replay.read_tape import read_tape, said_by_provider, undeclared_tool
from analyzer.experiment.replay.tape import NotReplayable, Obstacle, ReadTape, Tape
from analyzer.experiment.replay.trial import Request, Serve, Trial
from analyzer.experiment.replay.trial_tools import ToolRules
from analyzer.experiment.replay.wire import WIRES
from analyzer.recordings.read_files import read_recording
from collector_processor.core.runs import Run
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from semconv.model import AttributeValue, Span
from semconv.record import replace
from tests.factories import ordered, span, trace
from tests.frameworks.catalogue import catalogue
from tests.tapes import chat_body


def recorded(name: str, variant: str = "normal") -> Run:
    recording = read_recording(catalogue()[name].fixture(variant).read_bytes())
    runs = rebuild(recording.traces, recording.bodies(Signal.LOGS))
    return max(runs, key=lambda run: len(run.trajectory.steps))


NAMES = ["openai_agents_genai", "own_instrument", "strands_native", "agno_openinference"]


@pytest.mark.parametrize("name", NAMES)
def test_the_tape_of_a_recording_is_served_whole_to_the_same_requests(name: str) -> None:
    found = read_tape(recorded(name))
    assert isinstance(found, Tape)
    trial = Trial(found)
    for each in found.calls:
        asked = WIRES["chat/completions"].read(chat_body(each.messages))
        assert canonical(asked.messages) == canonical(each.messages)
        decision = trial.ask(Request(messages=asked.messages, kind=asked.kind))
        assert isinstance(decision, Serve)
        assert decision.call == each.index


@pytest.mark.parametrize(
    ("name", "variant", "mend"),
    [
        ("autogen_native", "normal", "AutogenAgentChatInstrumentor().instrument()"),
        ("ag2_openinference", "normal", "instrument_llm_wrapper(capture_messages=True)"),
        ("claude_agent_sdk_openinference", "normal", "no setting: "),
        ("claude_code_detailed", "normal", "no setting: "),
        ("claude_code_native", "normal", "no setting: "),
        ("openai_agents_openinference", "crash", "choose a run whose model calls all succeeded"),
        ("pydantic_ai_v6", "crash", "choose a run whose model calls all succeeded"),
    ],
)
def test_an_instrumentation_without_model_calls_gets_advice_on_one_that_records_them(
    name: str, variant: str, mend: str
) -> None:
    found = read_tape(recorded(name, variant))
    assert isinstance(found, NotReplayable)
    assert mend in found.mend[0]


def run_of(*spans: Span) -> Run:
    return Run(trace=trace(*spans), trajectory=ordered(*spans))


def chat(**attributes: AttributeValue) -> ReadTape:
    """The tape of a run of one model call with further attributes."""
    known: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"How many?"}]}]',
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"85"}]}]',
    }
    given = {name.replace("__", "."): value for name, value in attributes.items()}
    return read_tape(run_of(span(1, name="chat gpt", attributes={**known, **given})))


CUT = '[{"role":"assistant","content":"85… [cut, 99 characters]"}]'
CALLING = '[{"role":"assistant","parts":[{"type":"tool_call","name":"find","arguments":"{}"}]}]'
PENDING = {"gen_ai__output__messages": CALLING}


def test_a_call_is_on_the_tape_with_its_step_and_its_answer() -> None:
    found = chat(gen_ai__response__model="gpt-5", gen_ai__usage__input_tokens=12)
    assert isinstance(found, Tape)
    (only,) = found.calls
    answer = only.answer
    assert (only.step, answer.text, answer.model, answer.input_tokens) == (0, "85", "gpt-5", 12)
    assert not only.has_system


@pytest.mark.parametrize(
    ("obstacle", "attributes"),
    [
        (Obstacle.NO_CONTENT, {"gen_ai__output__messages": ""}),
        (Obstacle.UNREACHABLE_PROVIDER, {"gen_ai__provider__name": "aws.bedrock"}),
        (Obstacle.UNREACHABLE_PROVIDER, {"gen_ai__provider__name": "azure.ai.openai"}),
        (Obstacle.BACKGROUND, {"request": '{"background": true}'}),
        (Obstacle.STORED_CONVERSATION, {"request": '{"conversation": {"id": "conv_1"}}'}),
        (Obstacle.PROVIDER_TOOL, {"answer": '{"output": [{"type": "web_search_call"}]}'}),
        (Obstacle.ENCRYPTED_REASONING, PENDING | {"answer": '[{"type": "thinking", "signature": "x"}]'}),
        (Obstacle.ENCRYPTED_REASONING, PENDING | {"answer": f'{{"signature": "{"Eq" * 20}"}}'}),
        (Obstacle.CUT, {"gen_ai__output__messages": CUT}),
        (Obstacle.CUT, {"one": "a" * 200, "other": "b" * 200}),
    ],
)
def test_the_reason_is_given_why_a_run_cannot_be_replayed(
    obstacle: Obstacle, attributes: dict[str, AttributeValue]
) -> None:
    found = chat(**attributes)
    assert isinstance(found, NotReplayable)
    assert found.obstacle is obstacle
    assert found.reason


def spoken(asked: str, answer: str) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": f'[{{"role":"user","content":"{asked}"}}]',
        "gen_ai.output.messages": f'[{{"role":"assistant","content":"{answer}"}}]',
    }


def test_reasoning_without_a_pending_tool_and_declared_provider_tools_can_be_replayed() -> None:
    assert isinstance(chat(answer='[{"type": "thinking", "signature": "x"}]'), Tape)
    searched = span(1, attributes=spoken("?", "85") | {"answer": '{"output": [{"type": "web_search_call"}]}'})
    assert isinstance(read_tape(run_of(searched), allow_tools=frozenset({"web_search"})), Tape)


def test_a_limit_that_dropped_attributes_is_named_with_the_setting() -> None:
    run = recorded("own_instrument")
    dropped = tuple(replace(each, dropped_attributes=3) for each in run.trace.spans)
    found = read_tape(Run(trace=replace(run.trace, spans=dropped), trajectory=run.trajectory))
    assert isinstance(found, NotReplayable)
    assert found.obstacle is Obstacle.CUT
    assert found.mend[0].startswith("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=")


def test_a_tool_that_would_really_run_is_named_unless_it_was_declared() -> None:
    found = read_tape(recorded("openai_agents_genai"))
    assert isinstance(found, Tape)
    obstacle = undeclared_tool(found, ToolRules())
    assert obstacle is not None
    assert "`look_up_vessel`" in obstacle.reason
    assert undeclared_tool(found, ToolRules(allowed=frozenset({"look_up_vessel"}))) is None
    ours = read_tape(recorded("own_instrument"))
    assert isinstance(ours, Tape)
    assert undeclared_tool(ours, ToolRules()) is None


def test_a_continued_response_is_expanded_with_what_was_said_before() -> None:
    def part(number: int, text: str, request: str, id_: str) -> Span:
        told = {"gen_ai.response.id": id_, "request": request}
        return span(number, attributes=spoken(text, f"to {text}") | told)

    second = part(2, "b", '{"previous_response_id": "resp_1"}', "resp_2")
    found = read_tape(run_of(part(1, "a", "{}", "resp_1"), second))
    assert isinstance(found, Tape)
    assert [message.text for message in found.calls[1].messages] == ["a", "to a", "b"]


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        pytest.param("InternalServerError: Error code: 500 - out of order", "out of order", id="with type"),
        pytest.param("Error code: 429 - slow down", "slow down", id="without type"),
        pytest.param("out of order", "out of order", id="as it was sent"),
        pytest.param("Error code: 500 - ", "Error code: 500 - ", id="nothing else"),
    ],
)
def test_an_error_is_served_without_the_words_that_the_client_adds(recorded: str, sent: str) -> None:
    assert said_by_provider(recorded) == sent
