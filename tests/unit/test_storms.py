"""A huge request or tenant costs in proportion to its size, and delays no other."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from analyzer.analyses.load import Rows
from benchmarks.hostile.attack_requests import agents, half_invalid, invalid
from collector_processor.assembly.open_trace import MAX_GROUP, LinkedTraces
from collector_processor.core.fair import FairQueue, Places, Turns
from collector_processor.journal.chunks import Queue
from collector_processor.journal.directory import SegmentDirectory
from collector_processor.journal.dispatch import Deliveries
from collector_processor.journal.keeper import JournalKeeper
from collector_processor.journal.recovery import recover_segments
from collector_processor.journal.segment_accounts import Place
from collector_processor.otlp import (
    NO_TENANT,
    Arrival,
    MalformedRequestError,
    RefusedError,
    Signal,
    Tenant,
    TraceKey,
)
from collector_processor.otlp.otlp_json import to_protobuf
from collector_processor.rebuild.decode import decode
from collector_processor.receivers.admission import TurnedAwayError
from collector_processor.receivers.decompression import Unpacking
from collector_processor.receivers.overload import BufferBudget
from collector_processor.store.verdicts import MAX_JOINED
from collector_processor.wire.agent_markers import TooCostlyError
from collector_processor.wire.facts import TraceArrival
from collector_processor.wire.scan import scan_request, scan_traces
from collector_processor.wire.split import TraceIndex, drop_invalid, extract, split_for_reading
from semconv.model import Link, SpanId, TraceId
from tests.factories import agent, tool
from tests.operations import operations
from tests.otlp_requests import key_value, numbers_in, request, rows_of, span, trace_name
from tests.slow_lane import LIMITS, MemorySource, ScriptedAnalyst, SlowLane
from tests.unit.test_intake import door

AGENT = {"gen_ai.operation.name": "invoke_agent"}
EMPTY = b"\x12\x00"
"""A span without ids."""


def accepting(folder: Path, count: int) -> int:
    """Return the number of operations for holding this many small traces of one request."""

    async def accept() -> None:
        async with door(folder / str(count)) as at:
            at.held.update(TraceKey(NO_TENANT, trace_name(number)) for number in range(1, count + 1))
            await at.accept(agents(count))
            assert len(at.fed) == count

    return operations(lambda: asyncio.run(accept()))


def test_twice_the_held_traces_of_a_request_are_twice_the_work(tmp_path: Path) -> None:
    once, twice = accepting(tmp_path, 60), accepting(tmp_path, 120)
    assert twice < 2.3 * once


async def test_traces_that_would_be_copied_too_often_are_not_held(tmp_path: Path) -> None:
    """A large Resource is copied for each trace: here 140 KiB would become 60 MiB."""
    spans = [span(1, trace=number, attributes={"gen_ai.operation.name": "chat"}) for number in range(1, 601)]
    async with door(tmp_path) as at:
        at.held.update(TraceKey(NO_TENANT, trace_name(number)) for number in range(1, 601))
        body = request(*spans, service="s" * 100_000)
        await at.accept(body)
        assert [chunk.body for chunk in at.offered] == [body]
        assert len(at.fed) == 600


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 6))
def test_an_index_cuts_out_what_a_filter_does(traces: list[int], wanted: int) -> None:
    body = request(*(span(number, trace=trace) for number, trace in enumerate(traces, 1)))
    body += request(*(span(number, trace=trace) for number, trace in enumerate(traces, 50)), scope="second")
    index = TraceIndex(Signal.TRACES, body)
    assert index.extract(trace_name(wanted)) == extract(Signal.TRACES, body, (trace_name(wanted),))


@pytest.mark.parametrize("part", ["resource", "scope"])
def test_a_large_resource_is_not_copied_for_each_trace_that_shares_it_when_they_are_read(
    tmp_path: Path, part: str
) -> None:
    """Each of 1,000 traces would take half a mebibyte."""
    message = ExportTraceServiceRequest.FromString(agents(1_000))
    group = message.resource_spans[0]
    shared = group.resource if part == "resource" else group.scope_spans[0].scope
    shared.attributes.insert(0, key_value("process.command_args", "x" * (512 << 10)))
    body = message.SerializeToString()

    async def accept() -> None:
        async with door(tmp_path) as at:
            await at.accept(body)
            sent = [chunk.body for chunk in at.offered]
            assert numbers_in(*sent) == numbers_in(body)
            assert all(b"x" * (512 << 10) in one for one in sent)  # forwarded as it came

    asyncio.run(accept())
    rows, found, _ = whole(tmp_path)
    bodies = [one for spans, _ in found for _, one in spans]
    assert sum(map(len, bodies)) < 16 * len(body)
    read = [one for each in bodies for one in decode(each).spans]
    assert len(read) == len(rows) == 1_000
    assert {(one.resource.attributes["service.name"], one.scope.name) for one in read} == {
        ("checkout", "shop")
    }


@pytest.mark.parametrize("tag", [0x5A, 0x6A], ids=["events", "links"])
def test_a_span_of_millions_of_empty_events_or_links_costs_what_some_thousands_cost(tag: int) -> None:
    def reading(count: int) -> int:
        made = ExportTraceServiceRequest.FromString(agents(1)).resource_spans[0].scope_spans[0].spans[0]
        body = request(Span.FromString(made.SerializeToString() + bytes((tag, 0)) * count))
        return operations(lambda: decode(body))

    assert reading(80_000) < 1.1 * reading(20_000)


def test_an_ordinary_resource_is_read_whole_for_each_trace_that_shares_it() -> None:
    index = TraceIndex(
        Signal.TRACES, request(*(span(1, trace=number) for number in range(1, 50)), service="s" * 9_000)
    )
    for trace_id in index.trace_ids:
        assert index.extract_for_reading(trace_id) == index.extract(trace_id)


def whole(folder: Path) -> tuple[Sequence[TraceId], list[tuple[Rows, Rows]], int]:
    """Return the traces in a journal, what is read of each to analyse it, and the number of operations."""
    directory = SegmentDirectory(path=folder)
    (segment,) = recover_segments(directory)
    assert segment.salt is not None
    keeper = JournalKeeper(directory, {segment.number: segment.salt})
    places: defaultdict[TraceId, list[Place]] = defaultdict(list)
    for entry in segment.index:
        offset = segment.rows[Queue(entry.signal, entry.tenant)].offset(entry.seq & 0xFFFF_FFFF)
        assert offset is not None
        places[entry.note.trace_id].append(Place(entry.seq, segment.version, offset, None))
    found: list[tuple[Rows, Rows]] = []
    wanted = [(trace_id, tuple(rows), ()) for trace_id, rows in places.items()]
    cost = operations(lambda: found.extend(keeper.whole(wanted)))
    keeper.close()
    return tuple(places), found, cost


def test_a_row_that_traces_share_is_parsed_once(tmp_path: Path) -> None:
    def reading(count: int) -> int:
        folder = tmp_path / str(count)

        async def accept() -> None:
            async with door(folder) as at:
                await at.accept(agents(count))

        asyncio.run(accept())
        _, found, cost = whole(folder)
        assert len(found) == count
        assert all(rows for rows, _ in found)
        return cost

    assert reading(200) < 2.2 * reading(100)


def test_large_rows_that_traces_share_in_turn_are_not_parsed_for_each(tmp_path: Path) -> None:
    """Each trace has a span in each of three requests, which are too large to be kept parsed."""
    wide = [span(99, trace=trace_id, attributes={"text": "x" * 900_000}) for trace_id in range(9_001, 9_006)]

    def reading(count: int) -> int:
        folder = tmp_path / str(count)

        async def accept() -> None:
            async with door(folder) as at:
                for number in (1, 2, 3):
                    small = [span(number, trace=trace, attributes=AGENT) for trace in range(1, count + 1)]
                    await at.accept(request(*small, *wide))
                assert len(at.fed) == 3 * count
                assert sum(chunk.items for chunk in at.offered) == 3 * (count + len(wide))

        asyncio.run(accept())
        _, found, cost = whole(folder)
        assert [len(spans) for spans, _ in found] == [3] * count
        return cost

    assert reading(80) < 2.3 * reading(40)


async def test_a_trace_in_several_rows_of_one_request_arrives_at_once(tmp_path: Path) -> None:
    """Its notes come with its first row: a parent behind a thousand other spans was never missing."""
    others = [span(1, trace=number, attributes=AGENT) for number in range(2, 1_502)]
    body = request(span(2, parent=1, attributes=AGENT), *others, span(1))
    async with door(tmp_path) as at:
        await at.accept(body)
        assert [chunk.items for chunk in at.offered] == [1_000, 502]
        assert [number for chunk in at.offered for number in numbers_in(chunk.body)] == numbers_in(body)
        notes = [arrival.notes for arrival in at.fed if arrival.key.trace_id == trace_name(1)]
        assert [[span_id for span_id, *_ in some] for some in notes] == [[2, 1], []]
        assert len(await rows_of(at.journal, TraceKey(NO_TENANT, trace_name(1)))) == 2


def test_pieces_for_reading_copy_a_large_resource_seldom() -> None:
    spans = [span(1, trace=number) for number in range(1, 6_001)]
    assert [len(numbers_in(piece)) for piece in split_for_reading(request(*spans), 6_000)] == [1_000] * 6
    large = request(*spans, service="s" * 3_000_000)
    pieces = split_for_reading(large, 6_000)
    assert [number for piece in pieces for number in numbers_in(piece)] == numbers_in(large)
    assert sum(map(len, pieces)) < 3 * len(large)


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 1200))
def test_short_spans_are_left_out_and_counted(sizes: list[int], run: int) -> None:
    short = EMPTY * run + b"".join(bytes((0x12, size)) + bytes(size) for size in sizes)
    valid = request(span(1))
    whole = _group(short + _span(1) + short + _span(2))
    found = scan_traces(whole)
    assert (found.invalid, found.item_count) == (2 * (run + len(sizes)), 2)
    body, dropped = drop_invalid(whole)
    assert dropped == found.invalid
    assert numbers_in(body) == [1, 2]
    assert drop_invalid(valid)[0] is valid


def _span(number: int) -> bytes:
    raw = span(number).SerializeToString()
    return bytes((0x12, len(raw))) + raw


def _group(spans: bytes) -> bytes:
    scope = _message(0x12, spans)
    return _message(0x0A, scope)


def _message(tag: int, content: bytes) -> bytes:
    size, written = len(content), bytearray((tag,))
    while size > 0x7F:
        written.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*written, size)) + content


def test_a_padded_length_is_read_as_before() -> None:
    odd = b"\x12\x80\x00" * 3
    assert scan_traces(_group(odd + _span(1))).invalid == 3
    assert drop_invalid(_group(odd + _span(1)))[1] == 3


@pytest.mark.whole
@pytest.mark.parametrize("attack", [invalid, half_invalid])
def test_invalid_spans_cost_little_for_each_byte(attack: Callable[[int], bytes]) -> None:
    body = attack(1)
    assert operations(lambda: scan_traces(body)) < 20 * len(body)


async def test_valid_spans_among_thousands_of_invalid_ones_are_stored(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        receipt = await at.accept(_group(EMPTY * 3000 + _span(1) + EMPTY * 3000 + _span(2)))
        assert receipt.rejected == 6000
        assert receipt.message == "rejected 6000 with invalid trace or span ids"
        assert [numbers_in(chunk.body) for chunk in at.offered] == [[1, 2]]
        assert at.counts().refused == 6000


async def test_a_small_request_passes_a_large_one(tmp_path: Path) -> None:
    async with door(tmp_path) as at:
        large = asyncio.create_task(at.accept(invalid(4)))
        await asyncio.sleep(0)
        await at.accept(request(span(1)))
        assert not large.done()
        assert (await large).rejected == (4 << 20) // len(EMPTY)


async def test_others_come_between_two_large_requests_of_a_client(tmp_path: Path) -> None:
    body = _usual(_field(2, _WIDE_SPAN) * 100)
    async with door(tmp_path) as at:
        await at.accept(body)
        assert at.intake is not None
        large = Arrival(signal=Signal.TRACES, body=body, client="10.0.0.1")
        looks = [asyncio.create_task(at.intake.look(large)) for _ in range(10)]
        done: list[int] = []
        while not all(look.done() for look in looks):
            done.append(sum(look.done() for look in looks))
            await asyncio.sleep(0)
        assert max(after - before for before, after in pairwise((*done, 10))) == 1


async def test_clients_have_turns_and_one_place_each() -> None:
    turns, order, free = Turns(2), list[str](), asyncio.Event()

    async def work(client: str, number: int) -> None:
        async with turns.turn(client):
            order.append(f"{client}{number}")
            await free.wait()

    tasks = [asyncio.create_task(work("a", number)) for number in range(3)]
    tasks += [asyncio.create_task(work(client, 0)) for client in "bc"]
    await asyncio.sleep(0.01)
    assert order == ["a0", "b0"]
    tasks[1].cancel()  # waits: its turn goes to the next
    free.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(order) == ["a0", "a2", "b0", "c0"]


def test_half_of_the_budget_is_the_most_that_one_client_holds() -> None:
    budget = BufferBudget(100 << 20)
    with budget.lease("a") as first, budget.lease("a") as second, budget.lease("b") as other:
        first.hold(30 << 20)
        with pytest.raises(RefusedError, match="this client's requests"):
            second.hold(21 << 20)
        other.hold(50 << 20)
    assert (budget.used, budget.clients) == (0, Counter())


def test_owners_are_taken_in_turn() -> None:
    queue: FairQueue[str, int, str] = FairQueue()
    for number in range(4):
        queue.put("storm", number, f"storm {number}")
    queue.put("calm", 0, "calm")
    assert queue.discard("storm", 1) == "storm 1"
    taken = [queue.take() for _ in range(5)]
    assert [one and one[2] for one in taken] == ["storm 0", "calm", "storm 2", "storm 3", None]
    assert queue.discard("calm", 0) is None


def test_an_owner_with_half_of_the_places_leaves_the_last_quarter_to_others() -> None:
    queue: FairQueue[str, int, str] = FairQueue()
    places: Places[str] = Places(8)
    for number in range(9):
        queue.put("storm", number, "storm")
    assert [places.take_from(queue) for _ in range(9)] == ["storm"] * 8 + [None]  # alone: all of them
    places.leave("storm")
    queue.put("calm", 0, "calm")
    assert places.take_from(queue) == "calm", "although it is the turn of the other"
    for _ in range(7):
        places.leave("storm")
    for number in range(9, 20):
        queue.put("storm", number, "storm")
    assert [places.take_from(queue) for _ in range(6)] == ["storm"] * 5 + [None]
    queue.put("calm", 1, "calm")
    queue.put("calm", 2, "calm")
    assert [places.take_from(queue) for _ in range(3)] == ["calm", "calm", None]


class CountedSource(MemorySource):
    """Counts the traces that are read."""

    reads = 0

    async def read_whole(self, keys: Sequence[TraceKey]) -> list[tuple[Rows, Rows]]:
        self.reads += len(keys)
        return await super().read_whole(keys)


async def test_a_chain_longer_than_a_run_is_read_in_proportion(tmp_path: Path) -> None:
    """Previously, each trace beyond the first run read all of that run again."""
    count, source = MAX_JOINED + 40, CountedSource()
    lane = SlowLane(tmp_path, ScriptedAnalyst(0), source=source)
    for number in range(1, count + 1):
        links = [Link(trace_id=TraceId(f"{number - 1:032x}"), span_id=SpanId("1" * 16))] if number > 1 else []
        trace_id = TraceId(f"{number:032x}")
        lane.receive(agent(1, "clerk", parent=None, trace_id=trace_id, links=links))
    for _ in range(12):
        await lane.pass_time(LIMITS.idle_close_s)
    assert lane.pipeline.open_traces == lane.pipeline.under_way == 0
    assert len(lane.announced) >= 2
    assert source.reads < 25 * count


def _grouped(folder: Path, count: int, parent: int | None) -> tuple[SlowLane, CountedSource]:
    """Return a lane that received this many traces with one framework id at once."""
    source, one = CountedSource(), "0123abcd-0000-4000-8000-000000000000"
    folder.mkdir()
    lane = SlowLane(folder, ScriptedAnalyst(0), source=source)
    team = {"gen_ai.agent.id": f"clerk_{one}/{one}"}
    for number in range(1, count + 1):
        root = agent(1, "clerk", parent=None, trace_id=trace_name(number))
        work = tool(2, "search", parent=parent or 1, trace_id=trace_name(number))
        root = replace(root, attributes={**root.attributes, **team})
        lane.receive(root, *([work] if parent else []))
    return lane, source


@pytest.mark.parametrize("count", [60, 120, 240])
async def test_traces_that_share_an_id_are_not_read_for_each_other(tmp_path: Path, count: int) -> None:
    """Before, each of a group read all others: 20,000 reads for 200 traces."""
    lane, source = _grouped(tmp_path / "lane", count, None)
    for _ in range(6):
        await lane.pass_time(LIMITS.root_grace_s * 2)
    assert lane.pipeline.open_traces == lane.pipeline.under_way == len(lane.pipeline._waiting) == 0
    (verdict,) = lane.store.starting_with("", None, 999)
    assert len(lane.analyst.asked[-1].steps) == count, "all are one run"
    assert verdict.version <= 3
    assert source.reads < 6 * count


@pytest.mark.parametrize("count", [60, 240])
async def test_open_traces_that_share_an_id_are_not_read_for_each_other(tmp_path: Path, count: int) -> None:
    """The same for provisional verdicts, while a parent is missing."""
    lane, source = _grouped(tmp_path / "lane", count, 99)
    await lane.pass_time(LIMITS.idle_close_s)
    for _ in range(4):
        await lane.pass_time(1)
    assert lane.pipeline.open_traces == count
    assert any(len(one.steps) == 2 * count for one in lane.analyst.glances), "all are one run"
    assert source.reads < 12 * count


async def test_a_trace_that_comes_after_its_run_waits_before_it_reads_the_others(tmp_path: Path) -> None:
    """They were analysed already, so it must wait longer; before, each read them to find that out."""
    lane, source = _grouped(tmp_path / "lane", 40, None)
    for _ in range(6):
        await lane.pass_time(LIMITS.root_grace_s * 2)
    one = "0123abcd-0000-4000-8000-000000000000"
    team = {"gen_ai.agent.id": f"clerk_{one}/{one}"}
    late = agent(1, "late", parent=None, trace_id=trace_name(99))
    lane.receive(replace(late, attributes={**late.attributes, **team}))
    before = source.reads
    await lane.pass_time(LIMITS.root_grace_s)
    assert source.reads == before + 1
    for _ in range(4):
        await lane.pass_time(LIMITS.root_grace_s * 4)
    assert len(lane.analyst.asked[-1].steps) == 41


def _previous(number: int, _count: int) -> Sequence[int]:
    return (number - 1,) if number > 1 else ()


def _next(number: int, count: int) -> Sequence[int]:
    return (number + 1,) if number < count else ()


def _first(number: int, _count: int) -> Sequence[int]:
    return (1,) if number > 1 else ()


@pytest.mark.parametrize("targets", [_previous, _next, _first])
async def test_more_linked_traces_than_may_be_open_are_read_in_proportion(
    targets: Callable[[int, int], Sequence[int]], tmp_path: Path
) -> None:
    """Before, an evicted trace waited for the next of its chain, and a thousand were read 60 times each."""
    count, source = 2 * MAX_GROUP + 100, CountedSource()
    limits = replace(LIMITS, max_traces=MAX_GROUP + 50)
    lane = SlowLane(tmp_path, ScriptedAnalyst(0), source=source, limits=limits)
    for number in range(1, count + 1):
        links = [Link(trace_id=trace_name(one), span_id=SpanId("1" * 16)) for one in targets(number, count)]
        lane.receive(agent(1, "clerk", parent=None, trace_id=trace_name(number), links=links))
    for _ in range(10):
        await lane.pass_time(2 * LIMITS.root_grace_s)
    assert lane.pipeline.open_traces == lane.pipeline.under_way == len(lane.pipeline._waiting) == 0
    assert source.reads < 30 * count


async def test_another_tenant_does_not_wait_for_a_storm(tmp_path: Path) -> None:
    lane = SlowLane(tmp_path, ScriptedAnalyst(0), concurrency=1)
    for number in range(1, 9):
        lane.receive(agent(1, f"storm{number}", parent=None, trace_id=TraceId(f"{number:032x}")))
    calm = agent(1, "calm", parent=None, trace_id=TraceId(f"{99:032x}"))
    lane.receive(calm, tenant=Tenant("x=calm"))
    await lane.pass_time(LIMITS.root_grace_s)
    assert [trajectory.agents for trajectory in lane.analyst.asked].index(("calm",)) <= 2


@pytest.mark.whole
async def test_a_verdict_does_not_wait_for_arrivals_of_another_tenant(tmp_path: Path) -> None:
    """A run is due while thousands of another's spans are unread, and those are not released."""
    lane = SlowLane(tmp_path, ScriptedAnalyst(0))
    calm, hasty = Tenant("x=calm"), TraceId(f"{1:032x}")
    lane.receive(agent(1, "calm", parent=None, trace_id=TraceId(f"{99_999:032x}")), tenant=calm)
    lane.receive(agent(1, "hasty", parent=None, trace_id=hasty))
    await lane.pipeline.turn()
    lane.now += LIMITS.root_grace_s
    many = [agent(2, "storm", parent=None, trace_id=TraceId(f"{number:032x}")) for number in range(2, 1_100)]
    for one in many:
        lane.receive(one)
    lane.receive(tool(5, "late", parent=1, trace_id=hasty))
    working = asyncio.create_task(lane.pipeline.turn())
    while not lane.pipeline.under_way:  # noqa: ASYNC110 - step by step
        await asyncio.sleep(0)
    assert len(lane.pipeline._inbox) > 500
    await working
    await lane.pipeline.settle()
    assert [trajectory.agents for trajectory in lane.analyst.asked] == [("calm",)]
    await lane.pass_time(LIMITS.root_grace_s)
    first = next(trajectory for trajectory in lane.analyst.asked if trajectory.agents == ("hasty",))
    assert [step.target for step in first.steps] == ["late"], "its last span was there when it was due"


