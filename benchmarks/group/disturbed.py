"""A group of processors and analyzers that are killed, replaced and joined by others while runs arrive.

Everything is real: the Collector, Kafka, PostgreSQL, Jaeger, three processors, two analyzers; only the model
is scripted. What comes of it is counted by ``counted``, from Jaeger's side.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from threading import Event
from typing import Final

import grpc
import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.group.counted import Counts, Cut, Found, InKafka, SpanName, Where, add_trace, read_trace
from collector_processor.otlp import Signal, grpc_path
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from semconv.model import Span, TraceId
from tests.backends import install
from tests.backends.jaeger_query import JaegerQuery
from tests.backends.kafka_broker import KafkaBroker, start_kafka
from tests.backends.postgresql import PostgresServer, postgresql
from tests.backends.processes import RunningJaeger, start_jaeger
from tests.backends.supervise import BackendError, wait_until
from tests.e2e.kafka_group import Kept, StartProcessor, committed, kafka_collector, processors, read_topic
from tests.e2e.line import Line
from tests.e2e.model_server import Scripted, serve
from tests.e2e.test_halves import Asked, StartAnalyzer, analyzers
from tests.e2e.test_line_model import in_background
from tests.e2e.traffic import Doors
from tests.factories import agent, chat, tool, workflow

TOPIC: Final = "otlp_spans"
KINDS: Final = ("kill processor", "replace processor", "kill processor", "kill analyzer", "join and leave")
"""Disturbances, in turn; one ``restart broker`` comes in the middle."""
AGENTS: Final = ("planner", "researcher", "reader", "solver", "checker", "writer")
SPANS: Final = 3 * len(AGENTS) + 2
"""Spans of a run."""
REQUESTS: Final = 4
_JUDGED: Final = Scripted(
    delay_s=0.05,
    text=json.dumps(
        {
            "reason": "a guess",
            "step": 1,
            "evidence": [{"step": 1, "quote": f"what {AGENTS[0]} said"}],
            "ranking": [{"step": 1, "probability": 0.4}],
        }
    ),
)
"""The model's answer to every question."""
_SENDERS: Final = 8
_PAUSE_S: Final = 0.05
"""Seconds between two requests of a run."""
_WATCHED: Final = 40
"""Runs begun after a disturbance whose arrival is its end: all six partitions are among them."""
_PATIENCE_S: Final = 600.0
_SETTINGS: Final[Mapping[str, str | float]] = {
    "half": "collector",
    "carriers": "all",
    "root_grace": 1_000,
    "concurrency": 8,
}


@dataclass(slots=True, kw_only=True)
class Run:
    """A run: its requests, and when the first one was sent."""

    trace_id: TraceId
    bodies: Sequence[bytes]
    span_ids: Sequence[str]
    began: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A disturbance, and the seconds until the runs that began after it were whole in Jaeger."""

    kind: str
    recovered_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a round found."""

    runs: int
    disturbances: Sequence[Disturbance]
    counts: Counts
    balances: Sequence[Mapping[str, int]]
    """Each surviving processor's counts of spans."""
    ended: Sequence[Mapping[str, int]]
    """The same of each processor that was killed or replaced, read just before."""
    kafka_bytes: int
    """Bytes of all records of spans, before compression."""
    store_bytes: int
    """Growth of the database."""
    seconds: float

    def faults(self, most_recovery_s: float) -> list[str]:
        """Return the broken promises; empty if all were kept."""
        slow = [one for one in self.disturbances if one.recovered_s > most_recovery_s]
        told = [f"{one.kind}: recovered after {one.recovered_s:.1f} s" for one in slow]
        told += [
            f"spans are not conserved: {dict(balance)}"
            for balance in (*self.balances, *self.ended)
            if balance.get("received", 0) != sum(balance.get(what, 0) for what in _ENDS)
        ]
        return [*self.counts.faults(), *told]


