"""Panels of Grafana's dashboards: queries and display, one record per panel.

``test_grafana_dashboards.py`` runs the queries against a real Prometheus; the TraceQL comes from the one file
that contains all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import yaml

_TRACEQL: Final = Path(__file__).parents[2] / "docs" / "backends" / "traceql.yaml"
_ONE: Final = '{service=~"$service", agent=~"$agent"}'
_LAG: Final = "sum by (le) (rate(blamespan_analysis_lag_seconds_bucket[$__rate_interval]))"


class Shape(StrEnum):
    """Display type of a panel."""

    LINES = "lines"
    HEAT = "heat"
    """Rows are series, by their legend."""
    HISTOGRAM = "histogram"
    """Buckets over time."""
    TABLE = "table"
    """One row for each set of labels, one column for each query."""
    NUMBER = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL query."""

    expr: str
    legend: str = ""
    """Name of a series in the legend, or of the column in a table."""
    has_exemplars: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel."""

    title: str
    meaning: str
    queries: tuple[Query, ...]
    shape: Shape = Shape.LINES
    unit: str = "short"
    width: int = 12
    """Width, out of 24 columns."""


def _failures(window: str, by: str) -> str:
    return _net("failures", window, by)


def _tasks(window: str) -> str:
    return _net("tasks", window, "service, agent")


def _net(what: str, window: str, by: str) -> str:
    """Return counts minus withdrawn counts; 0 if more was withdrawn than counted in the window."""
    name = f"blamespan_agent_{what}"
    counted, withdrawn = (
        f"sum by ({by}) (increase({name}{end}{_ONE}[{window}]))" for end in ("_total", "_withdrawn_total")
    )
    return f"clamp_min({counted} - {withdrawn}, 0)"


AGENTS: Final = (
    Panel(
        title="Decisive failures per agent",
        meaning="Runs that an agent broke. A dot is one of them: it opens the trace at the span to blame.",
        queries=(
            Query(
                expr=_failures("$__rate_interval", "service, agent"),
                legend="{{service}} / {{agent}}",
                has_exemplars=True,
            ),
        ),
        width=16,
    ),
    Panel(
        title="Share of tasks that failed, with how many",
        meaning="Of an agent's runs, the share that it broke. Of few tasks a share says little.",
        shape=Shape.TABLE,
        queries=(
            Query(
                expr=f"{_failures('$__range', 'service, agent')} / ({_tasks('$__range')} > 0)", legend="share"
            ),
            Query(expr=_tasks("$__range"), legend="tasks"),
            Query(expr=_failures("$__range", "service, agent"), legend="failures"),
        ),
        width=8,
    ),
    Panel(
        title="Failure modes",
        meaning="What kind of mistake broke the runs, over time.",
        shape=Shape.HEAT,
        queries=(Query(expr=_failures("$__rate_interval", "mode"), legend="{{mode}}"),),
    ),
    Panel(
        title="New and regressed issues",
        meaning="Recurring failures seen for the first time lately, and those that came back.",
        queries=(
            Query(expr='sum by (state) (blamespan_issues{state=~"new|regressed"})', legend="{{state}}"),
        ),
    ),
    Panel(
        title="Passed runs per workflow",
        meaning="Share of a workflow's newest 100 runs that passed, where anybody said so.",
        unit="percentunit",
        queries=(
            Query(
                expr='max by (service, workflow) (blamespan_workflow_passed_share{service=~"$service"})',
                legend="{{service}} / {{workflow}}",
            ),
        ),
    ),
    Panel(
        title="Confidence of verdicts",
        meaning="Probability that the blamed step is the decisive one, as the method gave it.",
        shape=Shape.HISTOGRAM,
        queries=(
            Query(
                expr="sum by (le) (increase(blamespan_confidence_bucket[$__rate_interval]))", legend="{{le}}"
            ),
        ),
    ),
)

SERVICE: Final = (
    Panel(
        title="Runs by how they ended",
        meaning="Each run once, by its first final verdict.",
        queries=(
            Query(
                expr="sum by (status) (increase(blamespan_runs_total[$__rate_interval]))", legend="{{status}}"
            ),
        ),
    ),
    Panel(
        title="Lag of verdicts",
        meaning="From the end of a run's last span until the backend had the verdict.",
        unit="s",
        queries=(
            Query(expr=f"histogram_quantile(0.5, {_LAG})", legend="half of them"),
            Query(expr=f"histogram_quantile(0.95, {_LAG})", legend="95 of 100"),
        ),
    ),
    Panel(
        title="Spent on models",
        meaning="Where the price is known; the local ones cost nothing here.",
        unit="currencyUSD",
        queries=(
            Query(expr="sum by (model) (increase(blamespan_model_cost_usd_total[1h]))", legend="{{model}}"),
            Query(expr="sum(blamespan_budget_limit_usd)", legend="the hour's limit"),
        ),
    ),
    Panel(
        title="Tokens",
        meaning="Of the model calls that ended in a verdict.",
        queries=(
            Query(
                expr="sum by (model, direction) (increase(blamespan_model_tokens_total[$__rate_interval]))",
                legend="{{model}} {{direction}}",
            ),
        ),
    ),
    Panel(
        title="Losses",
        meaning="Items refused on arrival, rejected or not supported by the backend, or damaged on disk.",
        queries=tuple(
            Query(
                expr=f"sum by (signal) (increase(blamespan_items_{what}_total[$__rate_interval]))",
                legend=f"{what} {{{{signal}}}}",
            )
            for what in ("refused", "rejected", "unsupported", "lost")
        ),
    ),
    Panel(
        title="Through the line",
        meaning="Items received, passed on, and waiting in the journal.",
        queries=(
            Query(expr="sum(increase(blamespan_items_received_total[$__rate_interval]))", legend="received"),
            Query(
                expr="sum(increase(blamespan_items_forwarded_total[$__rate_interval]))", legend="passed on"
            ),
            Query(expr="sum(blamespan_items_held)", legend="waiting"),
        ),
    ),
    Panel(
        title="Queues to the backend",
        meaning="How full each queue is; at 100 % requests are refused.",
        unit="percentunit",
        queries=(Query(expr="max by (signal) (blamespan_queue_fullness)", legend="{{signal}}"),),
    ),
    Panel(
        title="Size and capacity",
        meaning="Bytes in the journal still to be forwarded, and the capacity for all signals together.",
        unit="bytes",
        queries=(
            Query(expr="sum by (signal) (blamespan_queue_size_bytes)", legend="{{signal}}"),
            Query(expr="sum(max by (instance) (blamespan_queue_capacity_bytes))", legend="capacity"),
        ),
    ),
    Panel(
        title="Age of the oldest item",
        meaning="How long the oldest item has waited for the backend.",
        unit="s",
        queries=(Query(expr="max by (signal) (blamespan_queue_oldest_age_seconds)", legend="{{signal}}"),),
    ),
    Panel(
        title="Failed sends",
        meaning="Every try, by cause: no answer, asked to wait, temporary failure, rejected, no service.",
        queries=(
            Query(
                expr="sum by (signal, cause) (increase(blamespan_send_failures_total[$__rate_interval]))",
                legend="{{signal}} {{cause}}",
            ),
        ),
    ),
    Panel(
        title="Requests refused",
        meaning="Requests that the receivers refused, by reason.",
        queries=(
            Query(
                expr="sum by (reason) (increase(blamespan_refused_requests_total[$__rate_interval]))",
                legend="{{reason}}",
            ),
        ),
    ),
    Panel(
        title="Memory and CPU",
        meaning="Resident memory and CPU time of each process.",
        unit="short",
        queries=(
            Query(expr="blamespan_process_memory_rss_bytes", legend="bytes {{instance}}"),
            Query(
                expr="rate(blamespan_process_cpu_seconds_total[$__rate_interval])",
                legend="cores {{instance}}",
            ),
        ),
    ),
    Panel(
        title="Under analysis",
        meaning="Traces that wait for their end, and those looked at now.",
        queries=(
            Query(expr="sum(blamespan_open_traces)", legend="open"),
            Query(expr="sum(blamespan_examinations)", legend="being analysed"),
        ),
    ),
    Panel(
        title="Process for analyses",
        meaning="One beside the service while there is much to do; those that died, and traces whose analysis"
        " was given up.",
        queries=(
            Query(expr="sum(blamespan_analysis_processes)", legend="running"),
            Query(
                expr="sum(increase(blamespan_analysis_process_deaths_total[$__rate_interval]))", legend="died"
            ),
            Query(
                expr="sum(increase(blamespan_traces_prepared_total{outcome='lost'}[$__rate_interval]))",
                legend="analyses given up",
            ),
        ),
    ),
    Panel(
        title="Verdicts that changed",
        meaning="Late spans made another step the decisive one; the run's counts moved with the verdict.",
        shape=Shape.NUMBER,
        queries=(Query(expr="sum(increase(blamespan_verdicts_superseded_total[$__range]))"),),
    ),
)

_REPLICA: Final = "{{pod}} {{instance}}"
"""Name of a series; only Kubernetes has pods."""


def _each(metric: str, others: str = "", by: str = "") -> str:
    """Return a gauge's sum of each replica that the board's variable selects."""
    return f'sum by (instance, pod{by}) ({metric}{{instance=~"$instance"{others}}})'


def _rate_of_each(metric: str, by: str = "") -> str:
    """Return a counter's rate of each replica that the board's variable selects."""
    return f'sum by (instance, pod{by}) (rate({metric}{{instance=~"$instance"}}[$__rate_interval]))'


def _by_replica(title: str, meaning: str, *exprs: str, unit: str = "short", legend: str = _REPLICA) -> Panel:
    return Panel(
        title=title,
        meaning=meaning,
        unit=unit,
        queries=tuple(Query(expr=expr, legend=legend) for expr in exprs),
    )


REPLICAS: Final = (
    _by_replica(
        "Items received a second",
        "Of all signals; behind one address or one topic, replicas should get alike.",
        _rate_of_each("blamespan_items_received_total"),
    ),
    _by_replica(
        "Items forwarded a second", "To the backend.", _rate_of_each("blamespan_items_forwarded_total")
    ),
    _by_replica(
        "Waiting for an analysis",
        "Time for which the first complete run, or job, has waited: scale on its maximum.",
        _each("blamespan_oldest_actionable_age_seconds"),
        unit="s",
    ),
    _by_replica(
        "Items held",
        "Acknowledged and not yet forwarded; Kafka keeps what a processor has not read.",
        _each("blamespan_items_held"),
    ),
    _by_replica(
        "Queues to the backend",
        "Fullness of the fullest queue; at 100 % requests are refused.",
        'max by (instance, pod) (blamespan_queue_fullness{instance=~"$instance"})',
        unit="percentunit",
    ),
    _by_replica("Open traces", "Agent traces that are not complete yet.", _each("blamespan_open_traces")),
    _by_replica(
        "Lag of verdicts, 95 of 100",
        "From the end of a run's last span until the backend had the verdict.",
        "histogram_quantile(0.95, sum by (instance, pod, le)"
        ' (rate(blamespan_analysis_lag_seconds_bucket{instance=~"$instance"}[$__rate_interval])))',
        unit="s",
    ),
    _by_replica(
        "Kafka partitions",
        "Partitions that each processor reads; 0 without Kafka. All change during a rebalance.",
        _each("blamespan_kafka_partitions"),
    ),
    _by_replica(
        "Items given back",
        "To the next owner of a partition, which receives them again: at a rebalance, and at the end.",
        _rate_of_each("blamespan_items_returned_total"),
    ),
    _by_replica(
        "Requests refused a second",
        "By reason; the sender tries again.",
        _rate_of_each("blamespan_refused_requests_total", ", reason"),
        legend="{{reason}} {{pod}} {{instance}}",
    ),
    _by_replica("Memory", "Resident.", _each("blamespan_process_memory_rss_bytes"), unit="bytes"),
    _by_replica("CPU", "Cores.", _rate_of_each("blamespan_process_cpu_seconds_total")),
    _by_replica(
        "Up since",
        "Time since the start of each process: replaced one by one in a rolling upgrade.",
        _each("blamespan_process_uptime_seconds_total"),
        unit="s",
    ),
)
"""Panels with a line for each process: the metrics that compare replicas."""


def blamed_spans() -> str:
    """Return the TraceQL that finds blamed spans."""
    searches = yaml.safe_load(_TRACEQL.read_text(encoding="utf-8"))
    return next(str(search["query"]) for search in searches if search["find"] == "blamed traces")
