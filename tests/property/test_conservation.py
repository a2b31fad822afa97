"""The conservation law holds for any arrivals, any answers of the backend, and a kill at any moment."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from collector_processor.forwarding.forwarder import Forwarder, ForwarderLimits
from collector_processor.forwarding.ledger import Counts, Ledger
from collector_processor.forwarding.sender import exporting
from collector_processor.journal import open_journal
from collector_processor.journal.chunks import JournalLimits
from collector_processor.otlp import (
    Arrival,
    Delivered,
    MalformedRequestError,
    RefusedError,
    Rejected,
    SendOutcome,
    Signal,
    Tenant,
    TryLater,
)
from collector_processor.receivers.intake import Intake, IntakeRules
from tests.otlp_requests import numbers_in, request, span

LIMITS = JournalLimits(segment_bytes=30_000, max_pending_bytes=9_000, max_queue_share=0.8)


class Backend:
    """Answers by the script, then with success; keeps what it accepted."""

    def __init__(self, script: list[SendOutcome]) -> None:
        self.max_bytes = 700
        self.script = script
        self.taken: Counter[int] = Counter()
        self.refused: set[int] = set()

    async def send(self, signal: Signal, body: bytes, tenant: Tenant, hops: tuple[str, ...]) -> SendOutcome:
        del signal, tenant, hops
        await asyncio.sleep(0)
        outcome = self.script.pop() if self.script else Delivered()
        numbers = numbers_in(body)
        if isinstance(outcome, Delivered):
            self.taken.update(numbers)
        elif isinstance(outcome, Rejected):
            self.refused.update(numbers)
        return outcome

    async def close(self) -> None:
        """Do nothing."""


async def no_sleep(_seconds: float) -> None:
    await asyncio.sleep(0)


outcomes = st.sampled_from([Delivered(), TryLater(reason="busy"), Rejected(reason="bad")])
kinds = st.sampled_from(["spans", "agent", "held", "invalid", "looped", "garbage"])
lives = st.lists(
    st.tuples(
        st.lists(st.tuples(kinds, st.integers(1, 6), st.sampled_from(["", "b"])), max_size=8), st.booleans()
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(lives, st.lists(outcomes, max_size=12))
def test_every_span_is_somewhere_once(
    plan: list[tuple[list[tuple[str, int, str]], bool]], script: list[SendOutcome]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(Path(folder), plan, script))


async def _live(
    folder: Path, plan: list[tuple[list[tuple[str, int, str]], bool]], script: list[SendOutcome]
) -> None:
    backend = Backend(script)
    acknowledged: set[int] = set()
    path = folder / "0"
    number = 0
    for life, (arrivals, is_killed) in enumerate(plan, start=1):
        journal = await open_journal(path, LIMITS)
        ledger = Ledger(journal.held_items)
        senders = {Signal.TRACES: exporting(Signal.TRACES, backend)}
        limits = ForwarderLimits(queue_memory_bytes=1500)
        forwarder = Forwarder(journal, ledger, senders, limits, no_sleep)
        rules = IntakeRules(
            instance_id="us",
            now_ns=lambda: 0,
            holds=lambda key: key.trace_id.endswith("3"),
            feed=lambda _arrival: None,
        )
        intake = Intake(journal, ledger, forwarder, rules)
        forwarder.resume()
        runner = asyncio.create_task(forwarder.run())
        for kind, count, tenant in arrivals:
            numbers = list(range(number + 1, number + count + 1))
            number += count
            if await _accepted(intake, kind, numbers, tenant):
                acknowledged.update(numbers)
            assert ledger.snapshot()[Signal.TRACES].is_balanced
        image = folder / str(life)
        if is_killed:  # what the disk holds at this very moment is all that the next life gets
            _copy(path, image)
        for key in tuple(journal._accounts.traces):
            await journal.release_held(key)
        await forwarder.drain(10)
        await runner
        counts = ledger.snapshot()[Signal.TRACES]
        assert counts.is_balanced
        assert counts.held == 0
        await journal.close()
        path = image if is_killed else path
    assert acknowledged <= backend.taken.keys() | backend.refused
    if not any(is_killed for _, is_killed in plan):
        assert set(backend.taken.values()) <= {1}


def _copy(path: Path, image: Path) -> None:
    image.mkdir(parents=True)
    for file in path.iterdir():
        if not file.name.endswith("-shm") and file.is_file():
            with suppress(FileNotFoundError):  # a segment that nobody needs may go meanwhile
                shutil.copy(file, image)


async def _accepted(intake: Intake, kind: str, numbers: list[int], tenant: str) -> bool:
    """Send a request; return whether it was acknowledged."""
    marked = {"gen_ai.operation.name": "chat"} if kind in {"agent", "held"} else {}
    trace = {"held": 3, "agent": 2, "invalid": 0}.get(kind, 1)
    body = request(*(span(n, trace=trace, attributes=marked) for n in numbers))
    arrival = Arrival(
        signal=Signal.TRACES,
        body=body + b"\x0a\x7f" if kind == "garbage" else body,
        tenant=Tenant(tenant),
        hops=("us",) if kind == "looped" else (),
    )
    try:
        receipt = await intake.accept(arrival)
    except MalformedRequestError:
        assert kind in {"garbage", "looped"}
        return False
    except RefusedError:
        return False
    assert receipt.rejected == (len(numbers) if kind == "invalid" else 0)
    return not receipt.rejected


def test_the_law_can_fail() -> None:
    assert not Counts(received=2, acknowledged=2, forwarded=1).is_balanced
