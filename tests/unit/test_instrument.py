"""The emitting API: names and attributes, parents, errors, async, threads, privacy, and hostile values."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context as otel_context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from semconv import attributes as names
from semconv.emit.content import CAPTURE_VARIABLE, MAX_MESSAGES, MAX_TEXT, messages_of
from semconv.instrument import (
    ContentCapture,
    Operation,
    RunHandle,
    agent,
    carry,
    current_run,
    handoff,
    llm,
    run,
    tool,
)

CONTENT = (
    names.TASK_INPUT,
    names.TASK_OUTPUT,
    names.TASK_REFERENCE,
    names.GEN_AI_INPUT_MESSAGES,
    names.GEN_AI_OUTPUT_MESSAGES,
    names.GEN_AI_SYSTEM_INSTRUCTIONS,
    names.GEN_AI_TOOL_CALL_ARGUMENTS,
    names.GEN_AI_TOOL_CALL_RESULT,
)


@dataclass(frozen=True, slots=True)
class Recorder:
    """A tracer provider and its recorded spans."""

    provider: TracerProvider
    exporter: InMemorySpanExporter

    def root(self, name: str = "trip", **options: Any) -> Operation[RunHandle]:
        inherited: dict[str, Any] = {"tracer_provider": self.provider, "capture": "SPAN_ONLY"}
        return run(name, **(inherited | options))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def attributes(self, name: str) -> dict[str, Any]:
        return dict(self.named(name).attributes or {})

    def messages(self, name: str, key: str = names.GEN_AI_INPUT_MESSAGES) -> Any:
        return json.loads(self.attributes(name)[key])

    def parent(self, name: str) -> str:
        above = self.named(name).parent
        assert above is not None
        spans = {span.context.span_id: span.name for span in self.spans if span.context}
        return spans[above.span_id]

    def all_attributes(self, name: str) -> list[dict[str, Any]]:
        return [dict(span.attributes or {}) for span in self.spans if span.name == name]

    def trace_ids(self) -> set[int]:
        return {span.context.trace_id for span in self.spans if span.context}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.delenv(CAPTURE_VARIABLE, raising=False)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Recorder(provider, exporter)


def said(role: str, text: str) -> str:
    """A list of one message as the conventions write it."""
    return f'[{{"role": "{role}", "parts": [{{"type": "text", "content": "{text}"}}]}}]'


# Names, attributes, parents ------------------------------------------------


def test_a_run_says_task_answer_and_outcome(recorder: Recorder) -> None:
    with recorder.root(task="Where to?", reference="Oslo", task_id="t-1", conversation_id="c-1") as attempt:
        attempt.output("Bergen")
        attempt.outcome("failure", source="reference")
    span = recorder.named("invoke_workflow trip")
    assert span.kind is SpanKind.INTERNAL
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == names.SCOPE_INSTRUMENT
    assert span.instrumentation_scope.schema_url == ""
    assert recorder.attributes("invoke_workflow trip") == {
        names.GEN_AI_OPERATION_NAME: "invoke_workflow",
        names.GEN_AI_WORKFLOW_NAME: "trip",
        names.GEN_AI_CONVERSATION_ID: "c-1",
        names.GEN_AI_INPUT_MESSAGES: said("user", "Where to?"),
        names.GEN_AI_OUTPUT_MESSAGES: said("assistant", "Bergen"),
        names.TASK_ID: "t-1",
        names.TASK_INPUT: "Where to?",
        names.TASK_OUTPUT: "Bergen",
        names.TASK_REFERENCE: "Oslo",
        names.TASK_OUTCOME: "failure",
        names.TASK_OUTCOME_SOURCE: "reference",
    }


def test_an_agents_operations_are_its_children_and_have_its_name(recorder: Recorder) -> None:
    told: dict[str, Any] = {"instructions": "Be brief.", "description": "Knows the way", "agent_id": "a-7"}
    with recorder.root(), agent("guide", **told):
        with llm("gpt-4o", messages="Where is Oslo?", provider="openai") as call:
            call.output("In Norway.")
            call.usage(input_tokens=12, output_tokens=3)
            call.response(model="gpt-4o-2024-08-06", response_id="r-1", finish_reason="stop")
        with tool("lookup", arguments={"city": "Oslo"}, call_id="call_1", kind="function") as running:
            running.result({"country": "Norway"})
    assert recorder.attributes("invoke_agent guide") == {
        names.GEN_AI_OPERATION_NAME: "invoke_agent",
        names.GEN_AI_AGENT_NAME: "guide",
        names.GEN_AI_AGENT_DESCRIPTION: "Knows the way",
        names.GEN_AI_AGENT_ID: "a-7",
        names.GEN_AI_SYSTEM_INSTRUCTIONS: '[{"type": "text", "content": "Be brief."}]',
    }
    assert recorder.attributes("chat gpt-4o") == {
        names.GEN_AI_OPERATION_NAME: "chat",
        names.GEN_AI_REQUEST_MODEL: "gpt-4o",
        names.GEN_AI_PROVIDER_NAME: "openai",
        names.GEN_AI_AGENT_NAME: "guide",
        names.GEN_AI_INPUT_MESSAGES: said("user", "Where is Oslo?"),
        names.GEN_AI_OUTPUT_MESSAGES: said("assistant", "In Norway."),
        names.GEN_AI_USAGE_INPUT_TOKENS: 12,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: 3,
        names.GEN_AI_RESPONSE_MODEL: "gpt-4o-2024-08-06",
        names.GEN_AI_RESPONSE_ID: "r-1",
        names.GEN_AI_RESPONSE_FINISH_REASONS: ("stop",),
    }
    assert recorder.named("chat gpt-4o").kind is SpanKind.CLIENT
    assert recorder.attributes("execute_tool lookup") == {
        names.GEN_AI_OPERATION_NAME: "execute_tool",
        names.GEN_AI_TOOL_NAME: "lookup",
        names.GEN_AI_TOOL_CALL_ID: "call_1",
        names.GEN_AI_TOOL_TYPE: "function",
        names.GEN_AI_AGENT_NAME: "guide",
        names.GEN_AI_TOOL_CALL_ARGUMENTS: '{"city": "Oslo"}',
        names.GEN_AI_TOOL_CALL_RESULT: '{"country": "Norway"}',
    }
    assert recorder.parent("chat gpt-4o") == "invoke_agent guide"
    assert recorder.parent("execute_tool lookup") == "invoke_agent guide"
    assert recorder.parent("invoke_agent guide") == "invoke_workflow trip"


def test_a_handoff_names_both_ends_and_takes_its_source_from_the_agent(recorder: Recorder) -> None:
    with recorder.root():
        with agent("guide"):
            handoff("driver", message="To the station.").record()
        handoff("cook", source="driver").record()
        handoff("cook").record()
    assert recorder.attributes("handoff guide to driver") == {
        names.HANDOFF_SOURCE: "guide",
        names.HANDOFF_TARGET: "driver",
        names.HANDOFF_MODE: "pass_control",
        names.GEN_AI_TRANSFER_TARGET_NAME: "driver",
        names.GEN_AI_TRANSFER_MODE: "pass_control",
        names.GEN_AI_AGENT_NAME: "guide",
        names.GEN_AI_INPUT_MESSAGES: said("user", "To the station."),
    }
    assert recorder.attributes("handoff driver to cook")[names.HANDOFF_SOURCE] == "driver"
    assert names.HANDOFF_SOURCE not in recorder.attributes("handoff to cook")


def test_an_agent_called_like_a_function_runs_inside_the_handoff(recorder: Recorder) -> None:
    asking = handoff("critic", message="Check this.", mode="return_to_caller")
    with recorder.root(), agent("guide"), asking as asked:
        with agent("critic"), llm("m"):
            pass
        asked.result("All is well.")
    assert recorder.parent("invoke_agent critic") == "handoff guide to critic"
    assert recorder.attributes("handoff guide to critic")[names.HANDOFF_MODE] == "return_to_caller"
    assert recorder.attributes("chat m")[names.GEN_AI_AGENT_NAME] == "critic"
    (answer,) = recorder.messages("handoff guide to critic", names.GEN_AI_OUTPUT_MESSAGES)
    assert answer["parts"] == [{"type": "text", "content": "All is well."}]


def test_after_an_agent_its_name_is_no_longer_given(recorder: Recorder) -> None:
    with recorder.root():
        with agent("guide"):
            pass
        with tool("lookup"):
            pass
    assert names.GEN_AI_AGENT_NAME not in recorder.attributes("execute_tool lookup")
    assert recorder.parent("execute_tool lookup") == "invoke_workflow trip"


def test_a_run_inside_a_web_request_stays_in_its_trace(recorder: Recorder) -> None:
    with recorder.provider.get_tracer("web").start_as_current_span("POST /ask"), recorder.root():
        pass
    assert recorder.parent("invoke_workflow trip") == "POST /ask"


def test_an_outcome_can_be_set_from_a_nested_operation(recorder: Recorder) -> None:
    with recorder.root(), agent("guide"), tool("ask_user"):
        current_run().outcome("success", source="user")
    assert recorder.attributes("invoke_workflow trip")[names.TASK_OUTCOME] == "success"


def test_outside_every_run_the_current_one_records_nothing() -> None:
    current_run().outcome("success", source="user")
    current_run().output("lost")
    assert not current_run().span.is_recording()


def test_an_unknown_outcome_is_left_out_with_a_warning(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder.root() as attempt:
        attempt.outcome("meh", source="user")  # type: ignore[arg-type]
        attempt.outcome(["failure"], source={})  # type: ignore[arg-type]
    assert names.TASK_OUTCOME not in recorder.attributes("invoke_workflow trip")
    assert "'meh'" in caplog.text


# Messages ------------------------------------------------------------------


def test_openai_messages_become_parts(recorder: Recorder) -> None:
    asked = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"city": "Oslo"}'}}
    with recorder.root(), llm("m") as call:
        call.input(
            [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Where?"}]},
                {"role": "assistant", "content": None, "tool_calls": [asked]},
                {"role": "tool", "tool_call_id": "c1", "content": "Norway"},
            ]
        )
    part = {"type": "tool_call", "id": "c1", "name": "lookup", "arguments": {"city": "Oslo"}}
    assert recorder.messages("chat m") == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Where?"}]},
        {"role": "assistant", "parts": [part]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "Norway"}]},
    ]


def test_anthropic_messages_become_parts(recorder: Recorder) -> None:
    with recorder.root(), llm("m") as call:
        asked = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "3"}
        call.input([{"role": "assistant", "content": [asked]}, {"role": "user", "content": [result]}])
    assert [message["parts"] for message in recorder.messages("chat m")] == [
        [{"type": "tool_call", "id": "c1", "name": "f", "arguments": {}}],
        [{"type": "tool_call_response", "id": "c1", "response": "3"}],
    ]


def test_upstreams_own_messages_pass_as_they_are(recorder: Recorder) -> None:
    given = [{"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}], "name": "guide"}]
    with recorder.root(), llm("m", messages=given):
        pass
    assert recorder.messages("chat m") == given


def test_a_clients_own_message_object_is_understood(recorder: Recorder) -> None:
    class Completion:
        """Like the pydantic models that vendors' clients return."""

        def model_dump(self, **_: object) -> dict[str, object]:
            return {"role": "assistant", "content": "Norway."}

    with recorder.root(), llm("m") as call:
        call.output(Completion())
    assert recorder.messages("chat m", names.GEN_AI_OUTPUT_MESSAGES) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Norway."}]}
    ]


