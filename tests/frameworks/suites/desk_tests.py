"""Tests of the ticket desk, the same for each framework: two with a planted culprit, the others pass."""

from collections.abc import Callable

import pytest

PRICE = "One ticket costs 121 EUR."


@pytest.mark.parametrize(("seats", "total"), [(30, "3,630"), (12, "1,452")])
def test_a_total(ask: Callable[..., str], seats: int, total: str) -> None:
    assert total in ask(PRICE, f"{seats} * 121 = {total} EUR", seats=seats)


class TestGroups:
    def test_the_analyst_multiplies_wrongly(self, ask: Callable[..., str]) -> None:
        assert "3,630" in ask(PRICE, "30 * 121 = 3,360 EUR")

    def test_the_researcher_misreads_the_price(self, ask: Callable[..., str]) -> None:
        assert "3,630" in ask("One ticket costs 211 EUR.", "30 * 211 = 6,330 EUR")


def test_without_agents() -> None:
    assert "Calais".lower() == "calais"
