"""Records: copies with changes."""

from __future__ import annotations

import dataclasses
from copy import copy

import pytest

from semconv.model import Event, Span, SpanId, TraceId
from semconv.record import replace

SPAN = Span(trace_id=TraceId("a" * 32), span_id=SpanId("b" * 16), name="chat", events=(Event(name="said"),))


def test_a_changed_copy_is_that_of_dataclasses() -> None:
    assert replace(SPAN, name="tool", start_ns=5) == dataclasses.replace(SPAN, name="tool", start_ns=5)
    assert SPAN.name == "chat"


def test_a_copy_equals_its_record_and_is_a_new_object() -> None:
    assert copy(SPAN) == SPAN
    assert copy(SPAN) is not SPAN


def test_a_field_that_a_record_does_not_have_is_refused() -> None:
    with pytest.raises(AttributeError):
        replace(SPAN, colour="red")  # type: ignore[call-arg]


def test_other_dataclasses_are_copied_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Plain:
        size: int = 1

    assert replace(Plain(), size=2) == Plain(size=2)
