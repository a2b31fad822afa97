# ruff: noqa: E501 - lines of Markdown tables cannot be wrapped
"""Generator of docs/metrics.md from the table of metrics: ``python -m tools.references.metrics_reference``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from analyzer.inquiry.verdict import FailureMode
from analyzer.issues.issue_service import EVERY_S
from analyzer.telemetry.metric import MAX_AGENTS, MAX_LENGTH, MAX_SERVICES, Metric
from analyzer.telemetry.metric_table import MAX_STANDING, METRICS
from analyzer.telemetry.verdict_counters import CONFIDENCE_BOUNDS, LAG_BOUNDS_S, MAX_LAG_S
from semconv.model import Status

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
_HEAD: Final = """# Metrics

Made from `analyzer/telemetry/metric_table.py` by `python -m tools.references.metrics_reference`; do not edit.

`GET /metrics` answers in Prometheus's text format, or in OpenMetrics if the client accepts it, as Prometheus does.
Only OpenMetrics has exemplars: the trace and span of one of the counted runs. Prometheus keeps them with
`--enable-feature=exemplar-storage`.

With `OTEL_METRICS_EXPORTER=otlp`, the same metrics are also sent over OTLP every `OTEL_METRIC_EXPORT_INTERVAL` milliseconds
(60,000) to the endpoint for metrics, under OpenTelemetry's names, with units and exemplars. They go through the exporter
that forwards clients' metrics, with its hop header: if the endpoint leads back to this process, they are refused.

| metric | over OTLP | kind | unit | labels | series | shown by | meaning |
|---|---|---|---|---|---:|---|---|
"""


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(f"{_row(metric)}\n" for metric in METRICS) + _rules()


def _row(metric: Metric) -> str:
    kind = f"{metric.kind.value}, exemplars" if metric.has_exemplars else metric.kind.value
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    halves = ", ".join(f"`{half.value}`" for half in metric.halves)
    shown = f"{halves}; with `{metric.needs}`" if metric.needs else halves
    columns = (
        f"`{metric.sample_name}`",
        f"`{metric.otel_name}`",
        kind,
        f"`{metric.unit}`",
        labels,
        metric.most_series,
        shown,
        metric.meaning,
    )
    return f"| {' | '.join(str(column) for column in columns)} |"


def _beside() -> str:
    """Return the table rows of the Collector's equivalent metrics."""
    rows = ((metric.otelcol, metric.sample_name) for metric in METRICS if metric.otelcol)
    return "\n".join(f"| `{theirs.partition(' (')[0]}`{_aside(theirs)} | `{ours}` |" for theirs, ours in rows)


def _aside(theirs: str) -> str:
    _, separator, rest = theirs.partition(" (")
    return f" ({rest}" if separator else ""


