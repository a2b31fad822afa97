from __future__ import annotations

import json

from analyzer.inquiry.verdict import to_json
from semconv.model import Abstention, Attribution, Blame, Effort, Evidence, Ranked, SpanId, Status, TraceId
from tests.contract_keys import VERDICT_KEYS
from tests.runs import run, step

TRACE = TraceId("ab" * 16)
RUN = run(step("a", "x"), step("b", "y", span_id=SpanId("cd" * 8), trace_id=TRACE), root_trace_id=TRACE)


def test_a_blame_names_its_span() -> None:
    verdict = Blame(
        agent="b",
        step=1,
        reason="because",
        confidence=0.7,
        fix="do it right",
        mode="bad_plan",
        evidence=(Evidence(step=1, quote="y"),),
        ranking=(Ranked(step=1, agent="b", probability=0.7),),
    )
    effort = Effort(calls=1, input_tokens=10, output_tokens=2, cost_usd=0.01, duration_s=1.5)
    document = to_json(
        Attribution(
            run_id="r",
            verdict=verdict,
            method="judge",
            model="m",
            coverage=0.5,
            truncated=True,
            effort=effort,
        ),
        RUN,
    )
    assert list(document) == VERDICT_KEYS
    assert (document["status"], document["agent"], document["step"]) == ("attributed", "b", 1)
    assert (document["span_id"], document["trace_id"]) == ("cd" * 8, TRACE)
    assert document["evidence"] == [{"step": 1, "quote": "y"}]
    assert document["ranking"] == [{"step": 1, "agent": "b", "probability": 0.7}]
    assert (document["coverage"], document["truncated"], document["cost_usd"]) == (0.5, True, 0.01)
    assert json.loads(json.dumps(document)) == document


def test_an_abstention_has_the_same_keys_and_names_no_agent() -> None:
    verdict = Abstention(status=Status.ERROR, reason="model away")
    document = to_json(Attribution(run_id="r", verdict=verdict, method="judge", error="model away"), RUN)
    assert list(document) == VERDICT_KEYS
    assert document["status"] == "error"
    assert document["agent"] is document["step"] is document["span_id"] is document["confidence"] is None
    assert (document["reason"], document["error"]) == ("model away", "model away")
    assert document["trace_id"] == TRACE
    assert document["evidence"] == document["ranking"] == []
