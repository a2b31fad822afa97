"""The shipped configurations of Prometheus and Alertmanager, checked by their own tools."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer.telemetry.metric import Kind
from analyzer.telemetry.metric_table import METRICS
from tests.backends.debian import insist_on_debian
from tests.deploy.test_prometheus_rules import ask
from tools.monitoring.alert_rules import rule_file

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
ALERTMANAGER: Final = DEPLOY / "alertmanager" / "alertmanager.yml"
AGENTS: Final = ("BlamespanAgentKeepsFailing", "BlamespanAgentFailureShare")


@pytest.fixture(scope="module")
def amtool() -> Path:
    return insist_on_debian("amtool")


def test_promtool_takes_the_configuration_with_its_rules() -> None:
    config = DEPLOY / "prometheus" / "prometheus.yml"
    # Syntax only: the token's file is written when the container starts.
    ask(insist_on_debian("promtool"), "check", "config", "--syntax-only", str(config))


def test_promtool_finds_nothing_amiss_in_the_names_of_metrics() -> None:
    registry = CollectorRegistry()
    registry.register(Everything())
    promtool = insist_on_debian("promtool")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=generate_latest(registry), capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


class Everything(Collector):
    """One series of each metric."""

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            labels = ("x",) * len(metric.labels)
            if metric.kind is Kind.HISTOGRAM:
                yield from metric.histogram((1.0,)).collect()
            else:
                yield metric.family([(labels, 1.0)])


def test_amtool_takes_the_configuration(amtool: Path) -> None:
    told = ask(amtool, "check-config", str(ALERTMANAGER))
    assert "SUCCESS" in told
    assert "2 receivers" in told


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("severity=page", "alertname=BlamespanAgentFailureShare", "agent=calculator"), "on-call"),
        (("severity=ticket", "alertname=BlamespanAgentKeepsFailing", "agent=calculator"), "tickets"),
        (("alertname=BlamespanDown", "severity=page"), "on-call"),
        (("alertname=SomebodyElses",), "on-call"),
    ],
    ids=["a share wakes somebody", "a recurring failure is a ticket", "the watchman is gone", "not ours"],
)
def test_alerts_go_where_their_severity_says(amtool: Path, labels: tuple[str, ...], receiver: str) -> None:
    asked = (f"--config.file={ALERTMANAGER}", f"--verify.receivers={receiver}")
    assert receiver in ask(amtool, "config", "routes", "test", *asked, *labels)


def test_every_severity_of_the_rules_has_a_route() -> None:
    routes = yaml.safe_load(ALERTMANAGER.read_text())["route"]["routes"]
    routed = {matcher for route in routes for matcher in route["matchers"]}
    rules = rule_file()["groups"][0]["rules"]
    assert {f'severity = "{rule["labels"]["severity"]}"' for rule in rules} == routed


def test_a_ticket_is_inhibited_only_by_a_page_for_the_same_agent() -> None:
    (inhibition,) = yaml.safe_load(ALERTMANAGER.read_text())["inhibit_rules"]
    assert inhibition["equal"] == ["service", "agent"]
    # Labels that both lack count as equal: without this, a page about a disk would silence all tickets.
    matchers = [*inhibition["source_matchers"], *inhibition["target_matchers"]]
    assert 'agent != ""' in matchers
