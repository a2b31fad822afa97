from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.signals.normalize import SearchText, contains, normalized


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Paris has 2.1 million people.", "paris has 2.1 million  people"),
        ("**1,080.0**", "1080"),
        ("2.50 USD", "2.5 usd"),
        ('"O\u2019Neil"', "o'neil"),
        ("A well-kept_list", "a well kept list"),
    ],
)
def test_texts_that_say_the_same_are_the_same(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("one", "other"), [("-5", "5"), ("2.1", "21"), ("50%", "50"), ("a", "b"), ("1,08", "108")]
)
def test_texts_that_say_something_else_stay_apart(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


@pytest.mark.parametrize("text", ["it is 450", "450", "450 dollars", "1450 and 450", "about 450.5 or 450"])
def test_a_number_is_found(text: str) -> None:
    assert contains(text, "450")


@pytest.mark.parametrize("text", ["1450", "4501", "450.5", "3.450", ""])
def test_a_number_is_not_found_inside_another(text: str) -> None:
    assert not contains(text, "450")


def test_words_are_found_wherever_they_stand() -> None:
    assert contains(normalized("The answer: Lisbon!"), "lisbon")


@given(st.text("0123 4.,-_%aB\u0130\u00e9", max_size=20), st.text("012.,- aB\u00e9", max_size=6))
def test_looking_for_a_text_in_many_finds_what_folding_each_would(text: str, wanted: str) -> None:
    assert SearchText(normalized(wanted)).is_in(text) == contains(normalized(text), normalized(wanted))


@given(st.text("0123 4.,-_%aB", max_size=20))
def test_plain_texts_are_folded_as_others_are(text: str) -> None:
    assert normalized(text) == normalized(f"{text} \u00e9").removesuffix("\u00e9").rstrip()
