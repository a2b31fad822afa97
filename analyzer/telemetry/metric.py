"""Declaration of a metric, its family as prometheus_client writes it, and bounds of its labels.

Every label value is a series, kept forever in our memory and in Prometheus: names chosen by clients are
bounded in number and length, and further names share the value ``other``. Each service has its own quota of
agents, so that a service that invents agent names does not use up that of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import starmap
from math import prod
from typing import Any, Final, NamedTuple

from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Exemplar

from analyzer.inquiry.verdict import FailureMode
from collector_processor.otlp import Cause, Setback, Signal
from collector_processor.rebuild.redaction import ALL_KINDS
from collector_processor.settings.value_types import MOST_RECEIVERS
from semconv.model import Status

OTHER: Final = "other"
"""Label of all names beyond the limit."""
MAX_SERVICES: Final = 50
MAX_AGENTS: Final = 40
"""Limit for each service."""
MAX_MODELS: Final = 30
MAX_LENGTH: Final = 80
"""Maximum length of a label value, in characters."""
CUT: Final = "…"
"""Last character of a truncated name."""
_UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"
MOST_VALUES: Final[Mapping[str, int]] = {
    "agent": MAX_AGENTS + 1,  # for each service, plus one shared by all others
    "cause": len(Setback),
    "direction": 2,
    "kind": len(ALL_KINDS) + 1,  # plus the user's own patterns
    "mode": len(FailureMode),
    "model": MAX_MODELS + 1,
    "outcome": 3,  # the executor's, not imported from there; a test compares them, as for "state"
    "python": 1,
    "reason": len(Cause),
    "receiver": MOST_RECEIVERS,
    "service": MAX_SERVICES + 1,
    "signal": len(Signal),
    "state": 4,
    "store": 2,
    "status": len(Status),
    "version": 1,
}
"""Maximum number of values of a label, by its name."""

PREFIX: Final = "blamespan_"

Labels = tuple[str, ...]
"""Label values, in the order of ``Metric.labels``."""


class Point(NamedTuple):
    """The current value of one series."""

    labels: Labels
    value: float
    exemplar: Exemplar | None = None


class Half(StrEnum):
    """A process that serves ``/metrics``, by the command that starts it."""

    SERVE = "serve"
    COLLECTOR = "collector"
    ANALYZER = "analyzer"


class Kind(StrEnum):
    """Type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric."""

    name: str
    """Prometheus's name, without the ``_total`` of counters."""
    kind: Kind
    unit: str
    """Unit in UCUM, with annotations in braces."""
    meaning: str
    labels: tuple[str, ...] = ()
    has_exemplars: bool = False
    halves: tuple[Half, ...] = (Half.SERVE, Half.COLLECTOR)
    """Processes that expose it; by default those that forward spans."""
    needs: str = ""
    """The setting that enables it, if it depends on one."""
    bound: int | None = None
    """Maximum number of series, if lower than the labels allow."""
    otelcol: str = ""
    """The OpenTelemetry Collector's own metric for the same quantity."""

    @property
    def most_series(self) -> int:
        """Maximum number of series that one process exposes; a histogram's buckets count as one."""
        return self.bound or prod(MOST_VALUES[label] for label in self.labels)

    @property
    def sample_name(self) -> str:
        """The name of a counter's or gauge's samples."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name

    @property
    def otel_name(self) -> str:
        """The name over OTLP: with dots between namespaces, and without the unit, which has its own field."""
        bare = self.name.removeprefix(PREFIX)
        for suffix in ("_seconds", "_usd", "_bytes"):
            bare = bare.removesuffix(suffix)
        return f"blamespan.{bare.replace('_', '.', 1)}"

    def family(self, points: Iterable[Point | tuple[Labels, float]]) -> Family:
        """Return the family of a counter or gauge."""
        family = Family(self.name, self.meaning, self.kind.value)
        for labels, value, exemplar in starmap(Point, points):
            family.add_sample(
                self.sample_name, dict(zip(self.labels, labels, strict=True)), value, None, exemplar
            )
        return family

    def single(self, value: float) -> Family:
        """Return the family of a counter or gauge without labels."""
        return self.family([((), value)])

    def histogram(self, bounds: Sequence[float]) -> Histogram:
        """Return an empty histogram with these inclusive upper bounds, in no registry."""
        return Histogram(self.name, self.meaning, buckets=bounds, registry=None)


@dataclass(slots=True)
class BoundedNames:
    """Bounded labels for names: only the first ``limit`` names get their own."""

    limit: int
    nameless: str
    """The label of an empty name."""
    _known: set[str] = field(default_factory=set)

    def __call__(self, name: str) -> str:
        """Return the label for a name."""
        label = as_label(name) or self.nameless
        if label not in self._known:
            if len(self._known) >= self.limit:
                return OTHER
            self._known.add(label)
        return label


@dataclass(slots=True)
class AgentNames:
    """Labels for the agents of services."""

    services: BoundedNames = field(default_factory=lambda: BoundedNames(MAX_SERVICES, "unknown_service"))
    _agents: dict[str, BoundedNames] = field(default_factory=dict)

    def __call__(self, service: str, agent: str) -> tuple[str, str]:
        """Return the labels for a service and one of its agents."""
        label = self.services(service)
        agents = self._agents.setdefault(label, BoundedNames(MAX_AGENTS, "unnamed"))
        return label, agents(agent)


def as_label(name: str) -> str:
    """Return a name on one line, as at most ``MAX_LENGTH`` printable characters."""
    short = name.strip()[: MAX_LENGTH + 1]
    is_plain = short.isprintable()  # true for nearly all names
    shown = short if is_plain else "".join(char if char.isprintable() else _UNPRINTABLE for char in short)
    return shown if len(shown) <= MAX_LENGTH else shown[: MAX_LENGTH - 1] + CUT


def _metric(kind: Kind, series: str, unit: str, meaning: str, **more: Any) -> Metric:
    """Declare a metric; ``series`` is its name with its labels, as Prometheus writes them."""
    name, _, labels = series.removesuffix("}").partition("{")
    names = tuple(labels.split(", ")) if labels else ()
    return Metric(name=name, kind=kind, unit=unit, meaning=meaning, labels=names, **more)


counter: Final = partial(_metric, Kind.COUNTER)
gauge: Final = partial(_metric, Kind.GAUGE)
histogram: Final = partial(_metric, Kind.HISTOGRAM)


def withdrawn(counted: Metric) -> Metric:
    """Return the counter to subtract from another one: counters never fall."""
    return replace(
        counted,
        name=f"{counted.name}_withdrawn",
        meaning=f"Counts of `{counted.name}_total` that a correction withdrew; subtract them.",
        has_exemplars=False,
    )
