"""Timing and correctness of verdicts on real runs: ``python -m benchmarks.accuracy.settled --runs 200``.

Uses a real ``blamespan serve`` with default settings, and runs from OpenTelemetry's SDK with its defaults
(batches of 5 s) over OTLP/gRPC: 40 % in one service, 30 % in two, 15 % in five, 15 % over linked traces; some
pause, some have a root that continues. ``--restarts 2`` kills the service twice during the runs. It counts
the verdicts in the API, polled every second, and the carriers that a backend receives. Exits with 1 if an
innocent agent was blamed, a failed run passed, a run has no verdict or a wrong one, or 1 % of verdicts
changed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from benchmarks.accuracy.settled.agents import Deployment, Run, deployed, play
from benchmarks.completion.counting import Counts, Said, Seen, count
from benchmarks.completion.report import figures, heading, setting
from benchmarks.completion.stories import KINDS, Shape, Story, tell
from collector_processor.core.disk import RUNS
from collector_processor.otlp import NO_TENANT, Signal, TraceKey
from collector_processor.rebuild.decode import decode
from collector_processor.store.verdicts import RunStore
from semconv.attributes import CARRIER
from semconv.model import Span, SpanId, TraceId
from tests.backends.supervise import HOST, free_ports
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.line import Line, StartLine, starting

MOST_CHANGED: Final = 0.01
_SPREAD_S: Final = 60.0
"""Time window in which runs begin."""
_PATIENCE_S: Final = 75.0
"""Time limit for verdicts after the last run's end."""
_WATCH_S: Final = 1.0
_MOST_LISTED: Final = 500
_TIMEOUT_S: Final = 10.0
_APPS: Final = 6
"""Number of deployments of each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A kind of runs, and its share of all runs."""

    name: str
    share: float
    services: int
    shapes: tuple[Shape, ...]


_WHOLE: Final = (Shape.AGENTS, Shape.FLAT, Shape.WEB)
GROUPS: Final = (
    Group(name="one service", share=0.40, services=1, shapes=_WHOLE),
    Group(name="two services", share=0.30, services=2, shapes=_WHOLE),
    Group(name="five services", share=0.15, services=5, shapes=_WHOLE),
    Group(name="linked traces", share=0.15, services=2, shapes=(Shape.CHAIN,)),
)


@dataclass(slots=True)
class Watcher:
    """Polls the API for verdicts, and records each version."""

    url: str = ""
    said: dict[tuple[str, int], Said] = field(default_factory=dict)
    _ended: Event = field(default_factory=Event)

    def watch(self) -> None:
        """Poll until stopped."""
        while not self._ended.wait(_WATCH_S):
            self.look()

    def end(self) -> None:
        """Stop ``watch``."""
        self._ended.set()

    def look(self) -> None:
        """Poll once; a service that is down gives no verdicts."""
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/runs?limit={_MOST_LISTED}", timeout=_TIMEOUT_S
            ) as got:
                runs: list[dict[str, Any]] = json.loads(got.read())["runs"]
        except OSError:
            return
        for one in runs:
            if not one["provisional"]:
                self.said.setdefault((one["run_id"], one["version"]), _said(one))


