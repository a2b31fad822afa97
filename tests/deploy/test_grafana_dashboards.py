"""The checked-in dashboards are current, and a real Prometheus answers all their queries."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import pytest
import yaml

from tests.backends.debian import insist_on_debian
from tests.backends.prometheus import RunningPrometheus, start_prometheus
from tests.backends.supervise import wait_until
from tests.deploy.shifts import work
from tests.deploy.test_prometheus_live import SETTLE_S, watching
from tests.e2e.backend import grpc_backend
from tests.e2e.line import StartLine
from tests.e2e.model_server import Scripted, serve
from tests.e2e.test_line_model import VERDICT, in_background, settings_for
from tools.monitoring import grafana_alerts
from tools.monitoring.alert_rules import inlined, rule_file
from tools.monitoring.dashboards import CHART_FOLDER, FOLDER, dashboards
from tools.monitoring.panels import blamed_spans

GRAFANA: Final = FOLDER.parent
VARIABLES: Final = {"$__rate_interval": "1m", "$__range": "1h", "$service": "shop", "$agent": ".*"} | {
    "$instance": ".+"
}
"""Values that Grafana substitutes for its variables."""


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for file, content in dashboards().items():
        for panel in json.loads(content)["panels"]:
            yield file, panel


def queries() -> list[str]:
    """Return every PromQL query of every panel, as Grafana sends it."""
    found = []
    for _, panel in panels():
        for target in panel["targets"]:
            if target["datasource"]["type"] == "prometheus":
                expr = str(target["expr"])
                for name, value in VARIABLES.items():
                    expr = expr.replace(name, value)
                found.append(expr)
    return found


def test_the_dashboards_are_what_the_code_makes() -> None:
    for folder in (FOLDER, CHART_FOLDER):
        checked_in = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
        assert checked_in == dashboards(), "run `python -m tools.monitoring.dashboards`"


def test_every_panel_of_the_replicas_tells_them_apart() -> None:
    board = json.loads(dashboards()["replicas.json"])
    assert [variable["name"] for variable in board["templating"]["list"]] == ["instance"]
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert "by (instance, pod" in target["expr"]
            assert 'instance=~"$instance"' in target["expr"]
            assert "{{instance}}" in target["legendFormat"]


def test_the_alert_rules_are_what_the_code_makes() -> None:
    found = grafana_alerts.FILE.read_text(encoding="utf-8")
    assert found == grafana_alerts.write(), "run `python -m tools.monitoring.grafana_alerts`"


def test_grafanas_alerts_are_prometheus_own_with_no_template_left_that_grafana_lacks() -> None:
    (group,) = grafana_alerts.provisioned()["groups"]
    own = rule_file()["groups"][0]
    asked = [rule["data"][0]["model"]["expr"] for rule in group["rules"]]
    assert asked == [inlined(rule["expr"]) for rule in own["rules"]]
    assert "blamespan:" not in "".join(asked), "Grafana's data source may have no recording rules"
    assert len({rule["uid"] for rule in group["rules"]}) == len(own["rules"])
    written = grafana_alerts.FILE.read_text(encoding="utf-8")
    assert "externalLabels" not in written
    assert "$" not in written.replace("$$", "").replace(grafana_alerts.ADDRESS, "")


def test_links_begin_where_grafanas_environment_says() -> None:
    (group,) = grafana_alerts.provisioned()["groups"]
    links = [rule["annotations"]["link"] for rule in group["rules"]]
    assert [link for link in links if not link.startswith("${BLAMESPAN_WEB_URL}/")] == []


def test_no_address_is_written_into_a_dashboard() -> None:
    assert [name for name, content in dashboards().items() if "://" in content] == []


def test_panels_ask_only_sources_that_are_provisioned() -> None:
    file = GRAFANA / "provisioning" / "datasources" / "blamespan.yaml"
    known = {(source["type"], source["uid"]) for source in yaml.safe_load(file.read_text())["datasources"]}
    asked = {
        (target["datasource"]["type"], target["datasource"]["uid"])
        for _, panel in panels()
        for target in panel["targets"]
    }
    assert asked == known


def test_failures_per_agent_have_exemplars_that_open_a_trace() -> None:
    with_exemplars = [
        panel["title"] for _, panel in panels() if any(target.get("exemplar") for target in panel["targets"])
    ]
    assert with_exemplars == ["Decisive failures per agent"]
    file = GRAFANA / "provisioning" / "datasources" / "blamespan.yaml"
    (source,) = [one for one in yaml.safe_load(file.read_text())["datasources"] if one["uid"] == "prometheus"]
    assert source["jsonData"]["exemplarTraceIdDestinations"] == [
        {"name": "trace_id", "datasourceUid": "tempo"}
    ]


def test_the_table_of_blamed_spans_asks_what_is_in_the_one_file_of_searches() -> None:
    asked = [
        target["query"]
        for _, panel in panels()
        for target in panel["targets"]
        if target["datasource"]["type"] == "tempo"
    ]
    assert asked == [blamed_spans()]


@pytest.fixture(scope="module")
def prometheus() -> Path:
    return insist_on_debian("prometheus")


OPERATOR: Final = {"service": "prod-blamespan", "namespace": "agents", "pod": "prod-blamespan-0"}
"""Labels that the Prometheus operator adds to every target; ``service`` is one of ours too."""


@pytest.mark.parametrize("labels", [{}, OPERATOR], ids=["as compose scrapes", "as the chart has it scraped"])
def test_every_query_of_every_panel_finds_figures(
    prometheus: Path, start_line: StartLine, tmp_path: Path, labels: dict[str, str]
) -> None:
    told = json.loads(VERDICT) | {"step": 0, "agent": "calculator", "evidence": []}
    with ExitStack() as stack:
        model = stack.enter_context(in_background(serve(Scripted(text=json.dumps(told)))))
        backend = stack.enter_context(grpc_backend())
        line = start_line(forward_endpoint=backend.url, settle_s=SETTLE_S, **settings_for(model))
        config = watching(line, tmp_path / "none.yaml", "127.0.0.1:1")
        if labels:
            (scrape,) = config["scrape_configs"]
            scrape["static_configs"][0]["labels"] = labels
            scrape["honor_labels"] = True  # test_helm.py holds the chart to it
        running = stack.enter_context(start_prometheus(prometheus, tmp_path, config))
        # It finds its targets seconds after it is ready; by then the series would be older than their zero.
        wait_until(lambda: running.query("up == 1") or None, what="a first scrape")
        for failing in ("calculator", None, "planner"):
            line.verdict(work(line, "planner", "calculator", failing=failing))
        _await_failures(running)
        asked = queries()
        assert len(asked) > 20
        assert [query for query in asked if not _figures(running, query)] == []
        with pytest.raises(HTTPError):  # else this test would take any words for PromQL
            running.query("sum by (")


def _figures(running: RunningPrometheus, query: str) -> list[float]:
    """Return a query's result; a quantile of no samples is not a number."""
    values = [float(series["value"][1]) for series in running.query(query)]
    return [value for value in values if not math.isnan(value)]


def _await_failures(running: RunningPrometheus) -> None:
    """Wait until series have been scraped twice with these counts."""
    rises = "sum(increase(blamespan_agent_failures_total[1m])) > 0"
    wait_until(lambda: running.query(rises) or None, what="failures in Prometheus")
    shares = "blamespan_workflow_passed_share"  # read at intervals of its own
    wait_until(lambda: running.query(shares) or None, what="workflows in Prometheus")
