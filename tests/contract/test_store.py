"""Contract of the store on every database: SQLite and PostgreSQL."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from analyzer.issues.agent_counts import Place
from analyzer.issues.beside_verdicts import AnalysedRun
from analyzer.issues.issue_store import NotedRun
from analyzer.issues.labels.label_store import Opinion, OpinionStore, PackedRun
from analyzer.issues.labels.run_label import Label, LabelKind
from analyzer.issues.labels.track_records import track_records
from analyzer.issues.recurrence import Count, Notice, NoticeKind
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.run_query import RunQuery
from collector_processor.core.analysis import TrackRecord
from collector_processor.core.disk import RUNS, StoreError
from collector_processor.core.records import EXPERIMENT, AbsentParent, Commit, Outgoing, RunFacts, RunIdentity
from collector_processor.core.records import Place as RunPlace
from collector_processor.core.runs import RunTotals
from collector_processor.core.scores import Lane, Score, ScoreChange, ScorePlace, pack_change
from collector_processor.otlp import NO_TENANT, CollectorError, Signal, Tenant, TraceKey
from collector_processor.rebuild.encode import encode, encode_logs
from collector_processor.store.database.connection import Database, StoreConnection, open_database
from collector_processor.store.database.postgresql_driver import open_engine
from collector_processor.store.database.sqlite_driver import NEW_STORE
from collector_processor.store.database.upgrade import SCHEMA
from collector_processor.store.deletion import delete_run, delete_tenant
from collector_processor.store.schema import METADATA, sqlite_statements
from collector_processor.store.verdicts import RunStore
from semconv.attributes import RUN_ID
from semconv.model import Event, LogRecord, TraceId
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import wait_until
from tests.factories import span
from tests.issues import DAY, START, Bench
from tests.run_store import analyses_of, joined
from tests.verdicts import stored

KEY: Final = TraceKey(NO_TENANT, TraceId("a" * 32))
OTHER: Final = Tenant("x=b")
PHOENIX: Final = Lane("scores:phoenix")
UNRELEASED: Final = ("0001", "0012")
"""First and last schema of stores that were made before version 0.1.0, which have other tables."""
TOTALS: Final = RunTotals(
    workflow="refunds", steps=4, started_ns=START, duration_ns=10**9, input_tokens=1 << 61, cost_usd=0.5
)


@pytest.fixture
def bench(db: StoreConnection, tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path, place=db)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The result of one analysis."""

    key: TraceKey = KEY
    run_id: str = "run-1"
    outgoing: tuple[Outgoing, ...] = field(
        default=(Outgoing(signal=Signal.TRACES, body=b"\0carrier\xff", tenant=OTHER, ended_ns=7),)
    )

    def commit(self, **fields: object) -> Commit:
        made = Commit(
            analysed=((self.key, 3),),
            identities=(
                RunIdentity(run_id=self.run_id, trace_ids=frozenset((self.key.trace_id,)), digest=b"d"),
            ),
            verdicts=(stored(run_id=self.run_id),),
            outgoing=self.outgoing,
            rewrites=((9, b"new"),),
            late=((9, Outgoing(signal=Signal.TRACES, body=b"late", tenant=OTHER)),),
            places=(RunPlace(tenant=NO_TENANT, run_id=self.run_id, packed=b"\0place"),),
        )
        return replace(made, **fields)  # type: ignore[arg-type]


def test_the_schema_is_what_the_tables_say(db: StoreConnection, place: Path | str) -> None:
    assert db.execute("SELECT version_num FROM alembic_version").fetchone() == (SCHEMA,)
    assert _differences(place) == []


def test_the_statements_for_a_new_file_are_those_of_the_tables(tmp_path: Path) -> None:
    """Alembic's comparison sees neither WITHOUT ROWID nor AUTOINCREMENT."""
    told = (
        "run `python -m collector_processor.store.schema > collector_processor/store/database/new_store.sql`"
    )
    assert NEW_STORE.read_text(encoding="utf-8") == sqlite_statements(), told
    engine = create_engine(f"sqlite:///{tmp_path / 'made'}")
    METADATA.create_all(engine)
    engine.dispose()
    open_database(tmp_path / RUNS).connect().close()
    opened = _objects(tmp_path / RUNS)
    assert opened.pop("alembic_version").startswith("CREATE TABLE")
    assert opened == _objects(tmp_path / "made")


