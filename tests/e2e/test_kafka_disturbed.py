"""Collector → Kafka → 3 processors → 2 analyzers → Jaeger, disturbed: a short ``benchmarks.group``."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from benchmarks.group.disturbed import KINDS, SPANS, play, summed
from tests.backends import install
from tests.backends.fixtures import insist_on

pytestmark = pytest.mark.timeout(1800)
RUNS = 240


def test_a_group_that_is_killed_replaced_and_joined_loses_nothing_and_judges_each_run_once(
    tmp_path: Path,
) -> None:
    insist_on("kafka", install.kafka_binary())
    insist_on("jaeger", install.jaeger_binary())
    insist_on("collector", install.collector_binary())
    outcome = play(tmp_path, runs=RUNS, disturbances=len(KINDS), per_s=4)
    assert outcome.faults(inf) == []
    assert {one.kind for one in outcome.disturbances} == {*KINDS, "restart broker"}
    assert outcome.counts.spans == RUNS * SPANS
    assert outcome.counts.methods["judge+signals"], "analyzers asked the model"
    assert summed(outcome.balances)["forwarded"]
    assert summed(outcome.ended)["forwarded"]