def _rules() -> str:
    statuses = ", ".join(f"`{status.value}`" for status in Status)
    modes = ", ".join(f"`{mode.value}`" for mode in FailureMode)
    confidence = ", ".join(f"{bound:g}" for bound in CONFIDENCE_BOUNDS)
    lag = ", ".join(f"{bound:g}" for bound in LAG_BOUNDS_S)
    return f"""
## What counts, and when

- A run counts once, when its verdict is settled: its first verdict that is durable and not provisional. It counts under the
  `service.name` of the run's root (of its earliest span if the root never arrived), as one task for each of its agents.
- A correction moves the count: late spans that change the verdict, the agents or the root's service, and labels
  (`blamespan label`, `blamespan label RUN wrong`). A counter never falls, so a second counter, `…_withdrawn_total` with the same
  labels, counts what corrections withdrew. The current number is the difference:
  `increase(blamespan_agent_failures_total[1h]) - increase(blamespan_agent_failures_withdrawn_total[1h])`. All shipped
  rules and dashboards use it. Both series of an agent start at 0 together.
- A correction of a run that was settled over a day ago changes its issue, its agents' shares and the page, but no counter:
  Prometheus would count it as a failure of today.
- Counters start at 0 with the process, as Prometheus expects.
- A new series is shown at 0 for 35 seconds, whatever its value. Prometheus computes an `increase` of 0 for
  a series that it first sees at 6: a new agent's first failures would raise no alarm. So scrape
  at least every 30 s.
- From its first task on, every agent has a series for each failure mode, in both counters.
- The cost of an analysis counts each time it is paid, also for a verdict that was replaced.

## Labels

- `service` is `service.name`, `agent` the agent's name, each cut to {MAX_LENGTH} characters on one line. Runs, tasks and other free text
  never become labels. Names are bounded, {MAX_SERVICES} services and {MAX_AGENTS} agents of each: further ones share the label `other` until
  the process starts again.
- `status` is one of {statuses}.
- `mode` is one of {modes}; any other mode that a model names is `other`.
- `receiver` is a receiver's kind and position in `BLAMESPAN_NOTIFY_URL` (`slack`, `webhook`, `webhook-2`, `pagerduty`, …).
- `issue` is an issue's id. Only the {MAX_STANDING} newest issues that are new or regressed have a series, which ends when they are
  ongoing, resolved or muted. The same holds for agents with an alarm. Both are read from the store every {EVERY_S:g} seconds.
- *Series* is the greatest number that one process shows; a histogram counts as one.
- Metrics do not distinguish tenants: services of the same name count together. Requests with a tenant's header are refused, and
  `BLAMESPAN_METRICS_TOKEN` is a token for the metrics alone.
- `blamespan_confidence` has the bounds {confidence}; `blamespan_analysis_lag_seconds` {lag}.
  Runs that ended over {MAX_LAG_S / 3600:g} hours before their verdict count as replayed and are left out of the lag.

## Equivalents of the Collector's metrics

Most of the [OpenTelemetry Collector's internal telemetry](https://opentelemetry.io/docs/collector/internal-telemetry/) has an equivalent here.
The signal is part of the Collector's metric names (`_spans`, `_log_records`, `_metric_points`); here it is a label.

| OpenTelemetry Collector | blamespan |
|---|---|
{_beside()}

`blamespan_queue_size_bytes` and `_capacity_bytes` measure the journal on disk, which survives restarts. A backend
without a service for a signal (404, `UNIMPLEMENTED`) is not a failure: those items are counted in
`blamespan_items_unsupported_total` and logged once, and `blamespan doctor` says how to fix it.

## Alerts and dashboards

`deploy/prometheus/rules/blamespan.yaml` has the alert rules, `deploy/alertmanager/alertmanager.yml` a routing for them, and
`deploy/grafana` the dashboards (agents, the service as a whole, each replica by itself) and the same rules for Grafana's own
alerting. All are generated: `python -m tools.monitoring.alert_rules`, `tools.monitoring.dashboards`,
`tools.monitoring.grafana_alerts`. The tests in `tests/deploy` run the rules with promtool over hours of simulated failures, and every query of the dashboards against a real Prometheus. The dashboards
have not been viewed in Grafana yet.

| alert | when | severity |
|---|---|---|
| `BlamespanAgentKeepsFailing` | an agent broke 5 runs and over 30 % of its runs within an hour, and is still failing | ticket |
| `BlamespanAgentFailureShare` | an agent breaks over 10 % of at least 20 tasks an hour, [more than usual](alerts.md#when-does-prometheus-page), and is still failing | page |
| `BlamespanAgentKeepsBeingSuspected` | an agent is suspected in 5 runs and over 30 % of its runs within an hour, and again within the last 15 minutes | ticket |
| `BlamespanNewIssue` | an issue is new; ends when it is a day old, resolved or muted | ticket |
| `BlamespanRegressedIssue` | an issue came back after it was resolved; ends like the alert above | ticket |
| `BlamespanAgentFailsMore` | an agent's [watch](alerts.md#when-does-the-alarm-on-an-agent-go-off) raised its alarm, until it ends | page |
| `BlamespanAgentSurelyFails` | the lower bound of an agent's share, by labels, is over 10 % | ticket |
| `BlamespanWorkflowRegressed` | the newest version of a workflow fails more often than the runs before it | ticket |
| `BlamespanAnalysisLag` | over 5 % of verdicts reach the backend more than 5 minutes after their run | ticket |
| `BlamespanBackendAway` | the backend did not answer for 5 minutes | page |
| `BlamespanForwardingBehind` | the oldest item to be forwarded has waited for over 10 minutes | ticket |
| `BlamespanQueueFilling` | a queue is 80 % full: at 100 % requests are refused | page |
| `BlamespanRefusing` | requests were refused for 5 minutes, mostly because the queue is full | page |
| `BlamespanStoreFaulty` | the journal or the verdicts' store cannot be written, or hangs | page |
| `BlamespanItemsLost` | acknowledged items were damaged on disk | page |
| `BlamespanItemsRejected` | the backend permanently rejected items | ticket |
| `BlamespanVerdictsRefused` | the backend permanently rejected carriers or evaluation logs | ticket |
| `BlamespanBudgetExhausted` | the hourly budget for models is used up | ticket |
| `BlamespanAnalysisProcessDies` | more than five worker processes crashed within an hour | ticket |
| `BlamespanCertificateNotRenewed` | a listener could not load its changed certificate | ticket |
| `BlamespanDown` | for 5 minutes no scrape succeeded, or there was nothing to scrape | page |

Wrong verdicts count in `BlamespanAgentKeepsFailing`. `BlamespanAgentFailureShare` and the watch compare an agent with its own
past, so that constant errors of the method cancel out. `BlamespanAgentSurelyFails` corrects for them with people's labels. Issues
and alarms of an agent beyond the {MAX_STANDING} newest are on the page only.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