def _objects(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name: sql.strip() for name, sql in found}


def test_a_store_of_the_first_schema_is_brought_to_what_the_tables_say(tmp_path: Path) -> None:
    """Fails if a table is changed without a migration; the file has what the first schema was."""
    with closing(sqlite3.connect(tmp_path / RUNS)) as old:
        old.executescript(Path(__file__).with_name("store_s6.sql").read_text())
    with closing(open_database(tmp_path / RUNS)) as database, closing(database.connect()) as db:
        RunStore(db).commit(Trace().commit())
        assert [one.run_id for one in RunStore(db).starting_with("", None, 9)] == ["run-1"]
    assert _differences(tmp_path / RUNS) == []


def _differences(place: Path | str) -> list[Any]:
    engine = create_engine(f"sqlite:///{place}") if isinstance(place, Path) else open_engine(place)
    with engine.connect() as connection:
        found: list[Any] = compare_metadata(MigrationContext.configure(connection), METADATA)
    engine.dispose()
    return found


def test_labels_and_proofs_say_what_a_model_has_earned_with_its_tenant(bench: Bench) -> None:
    named = {"model": {"step": 1}, "without_model": {"step": 2}}
    document, opinions = json.dumps({"model": "large", "pooled": named}), OpinionStore(bench.db)
    for tenant, run_id in ((NO_TENANT, "run-1"), (NO_TENANT, "run-2"), (OTHER, "run-1")):
        told = stored(tenant=tenant, run_id=run_id, document=document)
        bench.verdicts.commit(Commit(analysed=(), verdicts=(told, replace(told, version=2, document="{}"))))
    label = Label(
        tenant=NO_TENANT, run_id="run-1", kind=LabelKind.CONFIRMED, version=1, service="", labelled_ns=1
    )
    bench.labels.add(replace(label, agent="clerk", step=1))
    proved = json.dumps({"status": "attributed", "step": 2})
    one = Opinion(
        tenant=NO_TENANT, run_id="run-2", method=EXPERIMENT, model="", run_digest="", given_ns=2, document=""
    )
    opinions.add(replace(one, document=proved))
    found = track_records(bench.labels, bench.verdicts, opinions, NO_TENANT)
    assert found == {"large": TrackRecord(labelled=1.5, right=1, won=1, lost=0.5)}
    assert track_records(bench.labels, bench.verdicts, opinions, OTHER) == {}


def test_a_run_is_one_row_of_the_list_with_its_newest_verdict_and_its_totals(bench: Bench) -> None:
    read = (
        "SELECT version, decided_ns, status, agent, service, confidence, workflow, steps, started_ns,"
        " duration_ns, input_tokens, output_tokens, tokens, cost_usd FROM run_totals"
    )
    store, totals = RunStore(bench.db), TOTALS
    first = stored(document='{"confidence": 0.75}')
    store.commit(Commit(analysed=(), verdicts=(first, replace(first, version=2, status="suspected"))))
    store.commit(Commit(analysed=(), verdicts=(replace(first, status="error"),)))  # of an earlier version
    unknown = (None,) * 8
    assert bench.db.execute(read).fetchall() == [(2, 5, "suspected", "clerk", "shop", 0.75, *unknown)]
    noted = NotedRun(tenant=NO_TENANT, run_id="run-1", status="attributed", agents=("clerk",))
    bench.beside.add(AnalysedRun(noted=noted, packed=None, totals=totals))
    store.also = bench.beside.write
    store.commit(Commit(analysed=(), verdicts=(replace(first, version=3, document="no JSON"),)))
    told = (
        3,
        5,
        "attributed",
        "clerk",
        "shop",
        None,
        "refunds",
        4,
        START,
        10**9,
        1 << 61,
        None,
        1 << 61,
        0.5,
    )
    assert bench.db.execute(read).fetchall() == [told]
    store.prune(keep=1)
    assert len(bench.db.execute(read).fetchall()) == 1
    delete_run(bench.db, NO_TENANT, "run-1")
    assert bench.db.execute(read).fetchall() == []