def _said(run: dict[str, Any]) -> Said:
    return Said(
        at_s=run["decided_ns"] / 1e9,
        run_id=run["run_id"],
        version=run["version"],
        status=run["status"],
        agent=run["agent"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters of a measurement."""

    runs: int
    pauses_s: tuple[float, ...]
    spread_s: float
    restarts: int = 0
    seed: int = 1
    settings: Mapping[str, int] = field(default_factory=dict)
    """Settings that differ from the defaults."""
    quiet_s: float = 30.0
    """Minimum time to watch verdicts after the last run's end, because they may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of a measurement."""

    by_group: dict[str, Counts]
    total: Counts
    cut: int
    """Runs that do not count: the SDK dropped spans of them, because the service was down for too long."""
    sent: int
    """Spans that the SDK did not drop."""
    arrived: int
    """Of these, spans that reached the backend."""

    @property
    def is_good(self) -> bool:
        """Whether all verdicts were right and complete."""
        faults = self.total.innocent + self.total.passed + self.total.wrong + self.sent - self.arrived
        return not faults and self.total.changed < MOST_CHANGED * self.total.runs


def groups_of(count_: int) -> list[Group]:
    """Return the groups for this many runs, in turn, each by its share."""
    found: list[Group] = []
    for place in range(count_):
        missing = {group.name: group.share * (place + 1) - found.count(group) for group in GROUPS}
        found.append(max(GROUPS, key=lambda group: missing[group.name]))
    return found


def runs_of(plan: Plan, apps: Mapping[str, Sequence[Deployment]]) -> list[Run]:
    """Return the runs of the plan."""
    chance = random.Random(plan.seed)
    return [
        Run(
            group=group.name,
            story=_story(group, place, plan, chance),
            begin_s=chance.uniform(0, plan.spread_s),
            deployment=chance.choice(apps[group.name]),
        )
        for place, group in enumerate(groups_of(plan.runs))
    ]


def _story(group: Group, place: int, plan: Plan, chance: random.Random) -> Story:
    return tell(
        chance.choice(group.shapes),
        KINDS[place % len(KINDS)],
        services=group.services,
        pause_s=chance.choice(plan.pauses_s),
        ids=[TraceId(f"{number + 1:032x}") for number in range(3)],
    )


def measure(plan: Plan, folder: Path) -> Outcome:
    """Play the plan against a service with its files in ``folder``, and count."""
    with grpc_backend() as backend, starting(folder) as start:
        service = _Service(start=start, backend=backend, settings=plan.settings)
        watcher = Watcher(url=service.line.web)
        sizes = [group.services for group in GROUPS for _ in range(_APPS)]
        dropped: set[SpanId] = set()
        with deployed(sizes, service.line.grpc, dropped) as deployments:
            apps = {
                group.name: deployments[place * _APPS : (place + 1) * _APPS]
                for place, group in enumerate(GROUPS)
            }
            runs = runs_of(plan, apps)
            threads = [Thread(target=play, args=(runs,)), Thread(target=watcher.watch)]
            for thread in threads:
                thread.start()
            try:
                service.restart(plan.restarts, max(run.begin_s + run.story.end_s for run in runs))
                threads[0].join()
                _await_verdicts(runs, watcher, service.line, plan.quiet_s)
            finally:
                watcher.end()
                threads[1].join()
        watcher.look()
        service.line.terminate()
        return _outcome(runs, dropped, watcher, backend, folder)


@dataclass(slots=True, kw_only=True)
class _Service:
    """``blamespan serve`` with its defaults except ``settings``, always at the same addresses."""

    start: StartLine
    backend: Backend
    settings: Mapping[str, int]
    line: Line = field(init=False)
    _ports: list[int] = field(default_factory=lambda: free_ports(3))

    def __post_init__(self) -> None:
        self.line = self._started()

    def restart(self, times: int, lasts_s: float) -> None:
        """Kill and restart it, at even intervals over the duration of the runs."""
        for _ in range(times):
            time.sleep(lasts_s / (times + 1))
            self.line.server.kill()
            self.line = self._started()

    def _started(self) -> Line:
        grpc, http, web = (f"{HOST}:{port}" for port in self._ports)
        return self.start(
            forward_endpoint=self.backend.url,
            otlp_grpc_listen=grpc,
            otlp_http_listen=http,
            web_listen=web,
            **{"root_grace": "", **self.settings},  # unset: the tests' value is shorter than the default
        )


def _await_verdicts(runs: Sequence[Run], watcher: Watcher, line: Line, quiet_s: float) -> None:
    """Wait until every run has a verdict and no trace is open, and then for changes, up to a time limit."""
    ended = time.monotonic()
    while (waited := time.monotonic() - ended) < _PATIENCE_S:
        judged = {run_id.partition(":")[0] for run_id, _ in watcher.said}
        is_judged = all(run.truth.traces & judged for run in runs)
        if waited > quiet_s and is_judged and not line.sample("blamespan_open_traces"):
            return
        time.sleep(_WATCH_S)


def _outcome(
    runs: Sequence[Run], dropped: set[SpanId], watcher: Watcher, backend: Backend, folder: Path
) -> Outcome:
    spans = _received(backend)
    seen = Seen(
        said=sorted(watcher.said.values(), key=lambda one: one.at_s),
        parts=_parts(folder / "data" / RUNS, runs),
        carriers=tuple(span for span in spans.values() if CARRIER in span.attributes),
    )
    whole = [run for run in runs if not run.spans & dropped]
    by_group = {
        group.name: count([run.truth for run in whole if run.group == group.name], seen) for group in GROUPS
    }
    sent = frozenset[SpanId]().union(*(run.spans for run in runs)) - dropped
    return Outcome(
        by_group=by_group,
        total=count([run.truth for run in whole], seen),
        cut=len(runs) - len(whole),
        sent=len(sent),
        arrived=len(sent & {span_id for _, span_id in spans}),
    )


def _received(backend: Backend) -> dict[tuple[TraceId, SpanId], Span]:
    """Return the spans that the backend received, each once."""
    decoded = (decode(request.body).spans for request in backend.of(Signal.TRACES))
    return {(span.trace_id, span.span_id): span for spans in decoded for span in spans}


def _parts(path: Path, runs: Sequence[Run]) -> dict[str, frozenset[TraceId]]:
    store = RunStore(path)
    try:
        keys = [TraceKey(NO_TENANT, trace_id) for run in runs for trace_id in run.truth.traces]
        parts: dict[str, frozenset[TraceId]] = {}
        for told in (run for found in store.identities(keys).values() for run in found):
            parts[told.run_id] = parts.get(told.run_id, frozenset()) | told.trace_ids
        return parts
    finally:
        store.close()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.settled", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--pauses", nargs="+", type=float, default=(0.0, 0.0, 5.0, 20.0), help="seconds")
    parser.add_argument("--spread", type=float, default=_SPREAD_S, help="seconds in which runs begin")
    parser.add_argument(
        "--set", nargs="+", type=setting, default=(), metavar="NAME=NUMBER", help="settings not by default"
    )
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    plan = Plan(
        runs=chosen.runs,
        pauses_s=tuple(chosen.pauses),
        spread_s=chosen.spread,
        restarts=chosen.restarts,
        seed=chosen.seed,
        settings=dict(chosen.set),
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="settled-") as folder:
        outcome = measure(plan, Path(folder))
    for line in _told(outcome):
        print(line)
    print(f"took {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0 if outcome.is_good else 1


def _told(outcome: Outcome) -> Iterator[str]:
    yield heading(f"{'':<16}")
    for name, found in {**outcome.by_group, "all": outcome.total}.items():
        yield f"{name:<16}{figures(found)}"
    total = outcome.total
    yield (
        f"innocents blamed {total.innocent} (of these {total.passing_blamed} in runs that passed),"
        f" failed runs passed {total.passed}, verdicts changed {total.changed}"
        f" ({total.changed / max(1, total.runs):.1%}), without a verdict {total.missing};"
        f" blames {total.blames}, withdrawn {total.withdrawn}"
    )
    yield (
        f"{outcome.arrived} of {outcome.sent} spans are at the backend;"
        f" {outcome.cut} runs do not count, since the SDK gave up spans of them"
    )


if __name__ == "__main__":
    sys.exit(main())
