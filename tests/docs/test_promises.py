"""What users can rely on is in the table of tests/README.md; each promise of SECURITY.md names its tests."""

from __future__ import annotations

import re

import pytest

from analyzer.recordings.formats import FORMATS
from tests.conftest import LEFT_TO_WHOLE
from tools.markdown_blocks import ROOT

TESTS = ROOT / "tests"
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (TESTS / "README.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "/test_" in line
]

PROMISED = [
    line.strip("|").rpartition("|")
    for page in ("SECURITY.md", "docs/threat-model.md")
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
    and line.rpartition("|")[0].rpartition("|")[2].strip().startswith(("`tests/", "`python -m "))
]
"""Rows of the security pages whose last cell names a test: what is promised, and the cell."""
IN_THREE_MINUTES = 600
"""Words of the README."""
UNKNOWN = ("carriers?", "hold mode", "late mode", "tail sampl", "Wilson", "out of fold", "dev half")
"""Words that a newcomer cannot know."""
ON_A_PAGE = 1_000
"""Words of a page that is read in one go."""


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+/test_\w+\.py)`", cell)


def test_what_users_can_rely_on_has_a_row() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    promises = re.findall(
        r"^- (.+)$", text.partition("## What you can rely on")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert len(promises) > 5
    rows = {row[0] for row in ROWS}
    assert [promise for promise in promises if not any(promise.startswith(row) for row in rows)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_tests_of_a_row_are_run_by_the_command_above_them(row: tuple[str, str, str]) -> None:
    _, quick, whole = row
    assert named(quick), "no promise is left to services alone"
    assert named(whole)
    for file in [*named(quick), *named(whole)]:
        assert (TESTS / file).exists(), file
    assert [file for file in named(quick) if file.partition("/")[0] in LEFT_TO_WHOLE] == []
    assert [file for file in named(whole) if file.partition("/")[0] not in LEFT_TO_WHOLE] == []


def test_the_readme_is_read_in_three_minutes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= IN_THREE_MINUTES
    assert [word for word in UNKNOWN if re.search(rf"\b{word}\b", text, re.IGNORECASE)] == []


def test_the_readme_counts_the_formats() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\[(\d+) formats\]", text) == [str(len(FORMATS))]


def test_the_security_policy_is_one_page() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert len(text.split()) < ON_A_PAGE
    promises = text.partition("## Promises")[2].partition("\n## ")[0]
    rows = [line for line in promises.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert [row for row in rows if "`tests/" not in row] == []


@pytest.mark.parametrize("row", PROMISED, ids=lambda row: row[0][:60].strip())
def test_every_promise_and_every_defence_names_tests_that_exist(row: tuple[str, str, str]) -> None:
    files = re.findall(r"`(tests/[\w/]+\.py)", row[2])
    modules = re.findall(r"`python -m ([\w.]+)", row[2])
    assert [*files, *modules]
    paths = [*files, *(f"{module.replace('.', '/')}.py" for module in modules)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
