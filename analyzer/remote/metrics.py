"""What an analyzer half tells of itself: questions, analyses, their cost, the hour's budget.

Verdicts and what runs cost are counted by the collector half too, which has the whole
of them; here stands what this process spent, also on answers that never arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from analyzer import metric_table as table
from analyzer.budget import HourlyBudget
from analyzer.families import gauge, sums
from analyzer.process_stats import ProcessStats
from analyzer.remote.answers import Answers
from semconv.model import Attribution, Status


@dataclass(eq=False, slots=True, kw_only=True)
class AnalyzerMetrics(Collector):
    """Counts, and reads the parts of one analyzer."""

    answers: Answers
    budget: HourlyBudget | None = None
    process: ProcessStats = field(default_factory=ProcessStats)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _questions: Counter[str] = field(default_factory=Counter)
    _analyses: Counter[str] = field(default_factory=Counter)
    _cost_usd: float = 0.0

    def __post_init__(self) -> None:
        self.registry.register(self)

    def asked(self, answer: str) -> None:
        """Count a request, by one of ``metric_table.ANSWERS``."""
        self._questions[answer] += 1

    def made(self, attribution: Attribution) -> None:
        """Count an analysis and its cost."""
        self._analyses[attribution.status.value] += 1
        self._cost_usd += attribution.effort.cost_usd or 0.0

    def describe(self) -> Iterable[Family]:
        """Nothing to describe ahead: names are in the table."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield every family, as of now."""
        yield from self.process.collect()
        yield sums(table.QUESTIONS, (((answer,), self._questions[answer]) for answer in table.ANSWERS))
        yield sums(table.ANALYSES, (((status.value,), self._analyses[status.value]) for status in Status))
        yield sums(table.SHARED, [((), self.answers.shared)])
        yield gauge(table.UNDER_WAY, [((), self.answers.under_way)])
        yield sums(table.SPENT, [((), self._cost_usd)])
        if self.budget is not None:
            yield sums(table.BUDGET_REFUSALS, [((), self.budget.refused)])
            yield gauge(table.BUDGET_SPENT, [((), self.budget.spent_usd)])
            yield gauge(table.BUDGET_LIMIT, [((), self.budget.usd)])
