"""Every metric of every process: name, kind, unit, labels with their bounds, who shows it, meaning.

What is shown, documented and alerted on is here. Names are Prometheus's, without
the ``_total`` of counters; OpenTelemetry's follow from them (``otel_name``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Final

from analyzer.drafting.tally import Outcome
from analyzer.modes import FailureMode
from analyzer.recurrence import IssueState
from analyzer.tallies.names import MAX_AGENTS, MAX_SERVICES
from analyzer.tallies.verdicts import MAX_MODELS
from collector_processor.otlp import Cause, Setback, Signal
from collector_processor.redaction import ALL_KINDS
from semconv.model import Status

PREFIX: Final = "blamespan_"
ANSWERS: Final = ("taken", "busy", "refused")
"""How an analyzer half answers a request."""
MAX_STANDING: Final = 100
"""Issues, and alarms, that have a series of their own at a time; the newest."""

LABELS: Final[Mapping[str, int]] = {
    "agent": MAX_AGENTS + 1,  # of each service, and the one that stands for all others
    "answer": len(ANSWERS),
    "cause": len(Setback),
    "direction": 2,
    "kind": len(ALL_KINDS) + 1,  # and the user's own patterns
    "mode": len(FailureMode),
    "model": MAX_MODELS + 1,
    "outcome": len(Outcome),
    "python": 1,
    "reason": len(Cause),
    "receiver": 3,
    "service": MAX_SERVICES + 1,
    "signal": len(Signal),
    "state": len(IssueState),
    "status": len(Status),
    "version": 1,
}
"""How many values a label has at most, by its name."""


class Half(StrEnum):
    """A process that has ``/metrics``, by the command that starts it."""

    SERVE = "serve"
    COLLECTOR = "collector"
    ANALYZER = "analyzer"


LINE: Final = (Half.SERVE, Half.COLLECTOR)
"""Those that spans pass through."""


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    unit: str
    """As UCUM has it, annotations in braces."""
    meaning: str
    labels: tuple[str, ...] = ()
    has_exemplars: bool = False
    halves: tuple[Half, ...] = LINE
    """Who shows it."""
    needs: str = ""
    """The setting without which it is not shown."""
    bound: int | None = None
    """The most series, where that is less than the labels allow."""
    otelcol: str = ""
    """The Collector's own metric for the same quantity."""

    @property
    def most_series(self) -> int:
        """How many series of it one process shows at most; a histogram's buckets are one."""
        return self.bound or prod(LABELS[label] for label in self.labels)

    @property
    def otel_name(self) -> str:
        """The name over OTLP: dots for what is a namespace, and no unit in it, since that has a field."""
        bare = self.name.removeprefix(PREFIX)
        for suffix in ("_seconds", "_usd", "_bytes"):
            bare = bare.removesuffix(suffix)
        return f"blamespan.{bare.replace('_', '.', 1)}"


_OTELCOL_ITEMS: Final = {
    "refused": "otelcol_receiver_refused_spans",
    "acknowledged": "otelcol_receiver_accepted_spans",
    "forwarded": "otelcol_exporter_sent_spans",
    "rejected": "otelcol_exporter_send_failed_spans",
}
"""And ``_log_records``, ``_metric_points``: what is a label here is in the name there."""


def _items(what: str, meaning: str) -> Metric:
    return Metric(
        name=f"blamespan_items_{what}",
        kind=Kind.COUNTER,
        unit="{item}",
        labels=("signal",),
        meaning=meaning,
        otelcol=_OTELCOL_ITEMS.get(what, ""),
    )


