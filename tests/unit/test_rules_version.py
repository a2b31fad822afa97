"""The version of the rules follows every change of the code and the tables that judge runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.analyses.analyst import DECIDING, rules_version, version_of
from analyzer.methods.registry import METHODS


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    (folder / "words").mkdir(parents=True)
    (folder / "weights.py").write_text("LOOP = 0.4\n")
    (folder / "words" / "nl.toml").write_text('excuse = ["helaas"]\n')
    return folder


@pytest.mark.parametrize("name", ["weights.py", "words/nl.toml"])
def test_a_changed_file_is_another_version(rules: Path, name: str) -> None:
    before = version_of([rules])
    (rules / name).write_text((rules / name).read_text().replace("a", "A").replace("4", "5"))
    assert version_of([rules]) != before


def test_a_new_a_moved_and_a_removed_file_are_other_versions(rules: Path) -> None:
    seen = {version_of([rules])}
    (rules / "limits.py").write_text("")
    seen.add(version_of([rules]))
    (rules / "limits.py").rename(rules / "words" / "limits.py")
    seen.add(version_of([rules]))
    (rules / "weights.py").unlink()
    assert len(seen | {version_of([rules])}) == 4


def test_what_decides_nothing_changes_no_version(rules: Path) -> None:
    before = version_of([rules])
    (rules / "__pycache__").mkdir()
    (rules / "__pycache__" / "weights.cpython-313.pyc").write_bytes(b"\0")
    (rules / "weights.py").write_bytes(b"LOOP = 0.4\r\n")
    assert version_of([rules]) == before


def test_the_installed_rules_have_a_short_version_that_stays() -> None:
    assert rules_version() == rules_version()
    assert len(rules_version()) == 12
    assert {"analyzer/signals", "semconv/dialects"} <= set(DECIDING)


def test_every_method_is_among_the_rules() -> None:
    modules = {type(entry.build(1_000, "x")).__module__ for entry in METHODS.values()}
    files = {f"{module.replace('.', '/')}.py" for module in modules}
    assert {file for file in files if not file.startswith(DECIDING)} == set()
