from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.methods.replies.yes_or_no import read_half, read_yes_or_no

RECORDED = Path(__file__).parents[3] / "shared" / "datasets" / "recorded_replies.dev.jsonl.gz"
beside_the_checkout = pytest.mark.skipif(
    not RECORDED.exists(), reason="the recorded replies are not beside the checkout"
)


@pytest.mark.parametrize(
    "text",
    [
        "1. Yes.\n2. Reason: it divides by zero",
        "Yes",
        "yes, it does",
        "1. **Yes**\n2. **Reason:** x",
        "1) Yes",
        "**1. Yes**",
        "(1) YES - because",
        "- Yes",
        "Answer: **Yes**\nReason: x",
        "Final answer: Yes.",
        "Step 3: Yes",
        "1. Yes/No: Yes",
        '{"answer": "yes", "reason": "x"}',
        '```json\n{"Error": true}\n```',
        "<think>No, it seems fine. Or is it?</think>\n1. Yes.",
        "The step contains a clear error in the sum.",
        "Let me look at it first.\n1. Yes.\n2. Reason: x",
    ],
)
def test_a_plain_yes_is_read_in_any_dress(text: str) -> None:
    assert read_yes_or_no(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "1. No.\n2. Reason: all is well\nNo significant error detected in this step.",
        "no",
        "1) **No**",
        "No, there is no error here.",
        "I see no mistake in this step.",
        "Yes/No: No",
        '{"answer": "No."}',
        "1. No.\n2. Reason: yes, it is slow, but that harms nothing",
    ],
)
def test_a_plain_no_is_read_in_any_dress(text: str) -> None:
    assert read_yes_or_no(text) is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "maybe",
        "1. Yes/No",
        "It is hard to say, yes and no",
        "1. Yes\n2. Reason: x\n1. No",
        "There is no doubt that it contains an error",
        "notable",
        "Yesterday it was fine",
    ],
)
def test_where_a_person_would_ask_back_there_is_no_answer(text: str) -> None:
    assert read_yes_or_no(text) is None


@pytest.mark.parametrize(
    ("text", "half"),
    [
        ("upper half", "upper"),
        ("The answer is: **Lower Half**.", "lower"),
        ("lower", "lower"),
        ("Upper.", "upper"),
        ("first half", "upper"),
        ('{"half": "lower"}', "lower"),
        ("not the upper half, the lower half", "lower"),
        ("not in the upper half", "lower"),
        ("it is in the lower half rather than the upper half", "lower"),
        ("The upper half is more likely than the lower half", "upper"),
        ("The upper half is fine.\n\nFinal answer: lower half", "lower"),
        ("<think>the upper half? no</think>lower half", "lower"),
        ("lower half (steps 5-9)", "lower"),
        ("either the upper half or the lower half", None),
        ("The prices got lower.", None),
        ("no idea", None),
        ("", None),
        ("upper half\nlower half", None),
    ],
)
def test_one_half_is_read_and_two_are_not(text: str, half: str | None) -> None:
    assert read_half(text) == half


@given(st.text(max_size=300))
def test_any_text_can_be_read_without_falling_over(text: str) -> None:
    assert read_yes_or_no(text) in {True, False, None}
    assert read_half(text) in {"upper", "lower", None}


def recorded(kind: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    return [row for row in rows if row["kind"] == kind]


@beside_the_checkout
def test_every_recorded_answer_to_step_by_step_is_read_as_it_begins() -> None:
    """All of them begin with ``1. Yes`` or ``1. No``; a reason that contradicts this changes nothing."""
    told = Counter()  # type: Counter[bool]
    for row in recorded("step_by_step"):
        expected = {"1. Y": True, "1. N": False}[row["reply"][:4]]
        assert read_yes_or_no(row["reply"]) is expected
        told[expected] += 1
    assert told == {False: 944, True: 71}


@beside_the_checkout
def test_every_recorded_answer_to_binary_search_is_read() -> None:
    told = Counter(read_half(row["reply"]) for row in recorded("binary_search"))
    assert told == {"lower": 224, "upper": 133}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"contains_mistake": false}', False),
        ("The answer is: no", False),
        ("<answer>Yes</answer>", True),
        ("\\boxed{Yes}", True),
        ("\u2705 Yes", True),
        ("1. [Yes]\n2. Reason: it misread", True),
        ("Does it contain a mistake? **No**. It's fine", False),
        ("Contains mistake: No", False),
        ("Mistake: none", False),
        ("Yes and no", None),
        ("I don't think there is a mistake, but then there is a mistake.", None),
        ("Is it no or yes?</think>1. Yes", True),
    ],
)
def test_a_two_way_answer_is_read_however_it_is_laid_out(text: str, *, said: bool | None) -> None:
    assert read_yes_or_no(text) is said


@pytest.mark.parametrize(
    ("text", "half"),
    [
        ("<answer>lower half</answer>", "lower"),
        ("upper_half", "upper"),
        ("the bottom half", "lower"),
        ("the upper part", "upper"),
        ("In the upper half A searched. In the lower half it repeated this. So: upper half", "upper"),
        ("The upper half is fine; the lower half contains the error.", "lower"),
        ("either upper or lower half", None),
        ("Neither the upper half nor the lower half.", None),
    ],
)
def test_a_half_is_read_however_it_is_put(text: str, half: str | None) -> None:
    assert read_half(text) == half
