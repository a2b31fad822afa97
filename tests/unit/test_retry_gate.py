"""A retry is allowed only where pilot runs show that it does more good than harm."""

from __future__ import annotations

import random

import pytest

from analyzer.experiment.retry_gate import Choice, Share, gate, probability_of_gain, read_gate, to_json


def share(k: int, n: int) -> Share:
    return Share(k=k, n=n)


@pytest.mark.parametrize(
    ("failed", "recovered", "disrupted", "choice"),
    [
        pytest.param(share(25, 50), share(20, 25), share(1, 25), Choice.INTERVENE, id="helps"),
        pytest.param(share(25, 50), share(2, 25), share(15, 25), Choice.REFUSE, id="harms"),
        pytest.param(
            share(20, 100), share(12, 20), share(24, 80), Choice.REFUSE, id="recovers 60 %, and harms"
        ),
        pytest.param(share(25, 50), share(0, 25), share(0, 25), Choice.UNSURE, id="changes nothing"),
        pytest.param(share(9, 18), share(9, 9), share(0, 9), Choice.UNSURE, id="too few"),
        pytest.param(share(0, 0), share(20, 25), share(0, 25), Choice.UNSURE, id="flags nothing"),
        pytest.param(share(0, 0), share(0, 0), share(0, 0), Choice.UNSURE, id="nothing measured"),
    ],
)
def test_the_gate_weighs_what_is_recovered_against_what_is_disrupted(
    failed: Share, recovered: Share, disrupted: Share, choice: Choice
) -> None:
    found = gate(failed, recovered, disrupted)
    assert found.choice is choice
    assert found.allows is (choice is Choice.INTERVENE)
    assert found.interval[0] <= found.interval[1]
    assert read_gate(to_json(found)) == found


def test_the_threshold_is_d_over_r_plus_d() -> None:
    assert gate(share(20, 100), share(12, 20), share(24, 80)).threshold == pytest.approx(0.3 / 0.9)
    assert gate(share(5, 10), share(0, 5), share(0, 5)).threshold == 1.0


def test_the_probability_is_the_share_of_draws_that_gain() -> None:
    """Compared with draws from the Beta posteriors themselves."""
    counts = (share(20, 60), share(9, 20), share(6, 40))
    coin = random.Random(1)

    def drawn(given: Share) -> float:
        return coin.betavariate(given.k + 0.5, given.n - given.k + 0.5)

    gains = 0
    for _ in range(20_000):
        p, r, d = map(drawn, counts)
        gains += p * r > (1 - p) * d
    assert probability_of_gain(*counts) == pytest.approx(gains / 20_000, abs=0.015)


def test_more_harm_never_makes_a_gain_more_likely() -> None:
    found = [probability_of_gain(share(20, 60), share(10, 20), share(k, 40)) for k in range(0, 41, 4)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"failed": {"k": 1, "n": 2}, "recovered": {"k": 1, "n": 2}},
        {name: {"k": 3, "n": 2} for name in ("failed", "recovered", "disrupted")},
        {name: {"k": True, "n": 2} for name in ("failed", "recovered", "disrupted")},
        {name: {"k": 1, "n": 10**12} for name in ("failed", "recovered", "disrupted")},
    ],
)
def test_an_invalid_gate_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match="expected a gate"):
        read_gate(document)


def test_a_forged_choice_does_not_open_the_gate() -> None:
    harmful = to_json(gate(share(25, 50), share(2, 25), share(15, 25)))
    assert not read_gate({**harmful, "choice": "intervene", "probability": 1.0}).allows
