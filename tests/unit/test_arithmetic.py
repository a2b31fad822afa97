from __future__ import annotations

import pytest

from analyzer.signals.arithmetic import wrong_calculations


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
    (wrong,) = wrong_calculations(text)
    assert wrong.stated == 450
    assert wrong.quote in text
    assert wrong.right != wrong.stated


LEFT_ALONE = {
    "right, or no plain arithmetic": [
        "16 x 10 x 3 = 480",
        "7 / 3 = 2.33",
        "1,000 + 3 = 1,003",
        "10 x 420 + 1.800 = 6.000",
        "2 + 3 * 4 = 14",
        "15% x 200 = 30",
        "(5 + 3) * 2 = 16",
        "y + 3 * 4 = 20",
        "2024-11-05 = 2014",
        "pages 3-4 = 12",
        "2^3 + 4 = 12",
        "16 GPUs at $3 for 10 hours = 450",
        "14 x 435 W = 6.09 kWp",
        "220 x 14 + 92 x 8 = 3 816,00 €",
        "5 / 0 = 1",
        "a = 3",
        "",
    ],
    "more than a number on a side": [
        "1/2 + 1/3 = 5/6",
        "1/3 + 1/3 = 2/3",
        "1/4 + 1/4 = 1/2",
        "1 + 1/2 + 1/4 = 7/4",
        "10 / 3 = 3 1/3",
        "6 * 2 = 3 * 4",
        "9 - 5 = 4 - 0",
        "5 + 5 = 10 + 0 = 10",
        "3 + 4 = 7 * 2 = 14",
        "x = 3 + 4 = 8 - 1",
        "x = 3 + 4 = 9 - y",
        "12 * 35 = 4.2 × 10^2",  # noqa: RUF001 - as written
        r"12 * 35 = 4.2 \times 10^{2}",
        "12 * 35 = 4.2 * 10**2",
        "12 * 35 = 4.2e2",
        "12 * 2 = 5^2 - 1",
        "0.5 * 100 = 5000 %",
        "A ratio 3/4 = 75 percent",
        "7 + 5 = 0 (mod 12)",
        "1011 + 1 = 1100 (binary)",
        "11 / 4 = 2 R 3",
        "11 / 4 = 2 remainder 3",
        "11 / 4 = 2 (integer division)",
        "1234 * 2 = 2,500 (rounded to hundreds)",
        "1 000 + 2 000 = 3 000",
        "1000 * 2 = 2.000",
        "10:45 + 15 = 11:00",
        "√16 + 2 = 6",
        "-5 + 8 = 3",
        "- 5 + 8 = 3",
        "15/04 - 10 = 5 days",
        "half of 5 + 5 = 5",
        "5 choose 2 + 1 = 11",
    ],
    "numbers in different units": [
        "1.2 GB + 300 MB = 1.5 GB",
        "60 min + 1 h = 2 h",
        "60 km/h * 30 min = 30 km",
        "3600 s / 60 = 1 h",
        "100 km / 2 h = 13.9 m/s",
        "60 * 2 = 2 hours",
        "5 days + 2 days = 1 week",
        "5 ft 3 + 4 = 5 ft 7",
        "2 dozen + 1 = 25",
        "12 eggs + 12 eggs = 2 dozen",
        "3 million * 2 = 6,000,000",
        "3 * 2,000,000 = 6 million",
        "4 quarters + 4 quarters = 2 wholes",
    ],
}


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=f"{why}: {text}") for why, texts in LEFT_ALONE.items() for text in texts]
)
def test_what_is_no_wrong_sum_is_left_alone(text: str) -> None:
    assert list(wrong_calculations(text)) == []


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("84 * 0.41 * 905 * 0.31 = 9,266.14", 9662.142),
        ("84 * 0.41 * 905 * 0.31 = 9,266.14 (rounded to cents)", 9662.142),
        ("5 kg + 3 kg = 9 kg", 8),
        ("$5 + $3 = $9", 8),
        ("$5 + $3 = $9, so it costs $9", 8),
        ("5 + 3 = 9 and 2 + 2 = 4", 8),
        ("5 apples + 3 apples = 9 apples in total", 8),
        ("5 hours * 3 = 16 hours", 15),
        ("3 * 4 = 15 hours", 12),
        ("3 million * 2 = 7 million", 6),
        ("1/2 + 1/2 = 3/2", 1),
        ("6 * 2 = 3 * 5", 12),
        ("5 + 3 = 9!", 8),
        ("5 + 3 = 9 - which is odd", 8),
        ("(5 + 3 = 9)", 8),
        ("**5 + 3 = 9**", 8),
        ("5 + 3 = 9: see above", 8),
        (r"\(5 + 3 = 9\)", 8),
        ('{"sum":5 + 3 = 9}', 8),
        ("1: 5 + 3 = 9", 8),
    ],
)
def test_a_wrong_sum_stays_wrong_whatever_stands_around_it(text: str, right: float) -> None:
    (wrong,) = wrong_calculations(text)
    assert wrong.right == pytest.approx(right)
    assert text[wrong.start : wrong.end] == wrong.quote