def test_how_a_run_ended_is_kept_and_follows_its_verdicts(bench: Bench) -> None:
    facts = RunFacts(version="ab", release="1.0", elements=b"\x01abc")
    noted = NotedRun(tenant=NO_TENANT, run_id="run-1", status="attributed", agents=("clerk",))
    bench.beside.add(AnalysedRun(noted=noted, packed=None, totals=TOTALS, facts=facts))
    store = RunStore(bench.db)
    store.also = bench.beside.write
    store.commit(Commit(analysed=(), verdicts=(stored(),)))
    (row,) = store.history.of_workflow(NO_TENANT, "shop", "refunds", 10)
    assert (row.run_id, row.said, row.version, row.release, row.elements) == (
        "run-1", "failed", "ab", "1.0", b"\x01abc",
    )  # fmt: skip
    assert [(one.workflow, one.runs) for one in store.history.workflows(0, 10)] == [("refunds", 1)]
    person = stored(version=2, status="no_failure", document='{"method": "person"}')
    store.commit(Commit(analysed=(), verdicts=(person,)))
    assert [one.said for one in store.history.of_workflow(NO_TENANT, "shop", "refunds", 10)] == ["passed"]
    assert store.history.of_workflow(OTHER, "shop", "refunds", 10) == []
    assert store.history.of_workflow(NO_TENANT, "shop", "other", 10) == []
    delete_run(bench.db, NO_TENANT, "run-1")
    assert bench.db.execute("SELECT count(*) FROM run_history").fetchone() == (0,)


def test_rows_of_forgotten_runs_are_forgotten(db: StoreConnection) -> None:
    store = RunStore(db)
    store.commit(Commit(analysed=(), verdicts=tuple(stored(run_id=f"r{n}", decided_ns=n) for n in range(9))))
    store.prune(keep=4)
    rows = db.execute("SELECT run_id FROM run_totals ORDER BY run_id").fetchall()
    assert [row[0] for row in rows] == ["r5", "r6", "r7", "r8"]


def test_a_commit_comes_back_whole_on_another_connection(db: StoreConnection, database: Database) -> None:
    RunStore(db).commit(Trace().commit())
    with closing(database.connect()) as beside:
        store = RunStore(beside)
        assert store.current(NO_TENANT, "run-1") == stored(run_id="run-1")
        (entry,) = store.outbox(Signal.TRACES)
        assert replace(entry, id=0) == Trace().outgoing[0]
        assert (analyses_of(store, KEY), store.rewrites()) == ((1, 3), [(9, b"new")])
        assert store.place(NO_TENANT, "run-1") == b"\0place"
        assert store.identities([KEY])[KEY][0].digest == b"d"


def test_of_a_commit_that_fails_nothing_is_left(db: StoreConnection) -> None:
    store = RunStore(db)

    def fail(_commits: object) -> None:
        raise StoreError("the disk is full")

    store.also = fail
    with pytest.raises(StoreError, match="full"):
        store.commit(Trace().commit())
    assert (analyses_of(store, KEY), store.outbox(Signal.TRACES), store.starting_with("", None, 9)) == (
        (0, -1),
        [],
        [],
    )
    store.also = None
    store.commit(Trace().commit())
    assert analyses_of(store, KEY) == (1, 3)


def test_a_commit_made_again_changes_nothing_but_what_is_sent(db: StoreConnection) -> None:
    store = RunStore(db)
    for times in (2, 1):
        store.commit(Trace().commit(times=times))
    assert (analyses_of(store, KEY), len(store.starting_with("", None, 9)), store.outbox_size()) == (
        (2, 3),
        1,
        2,
    )


def test_the_outbox_skips_tenants_and_keeps_its_order(db: StoreConnection) -> None:
    store = RunStore(db)
    tenants = [Tenant(name) for name in ("x=a", "x=b", "x=c")]
    out = tuple(Outgoing(signal=Signal.LOGS, body=b"", tenant=tenant) for tenant in tenants)
    store.commit(Commit(analysed=(), outgoing=out))
    assert [one.tenant for one in store.outbox(Signal.LOGS)] == tenants
    left = store.outbox(Signal.LOGS, tenants[:2])
    assert [one.tenant for one in left] == tenants[2:]
    store.delivered([one.id for one in left])
    assert store.outbox_size() == 2