def test_a_hub_that_arrives_last_joins_no_more_than_a_run_may_have() -> None:
    def arriving(count: int) -> int:
        links = LinkedTraces()
        hub, *leaves = (TraceKey(NO_TENANT, trace_name(number)) for number in range(count))
        for leaf in leaves:
            links.link(leaf, hub, is_open=False)
        found: list[TraceKey] = []
        cost = operations(lambda: found.extend(links.opened(hub)))
        assert len(found) == MAX_GROUP
        assert sum(1 for _ in links.company(hub)) == MAX_GROUP - 1
        return cost

    assert arriving(4_000) < 1.1 * arriving(1_000)


def _field(number: int, content: bytes) -> bytes:
    return _message(number << 3 | 2, content)


_AGENT_SPAN = span(1, attributes={"gen_ai.operation.name": "invoke_agent"}).SerializeToString()
_WIDE_SPAN = span(1, attributes={"text": "x" * 1_400}).SerializeToString()
_MANY = 1 << 17
_TWO_BYTES = b"\x70\x01" * _MANY
_LINK = _field(13, _field(1, bytes(15) + b"x"))


def _usual(spans: bytes) -> bytes:
    """Return a request with its Resource first, as SDKs write it."""
    return _field(1, _field(1, b"") + _field(2, spans))


