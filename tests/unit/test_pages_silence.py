"""When the pages' process counts as hung: never while the service itself did not run."""

from __future__ import annotations

import pytest

from analyzer.service.pages_process import BEAT_S, SILENT_S, Silence

LOOKS = int(SILENT_S / BEAT_S)


def looked(silence: Silence, looks: int, *, every_s: float = BEAT_S, signs: int = 0) -> list[bool]:
    """Look regularly, with so many new signs of life before each look."""
    return [silence.is_too_long(silence.looked_s + every_s, silence.heard + signs) for _ in range(looks)]


def test_a_minute_of_silence_is_too_long_and_no_less_is() -> None:
    assert looked(Silence(100.0), LOOKS) == [False] * (LOOKS - 1) + [True]


def test_each_sign_of_life_restarts_the_silence() -> None:
    silence = Silence(100.0)
    for _ in range(5):
        assert not any(looked(silence, LOOKS - 1))
        assert not any(looked(silence, 1, signs=1))


@pytest.mark.parametrize("asleep_s", [2 * BEAT_S + 0.1, SILENT_S, 86_400.0])
def test_a_suspended_machine_restarts_the_silence(asleep_s: float) -> None:
    silence = Silence(100.0)
    assert not any(looked(silence, LOOKS - 1))
    assert not any(looked(silence, 1, every_s=asleep_s))
    assert not any(looked(silence, LOOKS - 1))
    assert looked(silence, 1) == [True]


def test_nothing_is_killed_on_a_machine_so_busy_that_every_look_is_late() -> None:
    assert not any(looked(Silence(100.0), 10 * LOOKS, every_s=3 * BEAT_S))
