from __future__ import annotations

from collector_processor.forwarding.ledger import Ledger
from collector_processor.otlp import Signal


def test_items_found_at_the_start_were_received_by_an_earlier_process() -> None:
    held = {Signal.TRACES: 5, Signal.LOGS: 0, Signal.METRICS: 0}
    counts = Ledger(held.__getitem__).snapshot()[Signal.TRACES]
    assert (counts.received, counts.acknowledged, counts.held) == (5, 5, 5)
    assert counts.is_balanced


def test_an_item_that_is_nowhere_is_noticed() -> None:
    held = dict.fromkeys(Signal, 0)
    ledger = Ledger(held.__getitem__)
    ledger.acknowledge(Signal.LOGS, 3)
    assert not ledger.snapshot()[Signal.LOGS].is_balanced
    held[Signal.LOGS] = 3
    assert ledger.snapshot()[Signal.LOGS].is_balanced
    held[Signal.LOGS] = 0
    ledger.settle(Signal.LOGS, forwarded=1, rejected=1)
    assert not ledger.snapshot()[Signal.LOGS].is_balanced
    ledger.settle(Signal.LOGS, lost=1)
    assert ledger.snapshot()[Signal.LOGS].is_balanced


def test_what_is_refused_was_received() -> None:
    ledger = Ledger(lambda _signal: 0)
    ledger.refuse(Signal.METRICS, 4)
    counts = ledger.snapshot()[Signal.METRICS]
    assert (counts.received, counts.refused, counts.acknowledged) == (4, 4, 0)
    assert counts.is_balanced
