"""Reader of smolagents' memory: ``agent.memory.get_full_steps()`` and ``RunResult.dict()``. Pure.

A step of an action holds what the model said, its calls, and one observation for all of them, or an error. A
code agent's call is the code. A call of ``final_answer`` is the answer. The steps do not name their agent.
Source: smolagents 1.26, ``memory.py`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import json_text, nanoseconds, objects, text_at, unwrapped
from analyzer.recordings.message_parts import listed, nested_call, text_of, tokens_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.dialects.reading.tools import FINAL_ANSWER_TOOLS

_UNNAMED: Final = "assistant"


def is_smolagents(records: Records) -> bool:
    """Tell whether records are steps, with an action among them."""
    found = unwrapped(records, "steps")
    return all(map(_is_step, found)) and any("step_number" in one for one in found)


def _is_step(one: Any) -> bool:
    return isinstance(one, dict) and (
        ("step_number" in one and not one.keys().isdisjoint({"model_output", "tool_calls"}))
        or {"plan", "model_output_message"} <= one.keys()
        or "task" in one
        or "system_prompt" in one
        or one.keys() == {"output"}
    )


def read_smolagents(records: Records) -> Spans:
    """Read one run."""
    found = listed(list(unwrapped(records, "steps")))
    messages = [*_instructions(found), *(message for one in found for message in _of_step(one))]
    answer = next((_answer(one) for one in reversed(found) if one.get("is_final_answer")), "")
    return dialogue_spans(messages, name="smolagents", answer=answer)


def _instructions(found: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Yield the system prompt, which each step repeats among what it gave the model."""
    heard = (message for one in found for message in objects(one.get("model_input_messages")))
    prompt = next((one.get("content") for one in heard if one.get("role") == "system"), None)
    if prompt:
        yield Message(speaker=Speaker.SYSTEM, text=text_of(prompt))


def _of_step(one: Mapping[str, Any]) -> Iterator[Message]:
    if "step_number" in one:
        yield from _of_action(one)
    elif "plan" in one:
        yield Message(speaker=Speaker.AGENT, text=json_text(one["plan"]))
    elif one.get("task"):
        yield Message(speaker=Speaker.USER, text=json_text(one["task"]))
    elif one.get("system_prompt"):
        yield Message(speaker=Speaker.SYSTEM, text=json_text(one["system_prompt"]))


def _of_action(one: Mapping[str, Any]) -> Iterator[Message]:
    said, timing = one.get("model_output_message"), one.get("timing")
    message: Mapping[str, Any] = said if isinstance(said, dict) else {}
    time_ns = nanoseconds(timing.get("end_time")) if isinstance(timing, dict) else 0
    asked = listed(one.get("tool_calls")) or listed(message.get("tool_calls"))
    calls = [nested_call(each) for each in asked]
    text = text_of(one.get("model_output") or message.get("content"))
    is_final = bool(one.get("is_final_answer"))
    own = [call for call in calls if not (is_final and call.name in FINAL_ANSWER_TOOLS)]
    yield Message(
        speaker=Speaker.AGENT,
        text=_answer(one) if is_final and not own else text,
        calls=tuple(own),
        time_ns=time_ns,
        tokens=tokens_of(one.get("token_usage")),
    )
    error = one.get("error")
    result = json_text(error.get("message", error) if isinstance(error, dict) else error)
    result = result or json_text(one.get("observations") or one.get("action_output"))
    for call in own[:1] if result else []:
        yield Message(
            speaker=Speaker.TOOL, text=result, call_id=call.call_id, tool=call.name, failed=bool(error)
        )
    if error and not own:  # the model's own output was refused
        yield Message(speaker=Speaker.USER, text=result)


def _answer(one: Mapping[str, Any]) -> str:
    """Return the answer of a final step: the call's argument, else what came out."""
    for call in listed(one.get("tool_calls")):
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if text_at(function, "name") in FINAL_ANSWER_TOOLS and isinstance(arguments, dict):
            return json_text(arguments.get("answer", arguments))
    return json_text(one.get("action_output")) or json_text(one.get("observations"))


SMOLAGENTS: Final = FileFormat(
    name="smolagents memory steps",
    example="smolagents-steps.json",
    source="smolagents, `memory.py`",
    how="`json.dumps(agent.memory.get_full_steps(), default=str)`",
    agent=_UNNAMED,
    recognizes=is_smolagents,
    read=read_smolagents,
)
