"""Transcripts in Markdown are read if nothing else can be meant; JSON in a fence is JSON."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.read_files import read_recording
from benchmarks.hostile.files import read
from semconv.model import Status
from tests.message_runs import ANSWER, ERROR, TASK, told
from tests.security.mutations import mutate

EXAMPLE = Path(__file__).parents[2] / "examples" / "files" / "openai-chat.json"
AGAIN = "Is that sure?"
TURNS = (("User", TASK), ("Assistant", ANSWER), ("User", AGAIN), ("Assistant", f"Yes.\n\n{ANSWER}"))
SEEN = ("Tool", f"Error: {ERROR}")


def transcript(*turns: tuple[str, str], form: str = "**{}:** {}", joint: str = "\n\n") -> str:
    return joint.join(form.format(*turn) for turn in turns)


@pytest.mark.parametrize(
    "text",
    [
        "The desk in short.\n\n" + transcript(*TURNS),
        "An example:\n\n```\n" + transcript(*TURNS) + "\n```\n",
        "# Words\n\n" + transcript(("User", "Whoever asks."), ("Assistant", "The program that answers.")),
        transcript(
            ("Interviewer", "Why tides?"), ("AI", "The moon."), ("Interviewer", "Only?"), ("AI", "No.")
        ),
        transcript(("Jo", "Ready?"), ("Ann", "Yes."), ("Jo", "Go."), ("Ann", "Gone.")),
        "**User:** Jo Smith  \n**Created:** 1/2/2026\n\n## Prompt:\nHello\n\n## Response:\nHi\n",
        transcript(("User", "Hello?"), ("User", "Anybody?")),
        transcript(("Assistant", "Mind the gap."), ("User", "Which?"), ("Assistant", "This.")),
        transcript(("User", ""), ("Assistant", ""), ("User", "")),
        transcript(*(("Question", "2 + 3?"), ("Answer", "2 + 3 = 6")) * 2),
        transcript(*(("Prompt", "Add 2 and 3."), ("Response", "2 + 3 = 6")) * 2),
        transcript(
            ("System", "Debian"), ("User", "root"), ("Agent", "puppet"), *(SEEN, ("User", "jo"), SEEN)
        ),
        "# User\n\nMay log in.\n\n# Assistant\n\nAnswers.\n\n# User\n\nMay log out.\n",
    ],
    ids=[
        *("prose before it", "in a fence", "glossary", "interview", "people", "head of an exporter"),
        *("one speaker", "a program first", "empty"),
        *("questions", "prompts", "a host", "titles"),
    ],
)
def test_what_only_resembles_a_transcript_is_refused(text: str) -> None:
    with pytest.raises(UnreadableInput):
        read_recording(text.encode())


def test_the_refusal_of_a_text_says_how_a_transcript_looks() -> None:
    with pytest.raises(
        UnreadableInput, match=r"begin with \*\*User:\*\* and \*\*Assistant:\*\*, one of them twice"
    ):
        read_recording(transcript(*TURNS[:2]).encode())


@pytest.mark.parametrize("form", ["**{}:** {}", "**{}**: {}", "**{}:**\n\n{}\n\n---"])
@pytest.mark.parametrize("title", ["", "# Tides\n\n", "\ufeff---\r\n\r\n"])
def test_a_transcript_is_a_dialogue(form: str, title: str) -> None:
    (found,) = read_runs((title + transcript(*TURNS, form=form)).encode())
    assert found.trajectory.task == TASK
    assert told(found.trajectory) == [
        ("assistant", "llm", text) for role, text in TURNS if role == "Assistant"
    ]
    assert attribute(transcript(*TURNS, form=form).encode()).status is Status.NO_FAILURE


def test_other_headings_and_lines_in_fences_belong_to_the_answer() -> None:
    said = f"**Note:** low water is early.\n\n```\n**User:** is a heading\n```\n{ANSWER}"
    (found,) = read_runs(transcript(("You", TASK), ("Claude", said), ("You", AGAIN)).encode())
    assert told(found.trajectory) == [("Claude", "llm", said)]


def test_a_tool_may_speak() -> None:
    turns = [("Human", TASK), ("AI", "I look."), ("Tool", f"Error: {ERROR}"), ("AI", ANSWER)]
    assert attribute(transcript(*turns).encode()).status is Status.SUSPECTED


def test_json_in_a_fence_is_read_and_two_fences_are_refused() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    fenced = f"```json\n{text}\n```\n"
    assert read_recording(fenced.encode()) == read_recording(text.encode())
    with pytest.raises(UnreadableInput):
        read_recording((fenced + fenced).encode())


def test_a_damaged_transcript_is_read_or_refused_in_one_line() -> None:
    chance, text = Random(5), transcript(*TURNS, ("Tool", "```\n**User:** x\n```")).encode()
    found = [read(mutate(text, chance)) for _ in range(500)]
    assert any(found)
    assert not all(found)
