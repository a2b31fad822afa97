"""The quick way to a verdict: it leaves behind what the long way does, or leaves the trace to that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyst import RunAnalyst
from analyzer.attribution import Attributor
from analyzer.drafting.drafter import Drafter
from analyzer.drafting.executor import draft_each
from analyzer.recordings import read_recording
from analyzer.scripted import ScriptedModel
from collector_processor.annotate import CarrierPolicy
from collector_processor.assembler import Released, TraceKey
from collector_processor.cleaning import Cleaner
from collector_processor.decode import decode, decode_logs
from collector_processor.draft import AnalysisLostError, Draft, Drafted, Drafts, LoneTrace
from collector_processor.encode import encode
from collector_processor.examine import Examiner
from collector_processor.otlp import NO_TENANT, Signal, Tenant
from collector_processor.redaction import Redactor, keep
from collector_processor.stored import StoredVerdict
from collector_processor.writeback import Gist
from semconv.model import Completion, Link, Span, SpanId, Status, TraceId
from tests.factories import TRACE, agent, chat, span, workflow
from tests.slow_lane import FullStore, MemorySource

FIXTURES = Path(__file__).parents[1] / "frameworks" / "fixtures"
KEY = TraceKey(NO_TENANT, TRACE)
OTHER = TraceKey(NO_TENANT, TraceId("b" * 32))
AT_NS = 1_900_000_000_000_000_000
FAILED = (
    workflow(1, error="it failed"),
    agent(2, "planner", parent=1),
    chat(3, answer="I cannot do that.", agent_name="planner", parent=2),
    agent(4, "writer", parent=1),
    chat(5, answer="There is nothing to write.", agent_name="writer", parent=4),
)


def analyst(model: ScriptedModel | None = None) -> RunAnalyst:
    return RunAnalyst(attributor=Attributor(model=model, clock=lambda: 0.0))


def drafter(of: RunAnalyst) -> Drafter:
    return Drafter(analyst=of, cleaner=Cleaner(Redactor()), policy=CarrierPolicy(), kept=keep, noticed=keep)


@dataclass
class Way:
    """A store, and who examines into it."""

    store: FullStore
    source: MemorySource
    by: RunAnalyst = field(default_factory=analyst)
    is_quick: bool = True
    drafted: list[Drafted] = field(default_factory=list)
    kept: list[Draft] = field(default_factory=list)
    told: list[tuple[Gist, StoredVerdict]] = field(default_factory=list)
    kept_at_length: int = 0
    pauses: int = 0
    between: Callable[[], Awaitable[None]] | None = None
    """What happens after the drafts are kept, and before they are committed."""

    def __post_init__(self) -> None:
        self.examiner = Examiner(
            source=self.source,
            store=self.store,
            analyst=self.by,
            policy=CarrierPolicy(),
            wall_ns=lambda: AT_NS,
            wake_outbox=lambda: None,
            keep=self._keep_at_length,
            tell=lambda gist, verdict: self.told.append((gist, verdict)),
            clean=Cleaner(Redactor()),
            pause=self._pause,
            drafts=Drafts(write=self.write, keep=self._keep) if self.is_quick else None,
        )

    async def write(self, traces: Sequence[LoneTrace]) -> Sequence[Drafted]:
        drafts = draft_each(drafter(self.by), traces)
        self.drafted += drafts
        return drafts

    async def _keep(self, drafts: Sequence[tuple[Tenant, Draft]]) -> None:
        self.kept += [draft for _, draft in drafts]
        if self.between is not None:
            await self.between()

    async def _keep_at_length(self, _tenant: Tenant, analyses: Sequence[Any]) -> None:
        self.kept_at_length += len(analyses)

    async def _pause(self, _seconds: float) -> None:
        self.pauses += 1

    def receive(self, *spans: Span) -> None:
        self.source.store(encode(spans))

    async def examine(self, *keys: TraceKey, analyses: int = 0) -> None:
        await asyncio.gather(
            *(
                self.examiner.examine(
                    Released(key=key, completion=Completion.ROOT_ENDED, analyses=analyses),
                    is_open=lambda _: False,
                    claim=lambda _: False,
                )
                for key in keys or (KEY,)
            )
        )

    def left_behind(self) -> dict[str, list[Any]]:
        """Return all rows of the store, but for the numbers of the outbox's."""
        tables = ("verdict", "analysed", "run_key", "run_part", "rewrite", "place")
        rows = {table: self.store._db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
        sent = [(out.tenant, out.signal, out.body) for signal in Signal for out in self.store.outbox(signal)]
        return rows | {"outbox": sorted(sent)}

    def verdict(self, key: TraceKey = KEY) -> StoredVerdict:
        found = self.store.current(key.tenant, key.trace_id)
        assert found is not None
        return found


@contextmanager
def opened(folder: Path, **fields: Any) -> Iterator[Way]:
    folder.mkdir(exist_ok=True)
    way = Way(store=FullStore(folder / "runs.sqlite"), source=MemorySource(), **fields)
    yield way
    way.examiner.close()
    way.store.close()


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    with opened(tmp_path) as found:
        yield found


def traces_in(path: Path) -> dict[TraceId, list[Span]]:
    found: dict[TraceId, list[Span]] = {}
    for body in read_recording(path.read_bytes()).bodies(Signal.TRACES):
        for one in decode(body).spans:
            found.setdefault(one.trace_id, []).append(one)
    return found


RECORDED = sorted(FIXTURES.glob("*.json.gz"))[::5]
"""Of all frameworks some: each takes two stores."""


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name.partition(".")[0]) for path in RECORDED])
async def test_both_ways_leave_the_same_behind(path: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "quick") as quick, opened(tmp_path / "long", is_quick=False) as long:
        for one in (quick, long):
            for spans in traces_in(path).values():
                one.receive(*spans)
        keys = [TraceKey(NO_TENANT, trace_id) for trace_id in traces_in(path)]
        for key in keys:
            await quick.examine(key)
            await long.examine(key)
        assert quick.left_behind() == long.left_behind()
        assert quick.told == long.told
        assert sum(len(draft.runs) for draft in quick.kept) + quick.kept_at_length == long.kept_at_length


