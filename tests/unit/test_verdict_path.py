"""From bytes to a committed verdict: the same rows and bytes wherever a trace is prepared, each once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.codec import read_prepared, read_traces, write_prepared, write_traces
from analyzer.analyses.commit import Committer, Leaving
from analyzer.analyses.examine import Examiner
from analyzer.analyses.load import Others
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.analyses.prepare import Preparer
from analyzer.analyses.prepared import Analysed, Prepared, ToAsk, TraceBytes
from analyzer.analyses.run_comparison import RunComparison
from analyzer.issues.labels.label_store import LabelStore, OpinionStore
from analyzer.issues.labels.run_label import Label, LabelKind
from analyzer.issues.labels.track_records import TrackRecords, track_records
from analyzer.methods.attribution import Attributor
from analyzer.recordings.read_files import read_recording
from collector_processor.assembly.assembler import Released
from collector_processor.core.analysis import AnalysisLostError, Earned, KeptRun, ReadEarned, nothing_earned
from collector_processor.core.records import CONFIRMED, Commit, StoredVerdict, VerdictSummary
from collector_processor.otlp import NO_TENANT, Signal, Tenant, TraceKey
from collector_processor.rebuild.decode import decode, decode_logs
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.redaction import Cleaner, Redactor
from collector_processor.store.database.connection import StoreThread
from collector_processor.writeback.annotate import CarrierPolicy
from semconv.model import Completion, Link, Span, SpanId, Status, TraceId
from tests.factories import TRACE, agent, chat, workflow
from tests.run_store import analyses_of
from tests.slow_lane import KEPT, FullStore, MemorySource

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


def preparer(of: RunAnalyst) -> Preparer:
    return Preparer(unasked=of.unasked, glance=of.glance, kept=KEPT, cleaner=Cleaner(Redactor()))


def here(prepare: Preparer, trace: TraceBytes) -> Prepared:
    return prepare(trace)


def elsewhere(prepare: Preparer, trace: TraceBytes) -> Prepared:
    """Prepare as a worker process does."""
    (there,) = read_traces(write_traces([trace]))
    prepared = read_prepared(write_prepared(prepare(there)))
    assert prepared is not None
    return prepared


def left_open(prepare: Preparer, trace: TraceBytes) -> Prepared:
    """Prepare, and leave all runs to the analyst."""
    return Preparer(unasked=lambda _: None, glance=prepare.glance, kept=KEPT, cleaner=prepare.cleaner)(trace)


@dataclass
class Way:
    """A store, and an examiner that commits to it."""

    store: FullStore
    source: MemorySource
    by: RunAnalyst = field(default_factory=analyst)
    prepared_by: Callable[[Preparer, TraceBytes], Prepared] = here
    compare: RunComparison | None = None
    earned: ReadEarned = nothing_earned
    prepared: list[Prepared] = field(default_factory=list)
    kept: list[KeptRun] = field(default_factory=list)
    announced: list[tuple[VerdictSummary, StoredVerdict]] = field(default_factory=list)
    redacted: int = 0
    pauses: int = 0
    between: Callable[[], Awaitable[None]] | None = None
    """Runs after runs are kept, and before their verdicts are committed."""

    def __post_init__(self) -> None:
        self.thread = StoreThread(self._pause)
        committer = Committer(
            source=self.source,
            store=self.store,
            thread=self.thread,
            leaving=Leaving(
                policy=CarrierPolicy(),
                wall_ns=lambda: AT_NS,
                wake_outbox=lambda: None,
                keep=self._keep,
                tell=lambda summary, verdict: self.announced.append((summary, verdict)),
                count_redacted=self._count,
            ),
        )
        self.examiner = Examiner(
            committer=committer,
            prepare=self._prepare,
            analyst=self.by,
            kept=KEPT,
            comparison=self.compare,
            earned=self._earned,
        )

    async def _earned(self, tenant: Tenant) -> Earned:
        return await self.earned(tenant)

    async def _prepare(self, trace: TraceBytes) -> Prepared:
        self.prepared.append(self.prepared_by(preparer(self.by), trace))
        return self.prepared[-1]

    async def _keep(self, runs: Sequence[tuple[Tenant, KeptRun]]) -> None:
        self.kept += [run for _, run in runs]
        if self.between is not None:
            await self.between()

    def _count(self, redacted: Any) -> None:
        self.redacted += sum(redacted.values())

    async def _pause(self, _seconds: float) -> None:
        self.pauses += 1

    def receive(self, *spans: Span) -> None:
        self.source.store(encode(spans))

    async def examine(self, *keys: TraceKey, analyses: int = 0) -> None:
        await asyncio.gather(
            *(
                self.examiner.examine(
                    Released(key=key, completion=Completion.ROOT_ENDED, analyses=analyses),
                    others=Others(is_open=lambda _: False),
                    claim=lambda _: False,
                )
                for key in keys or (KEY,)
            )
        )

    def left_behind(self) -> dict[str, list[Any]]:
        """Return all rows of the store, without the outbox's numbers."""
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
    way.thread.close()
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
"""A selection of frameworks: each takes three stores."""


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name.partition(".")[0]) for path in RECORDED])
async def test_the_same_is_left_behind_wherever_a_trace_is_prepared(path: Path, tmp_path: Path) -> None:
    found: list[object] = []
    for way_to_prepare in (here, elsewhere, left_open):
        with opened(tmp_path / way_to_prepare.__name__, prepared_by=way_to_prepare) as one:
            for spans in traces_in(path).values():
                one.receive(*spans)
            for trace_id in traces_in(path):
                await one.examine(TraceKey(NO_TENANT, trace_id))
            found.append((one.left_behind(), one.announced, one.kept, one.redacted))
    assert found[0] == found[1] == found[2]


