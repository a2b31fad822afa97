"""Each run gets one verdict, sent once, and withdrawn if it changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from collector_processor.otlp import NO_TENANT, TraceKey
from collector_processor.store.verdicts import RunStore
from semconv.attributes import (
    FAILURE_AGENT_NAME,
    FAILURE_ID,
    FAILURE_SUPERSEDES,
    FAILURE_VERSION,
    GEN_AI_EVALUATION_NAME,
    GEN_AI_EVALUATION_SCORE_LABEL,
    GEN_AI_EVALUATION_SCORE_VALUE,
)
from semconv.model import TraceId
from tests.backends.fixtures import CollectorFactory
from tests.backends.processes import Forwarding
from tests.backends.supervise import wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.spans import Placed, by_id, carriers, originals, placed
from tests.e2e.traffic import CARRIERS, DEMO_SPANS, Played, play_demo, request, send, span_id, without_mistake
from tests.run_store import analyses_of

HASTE_MS: Final = 100
WITHDRAWALS: Final = 2
"""Places of a withdrawal: beside the old mark and under the root."""


def await_analyses(folder: Path, played: Played, count: int) -> None:
    """Wait until the trace was analysed this often; only the store shows analyses without a new verdict."""
    store = RunStore(folder / "data" / "store.sqlite")
    key = TraceKey(NO_TENANT, TraceId(played.trace_id))
    try:
        wait_until(lambda: analyses_of(store, key)[0] >= count, what=f"analysis {count}")
    finally:
        store.close()


def plain(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in pairs}


def brief(spans: Sequence[Placed]) -> list[tuple[str, str, int]]:
    """Return each carrier's name, parent and version."""
    return [(one.span.name, one.parent_id, one.attributes[FAILURE_VERSION]) for one in carriers(spans)]


PASSED: Final = ("task_success", "pass", 1.0)


def evaluations(backend: Backend) -> list[tuple[str, str, float | None]]:
    """Return name, label and score of each evaluation that arrived."""
    told = [plain(record.attributes) for record in backend.records()]
    return [
        (
            one[GEN_AI_EVALUATION_NAME],
            one[GEN_AI_EVALUATION_SCORE_LABEL],
            one.get(GEN_AI_EVALUATION_SCORE_VALUE),
        )
        for one in told
    ]


def test_a_run_that_went_well_gets_no_span(start_line: StartLine) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url)
        played = play_demo(without_mistake)
        send(line, played.body)
        assert line.verdict(played.trace_id)["status"] == "no_failure"
        assert line.terminate() == 0
        assert (evaluations(backend), len(backend.spans(played.trace_id))) == ([PASSED], DEMO_SPANS)


def test_a_changed_verdict_supersedes_the_old_one_and_withdraws_its_blame(
    start_line: StartLine, tmp_path: Path
) -> None:
    with grpc_backend() as backend:
        line = start_line(forward_endpoint=backend.url, root_grace=HASTE_MS)
        played = play_demo()
        send(line, request(one for one in played.spans if one is not played.decisive))
        before = backend.await_spans(played.trace_id, DEMO_SPANS - 1 + CARRIERS)
        (wrong,) = (one for one in before if one.is_decisive)
        assert wrong.attributes[FAILURE_AGENT_NAME] == "writer", "all that is there to blame"

        send(line, request([played.decisive]))
        after = backend.await_spans(played.trace_id, DEMO_SPANS + 2 * CARRIERS + WITHDRAWALS)

        decisive, root = span_id(played.decisive), span_id(played.root)
        assert brief(after[len(before) :]) == [
            ("calculator: wrong computation", decisive, 2),
            ("failure: calculator, replaces verdict 1", root, 2),
            ("withdrawn: writer → calculator", wrong.parent_id, 2),
            ("withdrawn: writer → calculator", root, 2),
        ]
        old = wrong.attributes[FAILURE_ID]
        assert {one.attributes[FAILURE_SUPERSEDES] for one in carriers(after[len(before) :])} == {old}
        assert originals(after) == by_id(placed(played.body))
        of_steps = [one for one in backend.await_records(4) if "failure_attribution" in str(one.attributes)]
        assert [one.span_id.hex() for one in of_steps] == [wrong.parent_id, decisive]
        told = line.verdict(played.trace_id, version=2)
        assert (told["agent"], told["step"]) == (played.expected.agent, played.expected.step)
        await_analyses(tmp_path, played, 2)


def test_the_evaluation_event_goes_through_a_real_collector(
    start_line: StartLine, collector_factory: CollectorFactory
) -> None:
    with grpc_backend() as backend:
        collector = collector_factory(Forwarding(endpoint=backend.url, signals=("traces", "logs")))
        line = start_line(forward_endpoint=collector.otlp_grpc_endpoint)
        played = play_demo()
        send(line, played.body)

        of_run, event = backend.await_records(2)

        assert {of_run.event_name, event.event_name} == {"gen_ai.evaluation.result"}
        assert (of_run.trace_id.hex(), of_run.span_id.hex()) == (played.trace_id, span_id(played.root))
        said = plain(of_run.attributes)
        assert (said[GEN_AI_EVALUATION_NAME], said[GEN_AI_EVALUATION_SCORE_LABEL]) == ("task_success", "fail")
        assert (event.trace_id.hex(), event.span_id.hex()) == (played.trace_id, span_id(played.decisive))
        told = plain(event.attributes)
        assert told[GEN_AI_EVALUATION_NAME] == "failure_attribution"
        assert told[GEN_AI_EVALUATION_SCORE_LABEL] == "wrong_computation"
        assert told[FAILURE_AGENT_NAME] == "calculator"
        spans = backend.await_spans(played.trace_id, DEMO_SPANS + CARRIERS)
        (decisive,) = (one for one in spans if one.is_decisive)
        assert told[FAILURE_ID] == decisive.attributes[FAILURE_ID]
