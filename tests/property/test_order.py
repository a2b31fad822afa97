"""Laws of the path from bytes to steps, for any run and any order of arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from collector_processor.otlp import MalformedRequestError
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.repair import repair
from collector_processor.rebuild.stages import rebuild
from collector_processor.trajectory import order
from semconv.model import (
    Event,
    Link,
    Resource,
    Scope,
    Span,
    SpanId,
    SpanStatus,
    Step,
    StepKind,
    Trace,
    TraceId,
)
from tests.factories import TRACE, agent, chat, openinference, said, span, tool, workflow

# Any span ----------------------------------------------------------------------

scalars = st.one_of(
    st.text(max_size=8), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=4), st.none()
) | st.floats(allow_nan=False)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2).map(tuple) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
)
attributes = st.dictionaries(st.text(max_size=8), values, max_size=4)
moments = st.integers(0, 2**64 - 1)
trace_ids = st.binary(min_size=16, max_size=16).map(lambda raw: TraceId(raw.hex()))
span_ids = st.binary(min_size=8, max_size=8).filter(any).map(lambda raw: SpanId(raw.hex()))
any_spans = st.builds(
    Span,
    trace_id=trace_ids,
    span_id=span_ids,
    parent_id=st.none() | span_ids,
    name=st.text(max_size=8),
    kind=st.integers(0, 5),
    start_ns=moments,
    end_ns=moments,
    status=st.sampled_from(SpanStatus),
    status_message=st.text(max_size=8),
    attributes=attributes,
    events=st.lists(
        st.builds(Event, name=st.text(max_size=5), time_ns=moments, attributes=attributes), max_size=2
    ).map(tuple),
    links=st.lists(
        st.builds(Link, trace_id=trace_ids, span_id=span_ids, attributes=attributes), max_size=2
    ).map(tuple),
    scope=st.builds(
        Scope,
        name=st.text(max_size=5),
        version=st.text(max_size=3),
        attributes=attributes,
        schema_url=st.text(max_size=3),
    ),
    resource=st.builds(Resource, attributes=attributes, schema_url=st.text(max_size=3)),
    trace_state=st.text(max_size=4),
    flags=st.integers(0, 2**32 - 1),
    dropped_attributes=st.integers(0, 2**32 - 1),
)


@given(st.lists(any_spans, max_size=4))
@settings(max_examples=60, deadline=None)
def test_decoding_undoes_encoding(spans: list[Span]) -> None:
    decoded = decode(encode(spans))
    assert decoded.spans == tuple(spans)
    assert decoded.rejected == 0


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_malformed_or_an_empty_request(body: bytes) -> None:
    try:
        decode(body)
    except MalformedRequestError:
        return


@given(st.lists(any_spans, max_size=12), st.data())
@settings(max_examples=60, deadline=None)
def test_any_spans_at_all_are_ordered_without_an_exception(spans: list[Span], data: st.DataObject) -> None:
    """Make ids clash and parents form cycles: every span id becomes one of three."""
    few = [SpanId("00000000000000a1"), SpanId("00000000000000a2"), SpanId("00000000000000a3")]
    clashing = tuple(
        Span(
            **{name: getattr(each, name) for name in Span.__annotations__}
            | {
                "trace_id": TRACE,
                "span_id": data.draw(st.sampled_from(few)),
                "parent_id": data.draw(st.sampled_from([*few, None])),
            }
        )
        for each in spans
    )
    for run in rebuild([encode(clashing)]):
        assert run.trajectory.steps == ()


# A run of agents ----------------------------------------------------------------


@st.composite
def agent_runs(draw: st.DrawFn) -> list[Span]:
    """Make a run: a workflow of nested agents with calls, tools and turns, some of them parallel."""
    spans = [workflow(1, task="question", answer="answer", end=100_000)]
    homes = [1]
    for number in range(2, 2 + draw(st.integers(1, 14))):
        parent = draw(st.sampled_from(homes))
        start = 20 + 10 * draw(st.integers(0, 12))  # coarse, so that times tie
        end = start + 10 * draw(st.integers(0, 3))
        match draw(st.sampled_from(["chat", "tool", "agent", "turn", "llm", "plain"])):
            case "chat":
                spans.append(
                    chat(
                        number,
                        parent=parent,
                        start=start,
                        end=end,
                        answer=f"answer {number}",
                        heard=[said("user", "question"), said("user", f"more {number % 3}")],
                    )
                )
            case "tool":
                spans.append(tool(number, f"tool{number}", parent=parent, start=start, end=end, result="ok"))
            case "agent":
                spans.append(agent(number, f"agent{number % 3}", parent=parent, start=start, end=end + 300))
                homes.append(number)
            case "turn":
                spans.append(openinference(number, "CHAIN", parent=parent, start=start, end=end + 200))
                homes.append(number)
            case "llm":
                spans.append(
                    openinference(
                        number,
                        "LLM",
                        parent=parent,
                        start=start,
                        end=end,
                        attributes={"output.value": f"said {number}"},
                    )
                )
            case _:
                spans.append(span(number, parent=parent, start=start, end=end))
    return spans


@given(agent_runs(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_order_does_not_depend_on_arrival_batching_or_duplicates(
    spans: list[Span], chance: random.Random
) -> None:
    expected = order(repair(Trace(spans=tuple(spans))))
    arrived = spans + [each for each in spans if chance.random() < 0.3]
    chance.shuffle(arrived)
    bodies = [encode(batch) for batch in _batches(arrived, chance)]
    (run,) = rebuild(bodies)
    assert run.trajectory == expected


def _batches(spans: Sequence[Span], chance: random.Random) -> list[Sequence[Span]]:
    cuts = sorted(chance.sample(range(1, len(spans)), k=min(3, len(spans) - 1)))
    return [spans[start:end] for start, end in zip([0, *cuts], [*cuts, len(spans)], strict=True)]


@given(agent_runs())
@settings(max_examples=80, deadline=None)
def test_every_leaf_comes_out_exactly_once(spans: list[Span]) -> None:
    trajectory = order(repair(Trace(spans=tuple(spans))))
    out = [step.span_id for step in trajectory.steps]
    parents = {each.parent_id for each in spans}
    leaves = {
        each.span_id
        for each in spans
        if each.attributes.get("gen_ai.operation.name") in {"chat", "execute_tool"}
        or each.attributes.get("openinference.span.kind") == "LLM"
    }
    childless_agents = {
        each.span_id
        for each in spans
        if each.attributes.get("gen_ai.operation.name") == "invoke_agent" and each.span_id not in parents
    }
    assert len(out) == len(set(out))
    assert leaves | childless_agents <= set(out)
    assert [step.index for step in trajectory.steps] == list(range(len(out)))


@given(agent_runs())
@settings(max_examples=40, deadline=None)
def test_steps_overlap_in_time_only_inside_a_group(spans: list[Span]) -> None:
    steps = order(repair(Trace(spans=tuple(spans)))).steps
    times = [_time_of(step, steps) for step in steps]
    for one, other in combinations(steps, 2):
        (one_began, one_ended), (other_began, other_ended) = times[one.index], times[other.index]
        if other_began < one_ended and one_began < other_ended:
            assert one.group is not None
            assert one.group == other.group


def _time_of(step: Step, steps: Sequence[Step]) -> tuple[int, int]:
    """Return when a step began and ended.

    An answer comes at its call's end if that lasted over earlier steps. A call's own text may still be
    streamed while the tools of its agent run: it ends as they begin.
    """
    if any(step.start_ns < before.start_ns for before in steps[: step.index]):
        return step.end_ns, step.end_ns
    tools = [
        after.start_ns
        for after in steps[step.index + 1 :]
        if step.kind is StepKind.LLM and after.kind is StepKind.TOOL and after.agent == step.agent
    ]
    return step.start_ns, min([step.end_ns, *tools])
