"""Findings of ``doctor`` about the processes that share a store."""

from __future__ import annotations

from dataclasses import replace

from analyzer.cli.checks import Finding, Health, check_replicas
from collector_processor.store.jobs import NO_JOBS, Replica, Waiting

ONE = Replica(id="1", kind="analyzer", version="1.0", ahead_s=-2.0, facts={})


def found(*replicas: Replica, waiting: Waiting = NO_JOBS) -> dict[str, Finding]:
    return {one.check: one for one in check_replicas(replicas, waiting, "1.0")}


def test_replicas_that_agree_are_counted() -> None:
    findings = found(ONE, replace(ONE, id="2"), replace(ONE, id="3", kind="web"))
    assert list(findings) == ["replicas"]
    assert findings["replicas"].health is Health.OK
    assert findings["replicas"].detail == "2 analyzer, 1 web; all run 1.0"


def test_versions_that_differ_are_named_also_from_our_own() -> None:
    finding = found(replace(ONE, version="0.9"))["replicas"]
    assert finding.health is Health.WARNING
    assert "0.9, 1.0" in finding.detail


def test_the_clock_that_differs_most_is_named() -> None:
    finding = found(ONE, replace(ONE, id="late", ahead_s=-61.0), replace(ONE, id="3", ahead_s=30.0))
    assert finding["replicas' clocks"].health is Health.WARNING
    assert "analyzer late is 61 s behind" in finding["replicas' clocks"].detail


def test_jobs_that_wait_long_want_more_analyzers() -> None:
    assert found(waiting=Waiting(count=1, oldest_age_s=3.0))["jobs"].health is Health.OK
    late = found(waiting=Waiting(count=7, oldest_age_s=90.0))["jobs"]
    assert late.health is Health.WARNING
    assert late.detail == "7 jobs wait for an analyzer, the oldest for 90 s"