async def test_a_failed_run_is_committed_along_with_its_bytes_and_announced(way: Way) -> None:
    way.receive(*FAILED)
    await way.examine()
    verdict = way.verdict()
    assert (verdict.status, verdict.version, verdict.agent) == (Status.ATTRIBUTED, 1, "writer")
    (carriers,), (log,) = way.store.outbox(Signal.TRACES), way.store.outbox(Signal.LOGS)
    ids = {carrier.attributes["blamespan.failure.id"] for carrier in decode(carriers.body).spans}
    assert ids == {verdict.failure_id}
    assert len(decode_logs(log.body)) == 2
    assert analyses_of(way.store, KEY) == (1, 1)
    assert [said for _, said in way.announced] == [verdict]
    (kept,) = way.kept
    assert (kept.run_id, kept.is_failure, kept.packed is None) == (TRACE, True, False)
    assert json.loads(kept.noted)["blamed"] == "writer"


async def test_runs_that_come_together_share_one_commit(way: Way) -> None:
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(1, 9)]
    for key in keys:
        way.receive(workflow(1, trace_id=key.trace_id, error="it failed"))
    await way.examine(*keys)
    assert [way.verdict(key).version for key in keys] == [1] * 8
    assert way.store.commits == 1


async def test_a_run_of_several_traces_is_prepared_from_all_of_them(way: Way) -> None:
    way.receive(workflow(1))
    linked = Link(trace_id=TRACE, span_id=SpanId("0" * 15 + "1"))
    way.receive(workflow(1, trace_id=OTHER.trace_id, links=(linked,)))
    await way.examine(KEY)
    await way.examine(OTHER, analyses=1)
    assert way.verdict().version == 1
    assert analyses_of(way.store, OTHER)[0] > 0
    assert len(way.prepared) == 3, "the second trace alone, then with the first"


async def test_two_traces_of_one_run_in_one_batch_give_one_verdict(way: Way) -> None:
    way.receive(workflow(1, error="it failed"))
    linked = Link(trace_id=TRACE, span_id=SpanId("0" * 15 + "1"))
    way.receive(agent(1, "planner", trace_id=OTHER.trace_id, links=(linked,)))
    await way.examine(KEY, OTHER)
    assert [verdict.run_id for verdict in way.store.starting_with("", None, 9)] == [TRACE]
    assert len({run.run_id for (run,) in way.store.identities((KEY, OTHER)).values()}) == 1


