"""Handles: running operations, with methods that add to their spans.

Every handle has the context in which its span is current, so that work on other threads, or started
elsewhere, can become its child.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

# The logs API; OpenTelemetry marks it by the underscore as subject to change.
from opentelemetry._logs import Logger, SeverityNumber
from opentelemetry.context import Context, create_key, get_value, set_value
from opentelemetry.trace import INVALID_SPAN, Span, StatusCode, Tracer

from semconv import attributes as names
from semconv.emit.content import (
    ContentCapture,
    contained,
    count_of,
    instructions_of,
    messages_of,
    name_of,
    text_of,
)
from semconv.model import Outcome, OutcomeSource

logger = logging.getLogger(__name__)

OutcomeWord: TypeAlias = Outcome | Literal["success", "failure"]
OutcomeSourceWord: TypeAlias = OutcomeSource | Literal["reference", "evaluator", "user", "error", "heuristic"]

_KEY: Final = create_key("blamespan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Settings that an operation inherits from the enclosing ones, stored in OpenTelemetry's context."""

    tracer: Tracer
    logger: Logger
    capture: ContentCapture
    agent: str | None = None
    run: RunHandle | None = None


def surroundings_in(context: Context) -> Surroundings | None:
    """Return the surroundings in ``context``, or ``None`` outside every operation."""
    value = get_value(_KEY, context)
    return value if isinstance(value, Surroundings) else None


def with_surroundings(context: Context, surroundings: Surroundings) -> Context:
    """Return a copy of ``context`` that holds ``surroundings``."""
    return set_value(_KEY, surroundings, context)


class Handle:
    """A running operation."""

    __slots__ = ("_capture", "context", "span")

    def __init__(self, span: Span, context: Context, capture: ContentCapture) -> None:
        self.span: Final = span
        """The OpenTelemetry span, for attributes that this API does not cover."""
        self.context = context
        """The context in which the span is current; pass it, or the handle, as ``parent=`` elsewhere."""
        self._capture: Final = capture if span.is_recording() else ContentCapture.NO_CONTENT

    def fail(self, error: BaseException | str) -> None:
        """Mark the span as failed by an error that is handled inside the block."""
        if not self.span.is_recording():
            return
        if isinstance(error, BaseException):
            kind = _type_name(error)
            # The SDK calls the exception's __str__, which may raise.
            contained(lambda: self.span.record_exception(error), lambda: None)
            self.span.set_attribute(names.ERROR_TYPE, kind)
            self.span.set_status(StatusCode.ERROR, contained(lambda: text_of(str(error)), lambda: kind))
        else:
            # OpenTelemetry's value for an error of unknown type.
            self.span.set_attribute(names.ERROR_TYPE, "_OTHER")
            self.span.set_status(StatusCode.ERROR, text_of(error))

    def close(self, error: BaseException | None) -> None:
        """End the span; ``error`` is the exception that left the block."""
        # A generator closed by its consumer has not failed.
        if error is not None and not isinstance(error, GeneratorExit):
            self.fail(error)
        self.span.end()

    @property
    def captures(self) -> bool:
        """Whether content is recorded anywhere; check it before building expensive text."""
        return self._capture is not ContentCapture.NO_CONTENT

    def record(self, key: str, render: Callable[[], str]) -> None:
        """Set content on the span, if recording on spans is on."""
        if self._capture.on_spans:
            self.span.set_attribute(key, render())


class RunHandle(Handle):
    """A running attempt at a task."""

    __slots__ = ("_has_outcome",)

    def __init__(self, span: Span, context: Context, capture: ContentCapture) -> None:
        super().__init__(span, context, capture)
        self._has_outcome = False

    def input(self, task: object) -> None:
        """Record the task."""
        self.record(names.TASK_INPUT, lambda: text_of(task))
        self.record(names.GEN_AI_INPUT_MESSAGES, lambda: messages_of(task, "user"))

    def output(self, answer: object) -> None:
        """Record the final answer."""
        self.record(names.TASK_OUTPUT, lambda: text_of(answer))
        self.record(names.GEN_AI_OUTPUT_MESSAGES, lambda: messages_of(answer, "assistant"))

    def reference(self, answer: object) -> None:
        """Record the right answer."""
        self.record(names.TASK_REFERENCE, lambda: text_of(answer))

    def outcome(self, outcome: OutcomeWord, *, source: OutcomeSourceWord) -> None:
        """Record whether the task was accomplished, and the source of that judgement."""
        if outcome not in tuple(Outcome) or source not in tuple(OutcomeSource):
            logger.warning("unknown outcome %r or source %r: not recorded", outcome, source)
            return
        self._has_outcome = True
        self.span.set_attribute(names.TASK_OUTCOME, str(outcome))
        self.span.set_attribute(names.TASK_OUTCOME_SOURCE, str(source))

    def close(self, error: BaseException | None) -> None:
        """End the span; a run ended by an error has failed, unless an outcome was recorded."""
        if isinstance(error, Exception) and not self._has_outcome:
            self.outcome(Outcome.FAILURE, source=OutcomeSource.ERROR)
        super().close(error)


