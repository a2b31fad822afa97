"""Programs in other languages than Python: what pins them, and what is said of their versions."""

from __future__ import annotations

import re

import pytest

from tests.frameworks.catalogue import FOLDER, RunScript, catalogue
from tests.frameworks.languages import LANGUAGES, PROGRAMS, PYTHON, RUNNER, lay_out, pinned

OTHERS = [run for run in catalogue().values() if run.language != PYTHON]


@pytest.mark.parametrize("run", OTHERS, ids=lambda run: run.name)
def test_a_program_is_there_and_every_package_it_names_has_an_exact_version(run: RunScript) -> None:
    versions = dict(LANGUAGES[run.language].versions(run.requirements_file.read_text()))
    assert run.script.is_file()
    assert run.packages
    assert [name for name in run.packages if not re.fullmatch(r"\d[\w.-]*", versions.get(name, ""))] == []


def test_every_program_belongs_to_a_run() -> None:
    kept = {path for language in PROGRAMS.iterdir() for path in language.iterdir() if path.name != "kit"}
    assert kept == {run.programs for run in OTHERS}


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_environment_is_another_once_a_file_that_pins_it_changes(
    language: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before, after = tmp_path_factory.mktemp("before"), tmp_path_factory.mktemp("after")
    name = LANGUAGES[language].manifest
    (before / name).write_text("one")
    (after / name).write_text("two")
    assert pinned(language, before) != pinned(language, after)


@pytest.mark.parametrize("run", OTHERS, ids=lambda run: run.name)
def test_a_set_is_laid_out_with_what_runs_its_programs(
    run: RunScript, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("set")
    assert lay_out(run.language, run.programs, folder)
    assert (folder / RUNNER).stat().st_mode & 0o111
    assert (folder / LANGUAGES[run.language].manifest).is_file()


def test_direct_packages_of_a_go_module_are_read_and_indirect_ones_left_out() -> None:
    text = "module m\n\nrequire (\n\texample.org/a/v3 v3.1.0\n\texample.org/b v1.0.0 // indirect\n)\n"
    assert dict(LANGUAGES["go"].versions(text)) == {"example.org/a/v3": "3.1.0"}


def test_an_alias_of_npm_has_the_version_of_its_package() -> None:
    text = '{"dependencies": {"ai6": "npm:ai@6.0.326", "@a/b": "1.2.3"}}'
    assert dict(LANGUAGES["javascript"].versions(text)) == {"ai6": "6.0.326", "@a/b": "1.2.3"}


def test_the_runs_of_python_know_nothing_of_programs() -> None:
    assert all(run.script.parent == (FOLDER / "runs") for run in catalogue().values() if run not in OTHERS)