def test_tool_calls_can_be_given_plainly(recorder: Recorder) -> None:
    with recorder.root(), llm("m") as call:
        call.output("Let me see.", tool_calls=[{"id": "c1", "name": "lookup", "arguments": {"city": "Oslo"}}])
    (message,) = recorder.messages("chat m", names.GEN_AI_OUTPUT_MESSAGES)
    assert message["parts"] == [
        {"type": "text", "content": "Let me see."},
        {"type": "tool_call", "id": "c1", "name": "lookup", "arguments": {"city": "Oslo"}},
    ]


def test_pictures_are_named_not_dumped(recorder: Recorder) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 50_000}}
    with recorder.root(), llm("m", messages=[{"role": "user", "content": [picture]}]):
        pass
    text = recorder.attributes("chat m")[names.GEN_AI_INPUT_MESSAGES]
    assert "data:image/png" in text
    assert len(text) < 2_000


# Errors --------------------------------------------------------------------


def test_an_error_is_recorded_all_the_way_up_and_goes_on(recorder: Recorder) -> None:
    failing = pytest.raises(TimeoutError, match="no answer")
    with failing, recorder.root(), agent("guide"), tool("lookup"):
        raise TimeoutError("no answer within 5 s")
    for name in ("execute_tool lookup", "invoke_agent guide", "invoke_workflow trip"):
        span = recorder.named(name)
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "no answer within 5 s"
        assert recorder.attributes(name)[names.ERROR_TYPE] == "TimeoutError"
        (event,) = span.events
        assert event.name == "exception"
        assert dict(event.attributes or {})[names.EXCEPTION_MESSAGE] == "no answer within 5 s"
    assert recorder.attributes("invoke_workflow trip")[names.TASK_OUTCOME] == "failure"
    assert recorder.attributes("invoke_workflow trip")[names.TASK_OUTCOME_SOURCE] == "error"


