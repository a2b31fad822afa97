"""Scores of verdicts for evaluation tools: written, withdrawn, asked of each backend, given up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from collector_processor.core.records import PERSON, Commit, StoredVerdict
from collector_processor.core.scores import (
    Lane,
    Score,
    ScoreBackend,
    ScoreChange,
    ScorePlace,
    pack_change,
    unpack_change,
)
from collector_processor.otlp import NO_TENANT, Delivered, Rejected, SendOutcome, Signal, Tenant, TryLater
from collector_processor.rebuild.redaction import omit
from collector_processor.settings import SettingsError, load_settings
from collector_processor.settings.value_types import ScoreTarget
from collector_processor.sinks.client import PATIENCE_S, TOO_OLD_S, SinkOutlet
from collector_processor.sinks.deleting import delete_run_and_scores, delete_tenant_and_scores
from collector_processor.store.verdicts import RunStore
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.evaluations import FAILURE_ATTRIBUTION, IDENTIFIER, TASK_SUCCESS
from collector_processor.writeback.outgoing import Decision, write_back
from semconv import attributes as names
from semconv.model import Abstention, Attribution, Outcome, Status
from tests.factories import TRACE, span_id
from tests.unit.test_writeback import SPANS, decision

LANE, ACME = Lane("scores:phoenix"), Tenant("x-scope-orgid=acme")
POLICY: Final = CarrierPolicy(lanes={NO_TENANT: (LANE,)})
ROOT: Final = ScorePlace(name=TASK_SUCCESS, trace_id=TRACE, span_id=span_id(1))
Held = dict[tuple[str, str], tuple[str, float | None]]


def attribution(span: int) -> ScorePlace:
    return ScorePlace(name=FAILURE_ATTRIBUTION, trace_id=TRACE, span_id=span_id(span))


def changes(decided: Decision, policy: CarrierPolicy = POLICY) -> list[ScoreChange]:
    back = write_back(decided, policy)
    return [unpack_change(out.body) for out in back.outgoing if not isinstance(out.signal, Signal)]


def held(change: ScoreChange) -> Held:
    return {(one.place.name, one.place.span_id): (one.label, one.score) for one in change.scores}


def judged(status: Status, *, method: str = "scripted", previous: StoredVerdict | None = None) -> Decision:
    verdict = Abstention(status=status, reason="because")
    told = Attribution(run_id=TRACE, verdict=verdict, method=method)
    return replace(decision(None, previous=previous), attribution=told)


def stored(decided: Decision) -> StoredVerdict:
    return write_back(decided, POLICY).verdict


class TestWritten:
    """What a verdict puts into the outbox of its tenant's sinks."""

    def test_a_blame_scores_the_run_and_the_decisive_span(self) -> None:
        (change,) = changes(decision())
        assert held(change) == {
            (TASK_SUCCESS, span_id(1)): ("fail", 0.0),
            (FAILURE_ATTRIBUTION, span_id(3)): ("unspecified", 0.0),
        }
        assert (change.run_id, change.withdrawn, change.started_ns) == (TRACE, (), SPANS[0].start_ns)
        metadata = change.scores[1].metadata
        assert (metadata[names.FAILURE_AGENT_NAME], metadata[names.FAILURE_VERSION]) == ("planner", 1)
        assert not [name for name in metadata if name.startswith("gen_ai.")]

    def test_each_sink_has_an_entry_and_runs_of_other_tenants_have_none(self) -> None:
        policy = CarrierPolicy(lanes={ACME: (Lane("a"), Lane("b"))})
        assert changes(decision(), policy) == []
        entries = write_back(replace(decision(), tenant=ACME), policy).outgoing
        lanes = [(out.signal, out.tenant) for out in entries if out.signal in {"a", "b"}]
        assert lanes == [("a", ACME), ("b", ACME)]

    def test_a_run_passed_only_by_somebodys_word(self) -> None:
        unsaid, said = judged(Status.NO_FAILURE), judged(Status.NO_FAILURE, method=PERSON)
        assert held(changes(unsaid)[0]) == {(TASK_SUCCESS, span_id(1)): ("unknown", None)}
        assert held(changes(said)[0]) == {(TASK_SUCCESS, span_id(1)): ("pass", 1.0)}

    def test_an_evaluation_that_comes_later_makes_it_a_pass_once(self) -> None:
        before = stored(judged(Status.NO_FAILURE))
        late = judged(Status.NO_FAILURE, previous=before)
        run = replace(late.run, trajectory=replace(late.run.trajectory, outcome=Outcome.SUCCESS))
        (change,) = changes(replace(late, run=run))
        assert held(change) == {(TASK_SUCCESS, span_id(1)): ("pass", 1.0)}
        again = stored(replace(late, run=run))
        assert (before.version, again.version) == (1, 2)
        assert changes(replace(late, run=run, previous=again)) == []

    def test_a_verdict_on_another_span_withdraws_the_earlier_one(self) -> None:
        (change,) = changes(decision(1, previous=stored(decision(0))))
        assert (FAILURE_ATTRIBUTION, span_id(5)) in held(change)
        assert (change.withdrawn, change.started_ns) == ((attribution(3),), SPANS[0].start_ns)

    def test_an_unchanged_verdict_writes_nothing(self) -> None:
        assert changes(decision(previous=stored(decision()))) == []

    def test_a_run_that_is_cancelled_after_all_has_no_score_left(self) -> None:
        (change,) = changes(judged(Status.CANCELLED, previous=stored(decision())))
        assert (change.scores, change.withdrawn) == ((), (ROOT, attribution(3)))
        assert changes(judged(Status.WAITING)) == []

    def test_the_text_of_a_run_stays_here_if_the_setting_says_so(self) -> None:
        (change,) = changes(decision(), replace(POLICY, clean=omit))
        assert [one.explanation for one in change.scores] == ["", ""]
        assert "wrong sum" not in pack_change(change).decode()


