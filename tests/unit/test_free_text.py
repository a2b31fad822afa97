from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.methods.free_text import read_answer, read_step


@pytest.mark.parametrize(
    "text",
    [
        "Agent Name: WebSurfer\nStep Number: 4\nReason for Mistake: it clicked wrong",
        "**Agent Name:** WebSurfer\n**Step Number:** 4\n**Reason for Mistake:** it clicked wrong",
        "1. Agent Name: WebSurfer\n2. Step Number: 4\n3. Reason for Mistake: it clicked wrong",
        "1. **Agent Name**: WebSurfer\n2. **Step Number**: 4\n3. **Reason for Mistake**: it clicked wrong",
        "### Agent Name:\nWebSurfer\n### Step Number:\n4\n### Reason for Mistake:\nit clicked wrong",
        "- agent name: `WebSurfer`\n- step number: Step 4\n- reason: it clicked wrong",
        '{"agent": "WebSurfer", "step": 4, "reason": "it clicked wrong"}',
        '```json\n{"Agent Name": "WebSurfer", "Step Number": "4", "Reason": "it clicked wrong"}\n```',
        "Let me think.\n\nAgent Name: WebSurfer (thought)\nStep Number: 4.\nReason: it clicked wrong",
        "Agent: WebSurfer\nStep: 4 (the 2nd of 3 steps)\nReason: it clicked wrong",
        "Agent Name: WebSurfer\nStep Number: 4th\nReason for Mistake: it clicked wrong",
        "Mistake Agent: WebSurfer\nMistake Step: 4\nExplanation: it clicked wrong",
    ],
)
def test_what_a_careful_person_reads_is_read(text: str) -> None:
    answer = read_answer(text)
    assert (answer.agent, answer.step) == ("WebSurfer", 4)
    assert answer.reason.startswith("it clicked wrong")


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("1 (the 2nd of 3 steps)", 1),
        ("Step 4", 4),
        ("4", 4),
        ("4, that is, step 4", 4),
        ("Step 5 (index 4)", 4),
        ("5 (0-based: 4)", 4),
        ("4 or 12", None),
        ("4-6", None),
        ("between 4 and 6", None),
        ("3.5", None),
        ("-1", None),
        ("N/A", None),
        ("", None),
        ("v2", None),
        ("4 of 10", 4),
        ("4/10", 4),
        ("four", 4),
        ("[4]", 4),
        ("5 (1-indexed)", 4),
        ("5, counting from one", 4),
        ("4 (0-indexed)", 4),
        ("0 (1-based)", None),
    ],
)
def test_one_number_is_read_and_several_are_not(text: str, step: int | None) -> None:
    assert read_step(text) == step


def test_the_same_label_twice_is_read_if_both_agree() -> None:
    agree = "Agent Name: A_Expert\nStep Number: 2\n\nDetails\nAgent Name: The A_Expert is the one"
    assert read_answer(agree).agent == "A_Expert"
    assert read_answer("Agent Name: A\nAgent Name: B\nStep Number: 2").agent is None
    assert read_answer("Step Number: 2\nStep Number: 3").step is None


def test_nobody_is_an_answer_without_an_agent() -> None:
    answer = read_answer("Agent Name: None\nStep Number: N/A\nReason for Mistake: all was right")
    assert answer.says_none
    assert answer.agent is None
    assert answer.reason == "all was right"


@given(st.text(max_size=300))
def test_any_text_can_be_read_without_falling_over(text: str) -> None:
    answer = read_answer(text)
    assert answer.step is None or answer.step >= 0


def test_json_that_python_stumbles_over_is_read_as_far_as_it_goes() -> None:
    assert read_answer(f'{{"step": {"9" * 5_000}}} {{"agent": "a", "step": 4}}').step == 4
    assert read_answer(r'{"agent": "a", "step": 4, "reason": "cut \ud83d"}').reason == "cut \ufffd"


@pytest.mark.parametrize(
    "text",
    [
        "### Agent Name\nWebSurfer\n\n### Step Number\n4\n\n### Reason\nbad",
        "| Agent Name | Step Number | Reason |\n|---|:-:|---|\n| WebSurfer | 4 | bad |",
        "| **Agent Name** | WebSurfer |\n|---|---|\n| **Step Number** | 4 |",
        "<agent_name>WebSurfer</agent_name><step_number>4</step_number>",
        "Agent Name: WebSurfer, Step Number: 4, Reason for Mistake: a bad click, at step 2 it was fine",
        "Agent Name - WebSurfer\nStep Number \u2013 4",
        "Agent Name: [WebSurfer]\nStep Number: (4)",
        "\\boxed{Agent Name: WebSurfer, Step Number: 4}",
        '{"agent": "WebSurfer", "step": 4, "reason": "it cl',
        "{'agent': 'WebSurfer', 'step': 4}",
        '{"agent": "WebSurfer", "step": 4.0}',
        '{"answer": {"failure_responsible_agent": "WebSurfer", "decisive_error_step": "Step 4"}}',
        "The responsible agent is **WebSurfer** at **Step 4**, because it clicked.",
        "The first step looks odd.</think>\nAgent Name: WebSurfer\nStep Number: 4",
        "Step Number: 7</think>Agent Name: WebSurfer\nStep Number: 4",
    ],
)
def test_an_answer_is_read_however_it_is_laid_out(text: str) -> None:
    answer = read_answer(text)
    assert (answer.agent, answer.step) == ("WebSurfer", 4)


@pytest.mark.parametrize(
    "text",
    [
        "| Rank | Agent | Step |\n|---|---|---|\n| 1 | A | 4 |\n| 2 | B | 7 |",
        "The agent is A, at step 4 or step 7.",
        '{"agent": "A", "step": 4.5}',
        '{"first": {"step": [4]}, "second": {"step": [7]}}',
        "<think>Agent Name: A\nStep Number: 4\nNo, wait",
        "I'm sorry, I cannot help with step 4 of that.",
    ],
)
def test_an_ambiguous_answer_is_unreadable(text: str) -> None:
    assert read_answer(text).step is None


@pytest.mark.parametrize("text", ["<agent>" * 14_000, "agent is " * 11_000, "|a" * 50_000, ",agent" * 16_000])
def test_a_reply_without_an_answer_is_read_in_time(text: str) -> None:
    assert read_answer(text).step is None