ITEMS: Final = (
    _items("received", "Spans, log records and metrics in requests that could be read."),
    _items("refused", "Items refused before they were acknowledged."),
    _items("acknowledged", "Items that are durable, with those found at the start."),
    _items("forwarded", "Items that the backend took."),
    _items("rejected", "Items that the backend refused for good."),
    _items("unsupported", "Items not sent because the backend has no service for their signal."),
    _items("lost", "Acknowledged items that were damaged on disk."),
    _items("kept", "Acknowledged items that go nowhere, since no backend is set."),
)
HELD: Final = Metric(
    name="blamespan_items_held",
    kind=Kind.GAUGE,
    unit="{item}",
    labels=("signal",),
    meaning="Items in the journal, to be forwarded.",
)
MALFORMED: Final = Metric(
    name="blamespan_malformed_requests",
    kind=Kind.COUNTER,
    unit="{request}",
    meaning="Requests that could not be read.",
)
OPEN_TRACES: Final = Metric(
    name="blamespan_open_traces",
    kind=Kind.GAUGE,
    unit="{trace}",
    meaning="Agent traces that wait for their end.",
)
EXAMINATIONS: Final = Metric(
    name="blamespan_examinations", kind=Kind.GAUGE, unit="{trace}", meaning="Traces being analysed now."
)
EVICTED: Final = Metric(
    name="blamespan_traces_evicted",
    kind=Kind.COUNTER,
    unit="{trace}",
    meaning="Agent traces whose spans made room for newer ones before their analysis; all were forwarded.",
)
_DRAFTS: Final = (Half.SERVE,)
DRAFTS: Final = Metric(
    name="blamespan_drafts",
    kind=Kind.COUNTER,
    unit="{trace}",
    labels=("outcome",),
    halves=_DRAFTS,
    meaning="Traces whose verdict was to be drafted in one go: drafted; gone the long way, for a model is"
    " asked or other traces belong to it; or lost, since their analysis had no end or ended the process.",
)
DRAFTING_S: Final = Metric(
    name="blamespan_drafting_seconds",
    kind=Kind.COUNTER,
    unit="s",
    halves=_DRAFTS,
    meaning="Time in which verdicts were drafted, a few at a time: at a rate near 1 others wait for it.",
)
PROCESSES: Final = Metric(
    name="blamespan_analysis_processes",
    kind=Kind.GAUGE,
    unit="{process}",
    halves=_DRAFTS,
    meaning="1 while a process beside the service analyses, which it does while there is much to do.",
)
PROCESS_STARTS: Final = Metric(
    name="blamespan_analysis_process_starts",
    kind=Kind.COUNTER,
    unit="{process}",
    halves=_DRAFTS,
    meaning="Such processes started.",
)
PROCESS_DEATHS: Final = Metric(
    name="blamespan_analysis_process_deaths",
    kind=Kind.COUNTER,
    unit="{process}",
    halves=_DRAFTS,
    meaning="Such processes that did not end for want of work: killed, out of memory, at an analysis that"
    " had no end. Others did what they had to do.",
)
TLS_FAILED: Final = Metric(
    name="blamespan_tls_renewals_failed",
    kind=Kind.COUNTER,
    unit="{renewal}",
    meaning="Changed TLS files that a door could not use: the certificate before stays, until it runs out.",
)
QUEUE_SIZE: Final = Metric(
    name="blamespan_queue_size_bytes",
    kind=Kind.GAUGE,
    unit="By",
    labels=("signal",),
    meaning="Bytes in the journal still to be forwarded, plus 256 for each request.",
    otelcol="otelcol_exporter_queue_size",
)
QUEUE_CAPACITY: Final = Metric(
    name="blamespan_queue_capacity_bytes",
    kind=Kind.GAUGE,
    unit="By",
    labels=("signal",),
    meaning="Bytes that all signals together may take in the journal (BLAMESPAN_MAX_PENDING_BYTES); beyond it"
    " requests are refused.",
    otelcol="otelcol_exporter_queue_capacity",
)
QUEUE_FULLNESS: Final = Metric(
    name="blamespan_queue_fullness",
    kind=Kind.GAUGE,
    unit="1",
    labels=("signal",),
    meaning="How full the queue is, 0 to 1; at 1 requests are refused. The larger of two shares: the fullest"
    " tenant's of half the capacity, and all signals' of all of it.",
)
QUEUE_AGE: Final = Metric(
    name="blamespan_queue_oldest_age_seconds",
    kind=Kind.GAUGE,
    unit="s",
    labels=("signal",),
    meaning="Age of the oldest item waiting to be forwarded; 0 if none waits.",
)
SEND_FAILURES: Final = Metric(
    name="blamespan_send_failures",
    kind=Kind.COUNTER,
    unit="{request}",
    labels=("signal", "cause"),
    meaning="Failed sends to the backend, counting every try, by cause: no answer (`away`), asked to wait, a"
    " temporary failure (`failing`), a permanent rejection, no such service.",
    otelcol="otelcol_exporter_send_failed_spans (items there, after its last try)",
)
REFUSALS: Final = Metric(
    name="blamespan_refused_requests",
    kind=Kind.COUNTER,
    unit="{request}",
    labels=("reason",),
    meaning="Requests that the receivers refused, by reason; without those that the gRPC library refuses"
    " itself (too large, unknown compression).",
    otelcol="otelcol_receiver_refused_spans (items there: blamespan_items_refused_total)",
)
UPTIME: Final = Metric(
    name="blamespan_process_uptime_seconds",
    kind=Kind.COUNTER,
    unit="s",
    halves=tuple(Half),
    meaning="Since the process started.",
    otelcol="otelcol_process_uptime",
)
CPU: Final = Metric(
    name="blamespan_process_cpu_seconds",
    kind=Kind.COUNTER,
    unit="s",
    halves=tuple(Half),
    meaning="CPU time of the process, user and system; without the process for analyses.",
    otelcol="otelcol_process_cpu_seconds",
)
MEMORY: Final = Metric(
    name="blamespan_process_memory_rss_bytes",
    kind=Kind.GAUGE,
    unit="By",
    halves=tuple(Half),
    meaning="Resident memory of the process; Linux only.",
    otelcol="otelcol_process_memory_rss",
)
BUILD_INFO: Final = Metric(
    name="blamespan_build_info",
    kind=Kind.GAUGE,
    unit="1",
    labels=("version", "python"),
    halves=tuple(Half),
    meaning="Always 1; the labels give the versions of blamespan and Python.",
    otelcol="target_info (service_version)",
)
OPERATING: Final = (
    QUEUE_SIZE,
    QUEUE_CAPACITY,
    QUEUE_FULLNESS,
    QUEUE_AGE,
    SEND_FAILURES,
    REFUSALS,
    UPTIME,
    CPU,
    MEMORY,
    BUILD_INFO,
)
"""Queues, failed sends, refused requests and the process: what Collector operators look for."""
VERDICTS_SENT: Final = Metric(
    name="blamespan_verdicts_sent",
    kind=Kind.COUNTER,
    unit="{request}",
    labels=("signal",),
    meaning="Outbox entries delivered.",
)
VERDICTS_REFUSED: Final = Metric(
    name="blamespan_verdicts_refused",
    kind=Kind.COUNTER,
    unit="{request}",
    labels=("signal",),
    meaning="Outbox entries refused.",
)
VERDICTS_UNSUPPORTED: Final = Metric(
    name="blamespan_verdicts_unsupported",
    kind=Kind.COUNTER,
    unit="{request}",
    labels=("signal",),
    meaning="Outbox entries not sent because the backend has no service for their signal.",
)
REDACTED: Final = Metric(
    name="blamespan_redacted",
    kind=Kind.COUNTER,
    unit="{secret}",
    labels=("kind",),
    meaning="Secrets taken out of runs before their analysis.",
)
RUNS: Final = Metric(
    name="blamespan_runs",
    kind=Kind.COUNTER,
    unit="{run}",
    labels=("service", "status"),
    meaning="Runs with a settled verdict; each counts once, under the service of its root.",
)
TASKS: Final = Metric(
    name="blamespan_agent_tasks",
    kind=Kind.COUNTER,
    unit="{run}",
    labels=("service", "agent"),
    meaning="Settled runs in which an agent took part: the denominator of its share of failures.",
)
FAILURES: Final = Metric(
    name="blamespan_agent_failures",
    kind=Kind.COUNTER,
    unit="{run}",
    labels=("service", "agent", "mode"),
    meaning="Settled runs that this agent broke; the exemplar is the decisive span.",
    has_exemplars=True,
)


