from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.methods.free_text import read_half, read_yes_or_no

RECORDED = Path(__file__).parents[3] / "shared" / "datasets" / "recorded_replies.dev.jsonl.gz"
beside_the_checkout = pytest.mark.skipif(
    not RECORDED.exists(), reason="the recorded replies are not beside the checkout"
)


YES = (
    *("Yes", "yes, it does", "1) Yes", "**1. Yes**", "(1) YES - because", "- Yes", "Step 3: Yes"),
    *("1. Yes.\n2. Reason: it divides by zero", "1. **Yes**\n2. **Reason:** x", "1. Yes/No: Yes"),
    *("Answer: **Yes**\nReason: x", "Final answer: Yes.", '{"answer": "yes", "reason": "x"}'),
    *('```json\n{"Error": true}\n```', "The step contains a clear error in the sum."),
    *(
        "Let me look at it first.\n1. Yes.\n2. Reason: x",
        "<answer>Yes</answer>",
        "\\boxed{Yes}",
        "\u2705 Yes",
    ),
    *("<think>No, it seems fine. Or is it?</think>\n1. Yes.", "Is it no or yes?</think>1. Yes"),
    "1. [Yes]\n2. Reason: it misread",
)
NO = (
    *("no", "1) **No**", "No, there is no error here.", "I see no mistake in this step.", "Yes/No: No"),
    "1. No.\n2. Reason: all is well\nNo significant error detected in this step.",
    *('{"answer": "No."}', "1. No.\n2. Reason: yes, it is slow, but that harms nothing"),
    *('{"contains_mistake": false}', "The answer is: no", "Contains mistake: No", "Mistake: none"),
    "Does it contain a mistake? **No**. It's fine",
)
NEITHER = (
    *("", "maybe", "1. Yes/No", "It is hard to say, yes and no", "Yes and no", "notable"),
    *("1. Yes\n2. Reason: x\n1. No", "There is no doubt that it contains an error", "Yesterday it was fine"),
    "I don't think there is a mistake, but then there is a mistake.",
)


@pytest.mark.parametrize(
    ("text", "said"),
    [*((text, True) for text in YES), *((text, False) for text in NO), *((text, None) for text in NEITHER)],
)
def test_a_yes_or_a_no_is_read_in_any_layout_and_nothing_is_guessed(text: str, *, said: bool | None) -> None:
    assert read_yes_or_no(text) is said


@pytest.mark.parametrize(
    ("text", "half"),
    [
        ("upper half", "upper"),
        ("The answer is: **Lower Half**.", "lower"),
        ("lower", "lower"),
        ("Upper.", "upper"),
        ("first half", "upper"),
        ("upper_half", "upper"),
        ("the bottom half", "lower"),
        ("the upper part", "upper"),
        ('{"half": "lower"}', "lower"),
        ("<answer>lower half</answer>", "lower"),
        ("not the upper half, the lower half", "lower"),
        ("not in the upper half", "lower"),
        ("it is in the lower half rather than the upper half", "lower"),
        ("The upper half is more likely than the lower half", "upper"),
        ("The upper half is fine.\n\nFinal answer: lower half", "lower"),
        ("The upper half is fine; the lower half contains the error.", "lower"),
        ("In the upper half A searched. In the lower half it repeated this. So: upper half", "upper"),
        ("<think>the upper half? no</think>lower half", "lower"),
        ("lower half (steps 5-9)", "lower"),
        *((text, None) for text in ("either the upper half or the lower half", "either upper or lower half")),
        *((text, None) for text in ("The prices got lower.", "no idea", "", "upper half\nlower half")),
        ("Neither the upper half nor the lower half.", None),
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