def test_an_error_that_is_caught_stays_where_it_was(recorder: Recorder) -> None:
    with recorder.root(), agent("guide"):
        with pytest.raises(TimeoutError), tool("lookup"):
            raise TimeoutError
        with tool("lookup_again"):
            pass
    assert recorder.named("execute_tool lookup").status.status_code is StatusCode.ERROR
    assert recorder.named("invoke_agent guide").status.status_code is StatusCode.UNSET
    assert names.TASK_OUTCOME not in recorder.attributes("invoke_workflow trip")


def test_an_error_does_not_override_an_outcome_that_was_set(recorder: Recorder) -> None:
    def judged_then_broken() -> None:
        with recorder.root() as attempt:
            attempt.outcome("success", source="evaluator")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        judged_then_broken()
    assert recorder.attributes("invoke_workflow trip")[names.TASK_OUTCOME] == "success"


def test_a_handled_error_can_be_recorded(recorder: Recorder) -> None:
    with recorder.root():
        with tool("a") as first:
            first.fail("404: no such city")
        with tool("b") as second:
            second.fail(KeyError("city"))
    assert recorder.named("execute_tool a").status.description == "404: no such city"
    assert recorder.attributes("execute_tool a")[names.ERROR_TYPE] == "_OTHER"
    assert recorder.attributes("execute_tool b")[names.ERROR_TYPE] == "KeyError"


def test_an_error_of_a_library_has_its_module_in_its_type(recorder: Recorder) -> None:
    with pytest.raises(json.JSONDecodeError), recorder.root(), tool("parse"):
        json.loads("{")
    assert recorder.attributes("execute_tool parse")[names.ERROR_TYPE] == "json.decoder.JSONDecodeError"