def summed(balances: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return the counts of several processors, summed."""
    total: Counter[str] = Counter()
    for balance in balances:
        total.update(balance)
    return total


_ENDS: Final = ("forwarded", "rejected", "unsupported", "kept", "lost", "returned", "held")


def make_run(chance: random.Random) -> Run:
    """Return a run of six agents, two of three of which fail, in four requests with the root in the last."""
    trace_id = TraceId(f"{chance.getrandbits(128):032x}")
    fails = chance.random() < 2 / 3
    spans: list[Span] = []
    for place, name in enumerate(AGENTS):
        first = 10 * place + 3
        spans += [
            tool(first + 2, "lookup", parent=first, result=f"{12 + place} rows", trace_id=trace_id),
            chat(first + 1, parent=first, answer=f"what {name} said", trace_id=trace_id),
            agent(first, name, trace_id=trace_id, end=10 * first + 80),
        ]
    spans.append(tool(2, "count", parent=1, result="12 rows", trace_id=trace_id))
    error = "wrong sum" if fails else None
    spans.append(workflow(task="add up", answer="12 rows", trace_id=trace_id, error=error))
    size = SPANS // REQUESTS
    bodies = [encode(spans[start : start + size]) for start in range(0, SPANS, size)]
    return Run(trace_id=trace_id, bodies=bodies, span_ids=[one.span_id for one in spans])


@dataclass(slots=True, kw_only=True)
class Group:
    """The services, and what was done to them."""

    broker: KafkaBroker
    jaeger: RunningJaeger
    start_processor: StartProcessor
    start_analyzer: StartAnalyzer
    server: PostgresServer
    model: str
    processors: list[Line] = field(default_factory=list)
    analyzers: list[Asked] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    ended: list[Mapping[str, int]] = field(default_factory=list)
    """Counts of spans of the processors that were taken out, read just before."""

    def add_processor(self) -> Line:
        line = self.start_processor(forward_endpoint=self.jaeger.otlp_grpc_endpoint, **_SETTINGS)
        wait_until(lambda: line.said("partitions assigned"), what="partitions")
        self.processors.append(line)
        return line

    def add_analyzer(self) -> None:
        settings = {"store_url": self.server.url(), "model": "openai/scripted", "OPENAI_API_KEY": "none"}
        self.analyzers.append(self.start_analyzer(**settings, OPENAI_API_BASE=self.model))

    def disturb(self, kind: str) -> float:
        """Do it, and return when it was done; what is killed stays away until ``repair``.

        A broker counts as restarted when it answers again: how long it takes to start is not ours.
        """
        since = time.monotonic()
        if kind == "kill processor":
            self._taken_out(0).server.kill()
            self.cuts.append(_cut(self.broker))
        elif kind == "replace processor":
            self._taken_out(0).terminate()
        elif kind == "kill analyzer":
            self.analyzers.pop(0).server.kill()
        elif kind == "join and leave":
            self.add_processor()
        else:
            self.broker.kill()
            self.broker.start()
            since = time.monotonic()
            self.cuts.append(_cut(self.broker))
        return since

    def _taken_out(self, place: int) -> Line:
        line = self.processors.pop(place)
        self.ended.append(line.balance())
        return line

    def store_bytes(self) -> int:
        """Return the size of the database."""
        with psycopg.connect(host=str(self.server.folder), user="postgres") as db:
            row = db.execute("SELECT pg_database_size(current_database())").fetchone()
        return 0 if row is None else int(row[0])

    def repair(self) -> None:
        """Bring the group back to its size."""
        while len(self.processors) > _PROCESSORS:
            self._taken_out(-1).terminate()
        while len(self.processors) < _PROCESSORS:
            self.add_processor()
        while len(self.analyzers) < _ANALYZERS:
            self.add_analyzer()


_PROCESSORS, _ANALYZERS = 3, 2


def _cut(broker: KafkaBroker) -> Cut:
    """Return commits and ends of the topic of spans; both are read before another process takes over."""
    marks = committed(broker, TOPIC)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "looking"})
    try:
        numbers = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        ends = {
            one: consumer.get_watermark_offsets(TopicPartition(TOPIC, one), timeout=30) for one in numbers
        }
    finally:
        consumer.close()
    return Cut(marks=marks, behind={number: end[1] for number, end in ends.items()})


class Senders:
    """Threads that send runs at a pace; each request is repeated until it is acknowledged."""

    def __init__(self, runs: Sequence[Run], doors: Doors, per_s: float) -> None:
        self._runs: Final = runs
        self._doors: Final = doors
        self._per_s: Final = per_s
        self._over: Final = Event()
        self._pool: Final = ThreadPoolExecutor(_SENDERS)
        self._sent: Sequence[Future[None]] = ()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Send until the block ends."""
        began = time.monotonic()
        with self._pool, grpc.insecure_channel(self._doors.grpc.removeprefix("http://")) as channel:
            try:
                self._sent = [
                    self._pool.submit(self._deliver, channel, run, began + number / self._per_s)
                    for number, run in enumerate(self._runs)
                ]
                yield
            finally:
                self._over.set()
                self._pool.shutdown(cancel_futures=True)

    def await_begun(self, since: float, count: int) -> Sequence[Run]:
        """Wait until so many runs began since a moment, or none is left; return the first or last ones."""

        def begun() -> Sequence[Run]:
            found = list(islice((run for run in self._runs if run.began >= since), count))
            is_over = len(found) < count and self._runs[-1].began
            return self._runs[-count:] if is_over else found if len(found) == count else ()

        return wait_until(begun, what="runs that begin", timeout_s=_PATIENCE_S)

    def await_share(self, share: float) -> None:
        """Wait until this share of all runs was acknowledged."""
        wanted = int(share * len(self._runs))
        wait_until(
            lambda: sum(one.done() for one in self._sent) >= wanted, what="senders", timeout_s=_PATIENCE_S
        )

    def _deliver(self, channel: grpc.Channel, run: Run, due: float) -> None:
        self._over.wait(max(0.0, due - time.monotonic()))
        call = channel.unary_unary(grpc_path(Signal.TRACES), None, None)
        run.began = time.monotonic()
        for body in run.bodies:
            while not self._over.is_set():
                with suppress(grpc.RpcError):
                    call(body, timeout=30)
                    break
                self._over.wait(_PAUSE_S)
            self._over.wait(_PAUSE_S)


def play(folder: Path, *, runs: int, disturbances: int, per_s: float) -> Outcome:
    """Send runs through a group that is disturbed, and count what Jaeger has of them.

    Args:
        folder: for data and logs; must be this round's alone.
        runs: how many.
        disturbances: kills and rebalances, besides one restart of the broker.
        per_s: runs a second.
    """
    chance = random.Random(0)
    made = [make_run(chance) for _ in range(runs)]
    began = time.monotonic()
    with _group(folder) as (group, doors):
        empty = group.store_bytes()
        kinds = list(islice(cycle(KINDS), disturbances))
        kinds.insert(disturbances // 2, "restart broker")
        senders = Senders(made, doors, per_s)
        with senders.at_work():
            told = []
            for number, kind in enumerate(kinds, start=1):
                senders.await_share(number / (len(kinds) + 1))
                told.append(_disturbed(group, senders, kind))
            senders.await_share(1.0)
        query = group.jaeger.query
        await_whole(query, made, _PATIENCE_S)
        await_judged(query, made, _PATIENCE_S)
        wait_until(lambda: all("held" not in line.balance() for line in group.processors), what="rest")
        balances = [line.balance() for line in group.processors]
        records = read_topic(group.broker, TOPIC)
        return Outcome(
            runs=runs,
            disturbances=told,
            counts=_counted(group, made, records),
            balances=balances,
            ended=group.ended,
            kafka_bytes=sum(len(one.value) for one in records),
            store_bytes=group.store_bytes() - empty,
            seconds=time.monotonic() - began,
        )


@contextmanager
def _group(folder: Path) -> Iterator[tuple[Group, Doors]]:
    with ExitStack() as stack:
        enter = stack.enter_context
        broker = enter(start_kafka(install.build("kafka"), folder / "kafka"))
        broker.create()
        server = enter(postgresql())
        group = Group(
            broker=broker,
            jaeger=enter(start_jaeger(install.build("jaeger"), folder / "jaeger")),
            start_processor=enter(processors(folder, broker, server)),
            start_analyzer=enter(analyzers(folder)),
            server=server,
            model=enter(in_background(serve(_JUDGED))).url,
        )
        doors = enter(kafka_collector(install.build("collector"), folder / "collector", broker))
        group.repair()
        yield group, doors


def _disturbed(group: Group, senders: Senders, kind: str) -> Disturbance:
    since = group.disturb(kind)
    watched = senders.await_begun(since, _WATCHED)
    await_whole(group.jaeger.query, watched, _PATIENCE_S)
    recovered_s = time.monotonic() - since
    group.repair()
    return Disturbance(kind=kind, recovered_s=recovered_s)


def await_whole(query: JaegerQuery, runs: Sequence[Run], timeout_s: float) -> None:
    """Wait until Jaeger has every span of these runs; spans missing at the timeout are counted later."""
    _await(query, runs, timeout_s, _is_whole)


def await_judged(query: JaegerQuery, runs: Sequence[Run], timeout_s: float) -> None:
    """Wait until each run has a carrier in Jaeger."""
    _await(query, runs, timeout_s, _is_judged)


def _is_whole(found: Found, run: Run) -> bool:
    return found.copies.keys() >= set(run.span_ids)


def _is_judged(found: Found, _run: Run) -> bool:
    return bool(found.carriers)


def _await(
    query: JaegerQuery, runs: Sequence[Run], timeout_s: float, is_done: Callable[[Found, Run], bool]
) -> None:
    left = list(runs)

    def are_done() -> bool:
        while left and is_done(read_trace(query.otlp_trace(left[-1].trace_id)), left[-1]):
            left.pop()
        return not left

    with suppress(BackendError):  # what is missing is counted by the caller
        wait_until(are_done, what=f"{len(runs)} runs in Jaeger", timeout_s=timeout_s)


def _counted(group: Group, runs: Sequence[Run], records: Sequence[Kept]) -> Counts:
    places: dict[SpanName, list[Where]] = defaultdict(list)
    for record in records:
        for span in decode(record.value).spans:
            places[SpanName(span.trace_id, span.span_id)].append(Where(record.partition, record.offset))
    counts, kept = Counts(), InKafka(places=places, cuts=group.cuts)
    for run in runs:
        found = read_trace(group.jaeger.query.otlp_trace(run.trace_id))
        add_trace(counts, run.trace_id, run.span_ids, found, kept)
    return counts
