"""The programs on the pages about frameworks are complete."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from tests.frameworks.catalogue import RunScript, catalogue
from tests.frameworks.languages import PYTHON
from tools.frameworks.framework_code import YOURS, instrumenting_program

IMPORT: Final = "from my_agents import "


PYTHONS: Final = [run for run in catalogue().values() if run.language == PYTHON]


@pytest.mark.parametrize("run", PYTHONS, ids=lambda run: run.name)
def test_the_program_that_is_shown_is_complete_and_of_the_scripts_lines(run: RunScript) -> None:
    shown = instrumenting_program(run.script)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F", "--quiet", "-"],
        input=shown, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), "a name is undefined, or an import unused"
    lines = [*run.script.read_text().splitlines(), ""]
    added = [line.strip() for line in shown.splitlines() if line not in lines]
    assert [line for line in added if line != YOURS and not line.startswith(IMPORT)] == []
    assert shown.count(IMPORT) == 1