def _text_span(text: str) -> bytes:
    return span(1, attributes={"gen_ai.operation.name": "chat", "text": text}).SerializeToString()


@pytest.mark.parametrize(
    ("body", "is_cheap"),
    [
        pytest.param(_group(_field(2, _WIDE_SPAN) * 30), True, id="thirty wide spans"),
        pytest.param(_group(_field(2, b"\x70\x01" * 3_000 + _AGENT_SPAN)), True, id="small"),
        pytest.param(
            _group(_field(2, b"\x70\x01" * 20_000 + _AGENT_SPAN)), False, id="fields before the ids"
        ),
        pytest.param(_group(_field(2, _AGENT_SPAN) * 330), False, id="many notes in any order"),
        pytest.param(_usual(_field(2, _AGENT_SPAN) * 330), True, id="a usual batch"),
        pytest.param(_usual(_field(2, _AGENT_SPAN) * 1_700), False, id="many notes"),
        pytest.param(_group(_field(2, _WIDE_SPAN[:28] + b"(\x01") * 1_500), True, id="many plain spans"),
        pytest.param(_group(b"\x18\x01" * 20_000), False, id="unknown fields of a scope"),
        pytest.param(_group(_field(2, _AGENT_SPAN + b"\x70\x01" * 24_000)), True, id="a large agent's span"),
        pytest.param(
            _usual(_field(2, _AGENT_SPAN[:28] + b"\x70\x01" * 24_000 + _AGENT_SPAN[28:])),
            False,
            id="an agent's span in an unusual order",
        ),
        pytest.param(_usual(_field(2, _AGENT_SPAN + _LINK + _TWO_BYTES)), False, id="a linked span"),
        pytest.param(
            _usual(_field(2, _AGENT_SPAN + _field(4, b"\n\x10" + b"j" * (1 << 20) + _LINK))),
            False,
            id="what may be links",
        ),
        pytest.param(_group(_field(2, _text_span("\n" * (1 << 20)))), False, id="newlines in any order"),
        pytest.param(_group(_field(2, _WIDE_SPAN + b"\x70\x01" * 24_000)), True, id="a large plain span"),
        pytest.param(_field(1, b"\x12\x00" * 10_000), False, id="empty scopes"),
        pytest.param(b"\x0a\x00" * 10_000, False, id="empty resources"),
        pytest.param(b"\x10\x01" * 10_000, False, id="unknown fields"),
    ],
)
def test_a_costly_scan_ends_soon_where_it_may_not_take_long(body: bytes, *, is_cheap: bool) -> None:
    def scan() -> None:
        with nullcontext() if is_cheap else pytest.raises(TooCostlyError):
            scan_traces(body, (), 5_000)

    assert operations(scan) < 2_000_000  # some 30 ms


