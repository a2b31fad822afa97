"""Runs of a real SDK with default settings are judged once, when they are over."""

from __future__ import annotations

from pathlib import Path

from benchmarks.accuracy.settled.__main__ import Plan, measure


def test_no_agent_is_wrongly_blamed_with_default_settings_and_sdk_defaults(tmp_path: Path) -> None:
    outcome = measure(Plan(runs=20, pauses_s=(0.0, 5.0), spread_s=3.0, quiet_s=12.0), tmp_path)
    assert outcome.arrived == outcome.sent
    assert outcome.is_good, outcome.total