def test_a_cancelled_agent_is_marked(recorder: Recorder) -> None:
    async def story() -> None:
        async with recorder.root():
            task = asyncio.create_task(sleepy())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def sleepy() -> None:
        async with agent("sleeper"):
            await asyncio.Event().wait()

    asyncio.run(story())
    assert "CancelledError" in recorder.attributes("invoke_agent sleeper")[names.ERROR_TYPE]
    assert recorder.named("invoke_workflow trip").status.status_code is StatusCode.UNSET


def test_the_context_is_as_before_after_an_error(recorder: Recorder) -> None:
    before = otel_context.get_current()
    with pytest.raises(ValueError, match="x"), recorder.root(), agent("guide"):
        raise ValueError("x")
    assert otel_context.get_current() == before


# Decorators ----------------------------------------------------------------


def test_a_decorated_function_is_recorded_and_stays_itself(recorder: Recorder) -> None:
    @tool()
    def add(first: int, second: int = 1) -> int:
        """Add."""
        return first + second

    with recorder.root():
        assert_type(add(1, second=2), int)
        assert add(1) == 2
    arguments, results = names.GEN_AI_TOOL_CALL_ARGUMENTS, names.GEN_AI_TOOL_CALL_RESULT
    calls = [(told[arguments], told[results]) for told in recorder.all_attributes("execute_tool add")]
    assert calls == [('{"first": 1, "second": 2}', "3"), ('{"first": 1}', "2")]
    assert add.__name__ == "add"
    assert add.__doc__ == "Add."
    assert list(inspect.signature(add).parameters) == ["first", "second"]
    assert not inspect.iscoroutinefunction(add)


def test_decorated_agents_runs_and_model_calls_record_what_goes_in_and_out(recorder: Recorder) -> None:
    @llm("m")
    def ask(model: str, messages: list[dict[str, str]]) -> str:
        return f"{model}: {messages[-1]['content']}!"

    @agent()
    def guide(question: str) -> str:
        return ask("m", messages=[{"role": "user", "content": question}])

    @run("trip", tracer_provider=recorder.provider, capture="SPAN_ONLY")
    def travel(question: str) -> str:
        return guide(question)

    assert travel("Oslo?") == "m: Oslo?!"
    assert recorder.attributes("invoke_workflow trip")[names.TASK_INPUT] == "Oslo?"
    assert recorder.attributes("invoke_workflow trip")[names.TASK_OUTPUT] == "m: Oslo?!"
    assert recorder.messages("invoke_agent guide")[0]["parts"][0]["content"] == "Oslo?"
    assert recorder.messages("chat m") == [{"role": "user", "parts": [{"type": "text", "content": "Oslo?"}]}]
    (answer,) = recorder.messages("chat m", names.GEN_AI_OUTPUT_MESSAGES)
    assert answer["parts"][0]["content"] == "m: Oslo?!"


def test_a_decorated_handoff_records_message_and_result(recorder: Recorder) -> None:
    @handoff("critic", mode="return_to_caller")
    def review(text: str) -> str:
        return f"{text} is fine"

    with recorder.root(), agent("writer"):
        review("It")
    span = "handoff writer to critic"
    assert recorder.messages(span)[0]["parts"][0]["content"] == "It"
    assert recorder.messages(span, names.GEN_AI_OUTPUT_MESSAGES)[0]["parts"][0]["content"] == "It is fine"


def test_a_run_with_several_arguments_has_them_all_as_its_task(recorder: Recorder) -> None:
    @run(tracer_provider=recorder.provider, capture="SPAN_ONLY")
    def travel(start: str, end: str) -> None: ...

    travel("Oslo", end="Bergen")
    given = '{"start": "Oslo", "end": "Bergen"}'
    assert recorder.attributes("invoke_workflow travel")[names.TASK_INPUT] == given
    (message,) = recorder.messages("invoke_workflow travel")
    assert message["parts"] == [{"type": "text", "content": given}]
    assert names.TASK_OUTPUT not in recorder.attributes("invoke_workflow travel")


def test_a_decorated_method_leaves_its_object_out(recorder: Recorder) -> None:
    class Kitchen:
        @tool()
        def cook(self, dish: str) -> str:
            return dish.upper()

    with recorder.root():
        assert Kitchen().cook("soup") == "SOUP"
    assert recorder.attributes("execute_tool cook")[names.GEN_AI_TOOL_CALL_ARGUMENTS] == '{"dish": "soup"}'


async def test_a_decorated_coroutine_function_stays_one_and_its_span_lasts_until_its_end(
    recorder: Recorder,
) -> None:
    @tool()
    async def lookup(city: str) -> str:
        await asyncio.sleep(0)
        with tool("inner"):
            return city

    assert inspect.iscoroutinefunction(lookup)
    async with recorder.root():
        assert_type(await lookup("Oslo"), str)
    assert recorder.attributes("execute_tool lookup")[names.GEN_AI_TOOL_CALL_RESULT] == "Oslo"
    assert recorder.parent("execute_tool inner") == "execute_tool lookup"


