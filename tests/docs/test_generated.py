"""Pages generated from the code are current."""

from __future__ import annotations

import re
from typing import Final

import pytest
import yaml

from analyzer.inquiry.verdict import FailureMode
from tests.frameworks.catalogue import RunScript, catalogue
from tests.frameworks.languages import PYTHON
from tools.frameworks import framework_pages
from tools.frameworks.framework_code import function_of_kit
from tools.frameworks.framework_notes import PAGES
from tools.frameworks.program_code import STORY, program_of
from tools.markdown_blocks import DOCS, ROOT, pages
from tools.references import api_reference, cli_reference, python_reference
from tools.references.run_sessions import PROGRAMS, Program, session, shown

NO_FRAMEWORK: Final = "none"
WEB: Final = ROOT / "analyzer" / "web"


def test_the_command_line_is_documented_as_it_is() -> None:
    assert cli_reference.PAGE.read_text(encoding="utf-8") == cli_reference.page(), (
        "run: python -m tools.references.cli_reference"
    )


def test_the_api_is_documented_as_it_is_described() -> None:
    assert api_reference.PAGE.read_text(encoding="utf-8") == api_reference.page(), (
        "run: python -m tools.references.api_reference"
    )


def test_the_public_python_api_is_documented_as_it_is() -> None:
    """Fails if the public surface changes: then the change notes must say so."""
    assert python_reference.PAGE.read_text(encoding="utf-8") == python_reference.page(), (
        "run: python -m tools.references.python_reference"
    )


def test_every_failure_mode_has_a_row_of_its_own() -> None:
    text = (DOCS / "failure-modes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?!Agent|TRAIL)", text, re.MULTILINE)
    assert [row for row in rows if row != "signals"] == [mode.value for mode in FailureMode]


def test_every_page_of_the_service_that_is_named_is_served() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in WEB.rglob("*.py"))
    named = re.findall(r"^\| `(/[^`]+)` \|", (DOCS / "web.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert named
    assert [path for path in named if f'"GET", "{path}"' not in sources] == []


def test_the_pages_on_frameworks_are_those_of_the_runs() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in framework_pages.FOLDER.iterdir()}
    assert written == framework_pages.pages(), "run: python -m tools.frameworks.framework_pages"


def test_every_framework_that_is_played_has_a_page() -> None:
    played = {run.framework for run in catalogue().values()} - {NO_FRAMEWORK}
    assert played - {page.framework for page in PAGES} == set(), "add it to framework_notes.py"


def test_the_navigation_has_every_page_and_no_other() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = [name for section in yaml.safe_load(navigation)["nav"] for name in next(iter(section.values()))]
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in pages()), "see nav in mkdocs.yml"


OTHERS: Final = [run for run in catalogue().values() if run.language != PYTHON]


@pytest.mark.parametrize("run", OTHERS, ids=lambda run: run.name)
def test_the_page_shows_how_a_program_is_instrumented_and_nothing_of_its_story(run: RunScript) -> None:
    shown = "".join(program_of(run))
    assert STORY in run.script.read_text() or "Office(" in run.script.read_text()
    assert all(name.rpartition("/")[2] in shown for name in run.packages)
    assert not re.search(r"look_?up|SCENARIO|registrar|concierge|purser", shown, re.IGNORECASE)


def test_a_function_that_the_kit_has_not_is_an_error() -> None:
    with pytest.raises(LookupError, match="has no function nobody"):
        function_of_kit("ag2_1_story", "nobody")


def test_make_runs_every_folder_of_tests() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    run = set(re.findall(r"\btests/\w+", makefile.partition("PLAIN :=")[2].partition("\n\n")[0]))
    assert run == {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/test_*.py")}


@pytest.mark.whole
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.command)
def test_a_program_is_judged_as_its_page_shows(program: Program) -> None:
    found = session(program)
    if found is None:
        pytest.skip("not installed here; `python -m tests.frameworks.install programs vercel_ai_v7` does it")
    assert found == shown()[program.command], "run: python -m tools.references.run_sessions"


def test_the_page_shows_every_program() -> None:
    assert set(shown()) == {one.command for one in PROGRAMS}
