from __future__ import annotations

import pytest

from analyzer.signals.wrong_numbers import disowned

CLAIM = "3 + 4 = 8"


def mentions(text: str) -> bool:
    start = text.index(CLAIM)
    return disowned(text, start, start + len(CLAIM), 8.0)


@pytest.mark.parametrize(
    "text",
    [
        "Calc's claim 3 + 4 = 8 is wrong; it must be 7.",
        "Calc says 3 + 4 = 8.",
        'Calc wrote "3 + 4 = 8".',
        "According to calc, 3 + 4 = 8.",
        "Is 3 + 4 = 8? No, 7.",
        "3 + 4 = 8? I doubt it.",
        "3 + 4 = 8. No, it is 7.",
        "3 + 4 = 8 (wrong), 3 + 4 = 7 (right)",
        "3 + 4 = 8, which is incorrect.",
        "3 + 4 = 8. That is not correct.",
        "3 + 4 = 8 isn't right.",
        "3 + 4 = 8 is a mistake.",
        "**3 + 4 = 8** is false.",
        "3 + 4 = 8. It should be 7.",
        "3 + 4 = 8 stands there; the correct result is 7.",
        "You incorrectly computed 3 + 4 = 8.",
        "It is wrong that 3 + 4 = 8.",
        "Write 3 + 4 = 7 instead of 3 + 4 = 8.",
        "SELECT * WHERE 3 + 4 = 8",
        "Check whether 3 + 4 = 8.",
    ],
)
def test_a_claim_that_is_quoted_asked_denied_or_conditional_is_not_its_authors(text: str) -> None:
    assert mentions(text)


@pytest.mark.parametrize(
    "text",
    [
        CLAIM,
        "3 + 4 = 8, so the earlier answer 7 is incorrect.",
        "3 + 4 = 8, so the answer must be 8.",
        "3 + 4 = 8. The correct answer is 8.",
        "3 + 4 = 8. No doubt about it.",
        "3 + 4 = 8. I did not look further.",
        "3 + 4 = 8, not 9.",
        "I say that 3 + 4 = 8 and we claimed 3 + 4.",
        "Calc says nothing. 3 + 4 = 8.",
        "What is the sum? 3 + 4 = 8.",
        "3 + 4 = 8. Shall I go on?",
        '{"answer": "3 + 4 = 8"}',
        "The earlier step was wrong. 3 + 4 = 8.",
        "3 + 4 = 8 is right.",
    ],
)
def test_a_claim_that_stands_or_is_affirmed_is_its_authors(text: str) -> None:
    assert not mentions(text)
