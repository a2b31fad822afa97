"""Runs of a real SDK with default settings are judged once, when they are over."""

from __future__ import annotations

from pathlib import Path

from benchmarks.accuracy.settled.__main__ import Plan, measure


def test_nobody_is_wronged_with_default_settings_and_the_defaults_of_sdks(tmp_path: Path) -> None:
    outcome = measure(Plan(runs=20, pauses_s=(0.0, 5.0), spread_s=3.0, quiet_s=12.0), tmp_path)
    assert outcome.arrived == outcome.sent
    assert outcome.is_good, outcome.total
