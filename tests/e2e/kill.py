"""Kills the service repeatedly under load: ``python -m tests.e2e.kill --rounds 200``.

Each process is killed at a random moment, one in five during its start. The next one takes over the data
directory, possibly in the other write-back mode. At the end, everything is compared with the requests that a
backend in this process received.

With ``--power-loss`` the disk keeps everything flushed and a random part of the rest (tests/e2e/power). With
``--postgresql`` the store is in a real PostgreSQL, which is killed too in every third round.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector_processor.core.disk import RUNS
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Signal
from collector_processor.store.database.connection import open_database
from collector_processor.store.verdicts import RunStore
from semconv.attributes import ERROR, FAILURE_ID, FAILURE_VERSION
from tests.backends.postgresql import PostgresServer, postgresql
from tests.backends.supervise import BackendError, wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.killing import WAYS, Agents, Kind, Run, Services
from tests.e2e.line import Line
from tests.e2e.power.cut import PowerSupply
from tests.e2e.raw import raw_spans
from tests.e2e.spans import Placed, placed

SHORTEST_S: Final = 0.05
LONGEST_S: Final = 1.3
STARTING_S: Final = 1.5
MOST_ROUNDS: Final = 5
REST_S: Final = 240.0

OURS: Final = ("blamespan.", "annotations.")
"""Beginnings of the attributes that hold mode adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome to compare."""

    runs: Sequence[Run]
    received: Sequence[bytes]
    """The backend's requests with spans."""
    verdicts: Mapping[str, StoredVerdict]
    """Current verdicts by trace id."""
    undelivered: int
    """Entries left in the outbox."""

    def summary(self) -> str:
        whole = [run for run in self.runs if run.is_whole]
        acknowledged = sum(1 for run in self.runs for body in run.acknowledged for _ in raw_spans(body))
        received = sum(1 for body in self.received for _ in raw_spans(body))
        failed, resent = sum(run.fails for run in whole), sum(run.was_resent for run in whole)
        return (
            f"{len(self.runs)} runs, {len(whole)} acknowledged whole; of these {failed} failed, "
            f"{resent} have requests sent again; {acknowledged} spans "
            f"acknowledged, {received} received with carriers and repetitions"
        )


def kill_again_and_again(
    rounds: int,
    seed: int,
    folder: Path,
    supply: PowerSupply | None = None,
    store: PostgresServer | None = None,
) -> Outcome:
    """Run the rounds; return the outcome once everything is settled.

    On a slow machine few runs are sent in a round: more rounds follow.
    """
    chance, agents = random.Random(seed), Agents(seed)
    place = folder / "data" / RUNS if store is None else store.url()
    with grpc_backend() as backend:
        services = Services(folder=folder, backend=backend, agents=agents, supply=supply, store=store)
        with agents.at_work():
            for number in count():
                if number >= rounds and (_is_enough(agents.runs, rounds) or number >= MOST_ROUNDS * rounds):
                    break
                _one_round(services, chance, number)
            with services.serving(Kind(hold=False, fickle=True)) as line:
                agents.finish()
                _come_to_rest(line, agents.runs)
                wait_until(lambda: not _stored(place, ())[1], what="an empty outbox", timeout_s=REST_S)
                line.server.stop()
    verdicts, undelivered = _stored(place, agents.runs)
    return Outcome(
        runs=agents.runs,
        received=[request.body for request in backend.of(Signal.TRACES)],
        verdicts=verdicts,
        undelivered=undelivered,
    )


def supply_of(folder: Path) -> PowerSupply:
    """Return the power supply of services with data in ``folder``."""
    return PowerSupply(folder=folder / "data", scratch=folder)


def _is_enough(runs: Sequence[Run], rounds: int) -> bool:
    """Whether more failing runs than rounds came whole, and some run was hit in the middle."""
    whole = [run for run in runs if run.is_whole]
    return sum(run.fails for run in whole) > rounds and len(whole) + len(WAYS) < len(runs)


def _one_round(services: Services, chance: random.Random, number: int) -> None:
    kind = Kind(hold=bool(number & 1), fickle=bool(number & 2))
    if chance.random() < 0.2:
        after_s = chance.uniform(SHORTEST_S, STARTING_S)
        services.kill_while_it_starts(kind, after_s)
        services.lose_power(chance)
        _say(f"round {number}: killed {after_s:.3f} s after its start ({kind})")
        return
    after_s = chance.uniform(SHORTEST_S, LONGEST_S)
    with services.serving(kind) as line:
        time.sleep(after_s / 2)
        if services.store is not None and not number % 3:
            services.store.kill()
            time.sleep(after_s)
            services.store.start()
        time.sleep(after_s / 2)
        services.kill(line)
    services.lose_power(chance)
    _say(f"round {number}: killed after {after_s:.3f} s of service ({kind})")


def _come_to_rest(line: Line, runs: Sequence[Run]) -> None:
    """Wait until every complete run has its verdict and all spans are delivered."""
    waiting = {run.trace_id for run in runs if run.is_whole}

    def is_at_rest() -> bool:
        waiting.difference_update([run for run in waiting if _is_decided(line, run)])
        return not waiting and "held" not in line.balance()

    try:
        wait_until(is_at_rest, what="verdicts", timeout_s=REST_S)
    except BackendError as error:
        raise AssertionError(f"{error}: {sorted(waiting)[:5]} … have none; {line.balance()}") from error


