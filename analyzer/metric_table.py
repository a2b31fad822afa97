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
from collector_processor.otlp import Signal
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
    "direction": 2,
    "kind": len(ALL_KINDS) + 1,  # and the user's own patterns
    "mode": len(FailureMode),
    "model": MAX_MODELS + 1,
    "outcome": len(Outcome),
    "receiver": 3,
    "service": MAX_SERVICES + 1,
    "signal": len(Signal),
    "state": len(IssueState),
    "status": len(Status),
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

    @property
    def most_series(self) -> int:
        """How many series of it one process shows at most; a histogram's buckets are one."""
        return self.bound or prod(LABELS[label] for label in self.labels)

    @property
    def otel_name(self) -> str:
        """The name over OTLP: dots for what is a namespace, and no unit in it, since that has a field."""
        bare = self.name.removeprefix(PREFIX)
        for suffix in ("_seconds", "_usd"):
            bare = bare.removesuffix(suffix)
        return f"blamespan.{bare.replace('_', '.', 1)}"


def _items(what: str, meaning: str) -> Metric:
    return Metric(
        name=f"blamespan_items_{what}", kind=Kind.COUNTER, unit="{item}", labels=("signal",), meaning=meaning
    )


ITEMS: Final = (
    _items("received", "Spans, log records and metrics in requests that could be read."),
    _items("refused", "Items refused before they were acknowledged."),
    _items("acknowledged", "Items that are durable, with those found at the start."),
    _items("forwarded", "Items that the backend took."),
    _items("rejected", "Items that the backend refused for good."),
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
    meaning="Runs with a settled verdict, each once, under its root's service.",
)
TASKS: Final = Metric(
    name="blamespan_agent_tasks",
    kind=Kind.COUNTER,
    unit="{run}",
    labels=("service", "agent"),
    meaning="Settled runs that an agent took part in; the denominator of its share of failures.",
)
FAILURES: Final = Metric(
    name="blamespan_agent_failures",
    kind=Kind.COUNTER,
    unit="{run}",
    labels=("service", "agent", "mode"),
    meaning="Settled runs whose decisive error was this agent's; the exemplar is the span to blame.",
    has_exemplars=True,
)


def _withdrawn(counted: Metric) -> Metric:
    """Return the counter to subtract from another one: counters never fall."""
    return Metric(
        name=f"{counted.name}_withdrawn",
        kind=Kind.COUNTER,
        unit=counted.unit,
        labels=counted.labels,
        meaning=f"Counts of `{counted.name}_total` that a correction took back: subtract them.",
    )


RUNS_WITHDRAWN: Final = _withdrawn(RUNS)
TASKS_WITHDRAWN: Final = _withdrawn(TASKS)
FAILURES_WITHDRAWN: Final = _withdrawn(FAILURES)
SUPERSEDED: Final = Metric(
    name="blamespan_verdicts_superseded",
    kind=Kind.COUNTER,
    unit="{run}",
    meaning="Settled verdicts replaced by one that says something else; the run's counts move.",
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
    meaning="From the end of a run's last span to its verdict; runs played back a day later are left out.",
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
    VERDICTS_SENT,
    VERDICTS_REFUSED,
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