@pytest.mark.parametrize(
    ("span_bytes", "is_taken"),
    [
        pytest.param(_TWO_BYTES + _AGENT_SPAN, False, id="before the ids"),
        pytest.param(_AGENT_SPAN + _TWO_BYTES, True, id="after the ids"),
        pytest.param(_AGENT_SPAN + _LINK + _TWO_BYTES, True, id="after a link"),
        pytest.param(_AGENT_SPAN + _field(13, _field(1, bytes(16)) + _TWO_BYTES), True, id="in a link"),
        pytest.param(_AGENT_SPAN[:28] + b"\x22\x00" + _TWO_BYTES + _AGENT_SPAN[28:], True, id="no parent"),
        pytest.param(_AGENT_SPAN + b"\x4a\x00" * _MANY, True, id="attributes without a key"),
    ],
)
async def test_a_span_of_tiny_fields_costs_little_for_each_byte(
    span_bytes: bytes, *, is_taken: bool, tmp_path: Path
) -> None:
    """One of 5 MiB kept a thread busy for half a minute; slow ones are now refused, not lost."""
    body = _group(_field(2, _AGENT_SPAN) + _field(2, span_bytes))
    assert operations(lambda: scan_traces(body)) < 30 * len(body)
    async with door(tmp_path) as at:
        receipt = await at.accept(body)
        assert receipt.rejected == (not is_taken)
        assert [chunk.items for chunk in at.offered] == [1 + is_taken]
        assert at.counts().refused == (not is_taken)