def _withdrawn(counted: Metric) -> Metric:
    """Return the counter to subtract from another one: counters never fall."""
    return Metric(
        name=f"{counted.name}_withdrawn",
        kind=Kind.COUNTER,
        unit=counted.unit,
        labels=counted.labels,
        meaning=f"Counts of `{counted.name}_total` that a correction withdrew; subtract them.",
    )


RUNS_WITHDRAWN: Final = _withdrawn(RUNS)
TASKS_WITHDRAWN: Final = _withdrawn(TASKS)
FAILURES_WITHDRAWN: Final = _withdrawn(FAILURES)
SUPERSEDED: Final = Metric(
    name="blamespan_verdicts_superseded",
    kind=Kind.COUNTER,
    unit="{run}",
    meaning="Settled verdicts replaced by a different verdict; the run's counts move with it.",
)
CONFIDENCE: Final = Metric(
    name="blamespan_confidence",
    kind=Kind.HISTOGRAM,
    unit="1",
    meaning="Probability that the blamed step is the decisive one, as the method gave it.",
    has_exemplars=True,
)
LAG: Final = Metric(
    name="blamespan_analysis_lag_seconds",
    kind=Kind.HISTOGRAM,
    unit="s",
    meaning="From the end of a run's last span until the backend had its carrier, or to its verdict if it has"
    " no carrier. Not measured: carriers without a backend, and runs replayed a day later.",
)
CALLS: Final = Metric(
    name="blamespan_model_calls",
    kind=Kind.COUNTER,
    unit="{call}",
    labels=("model",),
    meaning="Model calls of analyses that ended in a verdict.",
)
TOKENS: Final = Metric(
    name="blamespan_model_tokens",
    kind=Kind.COUNTER,
    unit="{token}",
    labels=("model", "direction"),
    meaning="Tokens of those calls, input and output.",
)
COST: Final = Metric(
    name="blamespan_model_cost_usd",
    kind=Kind.COUNTER,
    unit="USD",
    labels=("model",),
    meaning="What those calls cost, where the price is known.",
)
UNPRICED: Final = Metric(
    name="blamespan_model_unpriced",
    kind=Kind.COUNTER,
    unit="{run}",
    labels=("model",),
    meaning="Analyses whose calls have no known price.",
)
_PAYS: Final = (Half.SERVE, Half.ANALYZER)
_MODEL: Final = "BLAMESPAN_MODEL"
BUDGET_REFUSALS: Final = Metric(
    name="blamespan_budget_refusals",
    kind=Kind.COUNTER,
    unit="{call}",
    halves=_PAYS,
    needs=_MODEL,
    meaning="Model calls that were not made, since the hour's budget was used up.",
)
BUDGET_SPENT: Final = Metric(
    name="blamespan_budget_spent_usd",
    kind=Kind.GAUGE,
    unit="USD",
    halves=_PAYS,
    needs=_MODEL,
    meaning="What the last sixty minutes cost.",
)
BUDGET_LIMIT: Final = Metric(
    name="blamespan_budget_limit_usd",
    kind=Kind.GAUGE,
    unit="USD",
    halves=_PAYS,
    needs=_MODEL,
    meaning="What sixty minutes may cost.",
)
ISSUES: Final = Metric(
    name="blamespan_issues",
    kind=Kind.GAUGE,
    unit="{issue}",
    labels=("state",),
    meaning="Recurring failures by state: new, ongoing, resolved, regressed.",
)
STANDING: Final = Metric(
    name="blamespan_issue_standing",
    kind=Kind.GAUGE,
    unit="{issue}",
    labels=("service", "agent", "mode", "issue", "state"),
    meaning="1 for each issue that is new or came back, and is not muted; the newest.",
    bound=MAX_STANDING,
)
ALARM: Final = Metric(
    name="blamespan_agent_alarm",
    kind=Kind.GAUGE,
    unit="{alarm}",
    labels=("service", "agent"),
    meaning="1 while an agent is to blame more often than it was; the newest alarms.",
    bound=MAX_STANDING,
)
SHARE_LOW: Final = Metric(
    name="blamespan_agent_share_low",
    kind=Kind.GAUGE,
    unit="1",
    labels=("service", "agent"),
    meaning="Share of its runs of seven days that an agent broke at least: the lower end of the 95 % interval"
    " that allows for the method's errors, as people's labels tell them. None without labels.",
    bound=MAX_STANDING,
)
REPEATED: Final = Metric(
    name="blamespan_issue_repetitions",
    kind=Kind.COUNTER,
    unit="{run}",
    meaning="Runs that broke as an issue says that was told of before: nobody is told again.",
)


