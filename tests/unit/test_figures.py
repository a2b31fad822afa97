from __future__ import annotations

import pytest

from analyzer.figures import derivable, numbers, wrong_sums


@pytest.mark.parametrize(
    "text",
    [
        "16 x 10 x 3 = 450",
        "16 GPUs x 10 hours x $3 = $450",
        "16 GPUs × 10 hours × $3 per GPU-hour = $450",  # noqa: RUF001
        "16 * 10 h * $3/h = $450",
        "**16 x 10 = 450**",
        "- 16 + 10 = 450",
        '{"answer": "16 x 10 x 3 = $450"}',
        r"16 \times 10 = 450",
        "cost: 16 x 10 = 450.",
        "x = 16 * 10 = 450",
        "1,000 + 2 = 450",
    ],
)
def test_a_sum_that_does_not_add_up_is_found_and_quoted_word_for_word(text: str) -> None:
    (wrong,) = wrong_sums(text)
    assert wrong.stated == 450
    assert wrong.quote in text
    assert wrong.right != wrong.stated


@pytest.mark.parametrize(
    "text",
    [
        "16 x 10 x 3 = 480",
        "7 / 3 = 2.33",
        "1,000 + 3 = 1,003",
        "2 + 3 * 4 = 14",
        "15% x 200 = 30",
        "(5 + 3) * 2 = 16",
        "y + 3 * 4 = 20",
        "2024-11-05 = 2014",
        "pages 3-4 = 12",
        "2^3 + 4 = 12",
        "16 GPUs at $3 for 10 hours = 450",
        "5 / 0 = 1",
        "a = 3",
        "",
    ],
)
def test_what_is_right_or_no_plain_arithmetic_is_left_alone(text: str) -> None:
    assert list(wrong_sums(text)) == []


def test_numbers_are_values_not_spellings() -> None:
    assert numbers("$1,080.0 of 3 GPUs, v2 and 4-5, 2024") >= {1080.0, 3.0, 2024.0}
    assert 2.0 not in numbers("v2 x2y")


def test_a_product_of_known_figures_is_derivable_and_another_figure_is_not() -> None:
    assert derivable(480, [3, 10, 16])
    assert not derivable(450, [3, 10, 16])
