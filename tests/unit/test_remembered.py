"""What an experiment was given is kept for the next one, without secrets, and damaged files cost nothing."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from analyzer.experiment.running.remembered import remember, remembered
from analyzer.records.proof_records import Remembered

ASKED = Remembered(
    options=("--check", "grep -q 480", "--allow-tool", "look up", "--allow-tool", "read"),
    command=("python", "my agents.py", "$(rm -rf /)"),
)


def test_it_is_found_under_the_service_and_quoted_as_a_shell_reads_it(tmp_path: Path) -> None:
    assert remember(tmp_path, "tickets", ASKED)
    assert remembered(tmp_path, "tickets") == ASKED
    assert remembered(tmp_path, "other") is None
    assert ASKED.line("-x; ls").startswith("blamespan experiment '-x; ls' --check 'grep -q 480' ")
    assert ASKED.line("r").endswith("-- python 'my agents.py' '$(rm -rf /)'")
    assert ASKED.values("--allow-tool") == ["look up", "read"]
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "word",
    [
        "sk-proj-aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7bC9dE1fG3",
        "--api-key=x",
        "DB_PASSWORD=x",
        "https://user:hunter2secret@example.org/",
        "x" * 9_000,
    ],
)
def test_a_command_with_a_secret_is_not_kept(tmp_path: Path, word: str) -> None:
    asked = Remembered(options=("--expect", "480"), command=("python", "agents.py", word))
    assert not remember(tmp_path, "tickets", asked)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_no_service_has_used_is_not_made(tmp_path: Path) -> None:
    assert not remember(tmp_path / "none", "tickets", ASKED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "[" * 100_000,
        '["tickets"]',
        '{"tickets": 1}',
        '{"tickets": {"command": "rm -rf /", "options": []}}',
        '{"tickets": {"command": ["x"], "options": ["--expect"]}, "y": {"command": [1], "options": []}}',
    ],
)
def test_a_damaged_file_says_nothing_and_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "experiments.json").write_text(content)
    asked = Remembered(options=("--expect", "480"), command=("x",))
    assert remembered(tmp_path, "tickets") is None
    assert remember(tmp_path, "tickets", asked)
    assert remembered(tmp_path, "tickets") == asked


def test_the_latest_hundred_services_are_kept(tmp_path: Path) -> None:
    for number in range(130):
        remember(tmp_path, str(number), ASKED)
    known = json.loads((tmp_path / "experiments.json").read_text())
    assert next(iter(known)) == "30"
    assert len(known) == 100
