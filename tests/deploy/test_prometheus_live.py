"""Agents fail in a scripted pattern in front of a real blamespan, Prometheus and Alertmanager.

The rules are the shipped template with seconds in place of hours; the routes are the shipped file's with
shorter waits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import yaml

from tests.backends.debian import insist_on_debian
from tests.backends.prometheus import RunningPrometheus, start_alertmanager, start_prometheus
from tests.backends.supervise import wait_until
from tests.deploy.pager import Message, Pager, pager
from tests.deploy.shifts import work
from tests.e2e.line import Line, StartLine
from tools.monitoring.alert_rules import MIN_FAILURES, MIN_TASKS, MIN_USUAL_TASKS, Durations, rule_file

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
SECONDS: Final = Durations(
    recent=30, now=8, day=720, usual=5040, settling=3, pending=3, keep_firing=2, brief=15, interval=1
)
SETTLE_S: Final = 2.5
"""Longer than the interval between two scrapes, as in the shipped rules."""
RECURRING: Final = "BlamespanAgentKeepsFailing"
SHARE: Final = "BlamespanAgentFailureShare"
NEW, BACK, MORE = "BlamespanNewIssue", "BlamespanRegressedIssue", "BlamespanAgentFailsMore"
USUAL: Final = 30
"""Successful runs: enough for a watch to learn the usual share."""
ENOUGH: Final = 8
"""Consecutive failures that then raise an alarm."""
CALM: Final = 25
"""Successful runs after which it ends."""
PATIENCE_S: Final = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """All running processes."""

    line: Line
    prometheus: RunningPrometheus
    pager: Pager

    def fail(self, agent: str, times: int) -> list[str]:
        """Let an agent break this many runs; return their ids once all have a verdict."""
        ids = [work(self.line, agent, failing=agent) for _ in range(times)]
        assert {self.line.verdict(run_id)["agent"] for run_id in ids} == {agent}
        return [str(run_id) for run_id in ids]

    def succeed(self, times: int) -> None:
        """Let planner and calculator complete this many tasks, and wait for the verdicts."""
        for run_id in [work(self.line, "planner", "calculator") for _ in range(times)]:
            assert self.line.verdict(run_id)["status"] == "no_failure"

    def await_told(self, alert: str, *statuses: str) -> list[Message]:
        """Wait for this many messages about an alert and return them; check that there are no others."""
        await_messages(self.pager, alert, len(statuses))
        found = self.pager.about(alert)
        assert [one.status for one in found] == list(statuses)
        return found


def await_messages(told: Pager, alert: str, count: int) -> None:
    wait_until(
        lambda: len(told.about(alert)) >= count,
        what=f"message {count} about {alert}; so far {[one.told for one in told.messages]}",
        timeout_s=PATIENCE_S,
    )


@pytest.fixture
def watch(start_line: StartLine, tmp_path: Path) -> Iterator[Watch]:
    prometheus, alertmanager = insist_on_debian("prometheus"), insist_on_debian("alertmanager")
    with ExitStack() as stack:
        line = start_line(settle_s=SETTLE_S, root_grace=100)
        told = stack.enter_context(pager())
        address = stack.enter_context(start_alertmanager(alertmanager, tmp_path, routes(told)))
        rules = tmp_path / "rules.yaml"
        rules.write_text(yaml.safe_dump(rule_file(SECONDS)))
        config = watching(line, rules, address)
        running = stack.enter_context(start_prometheus(prometheus, tmp_path, config))
        wait_until(lambda: running.query('up{job="blamespan"} == 1') or None, what="the first scrape")
        yield Watch(line=line, prometheus=running, pager=told)


def routes(told: Pager) -> dict[str, Any]:
    """Return the shipped routes, with shorter waits and all receivers pointing to our pager."""
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())
    config["route"] |= {"group_wait": "4s", "group_interval": "1s"}  # a page comes within an evaluation
    for receiver in config["receivers"]:
        for hook in receiver["webhook_configs"]:
            hook["url"] = told.url(receiver["name"])
    return config


def watching(line: Line, rules: Path, alertmanager: str) -> dict[str, Any]:
    """Return the shipped configuration with other addresses and one scrape per second."""
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["global"]["external_labels"]["blamespan_url"] = line.web
    config["rule_files"] = [str(rules)]
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager]}]}]
    (scrape,) = config["scrape_configs"]
    del scrape["authorization"]
    scrape["static_configs"] = [{"targets": [line.web.removeprefix("http://")]}]
    return config


def test_an_alert_fires_once_for_the_right_agent_resolves_and_fires_again_on_a_regression(
    watch: Watch,
) -> None:
    for _ in range(3):
        work(watch.line, "planner", "calculator")
    watch.fail("calculator", MIN_FAILURES - 3)
    # Never heard of before: its first task is its first failure, and none of these may be missed.
    broken = watch.fail("archivist", MIN_FAILURES)

    (first,) = watch.await_told(RECURRING, "firing")
    assert (first.receiver, first.told) == ("tickets", ("firing", RECURRING, "archivist"))
    (alert,) = first.alerts
    assert alert["labels"]["service"] == "shop"
    told = alert["annotations"]["description"]
    counted = re.match(r"It broke about (\d+) runs within 30s, ", told)
    assert counted
    # Prometheus extrapolates: the more, the fewer scrapes there were.
    assert MIN_FAILURES <= int(counted[1]) <= 2 * MIN_FAILURES
    assert_shows(alert["annotations"]["link"], broken)
    exemplars_lead_to(watch, broken)

    watch.await_told(RECURRING, "firing", "resolved")
    watch.fail("archivist", MIN_FAILURES)
    told = watch.await_told(RECURRING, "firing", "resolved", "firing")
    assert {one.told[2] for one in told} == {"archivist"}


def test_a_page_for_an_agent_inhibits_its_ticket(watch: Watch) -> None:
    for _ in range(8):  # in portions: Prometheus may miss one that falls between two of its windows
        watch.succeed(MIN_USUAL_TASKS // 5)
    usual = 'blamespan:agent_share:usual{agent="calculator"}'
    wait_until(lambda: watch.prometheus.query(usual) or None, what="its usual share", timeout_s=300)
    watch.fail("calculator", MIN_TASKS + 5)
    await_messages(watch.pager, SHARE, 1)
    tickets = f'ALERTS{{alertname="{RECURRING}", alertstate="firing"}}'
    wait_until(lambda: watch.prometheus.query(tickets) or None, what="the ticket that is kept quiet")
    told = watch.await_told(SHARE, "firing", "resolved")
    assert {(one.receiver, one.told[2]) for one in told} == {("on-call", "calculator")}
    assert watch.pager.about(RECURRING) == []


def test_an_issue_alerts_at_its_first_failure_until_resolved_and_when_it_comes_back(
    watch: Watch,
) -> None:
    watch.succeed(3)
    broken = watch.fail("archivist", 1)  # an agent of one run: there is no share to tell
    (first,) = watch.await_told(NEW, "firing")
    assert (first.receiver, first.told) == ("tickets", ("firing", NEW, "archivist"))
    (alert,) = first.alerts
    assert_shows(alert["annotations"]["link"], broken)

    resolve(watch.line, alert["labels"]["issue"])
    watch.await_told(NEW, "firing", "resolved")
    assert watch.pager.about(BACK) == []
    broken += watch.fail("archivist", 1)
    (again,) = watch.await_told(BACK, "firing")
    assert again.alerts[0]["labels"]["issue"] == alert["labels"]["issue"]
    assert_shows(again.alerts[0]["annotations"]["link"], broken)
    watch.await_told(NEW, "firing", "resolved")


def test_an_agent_that_fails_more_often_alerts_once_until_calm_and_then_again(
    watch: Watch,
) -> None:
    watch.succeed(USUAL)
    broken = watch.fail("calculator", ENOUGH)
    (first,) = watch.await_told(MORE, "firing")
    assert (first.receiver, first.told) == ("on-call", ("firing", MORE, "calculator"))
    (alert,) = first.alerts
    assert_shows(alert["annotations"]["link"], broken)
    watch.succeed(CALM)
    watch.await_told(MORE, "firing", "resolved")
    watch.fail("calculator", 2 * ENOUGH)
    told = watch.await_told(MORE, "firing", "resolved", "firing")
    assert {one.told[2] for one in told} == {"calculator"}


def resolve(line: Line, issue: str) -> None:
    """Resolve an issue over HTTP."""
    url = f"{line.web}/api/issues/{issue}/resolve"
    asked = Request(url, data=b"{}", headers={"Content-Type": "application/json"})
    with build_opener(ProxyHandler({})).open(asked, timeout=300) as answer:
        assert answer.status == 200


def assert_shows(link: str, runs: list[str]) -> None:
    """Check that the page linked from an alert lists exactly these runs."""
    with build_opener(ProxyHandler({})).open(link, timeout=300) as answer:
        page = answer.read().decode()
    assert set(re.findall(r"/runs/([0-9a-f]{32})", page)) == set(runs)


def exemplars_lead_to(watch: Watch, runs: list[str]) -> None:
    """Check that Prometheus's exemplars include the blamed span of one of the runs."""
    now = time.time()
    series = 'blamespan_agent_failures_total{agent="archivist"}'
    (found,) = watch.prometheus.exemplars(series, now - 600, now + 600)
    spans = {(run["trace_id"], run["span_id"]) for run in map(watch.line.run, runs) if run}
    told = {(one["labels"]["trace_id"], one["labels"]["span_id"]) for one in found["exemplars"]}
    assert told
    assert told <= spans