async def test_late_spans_are_analysed_with_the_earlier_ones(way: Way) -> None:
    way.receive(workflow(1))
    await way.examine()
    way.receive(chat(2, answer="I cannot do that.", agent_name="planner", parent=1, error="it failed"))
    await way.examine(analyses=1)
    assert analyses_of(way.store, KEY) == (2, 2)
    assert way.verdict().version == 2


async def test_nothing_is_committed_where_another_examination_was_quicker(way: Way) -> None:
    """Otherwise a run would have two verdicts with one version."""
    way.receive(*FAILED)

    async def another_is_quicker() -> None:
        way.between = None
        other = Way(store=way.store, source=way.source)
        await other.examine()
        other.thread.close()

    way.between = another_is_quicker
    await way.examine()
    assert way.verdict().version == 1
    assert analyses_of(way.store, KEY) == (1, 1)
    assert len(way.store.outbox(Signal.TRACES)) == 1
    assert way.announced == []


async def test_a_trace_that_joined_the_run_meanwhile_is_part_of_its_verdict(way: Way) -> None:
    way.receive(*FAILED)
    linked = Link(trace_id=TRACE, span_id=SpanId("0" * 15 + "1"))
    way.receive(agent(1, "late", trace_id=OTHER.trace_id, links=(linked,)))

    async def the_other_is_quicker() -> None:
        way.between = None
        other = Way(store=way.store, source=way.source)
        await other.examine(OTHER)
        other.thread.close()

    way.between = the_other_is_quicker
    await way.examine()
    assert [verdict.run_id for verdict in way.store.starting_with("", None, 9)] == [TRACE]
    assert (way.verdict().version, analyses_of(way.store, KEY)) == (1, (1, 1))
    assert (way.store.identities((OTHER,))[OTHER][0].run_id, way.announced) == (TRACE, [])


async def test_a_verdict_confirmed_meanwhile_is_kept(way: Way) -> None:
    way.receive(workflow(1), chat(2, answer="Yes.", agent_name="planner", parent=1))
    await way.examine()
    way.receive(chat(3, answer="No.", agent_name="writer", parent=1, error="it failed"))

    async def confirm() -> None:
        way.between = None
        document = json.dumps({**way.verdict().fields, CONFIRMED: True})
        confirmed = replace(way.verdict(), document=document)
        await way.examiner.committer.in_turn(way.store.commit, Commit(analysed=(), verdicts=(confirmed,)))

    way.between = confirm
    await way.examine(analyses=1)
    assert (way.verdict().version, way.verdict().status) == (1, Status.NO_FAILURE)
    assert way.store.outbox(Signal.TRACES) == []
    assert analyses_of(way.store, KEY) == (2, 2)


async def test_a_run_that_a_model_is_to_be_asked_of_is_kept_with_the_models_verdict(tmp_path: Path) -> None:
    quote = '{"step": 0, "quote": "I cannot do that"}'
    reply = f'{{"reason": "it gave up", "step": 0, "evidence": [{quote}]}}'
    model = ScriptedModel(replies=(reply,))
    with opened(tmp_path, by=analyst(model), prepared_by=elsewhere) as way:
        way.receive(*FAILED)
        await way.examine()
        assert [type(run) for run in way.prepared[0].runs] == [ToAsk]
        assert (len(way.kept), len(model.prompts)) == (1, 1)
        assert json.loads(way.kept[0].noted)["blamed"] == way.verdict().agent
        assert way.verdict().fields["method"] == "judge+signals"


def dinner(number: int) -> list[Span]:
    """Return a failed run in which nothing but a model's answer tells the agents apart."""
    names = ("scout", "buyer", "cook", "clerk", "critic", "host")
    trace: dict[str, Any] = {"trace_id": TraceId(f"{number + 1:032x}")}
    said = [chat(9 + at, answer=f"{name} speaks", agent_name=name, **trace) for at, name in enumerate(names)]
    return [workflow(1, task="dinner?", error="it failed", **trace), *said]


