"""People's scores in backends: read from hostile answers, and made labels once, if they state something."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.issues.correcting import Corrections
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.labelling import accept_label
from analyzer.issues.labels.run_label import LabelKind, Statement
from analyzer.service.scores_back import ScoresBack, statement_of
from collector_processor.core.scores import Lane, ScoreBackend
from collector_processor.otlp import NO_TENANT, Rejected, TryLater
from collector_processor.rebuild.redaction import redact
from collector_processor.settings import SettingsError, load_settings
from collector_processor.sinks import SINKS
from collector_processor.sinks.exchange import Call, HumanScore, ScoredRun, UnexpectedAnswerError
from collector_processor.store.verdicts import RunStore
from collector_processor.writeback.evaluations import FAILURE_ATTRIBUTION, IDENTIFIER, TASK_SUCCESS
from semconv.model import Status
from tests.factories import TRACE, span_id
from tests.unit.test_correcting import DID_NOT_FAIL, POLICY, World
from tests.unit.test_scores import sending

ROOT, PLANNER, WRITER = span_id(1), span_id(3), span_id(5)
RUN: Final = ScoredRun(run_id=TRACE, trace_ids=(TRACE,), span_ids=(ROOT, PLANNER, WRITER))
WHEN: Final = "2026-11-29T10:00:00.5+00:00"
WHEN_NS: Final = 1_795_946_400_500_000_000
NOW_NS: Final = WHEN_NS + 10**9


def said(name: str, value: Any, span: str = "", *, at: int = WHEN_NS, trace: str = TRACE) -> HumanScore:
    return HumanScore(name=name, trace_id=trace, span_id=span, value=value, said_ns=at, author="ada")


def read(kind: ScoreBackend, *answers: Any, runs: Sequence[ScoredRun] = (RUN,)) -> list[HumanScore]:
    """Return what a reader finds; the last answer is given to all further requests."""
    return exchanged(kind, *answers, runs=runs)[1]


def exchanged(
    kind: ScoreBackend, *answers: Any, runs: Sequence[ScoredRun] = (RUN,)
) -> tuple[list[Call], list[HumanScore]]:
    reading, calls, left = SINKS[kind].read(runs, WHEN_NS), [], list(answers)
    call = next(reading)
    while True:
        calls.append(call)
        assert len(calls) < 1_000, "endless"
        try:
            call = reading.send(left.pop(0) if len(left) > 1 else left[0])
        except StopIteration as ended:
            return calls, ended.value


def phoenix(**more: Any) -> dict[str, Any]:
    return {
        "name": FAILURE_ATTRIBUTION,
        "annotator_kind": "HUMAN",
        "identifier": "",
        "span_id": WRITER,
        "result": {"label": "right", "score": 0.0},
        "updated_at": WHEN,
        "user_id": "VXNlcjox",
        **more,
    }


def mlflow(**more: Any) -> dict[str, Any]:
    return {
        "assessment_name": FAILURE_ATTRIBUTION,
        "span_id": WRITER,
        "source": {"source_type": "HUMAN", "source_id": "ada@example.com"},
        "feedback": {"value": True},
        "last_update_time": "2026-11-29T10:00:00.500Z",
        **more,
    }


def langfuse(**more: Any) -> dict[str, Any]:
    return {
        "name": FAILURE_ATTRIBUTION,
        "source": "ANNOTATION",
        "traceId": TRACE,
        "observationId": WRITER,
        "stringValue": "right",
        "value": 1,
        "updatedAt": WHEN,
        "authorUserId": "ada",
        **more,
    }


BLANK: Final = {"stringValue": " ", "value": float("inf")}
PROJECTS: Final = {"data": [{"id": "UHJvamVjdDox"}]}


def of_phoenix(*found: Any) -> list[HumanScore]:
    return read(ScoreBackend.PHOENIX, PROJECTS, {"data": []}, {"data": [*found]})


def of_mlflow(*found: Any) -> list[HumanScore]:
    return read(ScoreBackend.MLFLOW, {"trace": {"trace_info": {"assessments": [*found]}}})


def of_langfuse(*found: Any) -> list[HumanScore]:
    return read(ScoreBackend.LANGFUSE, {"data": [*found]}, {"data": []})


class TestReaders:
    def test_each_backend_tells_what_a_person_said(self) -> None:
        (one,) = of_phoenix(phoenix())
        assert one == replace(said(FAILURE_ATTRIBUTION, "right", WRITER, trace=""), author="VXNlcjox")
        (one,) = of_mlflow(mlflow())
        assert one == replace(said(FAILURE_ATTRIBUTION, value=True, span=WRITER), author="ada@example.com")
        assert of_langfuse(langfuse()) == [said(FAILURE_ATTRIBUTION, "right", WRITER)]

    def test_phoenix_tells_what_a_person_said_about_a_trace(self) -> None:
        of_trace = phoenix(name=TASK_SUCCESS, trace_id=TRACE, result={"label": None, "score": 1})
        calls, found = exchanged(ScoreBackend.PHOENIX, PROJECTS, {"data": [of_trace]}, {"data": []})
        assert found == [replace(said(TASK_SUCCESS, 1.0), author="VXNlcjox")]
        paths = [call.path for call in calls]
        project = "v1/projects/UHJvamVjdDox"
        assert paths[1:] == [f"{project}/trace_annotations", f"{project}/span_annotations"]

    def test_runs_of_many_traces_take_no_more_requests_and_leave_room_for_others(self) -> None:
        many = ScoredRun(run_id="a", trace_ids=[f"{n:032x}" for n in range(200)], span_ids=())
        calls, _ = exchanged(ScoreBackend.MLFLOW, {"trace": {}}, runs=(many, RUN, many))
        assert len(calls) == 60
        assert calls[1].path.endswith(TRACE)

    def test_our_own_scores_and_scores_of_judges_are_ignored(self) -> None:
        own = phoenix(identifier=IDENTIFIER)
        assert not of_phoenix(own, phoenix(annotator_kind="LLM"), phoenix(name="x"))
        ours, judge = ({"source_type": kind, "source_id": of} for kind, of in SOURCES)
        assert not of_mlflow(mlflow(source=ours), mlflow(source=judge), mlflow(valid=False))
        assert not of_langfuse(langfuse(source="API"), langfuse(source="EVAL"), langfuse(name="x"))

    @pytest.mark.parametrize(
        "more",
        [
            {"name": 3, "assessment_name": ["x"]},
            {"result": [], "feedback": "x", "stringValue": {}, "value": None},
            {"result": {"label": "", "score": float("nan")}, "feedback": {"value": 10**400}, **BLANK},
            {"updated_at": 5, "last_update_time": "soon", "updatedAt": "9" * 5_000},
            {"span_id": {}, "traceId": 7, "source": 3},
        ],
    )
    def test_a_part_of_another_type_makes_no_score(self, more: dict[str, Any]) -> None:
        assert not of_phoenix(phoenix(**more))
        assert not of_langfuse(langfuse(**more))
        assert not [one for one in of_mlflow(mlflow(**more)) if one.span_id]

    @pytest.mark.parametrize("kind", [*ScoreBackend])
    @pytest.mark.parametrize("answer", ["text", 3, [], {"data": 3, "trace": 3}, {"data": [3], "trace": []}])
    def test_an_answer_of_another_shape_is_an_error(self, kind: ScoreBackend, answer: Any) -> None:
        with pytest.raises(UnexpectedAnswerError):
            read(kind, answer)

    def test_scores_of_other_runs_are_left_out(self) -> None:
        assert of_langfuse(langfuse(traceId="f" * 32)) == []

    def test_requests_are_bounded_however_much_there_is(self) -> None:
        full = {"data": [langfuse()] * 100, "meta": {"page": 1, "totalPages": 10**9}}
        calls, _ = exchanged(ScoreBackend.LANGFUSE, full)
        assert len(calls) == 20
        many = [
            ScoredRun(run_id=f"{at}", trace_ids=(f"{at}",), span_ids=[f"{at}.{of}" for of in range(200)])
            for at in range(50)
        ]
        projects = {"data": [{"id": f"{at}"} for at in range(10_000)], "next_cursor": "again"}
        calls, _ = exchanged(ScoreBackend.PHOENIX, projects, {"data": [], "next_cursor": "again"}, runs=many)
        assert len(calls) == 61
        assert max(len(call.query) for call in calls) < 110
        calls, _ = exchanged(ScoreBackend.MLFLOW, None, runs=many)
        assert len(calls) == 50

    async def test_a_page_instead_of_json_and_a_refusal_are_outcomes_without_scores(self) -> None:
        async with sending() as to:
            to.backend.always = {"v2/scores": (200, "<html>sign in</html>")}
            outcome = await to.outlet.read([RUN], WHEN_NS)
            assert isinstance(outcome, TryLater)
            assert "a web page" in outcome.reason
            to.backend.always = {"v2/scores": (200, {"data": 3})}
            assert isinstance(await to.outlet.read([RUN], WHEN_NS), Rejected)
            to.backend.always = {"v2/scores": (200, {"data": [langfuse()]})}
            assert await to.outlet.read([RUN], WHEN_NS) == [said(FAILURE_ATTRIBUTION, "right", WRITER)] * 2


SOURCES: Final = (("HUMAN", IDENTIFIER), ("LLM_JUDGE", "gpt"))


class TestSetting:
    def test_only_a_backend_set_so_is_read(self) -> None:
        text = "phoenix=http://x,mlflow+labels@team-a=http://y"
        told = load_settings({"BLAMESPAN_SCORES": text}).score_targets
        assert [(one.backend, one.is_read) for one in told] == [("phoenix", False), ("mlflow", True)]

    @pytest.mark.parametrize("value", ["phoenix+=http://x", "phoenix+label=http://x", "+labels=http://x"])
    def test_anything_else_is_an_error(self, value: str) -> None:
        with pytest.raises(SettingsError, match=r"\+labels"):
            load_settings({"BLAMESPAN_SCORES": value})


@dataclass(kw_only=True)
class Here(World):
    """A service, and a backend whose scores a test writes; commits happen at once."""

    said: Any = ()
    asked: list[Sequence[ScoredRun]] = field(default_factory=list)
    back: ScoresBack = field(init=False)

    def __post_init__(self) -> None:
        parts: Any = {"commits": self, "store": self.store, "labels": self.labels}  # only what is used
        parts |= {"count": lambda: None, "counted": lambda: None, "clean": redact}
        corrections = Corrections(**parts, policy=POLICY, now_ns=lambda: NOW_NS)
        reading: Any = {"lane": Lane("scores:phoenix"), "tenant": NO_TENANT, "reader": self}
        self.back = ScoresBack(**reading, corrections=corrections, every_s=60.0, now_ns=lambda: 6)

    async def in_db(self, call: Any, *values: Any) -> Any:
        return call(*values)

    in_turn = in_db

    def committed(self, _corrected: object) -> None:
        return

    async def read(self, runs: Sequence[ScoredRun], _since_ns: int) -> Any:
        self.asked.append(runs)
        return self.said if isinstance(self.said, TryLater) else [*self.said]

    def poll(self, *scores: HumanScore) -> list[str]:
        """Read these scores; return the run's labels, newest first."""
        self.said = scores
        assert asyncio.run(self.back.poll()) == 60.0
        return [str(label.kind) for label in self.labels.labels(NO_TENANT, TRACE)]

    @property
    def blamed(self) -> tuple[str, str | None, str | None]:
        current = self.store.current(NO_TENANT, TRACE)
        assert current is not None
        return current.status, current.agent, current.span_id


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    store = RunStore(tmp_path / "runs.db")
    labels = LabelStore(store._db)
    found = Here(store=store, labels=labels)
    found.judge()
    yield found
    store.close()