def test_entries_of_sinks_that_are_not_set_any_more_are_deleted(db: StoreConnection) -> None:
    store = RunStore(db)
    lanes = (Signal.TRACES, Lane("scores:phoenix"), Lane("scores:mlflow"))
    store.commit(Commit(analysed=(), outgoing=tuple(Outgoing(signal=lane, body=b"x") for lane in lanes)))
    store.keep_lanes(lanes[1:2])
    assert [len(store.outbox(lane)) for lane in lanes] == [1, 1, 0]
    store.keep_lanes(())
    assert [len(store.outbox(lane)) for lane in lanes] == [1, 0, 0]


def test_a_run_is_deleted_together_with_the_notice_of_it(db: StoreConnection) -> None:
    store, lane = RunStore(db), Lane("scores:phoenix")
    store.commit(Trace(outgoing=()).commit())
    assert delete_run(db, NO_TENANT, "run-1", [Outgoing(signal=lane, body=b"gone")])
    assert ([one.body for one in store.outbox(lane)], store.starting_with("", None, 9)) == ([b"gone"], [])


def told_about(run_id: str, tenant: Tenant = NO_TENANT) -> tuple[Outgoing, ...]:
    """Return what is sent about a verdict on a run: a span, a log record and a score."""
    name = {RUN_ID: run_id}
    score = Score(
        place=ScorePlace(name="task_success", trace_id="t", span_id="s"),
        score=0.0,
        label="fail",
        explanation="why",
        annotator="HUMAN",
        metadata={},
    )
    record = LogRecord(
        trace_id=KEY.trace_id, span_id=None, event=Event(name="evaluation", time_ns=1, attributes=name)
    )
    change = ScoreChange(tenant=tenant, run_id=run_id, decided_ns=1, scores=(score,))
    bodies: dict[Signal | Lane, bytes] = {
        Signal.TRACES: encode([span(3, attributes=name)]),
        Signal.LOGS: encode_logs([record]),
        PHOENIX: pack_change(change),
    }
    return tuple(Outgoing(signal=lane, body=body, tenant=tenant) for lane, body in bodies.items())


def waiting(store: RunStore) -> list[tuple[Tenant, bytes]]:
    return [(one.tenant, one.body) for lane in (*Signal, PHOENIX) for one in store.outbox(lane)]


@pytest.mark.parametrize("run_id", ["run-1", 'a "run" of %_\\ 東京', "x" * 300])
def test_what_waits_to_be_sent_about_a_deleted_run_is_not_sent_any_more(
    db: StoreConnection, run_id: str
) -> None:
    store, others = RunStore(db), (*told_about(f"{run_id}0"), *told_about(run_id, OTHER))
    store.commit(Trace(run_id=run_id, outgoing=(*told_about(run_id), *others)).commit())
    delete_run(db, NO_TENANT, run_id)
    assert sorted(waiting(store)) == sorted((one.tenant, one.body) for one in others)
    delete_tenant(db, NO_TENANT)
    assert sorted(waiting(store)) == sorted((one.tenant, one.body) for one in told_about(run_id, OTHER))


def test_the_deletion_of_scores_still_waits_after_further_deletions(db: StoreConnection) -> None:
    store = RunStore(db)
    store.commit(Trace(outgoing=told_about("run-1")).commit())
    gone = ScoreChange(tenant=NO_TENANT, run_id="run-1", decided_ns=2)
    delete_run(db, NO_TENANT, "run-1", [Outgoing(signal=PHOENIX, body=pack_change(gone))])
    delete_run(db, NO_TENANT, "run-1")
    delete_tenant(db, NO_TENANT)
    assert waiting(store) == [(NO_TENANT, pack_change(gone))]


def test_what_a_refused_replacement_says_goes_late_and_once(db: StoreConnection) -> None:
    store = RunStore(db)
    store.commit(Trace(outgoing=()).commit())
    store.rewrites_refused([8, 9])
    store.rewrites_refused([8, 9])
    assert [(one.tenant, one.body) for one in store.outbox(Signal.TRACES)] == [(OTHER, b"late")]
    assert store.rewrites() == []


