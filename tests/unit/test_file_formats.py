"""Each registered format has an example that is recognised, read and judged; the page lists them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analyzer.api.local import attribute, read_runs
from analyzer.recordings.file_text import split_text
from analyzer.recordings.formats import FORMATS
from analyzer.recordings.recording import FileFormat
from semconv.model import Status, StepKind
from tools.references.files_reference import PAGE, page

EXAMPLES = Path(__file__).parents[2] / "examples" / "files"
each_format = pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.example)
each_with_tools = pytest.mark.parametrize(
    "one", [one for one in FORMATS if one.records_tools], ids=lambda one: one.example
)


@each_format
def test_only_its_own_format_recognises_an_example(one: FileFormat) -> None:
    text = split_text((EXAMPLES / one.example).read_bytes())
    assert text is not None
    assert [other.name for other in FORMATS if other.recognizes(text.records)][:1] == [one.name]


@each_with_tools
def test_an_example_shows_the_agent_its_call_and_what_failed(one: FileFormat) -> None:
    """All examples tell one story: a tool fails, and the agent answers with a time from nowhere."""
    (run,) = read_runs(EXAMPLES / one.example)
    steps = run.trajectory.steps
    (tool,) = [step for step in steps if step.kind is StepKind.TOOL]
    assert tool.target == "tide_table"
    assert "Dover" in tool.input
    assert "tide service cannot be reached" in tool.error + tool.output
    assert run.trajectory.task == "When is high tide at Dover tomorrow?"
    assert run.trajectory.output == "High tide at Dover is at 14:20 tomorrow."


@each_with_tools
def test_an_example_is_judged_and_its_agent_named(one: FileFormat) -> None:
    verdict = attribute(EXAMPLES / one.example)
    assert verdict.status in {Status.ATTRIBUTED, Status.SUSPECTED}
    assert re.sub("[-_]", " ", verdict.agent or "") == re.sub("[-_]", " ", one.agent or "harbour desk")


@pytest.mark.parametrize(
    "one", [one for one in FORMATS if not one.records_tools], ids=lambda one: one.example
)
def test_an_example_without_tools_shows_task_agent_and_answer(one: FileFormat) -> None:
    (run,) = read_runs(EXAMPLES / one.example)
    (step,) = run.trajectory.steps
    assert (step.agent, step.kind) == ("Harbour Desk", StepKind.LLM)
    assert run.trajectory.task == "When is high tide at Dover tomorrow?"
    assert run.trajectory.output == step.output == "High tide at Dover is at 14:20 tomorrow."


@each_format
def test_each_row_of_the_page_says_how_to_get_such_a_file(one: FileFormat) -> None:
    (row,) = [line for line in page().splitlines() if f"`examples/files/{one.example}`" in line]
    assert [cell.strip() for cell in row.strip("|").split(" | ")][:2] == [one.name, one.how]
    assert one.how


def test_the_page_lists_the_formats() -> None:
    if not PAGE.is_file():
        pytest.skip("the docs are not beside the tests (a built wheel is tested)")
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make fix`"


def test_all_examples_belong_to_a_format() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {one.example for one in FORMATS}