def _notices(what: str, unit: str, meaning: str) -> Metric:
    return Metric(
        name=f"blamespan_notices_{what}", kind=Kind.COUNTER, unit=unit, labels=("receiver",), meaning=meaning
    )


NOTICES: Final = (
    _notices("sent", "{message}", "Messages that a receiver took; to Alertmanager, each time that is said."),
    _notices("failed", "{message}", "Messages that did not reach a receiver, and are sent again."),
    _notices("merged", "{notice}", "Notices told within another's message: the hour was full."),
    _notices("dropped", "{notice}", "Notices given up: refused for good, or a day old."),
)
QUESTIONS: Final = Metric(
    name="blamespan_analyzer_questions",
    kind=Kind.COUNTER,
    unit="{request}",
    labels=("answer",),
    meaning="Requests for an analysis, by how they were answered.",
    halves=(Half.ANALYZER,),
)
ANALYSES: Final = Metric(
    name="blamespan_analyzer_analyses",
    kind=Kind.COUNTER,
    unit="{analysis}",
    labels=("status",),
    meaning="Analyses made, by the status of their verdict.",
    halves=(Half.ANALYZER,),
)
SHARED: Final = Metric(
    name="blamespan_analyzer_shared",
    kind=Kind.COUNTER,
    unit="{request}",
    meaning="Requests answered with an analysis that another one had asked for, and paid.",
    halves=(Half.ANALYZER,),
)
UNDER_WAY: Final = Metric(
    name="blamespan_analyzer_under_way",
    kind=Kind.GAUGE,
    unit="{analysis}",
    meaning="Analyses being made.",
    halves=(Half.ANALYZER,),
)
SPENT: Final = Metric(
    name="blamespan_analyzer_cost_usd",
    kind=Kind.COUNTER,
    unit="USD",
    meaning="What analyses cost, as far as the models' prices are known.",
    halves=(Half.ANALYZER,),
)

METRICS: Final = (
    *ITEMS,
    HELD,
    MALFORMED,
    OPEN_TRACES,
    EXAMINATIONS,
    EVICTED,
    DRAFTS,
    DRAFTING_S,
    PROCESSES,
    PROCESS_STARTS,
    PROCESS_DEATHS,
    TLS_FAILED,
    *OPERATING,
    VERDICTS_SENT,
    VERDICTS_REFUSED,
    VERDICTS_UNSUPPORTED,
    REDACTED,
    RUNS,
    RUNS_WITHDRAWN,
    TASKS,
    TASKS_WITHDRAWN,
    FAILURES,
    FAILURES_WITHDRAWN,
    SUPERSEDED,
    CONFIDENCE,
    LAG,
    CALLS,
    TOKENS,
    COST,
    UNPRICED,
    BUDGET_REFUSALS,
    BUDGET_SPENT,
    BUDGET_LIMIT,
    ISSUES,
    STANDING,
    ALARM,
    SHARE_LOW,
    REPEATED,
    *NOTICES,
    QUESTIONS,
    ANALYSES,
    SHARED,
    UNDER_WAY,
    SPENT,
)