def test_runs_are_joined_by_keys_and_found_by_prefixes(db: StoreConnection) -> None:
    store = RunStore(db)
    mate, stranger = TraceKey(NO_TENANT, TraceId("c" * 32)), TraceKey(OTHER, TraceId("d" * 32))
    assert joined(store, stranger, ["team"]) == frozenset()
    assert store.join_all([(mate, ["team"], ()), (mate, ["team"], ())])[0] == frozenset()
    assert joined(store, KEY, ["team", "nothing"]) == {mate.trace_id}
    ids = ("a", "a_1", "a%2", "aé", "ab", "b", "ba", "A")
    store.commit(Commit(analysed=(), verdicts=tuple(stored(run_id=one) for one in ids)))
    for prefix in (*ids, "a\U0010ffff", ""):
        found = [verdict.run_id for verdict in store.starting_with(prefix, None, 20)]
        assert found == sorted(one for one in ids if one.startswith(prefix)), prefix
    assert store.starting_with("a", OTHER, 20) == []


def test_names_that_no_database_likes_are_kept(db: StoreConnection) -> None:
    store = RunStore(db)
    odd = stored(run_id="r\0un", agent="cl\0erk ' ? % \U0001f600", service="?%s")
    store.commit(Commit(analysed=(), verdicts=(odd,)))
    (found,) = store.starting_with("", None, 1)
    assert (found.agent or "").replace("\ufffd", "\0") == odd.agent
    assert found.service == "?%s"
    assert store.current(NO_TENANT, "r\0un") == found


def test_what_is_old_is_forgotten(db: StoreConnection) -> None:
    store = RunStore(db)
    keys = [TraceKey(NO_TENANT, TraceId(f"{number:032x}")) for number in range(20)]
    for number, key in enumerate(keys):
        joined(store, key, [f"autogen:{number}-{name}" for name in range(10)])
        verdict = stored(run_id=f"run-{number}", decided_ns=number)
        place = RunPlace(tenant=NO_TENANT, run_id=f"run-{number}", packed=b"x" * 100)
        store.commit(Commit(analysed=((key, number),), verdicts=(verdict,), places=(place,)))
    store.prune(keep=3, most_keys=50, most_place_bytes=250)
    assert [verdict.run_id for verdict in store.starting_with("", None, 99)] == ["run-17", "run-18", "run-19"]
    assert [analyses_of(store, key)[0] for key in keys] == [0] * 8 + [1] * 12
    assert db.execute("SELECT count(*) FROM run_key").fetchone()[0] == 50
    assert [bool(store.place(NO_TENANT, f"run-{number}")) for number in (17, 18, 19)] == [False, True, True]


def test_spending_and_absent_parents_are_kept(db: StoreConnection) -> None:
    store = RunStore(db)
    entry = store.spending.reserve(5, 1.0, 0)
    assert entry is not None
    store.spending.settle(entry, 0.25)
    assert store.spending.spent(0, 9) == [(5, 0.25)]
    assert store.spending.spent(0, 3) == [(3, 0.25)], "a clock that was set back"
    parent = AbsentParent(tenant=NO_TENANT, kind=7, service="s", scope="", name="n", since_ns=1)
    other = replace(parent, kind=8, since_ns=2)
    store.absent.add([parent, other])
    assert (store.absent.all(), store.absent.arriving()) == ([other, parent], [])
    store.absent.arrived([(NO_TENANT, 7)], 3)
    assert (store.absent.all(), store.absent.arriving()) == ([other], [(NO_TENANT, 7)])


def label(run_id: str, kind: LabelKind = LabelKind.REJECTED) -> Label:
    return Label(tenant=NO_TENANT, run_id=run_id, kind=kind, version=1, service="shop", labelled_ns=5)


def test_labels_keep_their_runs_and_others_make_room(bench: Bench) -> None:
    labels = bench.labels
    labels.keep([PackedRun(tenant=NO_TENANT, run_id="run-1", is_failure=True, packed=b"\0run")], 1)
    labels.add(label("run-1"))
    labels.add(label("run-1", LabelKind.NOT_A_FAILURE))
    (found,) = labels.labelled(NO_TENANT)
    assert (found.label.kind, found.packed) == (LabelKind.NOT_A_FAILURE, b"\0run")
    assert [number for number, _ in labels.since(0)] == [labels.last() - 1, labels.last()]
    assert labels.tenants() == [NO_TENANT]