async def test_an_error_in_a_decorated_coroutine_is_recorded(recorder: Recorder) -> None:
    @tool()
    async def lookup() -> None:
        raise LookupError("nowhere")

    async with recorder.root():
        with pytest.raises(LookupError):
            await lookup()
    assert recorder.named("execute_tool lookup").status.status_code is StatusCode.ERROR


def test_a_wrong_call_fails_as_it_would_without_us(recorder: Recorder) -> None:
    @tool()
    def add(first: int) -> int:
        return first

    with recorder.root(), pytest.raises(TypeError, match="second"):
        add(1, second=2)  # type: ignore[call-arg]
    assert recorder.named("execute_tool add").status.status_code is StatusCode.ERROR


def test_a_builtin_function_can_be_decorated(recorder: Recorder) -> None:
    largest = tool("max")(max)
    with recorder.root():
        assert largest(1, 2) == 2
    assert recorder.attributes("execute_tool max")[names.GEN_AI_TOOL_CALL_RESULT] == "2"


@pytest.mark.parametrize("operation", [run, agent, llm, tool, handoff])
def test_forgotten_parentheses_are_pointed_out(operation: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=f"@{operation.__name__}.* with parentheses"):

        @operation
        def nothing() -> None: ...


# Generators ----------------------------------------------------------------


def test_a_generator_is_inside_its_span_and_its_consumer_is_not(recorder: Recorder) -> None:
    @agent("speaker")
    def speak() -> Iterator[str]:
        with llm("m"):
            yield "Good "
            with tool("inner"):
                yield "day"

    with recorder.root():
        for _ in speak():
            with tool("consume"):
                pass
    consumed = [span for span in recorder.spans if span.name == "execute_tool consume"]
    root = recorder.named("invoke_workflow trip").context
    assert root is not None
    assert [span.parent and span.parent.span_id for span in consumed] == [root.span_id] * 2
    assert recorder.parent("execute_tool inner") == "chat m"
    (answer,) = recorder.messages("invoke_agent speaker", names.GEN_AI_OUTPUT_MESSAGES)
    assert answer["parts"][0]["content"] == "Good day"


def test_a_generator_that_is_not_read_to_the_end_has_not_failed(recorder: Recorder) -> None:
    closed = threading.Event()

    @tool()
    def count() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.set()

    with recorder.root():
        numbers = count()
        assert next(numbers) == 0
        numbers.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert recorder.named("execute_tool count").status.status_code is StatusCode.UNSET


def test_values_sent_into_a_generator_and_its_return_value_pass_through(recorder: Recorder) -> None:
    @tool()
    def echo() -> Any:
        heard = []
        try:
            heard.append((yield "ready"))
            yield "more"
        except KeyError as error:
            heard.append(repr(error))
            yield "caught"
        return heard

    def delegate() -> Any:
        return (yield from echo())

    with recorder.root():
        talk = delegate()
        assert next(talk) == "ready"
        assert talk.send("hello") == "more"
        assert talk.throw(KeyError("k")) == "caught"
        with pytest.raises(StopIteration) as stopped:
            next(talk)
    assert stopped.value.value == ["hello", "KeyError('k')"]
    recorded = recorder.attributes("execute_tool echo")[names.GEN_AI_TOOL_CALL_RESULT]
    assert json.loads(recorded) == ["hello", "KeyError('k')"]


def test_an_error_in_a_generator_is_recorded(recorder: Recorder) -> None:
    @tool()
    def count() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with recorder.root(), pytest.raises(OSError, match="gone"):
        list(count())
    assert recorder.named("execute_tool count").status.description == "gone"


async def test_an_async_generator_is_inside_its_span_and_its_consumer_is_not(recorder: Recorder) -> None:
    @agent("speaker")
    async def speak() -> AsyncIterator[str]:
        async with llm("m"):
            await asyncio.sleep(0)
            yield "Good "
            await asyncio.sleep(0)
            yield "day"

    async with recorder.root():
        async for _ in speak():
            with tool("consume"):
                await asyncio.sleep(0)
    consumed = [span for span in recorder.spans if span.name == "execute_tool consume"]
    root = recorder.named("invoke_workflow trip").context
    assert root is not None
    assert [span.parent and span.parent.span_id for span in consumed] == [root.span_id] * 2
    assert recorder.parent("chat m") == "invoke_agent speaker"
    (answer,) = recorder.messages("invoke_agent speaker", names.GEN_AI_OUTPUT_MESSAGES)
    assert answer["parts"][0]["content"] == "Good day"


async def test_an_async_generator_can_be_closed_thrown_into_and_fail(recorder: Recorder) -> None:
    @tool()
    async def count(name: str) -> Any:
        try:
            yield f"{name} 1"
        except KeyError:
            yield "caught"
        raise OSError(name)

    async with recorder.root():
        early = count("early")
        assert await anext(early) == "early 1"
        await early.aclose()
        thrown = count("thrown")
        await anext(thrown)
        assert await thrown.athrow(KeyError()) == "caught"
        with pytest.raises(OSError, match="thrown"):
            await anext(thrown)
    codes = [span.status.status_code for span in recorder.spans if span.name == "execute_tool count"]
    assert codes == [StatusCode.UNSET, StatusCode.ERROR]