class TestStatements:
    """The table of docs/scores.md."""

    @pytest.mark.parametrize(
        ("score", "kind"),
        [
            (said(TASK_SUCCESS, "pass"), LabelKind.NOT_A_FAILURE),
            (said(TASK_SUCCESS, "Thumbs_Up", ROOT), LabelKind.NOT_A_FAILURE),
            (said(TASK_SUCCESS, 1.0, ROOT), LabelKind.NOT_A_FAILURE),
            (said(TASK_SUCCESS, value=True), LabelKind.NOT_A_FAILURE),
            (said(TASK_SUCCESS, "fail"), None),
            (said(TASK_SUCCESS, "pass", WRITER), None),
            (said(TASK_SUCCESS, "quite good"), None),
            (said(TASK_SUCCESS, 0.5), None),
            (said(FAILURE_ATTRIBUTION, "right"), LabelKind.CONFIRMED),
            (said(FAILURE_ATTRIBUTION, 1.0, PLANNER), LabelKind.CONFIRMED),
            (said(FAILURE_ATTRIBUTION, "hallucination", PLANNER), LabelKind.CONFIRMED),
            (said(FAILURE_ATTRIBUTION, "wrong", PLANNER), LabelKind.REJECTED),
            (said(FAILURE_ATTRIBUTION, value=False), LabelKind.REJECTED),
            (said(FAILURE_ATTRIBUTION, "wrong", WRITER), None),
            (said(FAILURE_ATTRIBUTION, "hallucination"), None),
            (said(FAILURE_ATTRIBUTION, "unknown", WRITER), None),
            (said(FAILURE_ATTRIBUTION, "pass", WRITER), None),
            (said(FAILURE_ATTRIBUTION, 0.3, WRITER), None),
            (said(FAILURE_ATTRIBUTION, "right", "f" * 16), None),
            (said("helpfulness", "right", PLANNER), None),
        ],
    )
    def test_a_score_states_what_the_documentation_says(
        self, here: Here, score: HumanScore, kind: LabelKind | None
    ) -> None:
        stated = statement_of(score, *here_and_now(here))
        assert (stated.kind if stated else None) == kind

    @pytest.mark.parametrize("value", ["right", "loop", "👍", 1.0, True])
    def test_another_span_of_the_run_is_the_decisive_one(self, here: Here, value: str | float) -> None:
        stated = statement_of(said(FAILURE_ATTRIBUTION, value, WRITER), *here_and_now(here))
        assert stated == Statement(kind=LabelKind.CORRECTED, agent="writer", step=1)

    def test_a_failure_of_a_run_that_passed_rejects_the_verdict(self, here: Here) -> None:
        verdict, steps = here_and_now(here)
        stated = statement_of(said(TASK_SUCCESS, "fail"), replace(verdict, status=Status.NO_FAILURE), steps)
        assert stated == Statement(kind=LabelKind.REJECTED)


