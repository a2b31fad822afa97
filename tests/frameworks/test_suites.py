"""Test suites of two frameworks, as projects write them, with the pytest plugin: who broke a failing test.

Each runs in an environment of its own, with the framework and what the plugin needs (``suites/``). Installed
as in ``test_live.py``: always in the gate; elsewhere a suite that is not installed is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.frameworks.catalogue import FOLDER, SUITES
from tests.frameworks.play import ROOT
from tests.frameworks.test_live import interpreter

CONTENT = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
}
OFF = ("-p", "analyzer.cli.pytest_plugin")
ON = (*OFF, "--blamespan")
SECTION = "blamespan: who broke it"


@pytest.fixture(params=sorted(SUITES))
def suite(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """The suite's folder, and the interpreter of its environment."""
    python = interpreter(SUITES[request.param])
    framework = request.param.removeprefix("suite_")
    shutil.copy(FOLDER / "suites" / framework / "agents.py", tmp_path / "agents.py")
    shutil.copy(FOLDER / "suites" / framework / "fixtures.py", tmp_path / "conftest.py")
    shutil.copy(FOLDER / "suites" / "desk_tests.py", tmp_path / "test_desk.py")
    return tmp_path, python


def run(suite: tuple[Path, Path], *options: str) -> subprocess.CompletedProcess[str]:
    folder, python = suite
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), **CONTENT}
    return subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_each_failing_test_names_its_planted_culprit(suite: tuple[Path, Path]) -> None:
    said = run(suite, *ON, "--junitxml=junit.xml")
    assert "2 failed, 3 passed" in said.stdout, said.stdout + said.stderr
    first, second = said.stdout.split(SECTION)[1:]
    assert first.splitlines()[1].startswith("analyst, step ")
    assert "3,630" in first.splitlines()[1]
    assert second.splitlines()[1].startswith("researcher, step ")
    assert "211" in second.splitlines()[1]
    xml = (suite[0] / "junit.xml").read_text()
    assert [f'"blamespan.agent" value="{agent}"' in xml for agent in ("analyst", "researcher")] == [True] * 2
    assert xml.count('"blamespan.agent"') == 2


def test_passing_tests_are_unaffected_and_off_nothing_is_said(suite: tuple[Path, Path]) -> None:
    passing = run(suite, *ON, "-k", "total or without")
    assert (passing.returncode, "blamespan" in passing.stdout) == (0, False), passing.stdout
    off = run(suite, *OFF)
    assert "2 failed, 3 passed" in off.stdout
    assert SECTION not in off.stdout
