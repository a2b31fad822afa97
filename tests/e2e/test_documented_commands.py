"""Commands on the pages work: console blocks are run, and the options in other blocks exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.cli.main import COMMANDS
from analyzer.telemetry.metric_table import METRICS
from collector_processor.settings import Settings
from tests.e2e.line import environment
from tools.markdown_blocks import DOCS, ROOT, blocks, pages, session
from tools.references.cli_reference import command

BIN: Final = Path(sys.executable).parent
SESSIONS: Final = {
    "quickstart.md": ("stockist, at step 0",),
    "cookbook.md": ("counter 2 of 2", "broken by counter at step 1", "the build fails here"),
    "history.md": ("12 steps added", "wrong_computation", "planner"),
    "operations.md": ('"check": "settings"',),
}
"""Pages whose console blocks are run, with their expected output. Blocks of other pages are run by other
tests, or take hours."""
LONGEST_S: Final = 600
SHELL: Final = frozenset({"sh", "console"})
SETTING: Final = re.compile(r"\bBLAMESPAN_[A-Z][A-Z_]*[A-Z]\b")
METRIC: Final = re.compile(r"\bblamespan_[a-z_]+[a-z]\b")
NOT_OURS: Final = frozenset(
    {"BLAMESPAN_ENDPOINT", "BLAMESPAN_HEADLESS_SERVICE", "BLAMESPAN_SEED", "BLAMESPAN_TRIAL"}
    | {"BLAMESPAN_RUN", "BLAMESPAN_TASK"}
)
"""Variables of the Collector's configurations, and those that a trial sets for its workflow."""


@pytest.mark.skipif(not (BIN / "blamespan").exists(), reason="the command is not installed")
@pytest.mark.parametrize(("name", "said"), SESSIONS.items(), ids=list(SESSIONS))
def test_a_pages_session_runs_from_top_to_bottom(name: str, said: tuple[str, ...], tmp_path: Path) -> None:
    ended = run(session(DOCS / name), tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [words for words in said if words not in ended.stdout] == []


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = environment(data_dir=str(folder / "data"), PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip


def calls(page: Path) -> Iterator[list[str]]:
    """Yield the words of each blamespan command in a page's shell blocks."""
    for block in blocks(page):
        if block.language in SHELL:
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from _call(line)


def _call(line: str) -> Iterator[list[str]]:
    found = re.search(rf"(?:^|[ =])blamespan ((?:{'|'.join(COMMANDS)})\b.*)", line)
    if found:
        words = shlex.split(found[1].partition(" #")[0].partition(" > ")[0], comments=True)
        ends = [words.index(mark) for mark in ("||", "--") if mark in words]  # after -- another's command
        yield words[: min(ends, default=None)]


@pytest.mark.parametrize("page", [*pages(), ROOT / "README.md"], ids=lambda page: page.stem)
def test_commands_and_options_in_shell_blocks_exist(page: Path) -> None:
    unknown = []
    for words in calls(page):
        known = options(_called(words))
        unknown += [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    assert unknown == []


def _called(words: Sequence[str]) -> Any:
    """Return the command that is called, or the one of its own commands."""
    found = command(words[0])
    return found.commands[words[1]] if hasattr(found, "commands") else found


def options(found: Any) -> set[str]:
    return {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_the_pages_have_commands_to_check() -> None:
    assert sum(len(list(calls(page))) for page in pages()) > 15


@pytest.mark.parametrize("page", [*pages(), ROOT / "README.md"], ids=lambda page: page.stem)
def test_settings_that_are_named_exist(page: Path) -> None:
    known = {f"BLAMESPAN_{name.upper()}" for name in Settings.model_fields} | NOT_OURS
    named = set(SETTING.findall(page.read_text(encoding="utf-8")))
    assert {name for name in named - known if not _is_beginning(name, known)} == set()


def _is_beginning(name: str, known: set[str]) -> bool:
    """Return whether it stands for several variables: ``BLAMESPAN_TLS_…``."""
    return any(each.startswith(f"{name}_") for each in known)


@pytest.mark.parametrize("name", ["operations.md", "cookbook.md"])
def test_metrics_that_are_named_exist(name: str) -> None:
    known = {one.sample_name for one in METRICS}
    assert set(METRIC.findall((DOCS / name).read_text(encoding="utf-8"))) - known == set()