def test_a_label_keeps_its_reason_and_author_which_older_labels_lack(bench: Bench) -> None:
    bench.labels.add(replace(label("run-1"), why="it swapped\ntwo digits — 東京", author="ada"))
    bench.db.execute(
        "INSERT INTO label (tenant, run_id, kind, version, service, labelled_ns)"
        " VALUES ('', 'run-2', 'rejected', 1, 'shop', 5)"
    )
    assert [one.why for one in bench.labels.labels(NO_TENANT, "run-1")] == ["it swapped\ntwo digits — 東京"]
    assert bench.labels.labels(NO_TENANT, "run-2") == [label("run-2")]


def test_a_run_is_counted_with_its_verdict_and_moved_by_a_label(bench: Bench) -> None:
    for number in range(3):
        bench.judge(number, "clerk")
    bench.judge(0, "planner", version=2)
    assert bench.counted() == {"clerk": 2, "planner": 1}
    bench.say(1, LabelKind.NOT_A_FAILURE)
    assert bench.counted() == {"clerk": 1, "planner": 1}
    place = Place(tenant=NO_TENANT, service="shop", agent="clerk")
    assert bench.counting.counts.window(place, 0, 99_999) == Count(hits=2, n=3)
    (issue,) = (one for one in bench.all() if one.fingerprint.agent == "clerk")
    key = (NO_TENANT, issue.fingerprint.id)
    assert bench.issues.trends([key], START // DAY, 2) == {key: (0, 1)}
    assert bench.counting.resolve(NO_TENANT, issue.fingerprint.id, START) is not None
    bench.issues.prune(START + 100 * DAY)
    assert bench.counting.counts.window(place, 0, 99_999) == Count()


def test_notices_are_due_until_they_are_delivered(bench: Bench) -> None:
    notice = Notice(kind=NoticeKind.NEW, tenant=NO_TENANT, at_ns=START, title="t")
    bench.issues.queue_notice("hook", notice)
    (owed,) = bench.issues.unsent("hook")
    assert owed.notice == notice
    for attempts in (1, 2):
        bench.issues.postpone("hook", attempts, 9)
    assert bench.issues.next_attempt("hook") == (2, 9)
    bench.issues.forget_notices("hook", [owed.id], START, is_taken=True)
    assert (bench.issues.unsent("hook"), bench.issues.sent_since("hook", 0)) == ([], [START])


async def test_pages_read_beside_it(bench: Bench, database: Database) -> None:
    for number in range(4):
        bench.judge(number, "clerk", at=START + number)
    bench.say(2, LabelKind.REJECTED)
    archive = RunArchive(database)
    page = await archive.page(RunQuery(limit=2, service="shop", agent="Clerk"))
    assert [row.key.run_id for row in page.rows] == ["run-3", "run-2"]
    assert page.rows[1].said is not None
    rest = await archive.page(RunQuery(limit=9, before=page.next))
    assert [row.key.run_id for row in rest.rows] == ["run-1", "run-0"]
    assert [one.decided_ns - START for one in await archive.analyses_since(START, 2)] == [3, 2]
    before = await archive.newest()
    bench.judge(9, "clerk", at=START)
    assert await archive.newest() != before
    archive.close()


@pytest.mark.parametrize("schema", [pytest.param("9999", id="newer"), *UNRELEASED])
def test_a_schema_that_is_not_known_is_refused_with_words(
    db: StoreConnection, database: Database, schema: str
) -> None:
    db.execute("UPDATE alembic_version SET version_num = ?", (schema,))
    mend = "use another database" if db.is_postgresql else "use another data directory"
    for connect in (database.connect, database.own):
        with pytest.raises(CollectorError) as refused:
            connect()
        said = str(refused.value)
        assert f"was written by a newer or an unreleased blamespan (schema {schema}; " in said
        assert f"this version reads {SCHEMA}): install that version, or {mend}" in said
    assert db.execute("SELECT version_num FROM alembic_version").fetchone() == (schema,)


def test_a_server_that_goes_away_refuses_and_is_found_again(server: PostgresServer) -> None:
    with closing(open_database(server.create("away"))) as database, closing(database.own()) as db:
        store = RunStore(db)
        store.commit(Trace().commit())
        server.stop("immediate")
        with pytest.raises(StoreError, match="the store"):
            store.commit(Trace(run_id="run-2").commit())
        with pytest.raises(StoreError, match="cannot be reached"):
            store.starting_with("", None, 1)
        server.start()
        db._driver._not_before = 0.0  # type: ignore[attr-defined] # as if the pause was over
        store.commit(Trace(run_id="run-2").commit())
        assert {one.run_id for one in store.starting_with("", None, 9)} == {"run-1", "run-2"}
        with pytest.raises(CollectorError, match="another blamespan uses the store"):
            database.own()


def test_processors_of_a_group_share_a_database_and_one_sends_for_all(server: PostgresServer) -> None:
    with (
        closing(open_database(server.create("shared"))) as database,
        closing(database.share()) as one,
        closing(database.share()) as other,
    ):
        with pytest.raises(CollectorError, match="another blamespan uses the store"):
            database.own()
        RunStore(one).commit(Trace().commit())
        assert [len(RunStore(db).outbox(Signal.TRACES)) for db in (one, other)] == [1, 0]
        one.close()
        assert wait_until(lambda: RunStore(other).outbox(Signal.TRACES), what="the other to send")
        other.close()
        wait_until(lambda: _is_free(database), what="the database to be free")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
@pytest.mark.parametrize("servers", ["?host={folder}", "?host=/nowhere&host={folder}"])
def test_every_usual_scheme_opens_the_store(server: PostgresServer, scheme: str, servers: str) -> None:
    url = f"{scheme}://postgres:hush@/postgres{servers.format(folder=server.folder)}"
    with closing(open_database(url)) as database, closing(database.connect()) as db:
        assert db.execute("SELECT version_num FROM alembic_version").fetchone() == (SCHEMA,)


def test_parameters_of_the_url_hold_beside_ours(server: PostgresServer) -> None:
    place = f"host={server.folder}&options=-csearch_path%3Dpg_temp&application_name=mine"
    engine = open_engine(f"postgresql://postgres@/postgres?{place}")
    with closing(engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        shown = {}
        for name in ("search_path", "application_name", "statement_timeout"):
            cursor.execute(f"SHOW {name}")
            ((shown[name],),) = cursor.fetchall()
    engine.dispose()
    assert (shown["search_path"], shown["application_name"]) == ("pg_temp", "mine")
    assert shown["statement_timeout"] != "0"


@pytest.mark.parametrize(
    ("servers", "given"),
    [
        pytest.param("db.example.com", {"host": "db.example.com"}, id="one"),
        pytest.param("[::1]:6432", {"host": "::1", "port": 6432}, id="an address of IPv6"),
        pytest.param("one:1,two:2", {"host": "one,two", "port": "1,2"}, id="several with ports"),
        pytest.param("one,two", {"host": "one,two", "port": ","}, id="several"),
    ],
)
def test_a_url_names_servers_as_libpq_reads_them(servers: str, given: dict[str, object]) -> None:
    engine = open_engine(f"postgres://u:hush@{servers}/runs?sslmode=require")
    _, arguments = engine.dialect.create_connect_args(engine.url)
    del arguments["context"]
    assert arguments == {"user": "u", "password": "hush", "dbname": "runs", "sslmode": "require"} | given


def test_an_unusable_url_is_refused_without_its_password() -> None:
    with pytest.raises(CollectorError, match="expected a number as port") as told:
        open_database("postgresql://u:hush@db:tcp/runs")
    assert "hush" not in str(told.value)


def _is_free(database: Database) -> bool:
    try:
        database.own().close()
    except StoreError:
        return False
    return True


def test_a_file_is_not_shared(tmp_path: Path) -> None:
    with (
        closing(open_database(tmp_path / RUNS)) as database,
        pytest.raises(CollectorError, match="BLAMESPAN_STORE_URL"),
    ):
        database.share()
