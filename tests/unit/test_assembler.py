"""When a trace is complete, tested with a simulated clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.assembly.assembler import Assembler, AssemblerLimits, Released
from collector_processor.assembly.open_trace import MAX_GROUP
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.wire.facts import AGENT_BIT, MARKED_BIT, REMOTE_BIT, TOP_BIT, SpanNote
from semconv.model import Completion, TraceId
from tests.operations import operations
from tests.otlp_requests import span_note

EPOCH_NS = 1_700_000_000_000_000_000
KEY = TraceKey(NO_TENANT, TraceId("a" * 32))
LIMITS = AssemblerLimits(
    root_grace_s=2,
    idle_close_s=60,
    absent_idle_s=600,
    max_silence_s=3600,
    max_age_s=36_000,
    max_spans=100,
    max_bytes=10_000,
)


def note(
    number: int,
    parent: int | None = None,
    *,
    agent: bool = False,
    top: bool = False,
    marked: bool = False,
    remote: bool = False,
    kind: int = 0,
    source: int = 0,
    end_s: float = 0,
    links: Sequence[TraceKey] = (),
) -> SpanNote:
    return span_note(
        span_id=number,
        parent_id=parent or 0,
        bits=TOP_BIT * top | AGENT_BIT * agent | MARKED_BIT * (marked or agent or top) | REMOTE_BIT * remote,
        kind=kind,
        source=source,
        end_ns=EPOCH_NS + int(end_s * 1e9),
        links=tuple(key.trace_id for key in links),
    )


def other_key(number: int) -> TraceKey:
    return TraceKey(NO_TENANT, TraceId(f"{number + 1:032x}"))


def receive(
    assembler: Assembler, key: TraceKey, notes: Sequence[SpanNote], now: float, *, analyses: int = 0
) -> None:
    received_ns = EPOCH_NS + int(now * 1e9)
    assembler.receive(key, notes, 10, now, analyses=analyses, received_ns=received_ns)


def final(assembler: Assembler, now: float) -> list[Released]:
    return [one for one in assembler.take_ready(now) if one.completion is not Completion.IDLE_OPEN]


def completions(assembler: Assembler, now: float) -> list[Completion]:
    return [released.completion for released in assembler.take_ready(now)]


@pytest.fixture
def assembler() -> Assembler:
    return Assembler(LIMITS)


def test_waits_a_grace_period_after_the_root_then_releases(assembler: Assembler) -> None:
    assembler.receive(KEY, (note(2, 1, marked=True),), 10, now=0)
    assembler.receive(KEY, (note(1),), 10, now=5)
    assert completions(assembler, 6.9) == []
    assert completions(assembler, 7) == [Completion.ROOT_ENDED]
    assert len(assembler) == 0


def test_a_span_within_the_grace_period_starts_it_again(assembler: Assembler) -> None:
    assembler.receive(KEY, (note(1),), 10, now=0)
    assembler.receive(KEY, (note(2, 1),), 10, now=1.5)
    assert completions(assembler, 2.1) == []
    assert completions(assembler, 3.5) == [Completion.ROOT_ENDED]


def test_traces_that_ended_leave_nothing_behind() -> None:
    """However many traces end before their first deadline: a flood would otherwise leave a timer for each."""
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


class TestMissingParents:
    """A child ends before its parent, so a missing parent means that more spans will come."""

    def test_a_workflow_under_a_web_request_that_still_runs_waits_for_it(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(2, 1, top=True),), 10, now=0)
        assert completions(assembler, 59) == []
        assert completions(assembler, 60) == [Completion.IDLE_OPEN]  # a provisional verdict, for the page
        assembler.receive(KEY, (note(1),), 10, now=240)
        assert completions(assembler, 242) == [Completion.ROOT_ENDED]

    def test_an_agent_that_ended_under_a_remote_parent_not_seen_is_not_judged_after_ten_seconds(
        self, assembler: Assembler
    ) -> None:
        assembler.receive(KEY, (note(3, 2, marked=True), note(2, 1, agent=True, remote=True)), 10, now=0)
        assert completions(assembler, 599) == [Completion.IDLE_OPEN]
        assert [one.completion for one in final(assembler, 600)] == [Completion.IDLE]

    def test_an_agent_that_ended_under_a_local_parent_not_seen_may_be_followed_by_another(
        self, assembler: Assembler
    ) -> None:
        assembler.receive(KEY, (note(2, 1, agent=True, kind=7),), 10, now=0)
        assert final(assembler, 3500) == []
        assembler.receive(KEY, (note(3, 1, agent=True, kind=8), note(1)), 10, now=3500)
        assert [one.completion for one in final(assembler, 3502)] == [Completion.ROOT_ENDED]

    def test_runs_one_after_another_that_all_fell_silent_under_such_a_parent_are_over(
        self, assembler: Assembler
    ) -> None:
        for number in range(3):
            key = other_key(number)
            assembler.receive(key, (note(2, 1, agent=True, kind=7),), 10, now=700 * number)
            assert final(assembler, 700 * number + 599) == []
        found = final(assembler, 2000)
        assert [(one.key, one.given_up) for one in found] == [(other_key(2), frozenset({7}))]
        assert {one.key for one in final(assembler, 2600)} == {other_key(0), other_key(1)}

    def test_runs_that_fell_silent_at_the_same_time_may_all_wait_for_the_same_thing(
        self, assembler: Assembler
    ) -> None:
        for number in range(9):
            assembler.receive(other_key(number), (note(2, 1, agent=True, kind=7),), 10, now=number)
        assert final(assembler, 3599) == []

    def test_a_run_that_went_on_after_a_long_silence_says_that_the_others_may(
        self, assembler: Assembler
    ) -> None:
        for number in range(3):
            key = other_key(number)
            assembler.receive(key, (note(2, 1, agent=True, kind=7),), 10, now=700 * number)
            assert final(assembler, 700 * number + 600 * (number < 2)) == []
        assembler.receive(other_key(0), (note(3, 1, agent=True, kind=7),), 10, now=1500)
        assert final(assembler, 3000) == []

    def test_an_agent_that_ended_within_a_running_agent_is_not_judged_before_the_cap(
        self, assembler: Assembler
    ) -> None:
        assembler.receive(KEY, (note(5, 1, marked=True), note(3, 2, agent=True)), 10, now=0)
        assert completions(assembler, 3599) == [Completion.IDLE_OPEN]
        assert completions(assembler, 3600) == [Completion.MAX_AGE]

    def test_a_run_whose_root_ended_waits_for_a_service_that_still_holds_spans_back(
        self, assembler: Assembler
    ) -> None:
        assembler.receive(KEY, (note(1), note(4, 3, marked=True)), 10, now=0)
        assert completions(assembler, 30) == []
        assembler.receive(KEY, (note(3, 1),), 10, now=30)
        assert completions(assembler, 32) == [Completion.ROOT_ENDED]

    def test_a_parent_that_never_came_is_not_waited_for_next_time(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(2, 1, top=True, kind=7),), 10, now=0)
        assert completions(assembler, 100) == [Completion.IDLE_OPEN]
        (released,) = assembler.take_ready(600)
        assert (released.completion, released.given_up) == (Completion.IDLE, frozenset({7}))
        assembler.receive(other_key(2), (note(2, 1, top=True, kind=7),), 10, now=1000)
        assert completions(assembler, 1002) == [Completion.ROOT_ENDED]

    def test_the_parents_of_another_tenant_are_other_parents(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(2, 1, top=True, kind=7),), 10, now=0)
        assert [one.completion for one in final(assembler, 600)] == [Completion.IDLE]
        elsewhere = TraceKey(Tenant("x-scope-orgid=b"), KEY.trace_id)
        assembler.receive(elsewhere, (note(2, 1, top=True, kind=7),), 10, now=1000)
        assert completions(assembler, 1060) == [Completion.IDLE_OPEN]

    def test_agents_in_turn_under_a_parent_that_never_comes_wait_for_one_another(
        self, assembler: Assembler
    ) -> None:
        assembler.learned.recall([(NO_TENANT, 7)], [])
        assembler.receive(KEY, (note(2, 1, agent=True, kind=7),), 10, now=0)
        assembler.receive(KEY, (note(3, 1, agent=True, kind=7),), 10, now=20)
        assert completions(assembler, 79) == []
        assert completions(assembler, 80) == [Completion.IDLE]

    def test_what_a_request_from_another_process_called_is_over_when_it_ends(
        self, assembler: Assembler
    ) -> None:
        assembler.learned.recall([(NO_TENANT, 7)], [])
        assembler.receive(KEY, (note(2, 1, agent=True, kind=7, remote=True),), 10, now=0)
        assert completions(assembler, 2) == [Completion.IDLE]

    def test_a_parent_that_comes_after_all_is_waited_for_again(self, assembler: Assembler) -> None:
        assembler.learned.recall([(NO_TENANT, 7)], [])
        assembler.receive(KEY, (note(2, 1, top=True, kind=7),), 10, now=0)
        assembler.receive(KEY, (note(1),), 10, now=1)
        assert assembler.learned.take_arrived() == {(NO_TENANT, 7)}
        assembler.receive(other_key(2), (note(2, 1, top=True, kind=7),), 10, now=1)
        assert completions(assembler, 300) == [Completion.ROOT_ENDED, Completion.IDLE_OPEN]

    def test_a_parent_that_was_seen_to_come_is_waited_for_until_the_cap(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(2, 1, top=True, kind=7),), 10, now=0)
        assembler.receive(KEY, (note(1),), 10, now=1)
        assembler.receive(other_key(2), (note(2, 1, top=True, kind=7),), 10, now=10)
        assert completions(assembler, 3609) == [Completion.ROOT_ENDED, Completion.IDLE_OPEN]
        assert completions(assembler, 3610) == [Completion.MAX_AGE]

    def test_a_parent_that_was_seen_to_come_before_a_restart_is_waited_for_until_the_cap(self) -> None:
        before, after = Assembler(LIMITS), Assembler(LIMITS)
        before.receive(KEY, (note(2, 1, agent=True, kind=7),), 10, now=0)
        before.receive(KEY, (note(1),), 10, now=1)
        after.learned.recall([], before.learned.take_arrived())
        assert before.learned.take_arrived() == frozenset()
        after.receive(KEY, (note(2, 1, agent=True, kind=7),), 10, now=0)
        assert final(after, 3599) == []

    def test_one_run_longer_than_the_cap_gives_up_no_running_agent(self, assembler: Assembler) -> None:
        """Three such runs show that the spans above these calls never arrive."""
        for number in range(3):
            assembler.receive(other_key(number), (note(2, 1, marked=True, kind=7),), 10, now=4000 * number)
            (released,) = final(assembler, 4000 * number + 3600)
            assert released.given_up == ({7} if number == 2 else frozenset())


class TestLateness:
    def test_a_trace_waits_as_long_as_its_other_services_have_been_late(self, assembler: Assembler) -> None:
        for number in range(3):  # the worker's batches leave every 30 s
            late = (note(2, 1, source=2, end_s=100 * number), note(3, 1, source=2, end_s=100 * number + 29))
            receive(assembler, other_key(number), late, 100 * number + 30)
            receive(assembler, other_key(number), (note(1, source=1, end_s=100 * number),), 100 * number + 30)
            assert final(assembler, 100 * number + 99)
        now = 1000.0
        receive(assembler, KEY, (note(2, 1, source=2, end_s=now), note(1, source=1, end_s=now)), now)
        assert final(assembler, now + 29) == []
        assert [released.completion for released in final(assembler, now + 60)] == [Completion.ROOT_ENDED]

    def test_clocks_of_other_hosts_may_be_wrong_by_any_amount(self, assembler: Assembler) -> None:
        for number in range(50):
            spans = (note(2, 1, source=2, end_s=number - 7200), note(1, source=1, end_s=number + 7200))
            receive(assembler, other_key(number), spans, number)
        assert len(final(assembler, 51)) == 50

    def test_a_service_that_sends_after_the_root_alone_is_waited_for_the_next_time(
        self, assembler: Assembler
    ) -> None:
        """Nothing of it has arrived when the root ends: only an earlier run shows it."""
        receive(assembler, KEY, (note(1, kind=5),), 0)
        assert len(final(assembler, 2)) == 1
        receive(assembler, KEY, (note(2, 1, source=9),), 25, analyses=1)
        assert len(final(assembler, 200)) == 1
        receive(assembler, other_key(2), (note(1, kind=5),), 300)
        assert final(assembler, 325) == []
        assert len(final(assembler, 360)) == 1

    def test_a_silence_that_no_wait_would_have_covered_teaches_nothing(self, assembler: Assembler) -> None:
        """A user thinks for minutes before the next turn of a conversation, which links to the last."""
        receive(assembler, KEY, (note(1, kind=5),), 0)
        assert len(final(assembler, 2)) == 1
        receive(assembler, other_key(2), (note(1, kind=5, links=(KEY,)),), 61)
        assert len(final(assembler, 63)) == 1

    def test_no_lateness_makes_a_trace_wait_longer_than_idle(self, assembler: Assembler) -> None:
        late = (note(2, 1, source=2, end_s=0), note(3, 1, source=2, end_s=3000))
        receive(assembler, KEY, (*late, note(1, source=1)), 3000)
        assert len(final(assembler, 3060)) == 1


class TestKindsOfRunsNotYetKnown:
    def test_a_run_whose_spans_come_as_those_of_sdks_by_default_waits_no_longer(
        self, assembler: Assembler
    ) -> None:
        receive(assembler, KEY, (note(2, 1, end_s=99), note(1, end_s=99.9)), 100)
        assert [one.completion for one in final(assembler, 102)] == [Completion.ROOT_ENDED]

    def test_one_whose_spans_come_later_waits_four_times_the_grace(self, assembler: Assembler) -> None:
        receive(assembler, KEY, (note(2, 1, end_s=90), note(1, end_s=98)), 100)
        assert final(assembler, 107) == []
        receive(assembler, KEY, (note(3, 1, source=2, end_s=97),), 107)
        assert [one.completion for one in final(assembler, 115)] == [Completion.ROOT_ENDED]

    def test_until_ten_runs_of_the_kind_have_ended(self, assembler: Assembler) -> None:
        for number in range(11):
            assert final(assembler, 100 * number) == []
            receive(assembler, other_key(number), (note(1, kind=5, end_s=100 * number - 5),), 100 * number)
            assert len(final(assembler, 100 * number + 2)) == (number == 10)
            assert len(final(assembler, 100 * number + 8)) == (number < 10)

    def test_a_process_that_sends_all_when_the_run_ends_holds_back_nothing(
        self, assembler: Assembler
    ) -> None:
        receive(assembler, KEY, (note(2, 1, end_s=60), note(1, end_s=99.9)), 100)
        assert len(final(assembler, 102)) == 1

    def test_a_clock_that_is_hours_wrong_says_nothing(self, assembler: Assembler) -> None:
        receive(assembler, KEY, (note(1, end_s=-7200),), 100)
        assert len(final(assembler, 102)) == 1


class TestLinkedTraces:
    def test_linked_traces_that_are_open_are_released_together(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(1),), 10, now=0)
        assembler.receive(other_key(2), (note(12, 11, marked=True, links=(KEY,)),), 10, now=1)
        assert completions(assembler, 30) == []
        assembler.receive(other_key(2), (note(11),), 10, now=30)
        (released,) = final(assembler, 32)
        assert {released.key, *released.along} == {KEY, other_key(2)}
        assert len(assembler) == 0

    def test_whichever_comes_first(self, assembler: Assembler) -> None:
        assembler.receive(other_key(2), (note(11, links=(KEY,)),), 10, now=0)
        assembler.receive(KEY, (note(2, 1, marked=True),), 10, now=1)
        assert completions(assembler, 3) == []
        assembler.receive(KEY, (note(1),), 10, now=5)
        (released,) = final(assembler, 7)
        assert released.along == (other_key(2),) or released.along == (KEY,)

    def test_traces_that_link_to_one_that_never_comes_are_runs_by_themselves(self) -> None:
        assembler, cron = Assembler(LIMITS), other_key(99)
        for number in range(9):
            assembler.receive(other_key(number), (note(1, links=(cron,)),), 10, now=0)
        found = final(assembler, 2)
        assert [released.along for released in found] == [()] * 9

    def test_the_cap_releases_what_is_there_of_a_run(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(1),), 10, now=0)
        assembler.receive(other_key(2), (note(12, 11, marked=True, links=(KEY,)),), 10, now=1)
        (released,) = final(assembler, 3601)
        assert (released.completion, len(released.along)) == (Completion.MAX_AGE, 1)

    def test_a_trace_whose_company_is_gone_waits_no_longer(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(1),), 10, now=0)
        assembler.receive(other_key(2), (note(12, 11, marked=True, links=(KEY,)),), 10, now=0)
        assert final(assembler, 10) == []
        assembler.forget(other_key(2))
        assert [released.key for released in final(assembler, 10)] == [KEY]

    def test_a_star_of_thousands_is_joined_in_part(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(1),), 10, now=0)
        for number in range(3000):
            assembler.receive(other_key(number), (note(1, links=(KEY,)),), 10, now=0)
        found = final(assembler, 3)
        assert max(len(released.along) for released in found) == MAX_GROUP - 1
        assert sum(1 + len(released.along) for released in found) == 3001


class TestLateSpans:
    def test_a_reopened_trace_knows_what_it_held_and_waits_twice_as_long_each_time(
        self, assembler: Assembler
    ) -> None:
        assembler.receive(KEY, (note(1), note(2, 1)), 10, now=0)
        assert completions(assembler, 2) == [Completion.ROOT_ENDED]
        assembler.receive(KEY, (note(3, 2),), 10, now=2, analyses=1)
        assert completions(assembler, 5.9) == []
        assert completions(assembler, 6) == [Completion.ROOT_ENDED]

    def test_what_was_forgotten_of_a_trace_is_not_missing(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(9, 8),), 10, now=0, analyses=1)
        assert completions(assembler, 3.9) == []
        assert completions(assembler, 4) == [Completion.ROOT_ENDED]

    def test_a_restart_forgets_nothing_that_the_journal_knows(self, assembler: Assembler) -> None:
        assembler.remember(KEY, (note(1), note(2, 1)), now=0)
        assert len(assembler) == 0
        assembler.receive(KEY, (note(4, 3, marked=True),), 10, now=0, analyses=1)
        assert completions(assembler, 100) == []  # span 3 is on its way

    def test_no_wait_is_longer_than_the_cap(self, assembler: Assembler) -> None:
        assembler.receive(KEY, (note(1),), 10, now=0, analyses=30)
        assert completions(assembler, 3600) == [Completion.MAX_AGE]


def test_a_silent_trace_without_an_ended_top_span_stays_open_until_the_cap(assembler: Assembler) -> None:
    assembler.receive(KEY, (note(2, 1, marked=True),), 10, now=0)
    assert completions(assembler, 60) == [Completion.IDLE_OPEN]
    assert len(assembler) == 1
    assert completions(assembler, 3599) == []
    assert completions(assembler, 3600) == [Completion.MAX_AGE]


def test_a_run_may_be_silent_for_an_hour_again_and_again(assembler: Assembler) -> None:
    for number in range(9):
        assert final(assembler, 3500 * number) == []
        assembler.receive(KEY, (note(2 + number, 1, marked=True),), 10, now=3500 * number)
    assembler.receive(KEY, (note(1),), 10, now=31_000)
    assert [one.completion for one in final(assembler, 31_002)] == [Completion.ROOT_ENDED]


def test_a_run_that_never_pauses_gets_provisional_looks_and_its_verdict_at_the_cap() -> None:
    assembler, found = Assembler(LIMITS), list[tuple[int, Completion]]()
    for now in range(0, 36_030, 30):
        found += ((now, completion) for completion in completions(assembler, now))
        if now < 36_000:
            assembler.receive(KEY, (note(2, 1, marked=True),), 0, now=now)
            assembler._open[KEY].spans = 0  # bounded elsewhere
    assert [at for at, completion in found if completion is Completion.IDLE_OPEN] == [
        *range(3600, 36_000, 3600)
    ]
    assert found[-1] == (36_000, Completion.MAX_AGE)


def test_a_root_that_ends_after_a_provisional_look_completes_the_trace(assembler: Assembler) -> None:
    assembler.receive(KEY, (note(2, 1, marked=True),), 10, now=0)
    assert completions(assembler, 60) == [Completion.IDLE_OPEN]
    assembler.receive(KEY, (note(1),), 10, now=100)
    assert completions(assembler, 102) == [Completion.ROOT_ENDED]


def test_caps_release_at_once(assembler: Assembler) -> None:
    assembler.receive(KEY, tuple(note(n + 2, 1) for n in range(100)), 10, now=0)
    assert completions(assembler, 0) == [Completion.SPAN_LIMIT]
    assembler.receive(KEY, (note(2, 1),), 10_000, now=0)
    assert completions(assembler, 0) == [Completion.BYTE_LIMIT]


def test_too_many_spans_in_open_traces_release_the_longest_silent() -> None:
    assembler = Assembler(AssemblerLimits(max_open_spans=3))
    assembler.receive(KEY, (note(2, 1), note(3, 1)), 1, now=0)
    assembler.receive(other_key(2), (note(2, 1), note(3, 1)), 1, now=1)
    assert [(one.key, one.completion) for one in assembler.take_ready(1)] == [(KEY, Completion.EVICTED)]


def test_links_and_missing_parents_of_open_traces_take_room_too() -> None:
    """Each takes more memory than a span, and a span may have 32 links."""
    links = tuple(map(other_key, range(900, 932)))
    for heavy in (note(2, links=links), note(2, 1)):
        assembler = Assembler(AssemblerLimits(max_open_spans=8))
        assembler.receive(KEY, (heavy,), 1, now=0)
        assembler.receive(other_key(2), (heavy,), 1, now=1)
        assert [(one.key, one.completion) for one in assembler.take_ready(1)] == [(KEY, Completion.EVICTED)]
        assembler.take_ready(10**6)
        assert assembler._open.spans == 0


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


def test_a_tenant_with_a_storm_evicts_its_own_traces() -> None:
    """Before, the trace that was silent longest was released, whoever sent it."""
    assembler = Assembler(AssemblerLimits(max_traces=100))
    calm = [TraceKey(Tenant(f"x-scope-orgid={name}"), KEY.trace_id) for name in "abc"]
    for key in calm:
        assembler.receive(key, (note(2, 1),), 1, now=0)
    for number in range(2, 1_000):
        assembler.receive(other_key(number), (note(2, 1),), 1, now=0)
    assert all(assembler.is_open(key) for key in calm)
    released = [one.key for one in assembler.take_ready(0)]
    assert released == [other_key(number) for number in range(2, 1_000 - 97)], "its oldest first"


def test_tenants_with_as_many_traces_evict_in_turn() -> None:
    assembler = Assembler(AssemblerLimits(max_traces=10))
    tenants = [Tenant(f"x-scope-orgid={name}") for name in "ab"]
    for number in range(1, 16):
        for tenant in tenants:
            assembler.receive(TraceKey(tenant, other_key(number).trace_id), (note(2, 1),), 1, now=number)
    released = Counter(one.key.tenant for one in assembler.take_ready(15))
    assert released == dict.fromkeys(tenants, 10)


def test_a_tenant_with_few_traces_of_very_many_spans_evicts_its_own() -> None:
    assembler = Assembler(AssemblerLimits(max_open_spans=1_000))
    heavy = TraceKey(Tenant("x-scope-orgid=heavy"), KEY.trace_id)
    for number in range(2, 12):
        assembler.receive(other_key(number), (note(2, 1),), 1, now=number)
    assembler.receive(heavy, tuple(note(number, 1) for number in range(2, 1_500)), 1, now=20)
    assert [one.key for one in assembler.take_ready(20)] == [heavy]


def test_linked_traces_are_evicted_together() -> None:
    """Before, each waited for the next, so that a chain was analysed link by link."""
    assembler = Assembler(AssemblerLimits(max_traces=3))
    for number in (2, 3, 4, 5):
        links = (other_key(number - 1),) if number < 5 else ()
        assembler.receive(other_key(number), (note(2, 1, links=links),), 1, now=number)
    (released,) = assembler.take_ready(5)
    assert released.completion is Completion.EVICTED
    assert {released.key, *released.along} == {other_key(2), other_key(3), other_key(4)}
    assert len(assembler) == 1


@pytest.mark.parametrize("tenants", [1, 500])
def test_evicting_twice_as_many_traces_is_twice_the_work(tenants: int) -> None:
    def evicting(count: int) -> int:
        def receive() -> None:
            assembler = Assembler(AssemblerLimits(max_traces=500))
            for number in range(1, count):
                key = TraceKey(Tenant(f"x={number % tenants}"), other_key(number).trace_id)
                assembler.receive(key, (note(2, 1),), 1, now=0)

        return operations(receive)

    assert evicting(2_500) - evicting(500) < 2.3 * (evicting(1_500) - evicting(500))


def test_the_same_trace_id_of_two_tenants_is_two_traces(assembler: Assembler) -> None:
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
            links=st.lists(st.integers(0, 4).map(other_key), max_size=1),
        ),
    ),
    max_size=40,
)


@given(events)
def test_every_trace_comes_out_and_none_waits_past_its_deadline(
    arrivals: list[tuple[float, int, SpanNote]],
) -> None:
    assembler, now, seen, out = Assembler(LIMITS), 0.0, set[TraceKey](), list[Released]()
    for pause, number, span in arrivals:
        now += pause
        out += final(assembler, now)
        key = other_key(number)
        receive(assembler, key, (span,), now)
        seen.add(key)
        deadline = assembler.next_deadline()
        assert deadline is not None
        assert deadline <= now + LIMITS.max_silence_s
    while (deadline := assembler.next_deadline()) is not None:
        now = max(now, deadline)
        out += final(assembler, now)
    assert {key for released in out for key in (released.key, *released.along)} == seen
    assert len(assembler) == 0
    assert assembler._open.spans == 0
