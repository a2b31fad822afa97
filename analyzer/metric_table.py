"""Every metric of the service: name, kind, unit, labels, meaning.

What is shown, documented and alerted on is here. Names are Prometheus's, without
the ``_total`` of counters; OpenTelemetry's follow from them (``otel_name``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PREFIX: Final = "blamespan_"


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
    meaning="Runs with a verdict that is final so far, each once, by how its first one ended.",
)
TASKS: Final = Metric(
    name="blamespan_agent_tasks",
    kind=Kind.COUNTER,
    unit="{run}",
    labels=("service", "agent"),
    meaning="Runs that an agent took part in; the denominator of its share of failures.",
)
FAILURES: Final = Metric(
    name="blamespan_agent_failures",
    kind=Kind.COUNTER,
    unit="{run}",
    labels=("service", "agent", "mode"),
    meaning="Runs whose decisive error was this agent's; the exemplar is the span to blame.",
    has_exemplars=True,
)
SUPERSEDED: Final = Metric(
    name="blamespan_verdicts_superseded",
    kind=Kind.COUNTER,
    unit="{run}",
    meaning="Verdicts replaced by one that says something else; the run is not counted again.",
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
BUDGET_REFUSALS: Final = Metric(
    name="blamespan_budget_refusals",
    kind=Kind.COUNTER,
    unit="{call}",
    meaning="Model calls that were not made, since the hour's budget was used up.",
)
BUDGET_SPENT: Final = Metric(
    name="blamespan_budget_spent_usd",
    kind=Kind.GAUGE,
    unit="USD",
    meaning="What the last sixty minutes cost.",
)
BUDGET_LIMIT: Final = Metric(
    name="blamespan_budget_limit_usd",
    kind=Kind.GAUGE,
    unit="USD",
    meaning="What sixty minutes may cost.",
)
ISSUES: Final = Metric(
    name="blamespan_issues",
    kind=Kind.GAUGE,
    unit="{issue}",
    labels=("state",),
    meaning="Recurring failures by state: new, ongoing, resolved, regressed.",
)

METRICS: Final = (
    *ITEMS,
    HELD,
    MALFORMED,
    OPEN_TRACES,
    EXAMINATIONS,
    VERDICTS_SENT,
    VERDICTS_REFUSED,
    REDACTED,
    RUNS,
    TASKS,
    FAILURES,
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
)