# Threads and tasks ---------------------------------------------------------


async def test_parallel_agents_of_tasks_share_the_trace_and_not_the_name(recorder: Recorder) -> None:
    async def work(name: str) -> None:
        async with agent(name):
            await asyncio.sleep(0)
            async with llm(f"model-of-{name}"):
                await asyncio.sleep(0)

    async with recorder.root():
        await asyncio.gather(*(work(name) for name in ("a", "b", "c")))
    assert len(recorder.trace_ids()) == 1
    for name in ("a", "b", "c"):
        assert recorder.parent(f"invoke_agent {name}") == "invoke_workflow trip"
        assert recorder.parent(f"chat model-of-{name}") == f"invoke_agent {name}"
        assert recorder.attributes(f"chat model-of-{name}")[names.GEN_AI_AGENT_NAME] == name


def test_carried_functions_stay_in_the_trace_on_other_threads(recorder: Recorder) -> None:
    together = threading.Barrier(3)

    def work(name: str) -> str:
        with agent(name), tool(f"tool-of-{name}"):
            together.wait(timeout=60)
            return name

    with recorder.root(), ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(carry(work), "abc")) == ["a", "b", "c"]
    assert len(recorder.trace_ids()) == 1
    for name in "abc":
        assert recorder.parent(f"invoke_agent {name}") == "invoke_workflow trip"
        assert recorder.attributes(f"execute_tool tool-of-{name}")[names.GEN_AI_AGENT_NAME] == name


def test_a_thread_without_carried_context_takes_an_explicit_parent(recorder: Recorder) -> None:
    def work() -> None:
        with agent("far", parent=attempt), llm("m"):
            pass

    with recorder.root() as attempt:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert recorder.parent("invoke_agent far") == "invoke_workflow trip"
    assert recorder.parent("chat m") == "invoke_agent far"


def test_every_operation_takes_a_parent(recorder: Recorder) -> None:
    with recorder.root() as attempt, agent("a") as first:
        pass
    for operation in (
        run("inner", parent=attempt),
        agent("b", parent=attempt.context),
        llm("m", parent=first),
        tool("t", parent=first),
        handoff("c", parent=first),
    ):
        with operation:
            pass
    assert recorder.parent("invoke_workflow inner") == "invoke_workflow trip"
    assert recorder.parent("invoke_agent b") == "invoke_workflow trip"
    assert recorder.parent("chat m") == "invoke_agent a"
    assert recorder.attributes("execute_tool t")[names.GEN_AI_AGENT_NAME] == "a"
    assert recorder.parent("handoff a to c") == "invoke_agent a"


def test_a_function_can_be_carried_to_a_given_parent(recorder: Recorder) -> None:
    def work() -> None:
        with tool("t"):
            pass

    with recorder.root(), agent("a") as first:
        pass
    carry(work, first)()
    assert recorder.parent("execute_tool t") == "invoke_agent a"


def test_a_carried_coroutine_keeps_its_place_in_another_loop(recorder: Recorder) -> None:
    async def work() -> None:
        async with tool("t"):
            await asyncio.sleep(0)

    with recorder.root(), ThreadPoolExecutor(1) as pool:
        carried = carry(work)
        pool.submit(lambda: asyncio.run(carried())).result()
    assert recorder.parent("execute_tool t") == "invoke_workflow trip"


def test_one_decorated_function_runs_on_many_threads_at_once(recorder: Recorder) -> None:
    together = threading.Barrier(4)

    @tool()
    def meet(number: int) -> int:
        together.wait(timeout=60)
        return number

    with recorder.root(), ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(carry(meet), range(4))) == [0, 1, 2, 3]
    results = {
        (told[names.GEN_AI_TOOL_CALL_ARGUMENTS], told[names.GEN_AI_TOOL_CALL_RESULT])
        for told in recorder.all_attributes("execute_tool meet")
    }
    assert results == {(f'{{"number": {number}}}', str(number)) for number in range(4)}


# Privacy -------------------------------------------------------------------


def tell_everything(**options: Any) -> None:
    with run("trip", task="secret", reference="secret", **options) as attempt:
        with agent("guide", message="secret", instructions="secret") as turn:
            with llm("m", messages="secret", instructions="secret") as call:
                call.output("secret")
            with tool("t", arguments={"a": "secret"}) as running:
                running.result("secret")
            handoff("b", message="secret").record()
            turn.output("secret")
        attempt.output("secret")


@pytest.mark.parametrize(
    ("value", "on_spans"),
    [
        *((value, False) for value in (None, "", "NO_CONTENT", "EVENT_ONLY", "false", "nonsense")),
        *((value, True) for value in ("SPAN_ONLY", "span_and_event", "true")),
    ],
)
def test_the_environment_decides_whether_content_is_on_spans(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, value: str | None, *, on_spans: bool
) -> None:
    if value is not None:
        monkeypatch.setenv(CAPTURE_VARIABLE, value)
    tell_everything(tracer_provider=recorder.provider)
    text = "".join(span.to_json() for span in recorder.spans)
    assert ("secret" in text) == on_spans
    seen = {key for span in recorder.spans for key in span.attributes or ()}
    assert seen.intersection(CONTENT) == (set(CONTENT) if on_spans else set())


