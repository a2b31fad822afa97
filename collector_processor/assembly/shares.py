"""All open traces, and the tenant that must give one up when there are too many. Pure.

A tenant with a storm of traces evicts its own: the tenant whose open traces take the most memory gives up the
one that has been silent longest.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from collector_processor.assembly.open_trace import OpenTrace
from collector_processor.otlp import Tenant, TraceKey

_TRACE: Final = 10
"""Weight of a trace in spans: at both limits of the assembler, a trace has ten."""
_SPARE: Final = 1_000
"""Outdated entries of the heap in addition to one for each tenant; beyond that they are swept."""


class OpenTraces:
    """The open traces of all tenants; each change takes logarithmic time."""

    def __init__(self) -> None:
        self._traces: Final[dict[TraceKey, OpenTrace]] = {}
        self._silent: Final[defaultdict[Tenant, OrderedDict[TraceKey, None]]] = defaultdict(OrderedDict)
        """Each tenant's traces, the one that has been silent longest first.

        Not a ``dict``: finding its first key takes time for each key removed before.
        """
        self._weights: Final[Counter[Tenant]] = Counter()
        self._largest: Final[list[tuple[int, Tenant]]] = []
        """A heap of negative weights; each tenant has an entry of at least its weight."""
        self._entered: Final[dict[Tenant, int]] = {}
        """For each tenant, a weight that one of its entries in the heap reaches."""
        self.spans = 0
        """Size of all traces, in spans."""

    def __len__(self) -> int:
        """Return the number of open traces."""
        return len(self._traces)

    def __contains__(self, key: TraceKey) -> bool:
        """Return whether a trace is open."""
        return key in self._traces

    def __getitem__(self, key: TraceKey) -> OpenTrace:
        """Return an open trace."""
        return self._traces[key]

    def __iter__(self) -> Iterator[TraceKey]:
        """Iterate over the open traces."""
        return iter(self._traces)

    def get(self, key: TraceKey) -> OpenTrace | None:
        """Return a trace if it is open."""
        return self._traces.get(key)

    def open(self, key: TraceKey, trace: OpenTrace) -> None:
        """Add a trace."""
        self._traces[key] = trace
        self._silent[key.tenant][key] = None
        size = trace.size
        self.spans += size
        self._weigh(key.tenant, _TRACE + size)

    def heard(self, key: TraceKey, growth: int) -> None:
        """Record that spans or log records of a trace arrived, and by how much its size grew."""
        self._silent[key.tenant].move_to_end(key)
        self.spans += growth
        self._weigh(key.tenant, growth)

    def close(self, key: TraceKey) -> OpenTrace | None:
        """Remove and return a trace."""
        trace = self._traces.pop(key, None)
        if trace is not None:
            silent = self._silent[key.tenant]
            del silent[key]
            if not silent:
                del self._silent[key.tenant]
            self.spans -= trace.size
            self._weigh(key.tenant, -_TRACE - trace.size)
        return trace

    def next_to_evict(self) -> TraceKey:
        """Return the trace silent for longest, of the tenant whose traces take the most memory."""
        while True:
            noted, tenant = self._largest[0]
            if (weight := -self._weights[tenant]) == noted:
                return next(iter(self._silent[tenant]))
            if weight:
                heapreplace(self._largest, (weight, tenant))
                self._entered[tenant] = -weight
            else:
                heappop(self._largest)
                self._entered.pop(tenant, None)

    def _weigh(self, tenant: Tenant, growth: int) -> None:
        if not growth:
            return
        weight = self._weights[tenant] = self._weights.get(tenant, 0) + growth
        if weight > self._entered.get(tenant, 0):
            # An eighth more, so that a tenant that grows gets few entries.
            self._entered[tenant] = weight + (weight >> 3)
            heappush(self._largest, (-self._entered[tenant], tenant))
            if len(self._largest) > 2 * len(self._weights) + _SPARE:
                self._sweep()
        elif not weight:
            del self._weights[tenant]

    def _sweep(self) -> None:
        self._entered.clear()
        self._entered.update(self._weights)
        self._largest[:] = [(-weight, tenant) for tenant, weight in self._weights.items()]
        heapify(self._largest)