def _is_decided(line: Line, run_id: str) -> bool:
    found = line.run(run_id)
    return found is not None and not found["provisional"]


def _stored(path: Path | str, runs: Sequence[Run]) -> tuple[dict[str, StoredVerdict], int]:
    store = RunStore(open_database(path).connect())
    try:
        found = [verdict for run in runs for verdict in store.find(run.trace_id)]
        undelivered = sum(len(store.outbox(signal)) for signal in Signal)
    finally:
        store.close()
    return {verdict.run_id: verdict for verdict in found}, undelivered


# The comparison.


def faults(outcome: Outcome) -> list[str]:
    """Return the broken promises; empty if all were kept."""
    copies = defaultdict[bytes, defaultdict[bytes, set[bytes]]](lambda: defaultdict(set))
    written = defaultdict[str, list[Placed]](list)
    for body in outcome.received:
        for raw, one in zip(raw_spans(body), placed(body), strict=True):
            copies[one.span.trace_id][one.span.span_id].add(raw)
            if FAILURE_ID in one.attributes:
                written[one.span.trace_id.hex()].append(one)
    found = [f"{outcome.undelivered} entries were left in the outbox"] if outcome.undelivered else []
    for run in outcome.runs:
        sent = copies[bytes.fromhex(run.trace_id)]
        told = (*_lost(run, sent), *_changed(run, sent), *_misjudged(run, written[run.trace_id], outcome))
        found += [f"run {run.trace_id}: {fault}" for fault in told]
    return found


def _lost(run: Run, copies: Mapping[bytes, set[bytes]]) -> Iterator[str]:
    """Yield acknowledged spans that never arrived or arrived changed."""
    for body in run.acknowledged:
        for raw in raw_spans(body):
            name = Span.FromString(raw).span_id
            if not any(_is_copy(raw, copy) for copy in copies.get(name, ())):
                yield f"acknowledged span {name.hex()} did not arrive as it was"


def _is_copy(raw: bytes, copy: bytes) -> bool:
    """Return whether these are exactly the same bytes, followed only by our attributes."""
    if not copy.startswith(raw):
        return False
    added = Span.FromString(copy[len(raw) :])
    ours = all(pair.key.startswith(OURS) or pair.key == ERROR for pair in added.attributes)
    return ours and Span(attributes=added.attributes).ByteSize() == len(copy) - len(raw)


def _changed(run: Run, copies: Mapping[bytes, set[bytes]]) -> Iterator[str]:
    """Yield spans that were sent twice and differ; a client's repetition may lack the verdict."""
    for name, variants in copies.items():
        if len(variants) > (2 if run.was_resent else 1):
            yield f"span {name.hex()} came in {len(variants)} forms"


def _misjudged(run: Run, written: Sequence[Placed], outcome: Outcome) -> Iterator[str]:
    """Yield missing or duplicate verdicts, and those in the trace that differ from the store."""
    verdict = outcome.verdicts.get(run.trace_id)
    if verdict is None or verdict.is_provisional:
        if run.is_whole:
            yield "has no verdict"
        if written:
            yield "a verdict was written that nobody gave"
        return
    if run.is_whole and (verdict.status == "no_failure") == run.fails:
        yield f"is {verdict.status}, and {'failed' if run.fails else 'did not fail'}"
    if not run.was_top_resent and (verdict.version != 1 or {_version(one) for one in written} - {1}):
        yield f"was judged again without anything new (version {verdict.version})"
    told = {str(one.attributes[FAILURE_ID]) for one in written}
    if not run.was_top_resent and told != {verdict.failure_id}:
        yield f"{len(told)} verdicts were written, expected one: {sorted(told)}"
    current = [one for one in written if one.attributes[FAILURE_ID] == verdict.failure_id]
    yield from _misplaced(verdict, current)


def _version(one: Placed) -> int:
    return int(one.attributes[FAILURE_VERSION])


def _misplaced(verdict: StoredVerdict, current: Sequence[Placed]) -> Iterator[str]:
    """Yield current verdicts on the wrong spans, or on too many or too few."""
    blamed = {one.parent_id if one.is_carrier else one.id for one in current if one.is_decisive}
    if blamed != ({verdict.span_id} if verdict.status == "attributed" else set()):
        yield f"blames {sorted(blamed)}, and the verdict {verdict.span_id}"
    roots = {one.id for one in current if not one.is_decisive and "withdrawn" not in one.span.name}
    if len(roots) != 1:
        yield f"the root's verdict stands on {len(roots)} spans"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--power-loss", action="store_true", help="lose what was not flushed, too")
    parser.add_argument("--postgresql", action="store_true", help="with the store in PostgreSQL")
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock")
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        _say(f"seed {seed}")
        supply = supply_of(Path(folder)) if arguments.power_loss else None
        store = stack.enter_context(postgresql()) if arguments.postgresql else None
        outcome = kill_again_and_again(arguments.rounds, seed, Path(folder), supply, store)
    _say(outcome.summary())
    found = faults(outcome)
    for fault in found[:20]:
        _say(fault)
    sys.exit(f"{len(found)} faults" if found else 0)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
