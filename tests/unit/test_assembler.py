"""When is a trace complete? Told with a made-up clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.assembler import Assembler, AssemblerLimits, TraceKey
from collector_processor.notes import SpanNote
from collector_processor.otlp import NO_TENANT, Tenant
from semconv.model import Completion, SpanId, TraceId

KEY = TraceKey(NO_TENANT, TraceId("a" * 32))
LIMITS = AssemblerLimits(
    root_grace_s=2, candidate_grace_s=10, idle_close_s=60, max_age_s=3600, max_spans=100, max_bytes=10_000
)


def note(
    number: int, parent: int | None = None, *, agent: bool = False, top: bool = False, marked: bool = False
) -> SpanNote:
    return SpanNote(
        span_id=SpanId(f"{number:016x}"),
        parent_id=None if parent is None else SpanId(f"{parent:016x}"),
        is_agent_kind=agent,
        is_top_kind=top,
        is_marked=marked or agent or top,
    )


def completions(assembler: Assembler, now: float) -> list[Completion]:
    return [released.completion for released in assembler.take_ready(now)]


def test_waits_a_grace_period_after_the_root_then_releases() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(2, 1, marked=True),), 10, now=0)
    assembler.receive(KEY, (note(1),), 10, now=5)
    assert completions(assembler, 6.9) == []
    assert completions(assembler, 7) == [Completion.ROOT_ENDED]
    assert len(assembler) == 0


def test_a_span_within_the_grace_period_starts_it_again() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(1),), 10, now=0)
    assembler.receive(KEY, (note(2, 1),), 10, now=1.5)
    assert completions(assembler, 2.1) == []
    assert completions(assembler, 3.5) == [Completion.ROOT_ENDED]


def test_traces_that_ended_leave_nothing_behind() -> None:
    """However many end before their first deadline: a flood would leave a timer of each."""
    assembler, most, released = Assembler(LIMITS), 0, 0
    for number in range(10_000):
        key, now = TraceKey(NO_TENANT, TraceId(f"{number:032x}")), number / 1_000
        assembler.receive(key, (note(2, 1, marked=True),), 10, now)
        assembler.receive(key, (note(1),), 10, now)
        released += len(assembler.take_ready(now))
        most = max(most, len(assembler._timers))
    assert most < 5_100  # of 2,000 that are open at a time
    assert released + len(assembler.take_ready(12)) == 10_000
    assert len(assembler) == 0


def test_a_workflow_under_a_web_request_that_still_runs_is_a_top() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(2, 1, top=True),), 10, now=0)
    assert completions(assembler, 2) == [Completion.ROOT_ENDED]


def test_an_agent_under_a_span_nobody_knows_is_a_candidate_and_waits_longer() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(3, 2, marked=True), note(2, 1, agent=True)), 10, now=0)
    assert completions(assembler, 9) == []
    assert completions(assembler, 10) == [Completion.IDLE]


def test_a_candidate_passes_on_to_the_plain_span_around_it() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(3, 2, agent=True),), 10, now=0)
    assembler.receive(KEY, (note(2, 1),), 10, now=1)
    assert completions(assembler, 11) == [Completion.IDLE]


@pytest.mark.parametrize("sibling", [note(5, 1, marked=True)], ids=["a model call under the same parent"])
def test_a_nested_agent_is_no_candidate_while_the_agent_around_it_runs(sibling: SpanNote) -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (sibling, note(3, 2, agent=True)), 10, now=0)
    assembler.receive(KEY, (note(2, 1, marked=True),), 10, now=1)  # the tool that enclosed it
    assert completions(assembler, 30) == []
    assert completions(assembler, 61) == [Completion.IDLE_OPEN]


def test_silence_while_nothing_on_top_ended_keeps_the_trace_open_until_the_cap() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(2, 1, marked=True),), 10, now=0)
    assert completions(assembler, 60) == [Completion.IDLE_OPEN]
    assert len(assembler) == 1
    assert completions(assembler, 3599) == []
    assert completions(assembler, 3600) == [Completion.MAX_AGE]


def test_spans_after_a_provisional_look_count_from_where_they_came() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(2, 1, marked=True),), 10, now=0)
    assert completions(assembler, 60) == [Completion.IDLE_OPEN]
    assembler.receive(KEY, (note(1),), 10, now=100)
    assert completions(assembler, 102) == [Completion.ROOT_ENDED]


def test_caps_release_at_once() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, tuple(note(n + 2, 1) for n in range(100)), 10, now=0)
    assert completions(assembler, 0) == [Completion.SPAN_LIMIT]
    assembler.receive(KEY, (note(2, 1),), 10_000, now=0)
    assert completions(assembler, 0) == [Completion.BYTE_LIMIT]


def test_a_reopened_trace_has_seen_its_top_end_and_waits_longer_each_time() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(9, 1),), 10, now=0, analyses=1)
    assert completions(assembler, 7.9) == []
    assert completions(assembler, 8) == [Completion.ROOT_ENDED]
    assembler.receive(KEY, (note(10, 1),), 10, now=0, analyses=2)
    assert completions(assembler, 31.9) == []
    assert completions(assembler, 32) == [Completion.ROOT_ENDED]


def test_too_many_open_traces_release_the_longest_silent() -> None:
    assembler = Assembler(AssemblerLimits(max_traces=2))
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(3)]
    for key in keys[:2]:
        assembler.receive(key, (note(2, 1),), 1, now=0)
    assembler.receive(keys[0], (note(3, 1),), 1, now=1)
    assembler.receive(keys[2], (note(2, 1),), 1, now=2)
    assert assembler.next_deadline() == float("-inf")
    (released,) = assembler.take_ready(2)
    assert (released.key, released.completion) == (keys[1], Completion.EVICTED)


def test_the_same_trace_id_of_two_tenants_is_two_traces() -> None:
    assembler = Assembler(LIMITS)
    assembler.receive(KEY, (note(1),), 10, now=0)
    assembler.receive(TraceKey(Tenant("x-scope-orgid=b"), KEY.trace_id), (note(2, 1),), 10, now=0)
    assert completions(assembler, 2) == [Completion.ROOT_ENDED]
    assert len(assembler) == 1


events = st.lists(
    st.tuples(
        st.floats(0, 50),
        st.integers(0, 4),
        st.builds(
            note,
            st.integers(1, 30),
            st.one_of(st.none(), st.integers(1, 30)),
            agent=st.booleans(),
            top=st.booleans(),
            marked=st.booleans(),
        ),
    ),
    max_size=40,
)


@given(events)
def test_every_trace_comes_out_and_none_waits_past_its_deadline(
    arrivals: list[tuple[float, int, SpanNote]],
) -> None:
    assembler, now, seen, final = Assembler(LIMITS), 0.0, set[TraceKey](), list[TraceKey]()
    for pause, number, span in arrivals:
        now += pause
        final += [r.key for r in assembler.take_ready(now) if r.completion is not Completion.IDLE_OPEN]
        key = TraceKey(NO_TENANT, TraceId(f"{number:032x}"))
        assembler.receive(key, (span,), 1, now)
        seen.add(key)
        deadline = assembler.next_deadline()
        assert deadline is not None
        assert deadline <= now + LIMITS.max_age_s
    while (deadline := assembler.next_deadline()) is not None:
        now = max(now, deadline)
        final += [r.key for r in assembler.take_ready(now) if r.completion is not Completion.IDLE_OPEN]
    assert set(final) == seen
    assert len(assembler) == 0