def test_a_wrong_value_is_warned_of_once(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(CAPTURE_VARIABLE, "SPANS_PLEASE")
    tell_everything(tracer_provider=recorder.provider)
    tell_everything(tracer_provider=recorder.provider)
    assert caplog.text.count("SPANS_PLEASE") == 1


@pytest.mark.parametrize("wish", [ContentCapture.NO_CONTENT, "NO_CONTENT"])
def test_the_code_overrules_the_environment(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, wish: Any
) -> None:
    monkeypatch.setenv(CAPTURE_VARIABLE, "SPAN_ONLY")
    tell_everything(tracer_provider=recorder.provider, capture=wish)
    assert "secret" not in "".join(span.to_json() for span in recorder.spans)


def test_recording_of_content_can_be_turned_off_for_one_agent(recorder: Recorder) -> None:
    with recorder.root():
        with agent("quiet", capture="NO_CONTENT"), llm("m", messages="secret"):
            pass
        with tool("t", arguments="open"):
            pass
    assert names.GEN_AI_INPUT_MESSAGES not in recorder.attributes("chat m")
    assert recorder.attributes("execute_tool t")[names.GEN_AI_TOOL_CALL_ARGUMENTS] == "open"


@pytest.mark.parametrize(
    ("capture", "on_spans"), [("EVENT_ONLY", False), ("SPAN_AND_EVENT", True)], ids=["only", "and spans"]
)
def test_content_goes_into_opentelemetrys_event_if_configured(
    recorder: Recorder, capture: str, *, on_spans: bool
) -> None:
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    tell_everything(tracer_provider=recorder.provider, logger_provider=logs, capture=capture)
    (event,) = exporter.get_finished_logs()
    assert event.log_record.event_name == names.EVENT_GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS
    span = recorder.named("chat m").context
    assert span is not None
    assert (event.log_record.trace_id, event.log_record.span_id) == (span.trace_id, span.span_id)
    values = dict(event.log_record.attributes or {})
    assert values[names.GEN_AI_REQUEST_MODEL] == "m"
    assert values[names.GEN_AI_AGENT_NAME] == "guide"
    for key in (names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES, names.GEN_AI_SYSTEM_INSTRUCTIONS):
        assert isinstance(values[key], list | tuple)
        assert "secret" in str(values[key])
    assert (names.GEN_AI_INPUT_MESSAGES in recorder.attributes("chat m")) == on_spans


def test_nothing_is_rendered_where_nothing_is_recorded() -> None:
    asked: list[str] = []

    class Asked:
        def __repr__(self) -> str:
            asked.append("for its text")
            return "text"

    value = Asked()
    for provider in (NoOpTracerProvider(), TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)):
        with run("r", task=value, tracer_provider=provider, capture="SPAN_ONLY") as attempt:
            with agent("a", message=value), llm("m", messages=value) as call, tool("t", arguments=value):
                call.output(value)
                call.fail("x")
                call.fail(ValueError())
            attempt.output(value)
    assert asked == []


def test_without_any_sdk_everything_is_a_no_op() -> None:
    @tool()
    def add(first: int) -> int:
        return first + 1

    with run("r"), agent("a"):
        assert add(1) == 2


# Hostile values ------------------------------------------------------------