@pytest.mark.parametrize(
    ("signal", "body"),
    [
        pytest.param(Signal.TRACES, b"\x0a\x00" * _MANY, id="resources"),
        pytest.param(Signal.TRACES, (b"\x0a\x40" + b"\x12\x00" * 32) * (_MANY >> 5), id="scopes"),
        pytest.param(Signal.TRACES, _group(b"\x18\x01" * _MANY), id="unknown fields of a scope"),
        pytest.param(Signal.LOGS, _group(EMPTY * _MANY), id="log records"),
        pytest.param(Signal.LOGS, _group(b"\x18\x01" * _MANY), id="unknown fields beside log records"),
        pytest.param(Signal.LOGS, b"\x0a\x00" * _MANY, id="resources of log records"),
        pytest.param(Signal.METRICS, _group(EMPTY * _MANY), id="metrics"),
    ],
)
async def test_a_request_of_empty_messages_is_refused(signal: Signal, body: bytes, tmp_path: Path) -> None:
    """Ten million fit into one request; each would take a hundred bytes of memory."""
    with pytest.raises(MalformedRequestError, match="more fields than its size allows"):
        scan_request(signal, body)

    def scan() -> None:
        with suppress(MalformedRequestError):
            scan_request(signal, body)

    assert operations(scan) < 40 * len(body)
    async with door(tmp_path) as at:
        with pytest.raises(MalformedRequestError):
            await at.accept(body, signal=signal)


