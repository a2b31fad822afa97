"""Dependencies are pinned with hashes, and an audit without an answer never counts as passed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tools.audit import NOT_CHECKED, PINNED, UNREACHABLE, VULNERABLE, report, result


def test_every_pinned_dependency_has_hashes() -> None:
    if not PINNED.is_file():
        pytest.skip("the pinned set is not beside the tests (a built wheel is tested)")
    entries = re.split(r"\n(?=[a-z0-9])", PINNED.read_text(encoding="utf-8").strip(), flags=re.IGNORECASE)
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+==[^\s;]+", entry), entry[:60]
        assert "--hash=sha256:" in entry, entry[:60]
    assert "://" not in PINNED.read_text(encoding="utf-8")  # no index of somebody's own


def test_the_constraints_are_the_tested_versions() -> None:
    """``pip install -c`` takes no hashes; without it, a user gets versions that nobody tested."""
    if not PINNED.is_file():
        pytest.skip("the pinned set is not beside the tests (a built wheel is tested)")
    pinned = re.findall(r"^([A-Za-z0-9].*?) *\\$", PINNED.with_name("dev.txt").read_text(), re.MULTILINE)
    _, *constraints = PINNED.with_name("constraints.txt").read_text().splitlines()
    assert constraints == pinned


def _entry(**more: Any) -> dict[str, Any]:
    return {"name": "a", "version": "1", "vulns": [], **more}


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([_entry()], 0),
        ([_entry(), _entry(vulns=[{"id": "CVE-1"}])], VULNERABLE),
        ([_entry(), {"name": "b", "skip_reason": "not found"}], UNREACHABLE),
        ([{"name": "b", "skip_reason": "not found"}], UNREACHABLE),
    ],
)
def test_packages_that_were_not_looked_up_are_not_reported_as_safe(
    found: list[dict[str, Any]], code: int
) -> None:
    assert report(found) == code


def test_a_release_lists_packages_that_were_not_looked_up() -> None:
    """``audit.json`` in the release's folder is pip-audit's own result, and never an invented one."""
    found = {"dependencies": [_entry()], "fixes": []}
    assert result(json.dumps(found), "") == found
    partly = {"dependencies": [_entry(), {"name": "b", "skip_reason": "not found"}], "fixes": []}
    said = {NOT_CHECKED: "1 of 2 dependencies could not be looked up"}
    assert result(json.dumps(partly), "") == partly | said
    for printed in ("", "{}", "no JSON"):
        assert result(printed, "no route to pypi.org\n") == {
            NOT_CHECKED: "the advisories cannot be reached: no route to pypi.org"
        }
