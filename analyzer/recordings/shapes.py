"""How programs keep dialogues in shapes of their own, and the messages that shapes are made of. Pure.

A module with shapes lists them: how the entries of each are told by their keys, and what they say. An entry
that says nothing (settings, tokens, starts of steps) is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from analyzer.recordings.dialogue import AGENT, TOOL, Message, Speaker, dialogues_spans, joined_answers
from analyzer.recordings.fields import Object, json_text, nanoseconds, unwrapped
from analyzer.recordings.message_parts import call_of, error_text, text_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.record import record, replace


@record
class Shape:
    """How a program keeps dialogues."""

    name: str
    entries: Callable[[Records], Records]
    """Returns the entries of a file; none if the records are another program's. Never raises."""
    messages: Callable[[Records], Iterable[Message]]
    """Reads the entries of one dialogue."""
    dialogues: Callable[[Records], Iterable[Records]] = lambda entries: [entries]
    """Splits entries by their dialogues."""


def each_alone(entries: Records) -> list[Records]:
    """Return the entries of dialogues that are one document each."""
    return [[entry] for entry in entries]


def in_shapes(
    shapes: Iterable[Shape], *, name: str, example: str, source: str, how: str, agent: str = ""
) -> FileFormat:
    """Return a format of several shapes, each of which recognises and reads its own records."""
    whole = FileFormat(
        name=name,
        example=example,
        source=source,
        how=how,
        recognizes=lambda records: any(kind.recognizes(records) for kind in kinds),
        read=lambda records: next(kind.read(records) for kind in kinds if kind.recognizes(records)),
        agent=agent,
    )
    kinds = tuple(_kind(shape, whole) for shape in shapes)
    return replace(whole, kinds=kinds)


def _kind(shape: Shape, whole: FileFormat) -> FileFormat:
    def entries(records: Records) -> Records:
        return shape.entries(unwrapped(records, "messages", "events")) or shape.entries(records)

    def read(records: Records) -> Spans:
        dialogues = map(shape.messages, shape.dialogues(entries(records)))
        return dialogues_spans(map(joined_answers, dialogues), name=shape.name)

    return replace(
        whole, name=f"a run of {shape.name}", recognizes=lambda records: bool(entries(records)), read=read
    )


def asking(name: Any, arguments: Any, call_id: Any, agent: str = "", time: Any = None) -> Message:
    """Return the message of an agent that calls one tool."""
    call = call_of(name, arguments, call_id)
    return Message(speaker=AGENT, agent=agent, calls=(call,), time_ns=nanoseconds(time))


def answering(
    result: Any, call_id: Any, *, error: Any = None, failed: bool = False, time: Any = None
) -> Message:
    """Return the message of a tool; an error stands for its result."""
    said = error_text(error) or json_text(error)
    text = said or text_of(result)
    is_failed = bool(said) or failed
    return Message(
        speaker=TOOL, text=text, call_id=json_text(call_id), failed=is_failed, time_ns=nanoseconds(time)
    )


def saying(speaker: Speaker, text: Any, agent: str = "", time: Any = None) -> Iterator[Message]:
    """Yield a message, if it says anything."""
    if found := text_of(text):
        yield Message(speaker=speaker, text=found, agent=agent, time_ns=nanoseconds(time))


def sole(records: Records) -> Object:
    """Return the only document of a file; an empty one if there are several."""
    return records[0] if len(records) == 1 and isinstance(records[0], dict) else {}