async def test_what_the_writer_posts_is_done_in_slices_and_errors_stop_no_other() -> None:
    loop = asyncio.get_running_loop()
    deliveries, seen = Deliveries(loop), list[str]()

    def long() -> Iterator[None]:
        yield from [None] * 250
        seen.append("long")

    def broken() -> Iterator[None]:
        yield
        raise RuntimeError("broken")

    logged: list[object] = []
    loop.set_exception_handler(lambda _loop, context: logged.append(context["exception"]))
    for work in (long, broken, lambda: seen.append("last")):
        deliveries.post_last(work)
    for _ in range(3):
        await asyncio.sleep(0)
    assert seen == [], "hundreds of steps are not done at once"
    for _ in range(20):
        await asyncio.sleep(0)
    assert seen == ["long", "last"]
    assert [str(error) for error in logged] == ["broken"]
    deliveries.post_last(long)
    await deliveries.finish()
    assert seen == ["long", "last", "long"]


async def test_a_request_passes_those_of_many_traces_but_its_own() -> None:
    """Before, an acknowledgement waited until 100,000 traces of another client had been handed on."""
    deliveries, seen = Deliveries(asyncio.get_running_loop()), list[str]()
    many = frozenset(map(trace_name, range(1, 100_001)))

    def posted(name: str, traces: frozenset[TraceId] | None, steps: int = 1) -> None:
        def work() -> Iterator[None]:
            yield from [None] * steps
            seen.append(name)

        deliveries.post((work, traces))

    posted("storm", many, steps=100_000)
    posted("its own", frozenset({trace_name(5)}))
    posted("after all of these", None)
    posted("its own, too", frozenset({trace_name(5), trace_name(200_000)}))
    posted("shares with the last", frozenset({trace_name(200_000)}))
    posted("second storm", frozenset({trace_name(200_001)}), steps=250)
    for number in range(5):
        posted(f"calm {number}", frozenset({trace_name(300_000 + number)}))
    posted("no agent", frozenset())
    await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    calm = [*(f"calm {number}" for number in range(5)), "no agent"]
    assert seen == calm
    for _ in range(60):
        await asyncio.sleep(0)
    assert seen == [*calm, "second storm"]
    await deliveries.finish()
    assert seen[len(calm) + 1 :] == [
        "storm",
        "its own",
        "after all of these",
        "its own, too",
        "shares with the last",
    ]


