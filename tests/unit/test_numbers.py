from __future__ import annotations

from analyzer.signals.numbers import derivable, numbers, written_out


def test_numbers_are_values_not_spellings() -> None:
    assert numbers("$1,080.0 of 3 GPUs, v2 and 4-5, 2024") >= {1080.0, 3.0, 2024.0}
    assert 2.0 not in numbers("v2 x2y")


def test_a_product_of_known_figures_is_derivable_and_another_figure_is_not() -> None:
    assert derivable(480, [3, 10, 16])
    assert not derivable(450, [3, 10, 16])


def test_a_dotless_i_is_an_i_as_for_the_search() -> None:
    assert written_out("5 m\u0131llion people") == {5.0: 5_000_000.0}