async def test_a_failed_run_is_committed_along_with_its_bytes_and_told_of(way: Way) -> None:
    way.receive(*FAILED)
    await way.examine()
    verdict = way.verdict()
    assert (verdict.status, verdict.version, verdict.agent) == (Status.ATTRIBUTED, 1, "writer")
    (carriers,), (log,) = way.store.outbox(Signal.TRACES), way.store.outbox(Signal.LOGS)
    ids = {carrier.attributes["blamespan.failure.id"] for carrier in decode(carriers.body).spans}
    assert ids == {verdict.failure_id}
    assert len(decode_logs(log.body)) == 1
    assert way.store.analyses(KEY) == (1, 1)
    assert [said for _, said in way.told] == [verdict]
    (kept,) = [run.keepsake for draft in way.kept for run in draft.runs]
    assert (kept.run_id, kept.is_failure, kept.packed is None) == (TRACE, True, False)
    assert json.loads(kept.noted)["blamed"] == "writer"


async def test_runs_that_come_together_share_one_commit(way: Way) -> None:
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(1, 9)]
    for key in keys:
        way.receive(workflow(1, trace_id=key.trace_id, error="it failed"))
    await way.examine(*keys)
    assert [way.verdict(key).version for key in keys] == [1] * 8
    assert way.store.commits == 1


