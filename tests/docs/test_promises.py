"""The table of the README's promises in tests/README.md is complete, and its tests run where it says."""

from __future__ import annotations

import re

import pytest

from tests.conftest import LEFT_TO_WHOLE
from tools.markdown_blocks import ROOT

TESTS = ROOT / "tests"
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (TESTS / "README.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "/test_" in line
]


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+/test_\w+\.py)`", cell)


def test_every_promise_of_the_readme_has_a_row() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
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
