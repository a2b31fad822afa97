"""The metrics page lists exactly the existing metrics."""

from __future__ import annotations

import pytest

from analyzer.analyses.pool import Outcome
from analyzer.issues.recurrence import IssueState
from analyzer.telemetry.metric import MOST_VALUES
from analyzer.telemetry.metric_table import METRICS
from tools.monitoring.alert_rules import rule_file
from tools.references.metrics_reference import PAGE, page


@pytest.mark.skipif(not PAGE.exists(), reason="the built wheel has no docs")
def test_the_page_equals_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tools.references.metrics_reference`"


def test_every_alert_is_on_the_page() -> None:
    alerts = [rule["alert"] for rule in rule_file()["groups"][0]["rules"]]
    assert [alert for alert in alerts if f"`{alert}`" not in page()] == []


def test_names_are_distinguished_from_opentelemetrys_names() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert len({metric.otel_name for metric in METRICS}) == len(METRICS)
    assert [name for metric in METRICS if not (name := metric.otel_name).startswith("blamespan.")] == []


def test_bounds_of_labels_from_packages_above_equal_the_code() -> None:
    assert (MOST_VALUES["outcome"], MOST_VALUES["state"]) == (len(Outcome), len(IssueState))
