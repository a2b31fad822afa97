"""The pages that are made from the code are what the code says now."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest
import yaml

from tests.docs import api_reference, cli_reference, framework_pages
from tests.docs.blocks import DOCS, ROOT, pages
from tests.docs.framework_code import function_of_kit, instrumenting_lines
from tests.docs.frameworks import PAGES
from tests.frameworks.catalogue import RunScript, catalogue

NO_FRAMEWORK: Final = "none"
WEB: Final = ROOT / "analyzer" / "web"


def test_the_command_line_is_documented_as_it_is() -> None:
    assert cli_reference.PAGE.read_text(encoding="utf-8") == cli_reference.page(), (
        "run: python -m tests.docs.cli_reference"
    )


def test_the_api_is_documented_as_it_is_described() -> None:
    assert api_reference.PAGE.read_text(encoding="utf-8") == api_reference.page(), (
        "run: python -m tests.docs.api_reference"
    )


def test_every_page_of_the_service_that_is_named_is_served() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in WEB.glob("*.py"))
    named = re.findall(r"^\| `(/[^`]+)` \|", (DOCS / "web.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert named
    assert [path for path in named if f'"GET", "{path}"' not in sources] == []


def test_the_pages_on_frameworks_are_those_of_the_runs() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in framework_pages.FOLDER.iterdir()}
    assert written == framework_pages.pages(), "run: python -m tests.docs.framework_pages"


def test_every_framework_that_is_played_has_a_page() -> None:
    played = {run.framework for run in catalogue().values()} - {NO_FRAMEWORK}
    assert played - {page.framework for page in PAGES} == set(), "add it to tests/docs/frameworks.py"


def test_the_navigation_has_every_page_and_no_other() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = [name for section in yaml.safe_load(navigation)["nav"] for name in next(iter(section.values()))]
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in pages()), "see nav in mkdocs.yml"


@pytest.mark.parametrize("run", catalogue().values(), ids=lambda run: run.name)
def test_the_lines_that_are_shown_are_lines_of_the_script(run: RunScript) -> None:
    shown = instrumenting_lines(run.script)
    ast.parse(shown)
    lines = run.script.read_text().splitlines()
    assert [line for line in shown.splitlines() if line and line not in lines] == []


def test_a_function_that_the_kit_has_not_is_an_error() -> None:
    with pytest.raises(LookupError, match="has no function nobody"):
        function_of_kit("ag2_1_story", "nobody")
