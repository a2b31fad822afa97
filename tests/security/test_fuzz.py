"""Every fuzz target with hypothesis: mutated real requests, and random bytes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.hostile import fuzz
from tests.security.seeds import seeds
from tests.security.targets import TARGETS

FINDINGS = Path(__file__).parent / "findings"
"""Inputs that once revealed a fault, in folders by target."""


def test_the_command_knows_every_target() -> None:
    assert set(fuzz.NAMES) == set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_good_inputs_are_good(name: str) -> None:
    for good in seeds(name):
        TARGETS[name].run(good)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 99), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_mutated_requests_break_nothing(name: str, which: int, seed: int, rounds: int) -> None:
    good, chance = seeds(name), Random(seed)
    body = good[which % len(good)]
    for _ in range(rounds):
        body = TARGETS[name].mutate(body, chance)
    TARGETS[name].run(body)


@pytest.mark.parametrize("name", TARGETS)
@given(st.binary(max_size=300))
def test_noise_breaks_nothing(name: str, noise: bytes) -> None:
    TARGETS[name].run(noise)


@pytest.mark.parametrize(
    "found", [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in FINDINGS.glob("*/*")]
)
def test_what_was_once_found_stays_mended(found: Path) -> None:
    TARGETS[found.parent.name].run(found.read_bytes())
