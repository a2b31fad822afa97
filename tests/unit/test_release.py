"""A release changes the version in all places, and its provenance names each file by digest."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from tools.release import (
    LINES,
    NOT_YET,
    ROOT,
    UNRELEASED,
    ReleaseError,
    build,
    provenance,
    set_version,
    version_of,
)

NOW: Final = datetime(2030, 1, 2, tzinfo=UTC)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files that contain the version."""
    for name in (*LINES, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def add_notes(tree: Path, text: str) -> Path:
    """Add notes that are unreleased; return the change notes."""
    notes = tree / "CHANGELOG.md"
    written = notes.read_text(encoding="utf-8")
    notes.write_text(written.replace(UNRELEASED, f"{UNRELEASED}\n{text}\n", 1), encoding="utf-8")
    return notes


def test_the_version_is_written_everywhere_and_the_notes_are_dated(tree: Path) -> None:
    notes = add_notes(tree, "- A change.")
    set_version(tree, "0.2.0rc1", NOW)
    assert version_of(tree) == "0.2.0rc1"
    for name, line in LINES.items():
        assert line.format("0.2.0rc1") in (tree / name).read_text(encoding="utf-8")
    assert "## Unreleased\n\n## 0.2.0rc1 (2030-01-02)\n\n- A change." in notes.read_text(encoding="utf-8")


def test_a_version_whose_notes_are_already_written_gets_its_date(tree: Path) -> None:
    notes = add_notes(tree, f"## 0.2.0 {NOT_YET}\n\n- A change.")
    set_version(tree, "0.2.0", NOW)
    assert "## Unreleased\n\n## 0.2.0 (2030-01-02)\n\n- A change." in notes.read_text(encoding="utf-8")
    with pytest.raises(ReleaseError, match="has a section already"):
        set_version(tree, "0.2.0", NOW)


def test_unreleased_notes_beside_those_of_the_version_are_not_left_behind(tree: Path) -> None:
    add_notes(tree, f"- Another change.\n\n## 0.2.0 {NOT_YET}\n\n- A change.")
    with pytest.raises(ReleaseError, match="move them to"):
        set_version(tree, "0.2.0", NOW)


@pytest.mark.parametrize("version", ["", "1", "v1.0.0", "1.0.0; rm -rf /", "1.0"])
def test_what_is_no_version_is_refused_and_nothing_is_written(tree: Path, version: str) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    with pytest.raises(ReleaseError, match="is not a version"):
        set_version(tree, version, NOW)
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before


def test_a_version_is_released_once_and_never_without_notes(tree: Path) -> None:
    add_notes(tree, "- A change.")
    set_version(tree, "0.2.0", NOW)
    with pytest.raises(ReleaseError, match="has a section already"):
        set_version(tree, "0.2.0", NOW)
    with pytest.raises(ReleaseError, match="nothing under"):
        set_version(tree, "0.3.0", NOW)


def test_a_folder_with_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ReleaseError, match="is not empty"):
        build(tmp_path)


def test_provenance_names_files_by_digest_and_the_commit(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    statement = provenance([wheel], commit="c" * 40, is_clean=False, version="0.2.0")
    assert statement["subject"] == [{"name": "a.whl", "digest": {"sha256": sha256(b"wheel").hexdigest()}}]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": "c" * 40}
    assert definition["internalParameters"]["clean"] is False