def test_an_entry_that_cannot_be_read_is_an_error_that_says_so() -> None:
    for body in (b"", b"[]", b"{}", b'{"scores": [{"place": 1}], "withdrawn": []}', b'{"scores": 3}'):
        with pytest.raises(ValueError, match=r"cannot be read|Expecting value"):
            unpack_change(body)


class TestSettings:
    def test_backends_and_tenants_are_read_with_the_backends_own_credentials(self) -> None:
        settings = load_settings(
            {
                "BLAMESPAN_SCORES": "phoenix=http://one:6006/, langfuse@team-a=https://two/base",
                "PHOENIX_API_KEY": "key",
                "LANGFUSE_PUBLIC_KEY": "of-nobody",
                "LANGFUSE_SECRET_KEY": "of-nobody",
                "LANGFUSE_PUBLIC_KEY_TEAM_A": "p",
                "LANGFUSE_SECRET_KEY_TEAM_A": "s",
            }
        )
        phoenix, langfuse = settings.score_targets
        assert (phoenix.tenant, phoenix.url) == (NO_TENANT, "http://one:6006")
        assert phoenix.headers == {"Authorization": "Bearer key"}
        assert (langfuse.tenant, langfuse.url) == ("x-scope-orgid=team-a", "https://two/base")
        assert langfuse.headers == {"Authorization": "Basic cDpz"}
        assert langfuse.variables == ["LANGFUSE_PUBLIC_KEY_TEAM_A", "LANGFUSE_SECRET_KEY_TEAM_A"]
        assert settings.score_lanes == {
            NO_TENANT: ("scores:phoenix",),
            "x-scope-orgid=team-a": ("scores:langfuse@x-scope-orgid=team-a",),
        }
        assert "Bearer" not in repr(settings) + repr(phoenix)

    def test_a_key_that_cannot_be_a_header_is_refused_without_quoting_it(self) -> None:
        with pytest.raises(SettingsError, match="PHOENIX_API_KEY") as error:
            load_settings({"BLAMESPAN_SCORES": "phoenix=http://x", "PHOENIX_API_KEY": "se\ncret"})
        assert "cret" not in str(error.value)

    def test_a_tenants_backend_never_gets_the_keys_of_another(self) -> None:
        (target,) = load_settings(
            {"BLAMESPAN_SCORES": "phoenix@a%3D1%26b%3D2=http://x", "PHOENIX_API_KEY": "of all"}
        ).score_targets
        assert (target.tenant, target.headers) == ("a=1&b=2", {})

    @pytest.mark.parametrize(
        "value",
        [
            *("phoenix", "phoenix=", "jaeger=http://x", "phoenix@=http://x", "phoenix=ftp://x"),
            *("phoenix=http://user:secret@x", "phoenix=http://x?key=secret", "phoenix=http://x:99999"),
            "phoenix=http://x,phoenix=http://y",
            "phoenix@team-a=http://x,phoenix@TEAM_A=http://y",
        ],
    )
    def test_a_wrong_value_is_an_error_that_quotes_no_secret(self, value: str) -> None:
        with pytest.raises(SettingsError, match="BLAMESPAN_SCORES") as error:
            load_settings({"BLAMESPAN_SCORES": value})
        assert "secret" not in str(error.value)