def here_and_now(here: Here) -> tuple[Any, Any]:
    from collector_processor.writeback.carriers import unpack_place  # noqa: PLC0415

    packed = here.store.place(NO_TENANT, TRACE)
    assert packed is not None
    return here.store.current(NO_TENANT, TRACE), unpack_place(packed).trajectory


class TestLabels:
    def test_a_score_makes_one_label_however_often_it_is_read(self, here: Here) -> None:
        score = said(FAILURE_ATTRIBUTION, "right", WRITER, at=4)
        assert [here.poll(score) for _ in range(3)] == [["corrected"]] * 3
        assert here.blamed == (Status.ATTRIBUTED, "writer", WRITER)

    def test_a_changed_score_changes_the_label(self, here: Here) -> None:
        here.poll(said(FAILURE_ATTRIBUTION, "right", WRITER, at=4))
        assert here.poll(said(TASK_SUCCESS, "pass", at=5)) == ["not_a_failure", "corrected"]
        assert here.blamed[0] == Status.NO_FAILURE

    def test_a_later_label_beats_an_older_score(self, here: Here) -> None:
        verdict, _ = here_and_now(here)
        accept_label(here.back.corrections.labels, verdict, DID_NOT_FAIL, here.back.corrections.now_ns())
        assert here.poll(said(FAILURE_ATTRIBUTION, "right", WRITER, at=4)) == ["not_a_failure"]

    def test_two_scores_of_one_run_count_in_their_order(self, here: Here) -> None:
        right = said(FAILURE_ATTRIBUTION, "right", WRITER, at=3)
        wrong = said(FAILURE_ATTRIBUTION, "wrong", PLANNER, at=4)
        assert here.poll(right, wrong) == ["corrected"]  # the second contradicts nothing any more

    @pytest.mark.parametrize("at", [0, -5, 2**62])
    def test_a_score_of_an_impossible_time_makes_no_label(self, here: Here, at: int) -> None:
        assert here.poll(said(TASK_SUCCESS, "pass", at=at)) == []

    def test_scores_of_other_runs_and_unknown_spans_are_no_labels(self, here: Here) -> None:
        other = said(TASK_SUCCESS, "pass", at=4, trace="f" * 32)
        astray = said(FAILURE_ATTRIBUTION, "right", "f" * 16, at=4)
        nowhere = said(TASK_SUCCESS, "pass", at=4, trace="")
        assert here.poll(other, astray, nowhere) == []

    def test_a_backend_that_fails_is_asked_ever_less_often(self, here: Here) -> None:
        here.said = TryLater(reason="HTTP 503")
        waits = [asyncio.run(here.back.poll()) for _ in range(8)]
        assert waits == [120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]
        here.said = TryLater(reason="HTTP 429", after_s=10**9)
        assert asyncio.run(here.back.poll()) == 3600.0
        assert here.poll() == []

    def test_a_run_is_asked_about_with_its_root_and_its_steps(self, here: Here) -> None:
        here.poll()
        ((run,),) = here.asked
        assert (run.run_id, run.trace_ids, run.span_ids) == (TRACE, [TRACE], [ROOT, PLANNER, WRITER])