class Raises:
    """Raises on every access."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


class RaisingMapping(dict[str, Any]):
    """A dictionary only by name."""

    def get(self, *_: Any) -> Any:
        raise RuntimeError("no")

    def items(self) -> Any:
        raise RuntimeError("no")


def circular() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


HOSTILE = [
    pytest.param(Raises, id="raises when asked"),
    pytest.param(lambda: [Raises()], id="holds one that raises"),
    pytest.param(lambda: {"role": Raises(), "content": Raises()}, id="a message that raises"),
    pytest.param(lambda: RaisingMapping(role="user", content="x"), id="a raising mapping"),
    pytest.param(circular, id="circular"),
    pytest.param(deep, id="deep"),
    pytest.param(lambda: "x" * 5_000_000, id="huge text"),
    pytest.param(lambda: [{"role": "user", "content": "y" * 30_000}] * 100, id="many messages"),
    pytest.param(lambda: [{"content": [{"type": "t", str(n): "z" * 900}] * 999} for n in (1, 2)], id="parts"),
    pytest.param(lambda: "\ud800 lone surrogate", id="not utf-8"),
    pytest.param(lambda: {"role": "\ud800", "content": "\udfff"}, id="a message not in utf-8"),
    pytest.param(lambda: float("nan"), id="nan"),
    pytest.param(lambda: {"arguments": float("inf")}, id="infinity within"),
    pytest.param(lambda: {(1, 2): "odd key"}, id="odd keys"),
    pytest.param(lambda: b"\x00\xff" * 1_000, id="bytes"),
    pytest.param(lambda: {1, 2}, id="a set"),
    pytest.param(lambda: None, id="none"),
    pytest.param(lambda: 10**5_000, id="a number too long to print"),
    pytest.param(lambda: [{"role": "assistant", "tool_calls": [None, 3, {}]}], id="tool calls that are none"),
    pytest.param(
        lambda: [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{" * 9_999}}]}],
        id="arguments that are no JSON",
    ),
    pytest.param(lambda: [{"parts": 3}, {"content": {"a": [1]}}, []], id="malformed messages"),
]


@pytest.mark.parametrize("make", HOSTILE)
def test_nothing_raises_and_every_attribute_can_be_exported(
    recorder: Recorder, make: Callable[[], Any]
) -> None:
    value = make()
    with recorder.root(task=value, reference=value) as attempt:
        with agent("a", message=value, instructions=value) as turn:
            with llm("m", messages=value, instructions=value) as call:
                call.output(value, tool_calls=[value])
                call.usage(input_tokens=value, output_tokens=2**64)
            with tool("t", arguments=value) as running:
                running.result(value)
            with handoff("b", message=value) as passed:
                passed.result(value)
            turn.output(value)
        attempt.output(value)
    for span in recorder.spans:
        for key, recorded in (span.attributes or {}).items():
            if key in CONTENT:
                assert isinstance(recorded, str)
                recorded.encode("utf-8")
                assert len(recorded) <= 2 * (MAX_MESSAGES + MAX_TEXT)
            if key in (names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES):
                for message in json.loads(str(recorded)):
                    assert message["role"]
                    assert all("type" in part for part in message["parts"])
    assert names.GEN_AI_USAGE_OUTPUT_TOKENS not in recorder.attributes("chat m")


@pytest.mark.parametrize("make", HOSTILE)
def test_decorated_functions_take_and_return_hostile_values_untouched(
    recorder: Recorder, make: Callable[[], Any]
) -> None:
    value = make()
    same = tool("same")(lambda given: given)
    with recorder.root():
        assert same(value) is value


def test_hostile_names_degrade(recorder: Recorder) -> None:
    with recorder.root("\ud800"), agent("x" * 10_000), tool("t", call_id=Raises()):  # type: ignore[arg-type]
        pass
    shown = {"invoke_workflow ?", f"invoke_agent {'x' * 256}", "execute_tool t"}
    assert {span.name for span in recorder.spans} == shown
    assert recorder.attributes("execute_tool t")[names.GEN_AI_TOOL_CALL_ID] == "unknown"


def test_an_exception_that_cannot_be_printed_goes_on_all_the_same(recorder: Recorder) -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(UnspeakableError), recorder.root(), tool("t"):
        raise UnspeakableError
    span = recorder.named("execute_tool t")
    assert span.status.status_code is StatusCode.ERROR
    assert str(recorder.attributes("execute_tool t")[names.ERROR_TYPE]).endswith("UnspeakableError")


def test_the_application_keeps_its_iterators(recorder: Recorder) -> None:
    chunks = iter(["a", "b"])
    with recorder.root(), llm("m", messages=chunks) as call:
        call.output(chunks)
    assert list(chunks) == ["a", "b"]


def test_a_cut_text_states_its_original_length(recorder: Recorder) -> None:
    with recorder.root(), tool("t", arguments="x" * (MAX_TEXT + 1)):
        pass
    recorded = recorder.attributes("execute_tool t")[names.GEN_AI_TOOL_CALL_ARGUMENTS]
    assert recorded.startswith("x" * MAX_TEXT)
    assert recorded.endswith(f"[cut, {MAX_TEXT + 1} characters]")


def test_only_the_first_and_last_of_too_many_messages_are_kept(recorder: Recorder) -> None:
    conversation = [{"role": "user", "content": f"{number} {'y' * 1_000}"} for number in range(1_000)]
    with recorder.root(), llm("m", messages=conversation):
        pass
    kept = recorder.messages("chat m")
    texts = [message["parts"][0]["content"].split()[0] for message in kept]
    assert texts[0] == "0"
    assert texts[-1] == "999"
    left_out = 1_000 - (len(kept) - 1)
    assert kept[1]["parts"][0]["content"] == f"[{left_out} messages left out]"
    assert texts[2:] == [str(number) for number in range(1 + left_out, 1_000)]


@given(st.text(max_size=200), st.sampled_from(["user", "assistant", "x" * 100]))
def test_the_quick_way_to_write_a_message_writes_the_same_as_the_careful_one(text: str, role: str) -> None:
    plain = {"role": role, "content": text}
    careful = OrderedDict(plain)  # any mapping but a plain dictionary takes the careful way
    assert messages_of([plain], "user") == messages_of([careful], "user")


def test_the_quick_way_cuts_a_long_text_too() -> None:
    plain = {"role": "user", "content": "x" * 100_000}
    assert messages_of([plain], "user") == messages_of([OrderedDict(plain)], "user")
    assert len(messages_of([plain], "user")) < 40_000