async def test_a_run_of_several_traces_goes_the_long_way(way: Way) -> None:
    way.receive(workflow(1))
    linked = Link(trace_id=TRACE, span_id=SpanId("0" * 15 + "1"))
    way.receive(span(1, trace_id=OTHER.trace_id, links=(linked,)))
    await way.examine(KEY)
    await way.examine(OTHER)
    assert [draft is None for draft in way.drafted] == [False, True]
    assert way.verdict().version == 1
    assert way.store.analyses(OTHER)[0] > 0


async def test_what_others_link_to_is_no_run_by_itself(way: Way) -> None:
    way.receive(workflow(1))
    way.store.join(OTHER, [f"trace:{TRACE}", f"trace:{OTHER.trace_id}"])
    await way.examine()
    assert way.kept == []
    assert way.kept_at_length == 1
    assert way.verdict().version == 1


async def test_a_trace_that_was_analysed_before_goes_the_long_way(way: Way) -> None:
    way.receive(workflow(1))
    await way.examine()
    way.receive(chat(2, answer="I cannot do that.", agent_name="planner", parent=1, error="it failed"))
    await way.examine(analyses=1)
    assert len(way.drafted) == 1
    assert way.store.analyses(KEY) == (2, 2)


async def test_a_draft_is_thrown_away_where_another_examination_was_quicker(way: Way) -> None:
    """Else a run would have two verdicts under one version."""
    way.receive(*FAILED)

    async def long_way_is_quicker() -> None:
        way.between = None
        other = Way(store=way.store, source=way.source, is_quick=False)
        await other.examine()
        other.examiner.close()

    way.between = long_way_is_quicker
    await way.examine()
    assert way.verdict().version == 1
    assert way.store.analyses(KEY) == (1, 1)
    assert len(way.store.outbox(Signal.TRACES)) == 1
    assert way.told == []


async def test_a_run_that_a_model_is_to_be_asked_of_goes_the_long_way(tmp_path: Path) -> None:
    model = ScriptedModel(replies=('{"reason": "it gave up", "step": 0}',))
    with opened(tmp_path, by=analyst(model)) as way:
        way.receive(*FAILED)
        await way.examine()
        assert (way.drafted, way.kept_at_length, len(model.prompts)) == ([None], 1, 1)


async def test_a_run_that_did_not_fail_is_drafted_though_there_is_a_model(tmp_path: Path) -> None:
    model = ScriptedModel(replies=())
    with opened(tmp_path, by=analyst(model)) as way:
        way.receive(workflow(1), chat(2, answer="4", agent_name="planner", parent=1))
        await way.examine()
        assert (way.verdict().status, len(way.kept), model.prompts) == (Status.NO_FAILURE, 1, [])


async def test_a_disk_that_refuses_is_waited_for(way: Way) -> None:
    way.store.refusals = 2
    way.receive(*FAILED)
    await way.examine()
    assert (way.verdict().version, way.pauses) == (1, 1)
    assert len(way.store.outbox(Signal.TRACES)) == 1


async def test_what_cannot_be_read_ends_in_a_verdict_that_says_so(way: Way) -> None:
    way.receive(*FAILED)
    way.source.rows[KEY][1] = b"\xff\xff"
    await way.examine()
    assert (way.drafted, way.verdict().status) == ([None], Status.ERROR)


async def test_a_large_trace_keeps_nobody_waiting(way: Way) -> None:
    way.receive(workflow(1), chat(2, answer="x" * (1 << 20), agent_name="planner", parent=1))
    await way.examine()
    assert way.drafted == []
    assert way.verdict().version == 1


async def test_a_trace_that_ends_whoever_analyses_it_is_given_up(tmp_path: Path) -> None:
    async def die(traces: Sequence[LoneTrace]) -> Sequence[Drafted]:
        return [AnalysisLostError("its analysis ended the process")] * len(traces)

    with opened(tmp_path) as way:
        way.write = die  # type: ignore[method-assign]
        way.__post_init__()
        way.receive(*FAILED)
        await way.examine()
        assert way.verdict().status == Status.ERROR
        assert "ended the process" in way.verdict().document
