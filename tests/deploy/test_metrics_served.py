"""``/metrics`` of each process exports exactly the metrics on the documentation page."""

from __future__ import annotations

import re
from typing import Final
from urllib.request import ProxyHandler, build_opener

import pytest
from prometheus_client.parser import text_string_to_metric_families

from analyzer.telemetry.metric import Half
from analyzer.telemetry.metric_table import METRICS
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import free_ports, wait_until
from tests.deploy.shifts import work
from tests.e2e.conftest import server
from tests.e2e.line import Line, StartLine
from tests.e2e.test_halves import StartAnalyzer, start_analyzer
from tools.references.metrics_reference import page

__all__ = ["server", "start_analyzer"]

ROW: Final = re.compile(r"^\| `(?P<name>blamespan_\w+)` \|(?P<rest>.*)\|$", re.MULTILINE)
NOBODY: Final = f"http://127.0.0.1:{free_ports(1)[0]}"
TELLS: Final = {"notify_url": f"{NOBODY},{NOBODY}"}
MODEL: Final = {"model": "openai/local", "OPENAI_API_BASE": f"{NOBODY}/v1", "OPENAI_API_KEY": "none"}


def on_the_page(half: Half) -> set[str]:
    """Return the metric names that the page lists for a process with a model, without ``_total``."""
    rows = [(row["name"], row["rest"].split(" | ")[5]) for row in ROW.finditer(page())]
    assert len(rows) == len(METRICS)
    return {name.removesuffix("_total") for name, shown_by in rows if f"`{half.value}`" in shown_by}


def served(address: str) -> dict[str, int]:
    """Return a process's metric families with their numbers of series; a histogram counts as one."""
    with build_opener(ProxyHandler({})).open(f"{address}/metrics", timeout=300) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    ours = [family for family in families if family.name.startswith("blamespan_")]
    return {
        family.name: len({tuple(one.labels.items()) for one in family.samples if "le" not in one.labels})
        for family in ours
    }


def assert_bounded(shown: dict[str, int]) -> None:
    most = {metric.name: metric.most_series for metric in METRICS}
    assert {name: count for name, count in shown.items() if count > most[name]} == {}


def start(half: Half, server: PostgresServer, start_line: StartLine) -> Line:
    own = MODEL if half is Half.SERVE else {"half": half.value, "store_url": server.url()}
    return start_line(settle_s=0, early_false_alarms=0.05, **TELLS, **own)


@pytest.mark.parametrize("half", [Half.SERVE, Half.COLLECTOR])
def test_who_takes_spans_shows_what_the_page_says_and_no_more_series_than_that(
    server: PostgresServer, half: Half, start_line: StartLine
) -> None:
    line = start(half, server, start_line)
    work(line, "planner", "calculator", failing="calculator")
    wait_until(
        lambda: served(line.web).get("blamespan_issue_standing"),
        what="the issue in the metrics",
        timeout_s=60,
    )
    shown = served(line.web)
    assert set(shown) == on_the_page(half)
    assert_bounded(shown)
    assert shown["blamespan_notices_sent"] == 2


def test_an_analyzer_shows_what_the_page_says(server: PostgresServer, start_analyzer: StartAnalyzer) -> None:
    shown = served(f"http://{start_analyzer(**MODEL, store_url=server.url()).address}")
    assert set(shown) == on_the_page(Half.ANALYZER)
    assert_bounded(shown)


def test_every_metric_is_shown_by_a_process_and_every_label_has_a_bound() -> None:
    assert [metric.name for metric in METRICS if not metric.halves or metric.most_series < 1] == []
