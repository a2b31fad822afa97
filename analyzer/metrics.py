"""The service's own telemetry, as Prometheus reads it: one table of names, units and meanings.

Values are read when somebody asks, all of one moment, so that the conservation
law can be checked from outside: received = refused + acknowledged, and
acknowledged = forwarded + rejected + lost + kept + held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from collector_processor.cleaning import Cleaner
from collector_processor.delivery import OutboxDelivery
from collector_processor.ledger import Ledger
from collector_processor.pipeline import Pipeline

_ITEMS: Final = (
    ("received", "Spans, log records and metrics in requests that could be read."),
    ("refused", "Items refused before they were acknowledged."),
    ("acknowledged", "Items that are durable, with those found at the start."),
    ("forwarded", "Items that the backend took."),
    ("rejected", "Items that the backend refused for good."),
    ("lost", "Acknowledged items that were damaged on disk."),
    ("kept", "Acknowledged items that go nowhere, since no backend is set."),
)


@dataclass(eq=False, slots=True, kw_only=True)
class ServiceMetrics(Collector):
    """Reads the parts of one service."""

    ledger: Ledger
    pipeline: Pipeline
    deliveries: Sequence[OutboxDelivery]
    cleaner: Cleaner
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.registry.register(self)

    def describe(self) -> Iterable[CounterMetricFamily]:
        """Nothing to describe ahead: names are in the table."""
        return ()

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Yield every family, as of now."""
        snapshot = self.ledger.snapshot()
        for name, meaning in _ITEMS:
            family = CounterMetricFamily(f"blamespan_items_{name}", meaning, labels=["signal"])
            for signal, counts in snapshot.items():
                family.add_metric([signal.value], getattr(counts, name))
            yield family
        held = GaugeMetricFamily(
            "blamespan_items_held", "Items in the journal, to be forwarded.", labels=["signal"]
        )
        for signal, counts in snapshot.items():
            held.add_metric([signal.value], counts.held)
        yield held
        yield CounterMetricFamily(
            "blamespan_malformed_requests", "Requests that could not be read.", self.ledger.malformed_requests
        )
        yield GaugeMetricFamily(
            "blamespan_open_traces", "Agent traces that wait for their end.", self.pipeline.open_traces
        )
        yield GaugeMetricFamily(
            "blamespan_examinations", "Traces being analysed now.", self.pipeline.under_way
        )
        yield from self._outbox()
        redacted = CounterMetricFamily(
            "blamespan_redacted", "Secrets taken out of runs before their analysis.", labels=["kind"]
        )
        for kind in self.cleaner.kinds:
            redacted.add_metric([kind], self.cleaner.count(kind))
        yield redacted

    def _outbox(self) -> Iterable[CounterMetricFamily]:
        sent = CounterMetricFamily("blamespan_verdicts_sent", "Outbox entries delivered.", labels=["signal"])
        refused = CounterMetricFamily(
            "blamespan_verdicts_refused", "Outbox entries refused.", labels=["signal"]
        )
        for delivery in self.deliveries:
            sent.add_metric([delivery.signal.value], delivery.sent)
            refused.add_metric([delivery.signal.value], delivery.refused)
        yield sent
        yield refused
