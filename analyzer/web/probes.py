"""Health, readiness and metrics of a process, as every port answers them. Not pure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiohttp import web
from prometheus_client import Metric, exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import CollectorRegistry

from analyzer.web.guard import METRICS, GuardRules, guarding
from collector_processor.core.disk import Condition

HEALTHZ: Final = "/healthz"
READYZ: Final = "/readyz"
PROBES: Final = (HEALTHZ, READYZ, METRICS)
_OPENMETRICS: Final = "application/openmetrics-text"
"""Requested by Prometheus; the only format with exemplars."""
_DEGRADED: Final = {"journal": "spans are refused", "verdicts": "spans flow on and verdicts wait"}
"""Consequences of a fault, by store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """The answer to a probe."""

    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    body: str


Probe: TypeAlias = Callable[[str, str], Awaitable[ProbeAnswer]]
"""Answers a path of ``PROBES``; the second argument is the request's ``Accept`` header."""


@dataclass(frozen=True, slots=True)
class _Collected:
    """Metric families returned by a registry, to be written on a thread."""

    families: tuple[Metric, ...]

    def collect(self) -> tuple[Metric, ...]:
        return self.families


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Answers probes about this process."""

    is_ready: Callable[[], bool]
    metrics: CollectorRegistry
    stores: Mapping[str, Condition] = field(default_factory=dict)
    """Conditions of the journal and the store, by name."""

    async def __call__(self, path: str, accept: str = "") -> ProbeAnswer:
        """Answer one of the paths of ``PROBES``."""
        match path:
            case path if path == HEALTHZ:
                return self._health()
            case path if path == READYZ:
                return self._readiness()
            case _:
                return await self._metrics(accept)

    def _health(self) -> ProbeAnswer:
        """Answer 200 while the process lives: a restart repairs no disk. Open to all: names no causes."""
        faults = [(name, condition.fault) for name, condition in self.stores.items() if condition.fault]
        lines = ["degraded" if faults else "ok"]
        lines += [f"the store of {name} {fault}: {_DEGRADED[name]}" for name, fault in faults]
        return ProbeAnswer(body="\n".join([*lines, ""]))

    def _readiness(self) -> ProbeAnswer:
        """Answer 503 while spans are refused, so that a balancer asks another process."""
        journal = self.stores.get("journal")
        if self.is_ready() and (journal is None or journal.fault is None):
            return ProbeAnswer(body="ready\n")
        return ProbeAnswer(body="not ready\n", status=503)

    async def _metrics(self, accept: str) -> ProbeAnswer:
        found = _Collected(tuple(self.metrics.collect()))  # at one moment; writing it takes longer
        if any(one.partition(";")[0].strip() == _OPENMETRICS for one in accept.lower().split(",")):
            written = await asyncio.to_thread(openmetrics.generate_latest, found)
            return _exposed(written, f"{_OPENMETRICS}; version=1.0.0")
        return _exposed(
            await asyncio.to_thread(exposition.generate_latest, found), "text/plain; version=0.0.4"
        )


def _exposed(body: bytes, version: str) -> ProbeAnswer:
    return ProbeAnswer(body=body.decode(), content_type=f"{version}; charset=utf-8")


def answering(probe: Probe) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Return a handler of requests for the paths of ``PROBES``."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        probe_answer = await probe(request.path, ",".join(request.headers.getall("Accept", [])))
        headers = {"Content-Type": probe_answer.content_type}
        return web.Response(body=probe_answer.body.encode(), status=probe_answer.status, headers=headers)

    return answer


def probe_routes(probe: Probe) -> list[web.RouteDef]:
    """Return the routes that every process has: health, readiness and metrics."""
    return [web.get(path, answering(probe)) for path in PROBES]


def guarded(
    rules: GuardRules, probe: Probe
) -> Mapping[str, Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]]:
    """Return handlers of the paths of ``PROBES`` that check the rules first; for servers without a router."""
    guard, answer = guarding(rules), answering(probe)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response: web.StreamResponse = await guard(request, answer)
        return response

    return dict.fromkeys(PROBES, handle)