async def test_an_acknowledgement_does_not_wait_for_a_request_of_many_traces(tmp_path: Path) -> None:
    for attempt in range(8):  # the disk may take longer for the small one than the loop for the large one
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if await _small_passes_large(folder):
            return
    pytest.fail("the small request always waited for the large one")


async def _small_passes_large(folder: Path) -> bool:
    async with door(folder) as at:
        at.fed = _Slow()
        large = asyncio.create_task(at.accept(agents(600)))
        while not at.fed:  # noqa: ASYNC110 - step by step
            await asyncio.sleep(0)
        await at.accept(request(span(1, trace=9_999)), tenant="other")
        has_passed = not large.done()
        assert at.counts().is_balanced, "in the middle of it"
        await large
        assert len(at.fed) == 600
        return has_passed


class _Slow(list[TraceArrival]):
    """Takes its time, so that the disk commits a small request meanwhile."""

    def append(self, arrival: TraceArrival, /) -> None:
        time.sleep(0.002)
        super().append(arrival)


async def test_a_request_of_many_spans_teaches_what_a_small_one_does(tmp_path: Path) -> None:
    """Its notes are read in pieces, and a child may be in an earlier piece than its parent."""
    lane = SlowLane(tmp_path, ScriptedAnalyst(0))
    spans = [tool(number, "search", parent=1) for number in range(2, 1_200)]
    lane.receive(*spans, agent(1, "clerk", parent=None))
    await lane.pass_time(LIMITS.root_grace_s)
    assert [len(trajectory.steps) > 1_000 for trajectory in lane.analyst.asked] == [True]
    assert lane.pipeline._assembler.learned.take_arrived() == frozenset()