@dataclass(slots=True)
class Backend:
    """An HTTP server: scripted answers, and Langfuse's scores by its published API."""

    refusals: list[tuple[int, str]] = field(default_factory=list)
    """Status and ``Retry-After`` of the next answers."""
    always: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """Answers by the end of the path."""
    scores: dict[tuple[str, str], Any] = field(default_factory=dict)
    """By id and timestamp: the API replaces a score that has both."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path))
        self.headers.append(request.headers)
        if self.refusals:
            status, after = self.refusals.pop(0)
            return web.Response(status=status, headers={"Retry-After": after} if after else {})
        for end, (status, answer) in self.always.items():
            if request.path.endswith(end):
                text = answer if isinstance(answer, str) else json.dumps(answer)
                return web.Response(status=status, text=text)
        return self.langfuse(request, await request.json() if request.can_read_body else {})

    def langfuse(self, request: web.Request, body: dict[str, Any]) -> web.Response:
        if request.method == "POST":
            self.scores[body["id"], body["timestamp"]] = body
            return web.json_response({"id": body["id"]})
        if request.method == "DELETE":
            own = [key for key in self.scores if key[0] == request.path.rpartition("/")[2]]
            for key in own:
                del self.scores[key]
            return web.Response(status=202 if own else 404)
        return web.json_response({"data": []})


@dataclass(slots=True)
class Sending:
    outlet: SinkOutlet
    backend: Backend
    now: float = 1_000_000.0

    async def send(self, change: ScoreChange) -> SendOutcome:
        return await self.outlet.send(pack_change(change), change.tenant)


@asynccontextmanager
async def sending(kind: ScoreBackend = ScoreBackend.LANGFUSE, **more: Any) -> AsyncIterator[Sending]:
    backend = Backend()
    application = web.Application()
    application.router.add_route("*", "/{tail:.*}", backend.handle)
    async with TestServer(application) as server:
        found: Sending
        clock: Callable[[], float] = lambda: found.now  # noqa: E731 - read when the outlet asks
        found = Sending(None, backend)  # type: ignore[arg-type]
        url = str(server.make_url("")).rstrip("/")
        target = ScoreTarget(backend=kind, tenant=NO_TENANT, url=more.pop("url", url), **more)
        found.outlet = SinkOutlet(target, wall_s=clock, now=clock)
        yield found
        await found.outlet.close()


def a_change(*places: ScorePlace, withdrawn: tuple[ScorePlace, ...] = (), age_s: float = 0.0) -> ScoreChange:
    metadata = {names.RUN_ID: TRACE, names.FAILURE_ID: "one"}
    given: Any = {"score": 0.0, "label": "fail", "explanation": "because", "annotator": "CODE"}
    scores = tuple(Score(place=place, metadata=metadata, **given) for place in places)
    decided_ns = int((1_000_000.0 - age_s) * 1e9)
    times: Any = {"decided_ns": decided_ns, "started_ns": 1767323045678901234}
    return ScoreChange(tenant=NO_TENANT, run_id=TRACE, scores=scores, withdrawn=withdrawn, **times)


class TestLangfuse:
    """Against a server that keeps scores by id; a real Langfuse was not run."""

    async def test_a_score_sent_twice_is_one_and_a_later_one_replaces_it(self) -> None:
        headers = {"Authorization": "Basic cDpz"}
        async with sending(headers=headers) as to:
            for change in (a_change(ROOT, attribution(3)), a_change(ROOT, attribution(3))):
                assert await to.send(change) == Delivered()
            moved = a_change(ROOT, attribution(5), withdrawn=(attribution(3),), age_s=-60.0)
            assert await to.send(moved) == Delivered()
            of_run, of_span = sorted(to.backend.scores.values(), key=lambda one: "observationId" in one)
            expected = {"dataType": "CATEGORICAL", "value": "fail", "comment": "because"}
            expected |= {"traceId": TRACE, "name": TASK_SUCCESS}
            assert {name: of_run[name] for name in expected} == expected
            assert of_run["timestamp"] == of_span["timestamp"] == "2026-01-02T03:04:05.678+00:00"
            assert (of_span["name"], of_span["observationId"]) == (FAILURE_ATTRIBUTION, span_id(5))
            assert {one["Authorization"] for one in to.backend.headers} == {"Basic cDpz"}

    async def test_a_deleted_runs_scores_go_even_if_one_is_gone_already(self) -> None:
        async with sending() as to:
            await to.send(a_change(ROOT))
            gone = a_change(withdrawn=(ROOT, attribution(3), attribution(5)))
            assert await to.send(gone) == Delivered()
            assert to.backend.scores == {}


class TestAnswers:
    """What becomes of an entry by the backend's answer."""

    async def test_a_busy_backend_is_asked_again_when_it_says(self) -> None:
        async with sending() as to:
            to.backend.refusals = [(429, "7"), (503, ""), (429, "99999999")]
            first, second, third = [await to.send(a_change(ROOT)) for _ in range(3)]
            assert isinstance(first, TryLater)
            assert isinstance(second, TryLater)
            assert isinstance(third, TryLater)
            assert (first.after_s, second.after_s, third.after_s) == (7.0, None, 3600.0)
            assert await to.send(a_change(ROOT)) == Delivered()

    async def test_wrong_credentials_are_named_and_lose_nothing(self) -> None:
        async with sending() as to:
            to.backend.refusals = [(401, "")]
            outcome = await to.send(a_change(ROOT, age_s=PATIENCE_S + 1))
            assert isinstance(outcome, TryLater)
            assert "LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY" in outcome.reason

    @pytest.mark.parametrize(("status", "text"), [(302, ""), (200, "<html>")])
    async def test_an_address_that_is_not_the_apis_loses_nothing(self, status: int, text: str) -> None:
        async with sending() as to:
            to.now += PATIENCE_S + 1
            to.backend.always = {"scores": (status, text)}
            outcome = await to.send(a_change(ROOT))
            assert isinstance(outcome, TryLater)
            assert "address" in outcome.reason

    @pytest.mark.parametrize("status", [400, 422, 413])
    async def test_what_is_refused_for_good_is_dropped(self, status: int) -> None:
        async with sending() as to:
            to.backend.refusals = [(status, "")]
            assert await to.send(a_change(ROOT)) == Rejected(
                reason=f"HTTP {status} to POST api/public/scores"
            )

    @pytest.mark.parametrize("status", [404, 500])
    async def test_a_trace_that_is_not_there_is_expected_for_a_while(self, status: int) -> None:
        async with sending() as to:
            to.now += PATIENCE_S + 1  # the sink has reached the backend for so long
            to.backend.always = {"scores": (status, "")}
            assert isinstance(await to.send(a_change(ROOT, age_s=-PATIENCE_S)), TryLater)
            assert isinstance(await to.send(a_change(ROOT)), Rejected)

    async def test_after_an_outage_traces_get_their_full_time_again(self) -> None:
        async with sending() as to:
            to.now += PATIENCE_S + 1
            to.backend.refusals = [(503, ""), (404, "")]
            assert isinstance(await to.send(a_change(ROOT)), TryLater)
            assert isinstance(await to.send(a_change(ROOT)), TryLater)
            to.now += PATIENCE_S + 1
            to.backend.always = {"scores": (404, "")}
            assert isinstance(await to.send(a_change(ROOT)), Rejected)

    async def test_a_backend_that_is_away_fills_no_disk(self) -> None:
        async with sending(url="http://127.0.0.1:1") as to:
            outcome = await to.send(a_change(ROOT))
            assert isinstance(outcome, TryLater)
            assert outcome.is_away
            assert isinstance(await to.send(a_change(ROOT, age_s=TOO_OLD_S + 1)), Rejected)

    @pytest.mark.parametrize("answer", ["{", "[" * 100_000, '{"trace": 3}', '{"trace": {"trace_info": []}}'])
    async def test_an_answer_that_no_api_gives_is_refused(self, answer: str) -> None:
        async with sending(ScoreBackend.MLFLOW) as to:
            to.now += PATIENCE_S + 1
            to.backend.always = {f"tr-{TRACE}": (200, answer)}
            assert isinstance(await to.send(a_change(ROOT)), Rejected)

    @pytest.mark.parametrize(
        "one", [{"source": [1]}, {"metadata": "x"}, {"source": {"source_id": []}}, {"assessment_name": {}}]
    )
    async def test_an_assessment_of_other_types_is_not_ours(self, one: dict[str, Any]) -> None:
        async with sending(ScoreBackend.MLFLOW) as to:
            to.backend.always = {
                f"tr-{TRACE}": (200, {"trace": {"trace_info": {"assessments": [one]}}}),
                "assessments": (200, {}),
            }
            assert await to.send(a_change(ROOT)) == Delivered()
            assert [method for method, _ in to.backend.asked] == ["GET", "POST"]

    async def test_an_entry_that_is_damaged_or_anothers_is_refused(self) -> None:
        async with sending() as to:
            assert isinstance(await to.outlet.send(b"{", NO_TENANT), Rejected)
            assert isinstance(await to.outlet.send(pack_change(a_change(ROOT)), ACME), Rejected)
            assert to.backend.asked == []

    async def test_a_score_that_phoenix_does_not_delete_stays_labelled_and_is_reported(self) -> None:
        async with sending(ScoreBackend.PHOENIX) as to:
            to.backend.always = {
                "span_annotations": (200, {"data": [{"id": "U3Bhbg=="}]}),
                "graphql": (200, {"data": None, "errors": [{"message": "no"}]}),
            }
            outcome = await to.send(a_change(withdrawn=(attribution(3),)))
            assert isinstance(outcome, Rejected)
            assert "withdrawn" in outcome.reason


