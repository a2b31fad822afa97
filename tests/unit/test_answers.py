"""Where a failed run's answer came from, and what its root records about the end."""

from __future__ import annotations

import pytest

from analyzer.methods.without_model import judge_by_signals
from analyzer.signals.faults import root_error
from analyzer.signals.normalize import normalized
from analyzer.signals.registry import findings
from analyzer.signals.run_view import final_answer, read
from semconv.model import Blame, SpanStatus, Step, Trajectory
from tests.runs import failed_tool, run, step, tool


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("Paris has 2.1 million people", "Paris has 2.1 million people."),
        ("PARIS has\n2,100,000 people", "**Paris** has 2100000 people"),
        ("Paris has 2,100,000 people", "Paris has 2.1 million people"),
        ("Paris has 2.1 million people", "Paris has 2,100,000 people"),
    ],
)
def test_an_answer_that_a_tool_gave_is_no_unsupported_claim(given: str, said: str) -> None:
    trajectory = run(tool("reader", given), step("reader", said), task="How many people live in Paris?")
    assert not [f for f in findings(read(trajectory)) if f.signal == "unsupported_figure"]
    if normalized(given) == normalized(said):
        assert not [f for f in findings(read(trajectory)) if f.signal == "answer_origin"]


def ended(error: str, *steps: Step) -> Trajectory:
    return run(*steps, root_status=SpanStatus.ERROR, root_error=error)


def marked(trajectory: Trajectory) -> list[int]:
    return [finding.step for finding in root_error(read(trajectory))]


def test_a_root_error_that_repeats_a_steps_error_marks_that_step() -> None:
    refused = failed_tool("mailer", "SMTPError: refused", "mail")
    assert marked(ended("run failed: SMTPError refused", step("a", "x"), refused, step("b", "y"))) == [
        read(run(step("a", "x"), refused, step("b", "y"))).responsible_steps[1]
    ]


def test_a_root_error_that_names_an_agent_marks_its_last_step() -> None:
    steps = (step("planner", "x"), step("booker", "y"), step("writer", "z"))
    assert marked(ended("agent booker gave up", *steps)) == [1]


def test_a_root_error_that_speaks_of_no_step_marks_the_last() -> None:
    verdict = judge_by_signals(
        ended("boom", tool("reader", "2.1 million people"), step("reader", "2.1 million people."))
    )
    assert isinstance(verdict, Blame)
    assert (verdict.step, verdict.mode) == (1, "unhandled_error")
    assert "boom" in verdict.reason


def test_a_root_error_that_judges_the_answer_marks_no_step() -> None:
    assert marked(ended("AssertionError: expected 480", step("a", "x"), step("b", "450"))) == []


def test_a_root_without_an_error_marks_no_step() -> None:
    assert marked(run(step("a", "x"), step("b", "y"))) == []


def origins(*steps: Step, output: str, task: str = "task?") -> list[int]:
    """Return the steps in which, according to the signals, the answer first appears."""
    found = findings(read(run(*steps, output=output, task=task)))
    return [finding.step for finding in found if finding.signal == "answer_origin"]


class TestAnswersInProse:
    PROSE = (
        "I agree with all of it. After careful verification the command that was fixed is **BaseBagging**."
    )

    def test_what_prose_sets_off_is_its_answer(self) -> None:
        steps = (step("a", "I looked."), step("b", "It is BaseBagging."), step("c", self.PROSE))
        assert origins(*steps, output=self.PROSE) == [1]

    def test_that_a_closing_speech_is_the_last_accuses_nobody(self) -> None:
        speech = "It seems that we have all agreed that the information is accurate and the task complete."
        assert origins(step("a", "It is 4."), step("b", speech), output=speech) == []

    def test_a_short_sentence_with_a_figure_is_an_answer_as_it_stands(self) -> None:
        told = "Good news for all of us: the new panels on the roof will save about 9,266.14 euros a year."
        assert origins(step("a", "I looked."), step("b", told), output=told) == [1]

    def test_headings_are_no_answers(self) -> None:
        report = "**Plan:** " + "we went through all the steps that the manager had given us. " * 2
        assert origins(step("a", f"**Plan:** {report}"), output=report) == []

    def test_a_long_report_has_no_single_answer(self) -> None:
        report = "These are the things that we found out about the places that you asked for: " + " ".join(
            f"**Place {letter * 3}**" for letter in "abcdef"
        )
        assert origins(step("a", report), output=report) == []

    def test_what_ends_a_conversation_is_no_part_of_the_answer(self) -> None:
        steps = (step("a", "Honolulu, Quincy"), step("b", "Honolulu, Quincy\n\nTERMINATE"))
        assert origins(*steps, output="Honolulu, Quincy\n\n**TERMINATE**") == [0]
        assert final_answer(run(step("a", "It is 4."), step("b", "TERMINATE"))) == "It is 4."

    def test_the_numbers_of_code_links_and_paths_are_no_claims(self) -> None:
        addresses = "https://host.example/2023?id=4209 or ../2023/file-9163/x.csv"
        answer = f"See {addresses}:\n```python\nn = 777\n```\nIt is 88."
        found = findings(read(run(step("a", answer), output=answer, task="task?")))
        assert ["88" in f.reason for f in found if f.signal == "unsupported_figure"] == [True]
