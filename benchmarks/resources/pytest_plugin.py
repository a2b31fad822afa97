"""CPU time that the pytest plugin costs a passing suite: ``python -m benchmarks.resources.pytest_plugin``.

Runs a suite of agents' tests in turn without the plugin, with it installed but off, and with ``--blamespan``;
prints the median of the paired ratios of CPU time to that without, with the interval between their quartiles.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.e2e.test_pytest_plugin import SUITE

_ARMS: Final = {"without": ("-p", "no:blamespan"), "off": (), "on": ("--blamespan",)}
_QUIET: Final = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:asyncio")
_TESTS: Final = """
import pytest
from conftest import quote

@pytest.mark.parametrize("number", range({count}))
def test_right(number):
    assert "3630" in quote(3630)
"""


def measure(tests: int, rounds: int) -> None:
    """Print the ratios of ``rounds`` triples of runs of as many ``tests``, each of a run of three spans."""
    ratios: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "conftest.py").write_text(SUITE)
        Path(folder, "test_many.py").write_text(_TESTS.format(count=tests))
        _cpu_s(folder, _ARMS["on"])  # compiles all modules
        for _ in range(rounds):
            taken = {arm: _cpu_s(folder, options) for arm, options in _ARMS.items()}
            for arm in ("off", "on"):
                ratios[arm].append(taken[arm] / taken["without"])
    print(f"{tests} tests, {rounds} rounds; CPU time as a multiple of that without the plugin")
    for arm, found in ratios.items():
        low, middle, high = statistics.quantiles(found, n=4)
        print(f"{arm:4} {middle:.3f} ({low:.3f} to {high:.3f})")


def _cpu_s(folder: str, options: tuple[str, ...]) -> float:
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "pytest", *_QUIET, *options], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    measure(chosen.tests, chosen.rounds)