class TestMlflow:
    """What is asked of MLflow when assessments are there already."""

    async def test_ours_are_found_and_doubled_or_outdated_ones_go(self) -> None:
        ours = {"source": {"source_id": IDENTIFIER}, "assessment_name": TASK_SUCCESS, "span_id": span_id(1)}
        metadata = {names.RUN_ID: TRACE, names.FAILURE_ID: "one"}
        there = [
            {**ours, "assessment_id": "a-kept", "metadata": metadata},
            {**ours, "assessment_id": "a-doubled", "metadata": metadata},
            {**ours, "assessment_id": "a-old", "metadata": {**metadata, names.FAILURE_ID: "zero"}},
            {**ours, "assessment_id": "a-other-run", "metadata": {names.RUN_ID: "another"}},
            {"assessment_id": "a-persons", "source": {"source_id": "ann"}, "metadata": metadata},
        ]
        async with sending(ScoreBackend.MLFLOW) as to:
            to.backend.always = {
                f"tr-{TRACE}": (200, {"trace": {"trace_info": {"assessments": there}}}),
                "assessments": (200, {}),
                "a-old": (200, {}),
            }
            assert await to.send(a_change(ROOT)) == Delivered()
            path = f"/api/3.0/mlflow/traces/tr-{TRACE}"
            assert to.backend.asked == [
                ("GET", path),
                ("DELETE", f"{path}/assessments/a-doubled"),
                ("DELETE", f"{path}/assessments/a-old"),
            ]