class AgentHandle(Handle):
    """A running turn of an agent."""

    __slots__ = ()

    def instructions(self, text: object) -> None:
        """Record the agent's system instructions."""
        self.record(names.GEN_AI_SYSTEM_INSTRUCTIONS, lambda: instructions_of(text))

    def input(self, message: object) -> None:
        """Record the input to the agent."""
        self.record(names.GEN_AI_INPUT_MESSAGES, lambda: messages_of(message, "user"))

    def output(self, message: object) -> None:
        """Record the agent's answer."""
        self.record(names.GEN_AI_OUTPUT_MESSAGES, lambda: messages_of(message, "assistant"))


class ModelHandle(Handle):
    """A running call of a language model."""

    __slots__ = ("_content", "_logger", "_what")

    def __init__(
        self, span: Span, context: Context, capture: ContentCapture, logger: Logger, what: Mapping[str, str]
    ) -> None:
        super().__init__(span, context, capture)
        self._logger: Final = logger
        self._what: Final = what
        self._content: Final[dict[str, str]] = {}

    def instructions(self, text: object) -> None:
        """Record the system instructions, if separate from the messages."""
        self.record(names.GEN_AI_SYSTEM_INSTRUCTIONS, lambda: instructions_of(text))

    def input(self, messages: object) -> None:
        """Record the input: a text, or messages in the format of the vendor's API."""
        self.record(names.GEN_AI_INPUT_MESSAGES, lambda: messages_of(messages, "user"))

    def output(self, message: object, *, tool_calls: Sequence[object] = ()) -> None:
        """Record the answer: a text or a message, and the requested tool calls.

        A tool call is a mapping with ``id``, ``name`` and ``arguments``, or in OpenAI's format.
        """
        if tool_calls:
            message = {"role": "assistant", "content": message, "tool_calls": tool_calls}
        self.record(names.GEN_AI_OUTPUT_MESSAGES, lambda: messages_of(message, "assistant"))

    def usage(self, *, input_tokens: int | None = None, output_tokens: int | None = None) -> None:
        """Record the number of input tokens, including cached ones, and of output tokens."""
        if (count := count_of(input_tokens)) is not None:
            self.span.set_attribute(names.GEN_AI_USAGE_INPUT_TOKENS, count)
        if (count := count_of(output_tokens)) is not None:
            self.span.set_attribute(names.GEN_AI_USAGE_OUTPUT_TOKENS, count)

    def response(
        self, *, model: str | None = None, response_id: str | None = None, finish_reason: str | None = None
    ) -> None:
        """Record the provider's metadata of its answer."""
        if model is not None:
            self.span.set_attribute(names.GEN_AI_RESPONSE_MODEL, name_of(model))
        if response_id is not None:
            self.span.set_attribute(names.GEN_AI_RESPONSE_ID, name_of(response_id))
        if finish_reason is not None:
            self.span.set_attribute(names.GEN_AI_RESPONSE_FINISH_REASONS, [name_of(finish_reason)])

    def record(self, key: str, render: Callable[[], str]) -> None:
        """Set content on the span and keep it for the event, as the capture mode says."""
        if not self.captures:
            return
        text = render()
        if self._capture.on_spans:
            self.span.set_attribute(key, text)
        if self._capture.in_events:
            self._content[key] = text

    def close(self, error: BaseException | None) -> None:
        """End the span; if content goes into events, emit upstream's event."""
        super().close(error)
        if self._content:
            # Upstream requires structured messages in events.
            content = {key: json.loads(text) for key, text in self._content.items()}
            self._logger.emit(
                context=self.context,
                event_name=names.EVENT_GEN_AI_CLIENT_INFERENCE_OPERATION_DETAILS,
                severity_number=SeverityNumber.DEBUG,
                attributes={**self._what, **content},
            )


class ToolHandle(Handle):
    """A running tool."""

    __slots__ = ()

    def arguments(self, value: object) -> None:
        """Record the arguments of the call."""
        self.record(names.GEN_AI_TOOL_CALL_ARGUMENTS, lambda: text_of(value))

    def result(self, value: object) -> None:
        """Record the tool's result."""
        self.record(names.GEN_AI_TOOL_CALL_RESULT, lambda: text_of(value))


class HandoffHandle(Handle):
    """A running handoff."""

    __slots__ = ()

    def message(self, value: object) -> None:
        """Record the message to the target."""
        self.record(names.GEN_AI_INPUT_MESSAGES, lambda: messages_of(value, "user"))

    def result(self, value: object) -> None:
        """Record the target's result, in the mode ``return_to_caller``."""
        self.record(names.GEN_AI_OUTPUT_MESSAGES, lambda: messages_of(value, "assistant"))


def current_run_in(context: Context) -> RunHandle:
    """Return the run that encloses ``context``, or a handle that records nothing."""
    surroundings = surroundings_in(context)
    if surroundings is None or surroundings.run is None:
        return RunHandle(INVALID_SPAN, context, ContentCapture.NO_CONTENT)
    return surroundings.run


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
