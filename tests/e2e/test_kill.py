"""Acknowledged spans are durable and each run gets one verdict, wherever a kill or a power cut hits."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.backends.fixtures import REQUIRE
from tests.e2e.kill import faults, kill_again_and_again, supply_of
from tests.e2e.power.cut import PowerSupply

pytestmark = pytest.mark.timeout(1800)
ROUNDS = 12
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None and os.environ.get(REQUIRE) != "true",
    reason="recording what a process writes needs a C compiler",
)


def _is_kept(folder: Path, supply: PowerSupply | None = None) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    outcome = kill_again_and_again(ROUNDS, seed, folder, supply)
    print(outcome.summary())
    assert faults(outcome) == []
    whole = [run for run in outcome.runs if run.is_whole]
    assert sum(run.fails for run in whole) > ROUNDS
    assert any(not run.is_whole for run in outcome.runs)  # else nobody was hit in the middle


def test_nothing_acknowledged_is_lost_and_no_run_is_judged_twice_by_kill_9(tmp_path: Path) -> None:
    _is_kept(tmp_path)


@needs_compiler
def test_nothing_acknowledged_is_lost_and_no_run_is_judged_twice_by_a_power_cut(tmp_path: Path) -> None:
    _is_kept(tmp_path, supply_of(tmp_path))
