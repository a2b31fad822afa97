"""Runs are judged and counted once, even if the process dies between noting them and committing their
verdicts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from analyzer.issues.issue_store import IssueStore
from collector_processor.core.disk import RUNS
from collector_processor.otlp import NO_TENANT, Signal
from collector_processor.rebuild.encode import encode
from collector_processor.store.verdicts import RunStore
from semconv.attributes import FAILURE_ID, FAILURE_VERSION
from semconv.model import TraceId
from tests.backends.supervise import running, wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.killing import announcement
from tests.e2e.line import environment
from tests.e2e.spans import placed
from tests.e2e.traffic import Doors, send
from tests.factories import agent, chat, tool, workflow

TOGETHER = 24
"""Runs of one request, which end together, so that their notes and verdicts share commits."""
LIVES = [("noted", 1), ("decided", 1), ("noted", 9), ("decided", 2), ("counted", 1)]
ALL = [TraceId(f"{number:032x}") for number in range(1, TOGETHER * len(LIVES) + 1)]
LONG_S = 240.0


def body_of(runs: Iterable[TraceId]) -> bytes:
    spans = (
        chat(3, parent=2, answer="First look it up, then write it down."),
        agent(2, "planner", end=40),
        tool(6, "lookup", parent=4, arguments="{}", error="ValueError: no such page"),
        agent(4, "researcher", start=45, end=70),
        workflow(1, task="Write", error="the reader was not content"),
    )
    return encode([replace(span, trace_id=trace_id) for trace_id in runs for span in spans])


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Processes on one data directory, one after the other."""

    folder: Path
    environ: dict[str, str]

    def command(self, moment: str, count: int) -> list[str]:
        return [
            sys.executable,
            "-m",
            "tests.e2e.serve_and_die",
            moment,
            str(count),
            str(self.folder / "data"),
        ]

    def die(self, number: int, moment: str, count: int, runs: Sequence[TraceId]) -> bool:
        """Run a process that dies at that moment; return whether it acknowledged these runs first."""
        log, is_sent = self.folder / f"serve-{number}.log", False
        with log.open("ab") as out:
            process = subprocess.Popen(self.command(moment, count), env=self.environ, stdout=out, stderr=out)
        try:
            # It may die of what the one before it has left, before it takes anything.
            wait_until(
                lambda: process.poll() or announcement(log) or None, what="a service", timeout_s=LONG_S
            )
            if door := announcement(log).get("grpc"):
                with suppress(grpc.RpcError):
                    send(Doors(grpc=f"http://{door}", http=""), body_of(runs))
                    is_sent = True
            assert process.wait(LONG_S) == -signal.SIGKILL
        finally:
            process.kill()
            process.wait()
        return is_sent


def test_a_crash_between_notes_and_verdicts_counts_no_run_twice_and_loses_none(tmp_path: Path) -> None:
    """The analyst never repeats an answer: the verdict after the crash differs from the one noted before."""
    unsent: list[TraceId] = []
    with grpc_backend() as backend:
        environ = environment(forward_endpoint=backend.url, PYTHONPATH=os.pathsep.join(sys.path))
        lives = Lives(folder=tmp_path, environ=environ)
        for number, (moment, count) in enumerate(LIVES):
            unsent += ALL[number * TOGETHER : (number + 1) * TOGETHER]
            if lives.die(number, moment, count, unsent):
                unsent = []
        log = tmp_path / "serve.log"

        def is_ready() -> bool:
            return bool(announcement(log))

        command = lives.command("never", 0)
        with running("blamespan", command, log=log, is_ready=is_ready, environ=environ) as server:
            if unsent:
                send(Doors(grpc=f"http://{announcement(log)['grpc']}", http=""), body_of(unsent))
            wait_until(lambda: _is_at_rest(tmp_path), what="every run to be counted", timeout_s=LONG_S)
            server.stop()
        assert _differences(tmp_path, backend) == []


def _is_at_rest(folder: Path) -> bool:
    """Return whether every run is counted and everything is sent."""
    with (
        closing(IssueStore(folder / "data" / RUNS)) as issues,
        closing(RunStore(folder / "data" / RUNS)) as store,
    ):
        # In this order: a verdict and what the outbox holds of it are one commit.
        return all(issues.run(NO_TENANT, run_id) for run_id in ALL) and not store.outbox_size()


def _differences(folder: Path, backend: Backend) -> list[str]:
    """Compare the verdicts, the backend's carriers, and the counts."""
    told = _told(backend)
    with (
        closing(IssueStore(folder / "data" / RUNS)) as issues,
        closing(RunStore(folder / "data" / RUNS)) as store,
    ):
        verdicts = [verdict for run_id in ALL if (verdict := store.current(NO_TENANT, run_id)) is not None]
        runs = [run for run_id in ALL if (run := issues.run(NO_TENANT, run_id)) is not None]
        kept = {issue.fingerprint.id: issue.count for _, issue in issues.issues(NO_TENANT, 1000)}
        blamed = issues.db.execute("SELECT agent, sum(blamed) FROM agent_day GROUP BY 1 HAVING sum(blamed)")
        days = dict(blamed.fetchall())
    found = [f"{verdict.run_id}: version {verdict.version}" for verdict in verdicts if verdict.version != 1]
    found += [
        f"{verdict.run_id}: {told[verdict.run_id]} was written, expected {verdict.failure_id}"
        for verdict in verdicts
        if told[verdict.run_id] != {(verdict.failure_id, 1)}
    ]
    found += [
        f"{run.run_id}: counted against {run.blamed}, blamed {verdict.agent}"
        for run, verdict in zip(runs, verdicts, strict=True)
        if run.blamed != verdict.agent
    ]
    expected = {
        "issues": (kept, Counter(run.issue_id for run in runs)),
        "shares": (days, Counter(verdict.agent for verdict in verdicts)),
    }
    return found + [
        f"{what}: {one}, expected {other}" for what, (one, other) in expected.items() if one != other
    ]


def _told(backend: Backend) -> Mapping[str, set[tuple[str, int]]]:
    """Return each trace's verdicts, with their versions."""
    told = defaultdict[str, set[tuple[str, int]]](set)
    for one in placed(*(request.body for request in backend.of(Signal.TRACES))):
        if FAILURE_ID in one.attributes:
            said = str(one.attributes[FAILURE_ID]), int(one.attributes[FAILURE_VERSION])
            told[one.span.trace_id.hex()].add(said)
    return told