async def test_a_model_that_labels_show_right_moves_the_blame_for_their_tenant_alone(tmp_path: Path) -> None:
    quote = '{"step": 3, "quote": "clerk speaks"}'
    model = ScriptedModel(replies=[f'{{"reason": "astray", "step": 3, "evidence": [{quote}]}}'] * 40)
    with opened(tmp_path, by=analyst(model)) as way:
        labels, opinions = LabelStore(way.store._db), OpinionStore(way.store._db)
        way.earned = TrackRecords(
            lambda tenant: way.thread.run(track_records, labels, way.store, opinions, tenant),
            iter(range(0, 10_000, 100)).__next__,
        )

        async def judged(number: int) -> StoredVerdict:
            key = TraceKey(NO_TENANT, TraceId(f"{number + 1:032x}"))
            way.receive(*dinner(number))
            await way.examine(key)
            return way.verdict(key)

        first = await judged(0)
        assert (first.step, first.fields["pooled"]["model"]["step"]) == (5, 3)
        assert (first.fields["pooled"]["weight"], first.fields["pooled"]["labelled"]) == (0.25, 0)
        for number in range(1, 31):
            verdict = await judged(number)
            kept = replace(label_of(verdict), step=3, span_id=SpanId(f"{12:016x}"), agent="clerk")
            await way.thread.run(labels.add, kept)
        last = (await judged(31)).fields
        assert (last["step"], last["agent"], last["reason"][:6]) == (3, "clerk", "astray")
        assert last["pooled"] == first.fields["pooled"] | {
            "weight": 1.0,
            "accuracy": 0.68,
            "right": 30,
            "labelled": 30,
        }
        assert await way.earned(Tenant("another")) == {}


def label_of(verdict: StoredVerdict) -> Label:
    return Label(
        tenant=verdict.tenant,
        run_id=verdict.run_id,
        kind=LabelKind.CORRECTED,
        version=verdict.version,
        service=verdict.service,
        labelled_ns=AT_NS,
    )


async def test_no_model_is_asked_of_a_run_that_did_not_fail(tmp_path: Path) -> None:
    model = ScriptedModel(replies=())
    with opened(tmp_path, by=analyst(model)) as way:
        way.receive(workflow(1), chat(2, answer="4", agent_name="planner", parent=1))
        await way.examine()
        assert (way.verdict().status, len(way.kept), model.prompts) == (Status.NO_FAILURE, 1, [])


async def test_a_disk_that_refuses_is_waited_for_and_secrets_are_counted_once(way: Way) -> None:
    way.store.refusals = 2
    way.receive(*FAILED, chat(6, answer="Ask ann@example.com.", agent_name="writer", parent=4))
    await way.examine()
    assert (way.verdict().version, way.pauses, way.redacted) == (1, 2, 2)
    assert len(way.store.outbox(Signal.TRACES)) == 1


async def test_what_cannot_be_read_ends_in_a_verdict_that_says_so(way: Way) -> None:
    way.receive(*FAILED)
    way.source.rows[KEY][1] = b"\xff\xff"
    await way.examine()
    assert way.verdict().status == Status.ERROR
    assert "cannot be read" in way.verdict().document


async def test_a_trace_that_crashes_worker_processes_gets_an_error_verdict(tmp_path: Path) -> None:
    def crash(_prepare: Preparer, _trace: TraceBytes) -> Prepared:
        raise AnalysisLostError("the analysis crashed its worker process")

    with opened(tmp_path, prepared_by=crash) as way:
        way.receive(*FAILED)
        await way.examine()
        assert way.verdict().status == Status.ERROR
        assert "crashed its worker process" in way.verdict().document


async def test_a_run_that_the_store_cannot_take_spoils_no_other_of_its_batch(way: Way) -> None:
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(1, 4)]
    for key in keys:
        way.receive(workflow(1, trace_id=key.trace_id, error="it failed"))

    def spoil(prepare: Preparer, trace: TraceBytes) -> Prepared:
        found = prepare(trace)
        (run,) = found.runs
        assert isinstance(run, Analysed)
        spoiled = replace(run.analysis, document="\ud800")
        return replace(found, runs=(replace(run, analysis=spoiled),)) if trace.key == keys[1] else found

    way.prepared_by = spoil
    found = await asyncio.gather(*map(way.examine, keys), return_exceptions=True)
    assert [type(one) for one in found] == [type(None), UnicodeEncodeError, type(None)]
    assert [way.store.current(key.tenant, key.trace_id) is None for key in keys] == [False, True, False]