class TestDeleted:
    """Deletion of runs whose scores are in backends."""

    def store(self, folder: Path, *decided: Decision) -> RunStore:
        store = RunStore(folder / "store.sqlite")
        for one in decided:
            back = write_back(one, POLICY)
            store.commit(
                Commit(analysed=(), verdicts=(back.verdict,), places=(back.place,) if back.place else ())
            )
        return store

    def waiting(self, store: RunStore) -> list[ScoreChange]:
        return [unpack_change(out.body) for out in store.outbox(LANE)]

    def test_a_deleted_run_withdraws_all_its_versions_scores(self, tmp_path: Path) -> None:
        store = self.store(tmp_path, decision(0), decision(1, previous=stored(decision(0))))
        assert delete_run_and_scores(store._db, NO_TENANT, TRACE, POLICY.lanes, 9)
        (change,) = self.waiting(store)
        assert change.withdrawn == (ROOT, attribution(3), attribution(5))
        assert (change.scores, change.decided_ns) == ((), 9)
        assert not delete_run_and_scores(store._db, NO_TENANT, TRACE, POLICY.lanes, 9)
        assert len(self.waiting(store)) == 1

    def test_so_do_all_of_a_tenant_and_no_others(self, tmp_path: Path) -> None:
        store = self.store(tmp_path, decision(0), replace(decision(0), tenant=ACME))
        assert delete_tenant_and_scores(store._db, ACME, POLICY.lanes, 9) == 1
        assert self.waiting(store) == []
        assert delete_tenant_and_scores(store._db, NO_TENANT, POLICY.lanes, 9) == 1
        assert [change.run_id for change in self.waiting(store)] == [TRACE]
