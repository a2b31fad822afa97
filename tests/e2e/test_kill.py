"""Acknowledged means durable, and one run gets one verdict, whenever the process dies."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.kill import faults, kill_again_and_again

ROUNDS = 20


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_and_no_run_is_judged_twice_by_kill_9(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    outcome = kill_again_and_again(ROUNDS, seed, tmp_path)
    print(outcome.summary())
    assert faults(outcome) == []
    whole = [run for run in outcome.runs if run.is_whole]
    assert sum(run.fails for run in whole) > ROUNDS
    assert any(not run.is_whole for run in outcome.runs)  # else nobody was hit in the middle
