"""Any value under any attribute: every run is read and nothing raises.

The spans are those of real frameworks (every recording beside the framework tests), so that each dialect is
deep in its own code when it meets a list instead of text, JSON of another form, or a number as a name.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector_processor.core.runs import Run
from collector_processor.lint import lint
from collector_processor.rebuild.repair import repair
from collector_processor.rebuild.runs import group_runs
from collector_processor.trajectory import order
from semconv.model import Event, Span, Trace
from tests.frameworks.catalogue import catalogue
from tests.frameworks.changes import runs_of

FIXTURES: Final = tuple(
    fixture for run in catalogue().values() if (fixture := run.fixture("normal")).exists()
)
WORDS: Final = (
    *(
        "role",
        "content",
        "contents",
        "parts",
        "type",
        "text",
        "messages",
        "message",
        "data",
        "kwargs",
        "args",
    ),
    *("tool_calls", "function", "name", "arguments", "id", "call_id", "output", "input", "error", "status"),
    *("agent_name", "to_agent", "from_agent", "coworker", "generations", "update", "lc", "source", "result"),
    *("functionCall", "functionResponse", "toolUse", "toolResult", "blocks", "tool_name", "is_error", "raw"),
    *("user", "assistant", "tool", "system", "tool_call", "tool_call_response", "reasoning", "image"),
    *("langgraph_node", "langgraph_checkpoint_ns", "lc_agent_name", "ev", "current_agent_name='a'", "a|b:c"),
)

leaves = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=6),
    st.sampled_from([None, True, False, 0, -1, 2**63 - 1, 1.5, math.nan, math.inf, ""]),
)
json_values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner)
    ),
    max_leaves=12,
)
DEEP: Final = ("[" * 1500, "[" * 900 + "]" * 900, '{"data":' * 400 + "1" + "}" * 400, "(" * 500, "x(a=" * 200)


def structured(value: Any) -> Any:
    """Convert JSON to what the decoder makes of OTLP's structured values."""
    if isinstance(value, list):
        return tuple(structured(each) for each in value)
    return {key: structured(each) for key, each in value.items()} if isinstance(value, dict) else value


values = st.one_of(
    json_values.map(json.dumps),
    json_values.map(repr),
    json_values.map(structured),
    st.sampled_from(DEEP),
    st.binary(max_size=4),
)


@functools.cache
def recorded(number: int) -> tuple[Span, ...]:
    return tuple(span for run in runs_of(FIXTURES[number].read_bytes()) for span in run.trace.spans)


@functools.cache
def keys() -> tuple[str, ...]:
    """All attribute keys of all recorded spans."""
    found = {key for number in range(len(FIXTURES)) for span in recorded(number) for key in span.attributes}
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Change:
    """A change; the recorded spans themselves would be too long to print."""

    place: int
    key: str | int
    """A number chooses among the span's own keys."""
    value: Any
    in_event: bool

    def made(self, span: Span) -> Span:
        own = sorted(span.attributes) or list(keys())
        key = own[self.key % len(own)] if isinstance(self.key, int) else self.key
        told = {key: self.value}
        if not self.in_event:
            return replace(span, attributes={**span.attributes, **told})
        event = Event(name=key, time_ns=0, attributes=told, body=self.value)
        events = tuple(replace(each, attributes={**each.attributes, **told}) for each in span.events)
        return replace(span, events=(*events, event), logs=(*span.logs, event))


fixtures = st.integers(0, len(FIXTURES) - 1)
changes = st.builds(
    Change,
    place=st.integers(0, 200),
    key=st.integers(0, 60) | st.deferred(lambda: st.sampled_from(keys())),
    value=values,
    in_event=st.integers(0, 4).map(lambda chance: chance == 0),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(which=fixtures, beside=st.none() | fixtures, confusion=st.lists(changes, min_size=1, max_size=12))
def test_attributes_of_wrong_types_lose_content_and_never_raise(
    which: int, beside: int | None, confusion: list[Change]
) -> None:
    spans = list(recorded(which))
    for change in confusion:
        place = change.place % len(spans)
        spans[place] = change.made(spans[place])
    if beside is not None and beside != which:
        spans += [replace(span, trace_id=spans[0].trace_id) for span in recorded(beside)]  # in one trace
    for text in texts_of(spans):
        assert isinstance(text, str)


def texts_of(spans: Sequence[Span]) -> Iterator[object]:
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    for trace in group_runs([Trace(spans=tuple(found)) for found in by_trace.values()]):
        sound = repair(trace)
        trajectory = order(sound)
        lint(Run(trace=sound, trajectory=trajectory))
        yield from (trajectory.task, trajectory.output, trajectory.root_error, *trajectory.agents)
        for step in trajectory.steps:
            yield from (step.agent, step.input, step.output, step.error, step.target or "", step.instructions)
