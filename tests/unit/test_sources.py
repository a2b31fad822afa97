"""Sources of figures are texts from outside: what an agent wrote is none, however many steps a run has."""

from __future__ import annotations

import time

from analyzer.lineage.sources import sources
from analyzer.signals.run_view import read
from semconv.model import Step
from tests.runs import run, step, tool


def texts(*steps: Step) -> list[str]:
    """Return the texts from outside that these steps show."""
    return [source.text for source in sources(read(run(*steps))) if source.is_result]


def test_a_result_is_an_agents_word_only_if_that_agent_worked_within_the_call() -> None:
    wrote = "The barn holds 44 hens."
    within = step("helper", wrote, start_ns=20, end_ns=30)
    asked = tool("farmer", wrote, "ask_helper", start_ns=10, end_ns=40)
    before = tool("farmer", wrote, "count", start_ns=1, end_ns=9)
    ends_later = tool("farmer", wrote, "count", start_ns=15, end_ns=29)
    assert texts(asked, within) == []
    assert texts(before, within) == [wrote]
    assert texts(ends_later, within) == [wrote]


def test_a_sentence_of_several_agents_is_theirs_once_and_a_short_word_is_nobodys() -> None:
    wrote = step("helper", "ok")
    assert texts(wrote, wrote, tool("farmer", "44 hens, ok")) == ["44 hens, ok"]
    assert texts(wrote, wrote, tool("farmer", "ok")) == []


def test_thousands_of_calls_take_seconds() -> None:
    """CPU time, because the machine may be busy; comparing each call with each step took half a minute."""
    pairs = [
        (
            tool("farmer", f"Barn {n} holds hens.", start_ns=10 * n + 1, end_ns=10 * n + 5),
            step("farmer", f"I have read of barn {n}.", start_ns=10 * n + 6, end_ns=10 * n + 9),
        )
        for n in range(3_000)
    ]
    reading = read(run(*[one for pair in pairs for one in pair]))
    started = time.process_time()
    assert len(sources(reading)) == 3_000
    assert time.process_time() - started < 8