@pytest.mark.whole
async def test_json_is_read_in_a_process_if_it_has_very_many_values() -> None:
    unpacking = Unpacking(20 << 20)
    spans = b'{"scopeSpans":[{"spans":[{"traceId":"%s","spanId":"%s"}]}]}' % (b"f" * 32, b"f" * 16)
    body = b'{"unknown":[%s0],"resourceSpans":[%s]}' % (b"0," * 100_000, spans)
    converted = await unpacking.convert(Signal.TRACES, body, "client")
    assert converted == to_protobuf(Signal.TRACES, body)
    with pytest.raises(MalformedRequestError, match="expected objects in resourceSpans"):
        await unpacking.convert(Signal.TRACES, b'{"resourceSpans":[%s[]]}' % (b"[]," * 100_000), "client")


@pytest.mark.whole
async def test_ordinary_json_does_not_wait_for_a_process_that_reads_json_of_the_same_address() -> None:
    """Behind a proxy all tenants have one address, and such a process may take half a minute."""
    unpacking = Unpacking(20 << 20)
    huge = b'{"resourceSpans":[{"scopeSpans":[{"spans":[%s{}]}]}]}' % (b"{}," * 1_000_000)
    spans = b'{"traceId":"%s","spanId":"%s"},' % (b"f" * 32, b"f" * 16)
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[%s]}]}]}' % (spans * 200)[:-1]
    slow = asyncio.create_task(unpacking.convert(Signal.TRACES, huge, "proxy"))
    await asyncio.sleep(0)
    assert await unpacking.convert(Signal.TRACES, body, "proxy") == to_protobuf(Signal.TRACES, body)
    assert not slow.done()
    slow.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await slow


async def test_a_few_bytes_that_become_megabytes_are_unpacked_apart_from_the_loop() -> None:
    packed, unpacking = gzip.compress(bytes(4 << 20)), Unpacking(8 << 20)
    others = 0

    async def count() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert len(await unpacking.decompress(packed, "gzip", "client")) == 4 << 20
    counting.cancel()
    assert others > 0
    with pytest.raises(TurnedAwayError):
        await Unpacking(1 << 20).decompress(packed, "gzip", "client")
