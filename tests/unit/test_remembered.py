"""What an experiment was given is kept for the next one, without secrets, and damaged files cost nothing."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from analyzer.experiment.kept_experiments import remember, remembered
from analyzer.records.proof_records import Remembered
from collector_processor.otlp import NO_TENANT, Tenant

ASKED = Remembered(
    options=("--check", "grep -q 480", "--allow-tool", "look up", "--allow-tool", "read"),
    command=("python", "my agents.py", "$(rm -rf /)"),
)


def test_the_command_is_found_by_its_service_and_quoted_for_a_shell(tmp_path: Path) -> None:
    assert remember(tmp_path, NO_TENANT, "tickets", ASKED)
    assert remembered(tmp_path, NO_TENANT, "tickets") == ASKED
    assert remembered(tmp_path, NO_TENANT, "other") is None
    assert ASKED.line("-x; ls").startswith("blamespan experiment '-x; ls' --check 'grep -q 480' ")
    assert ASKED.line("r").endswith("-- python 'my agents.py' '$(rm -rf /)'")
    assert ASKED.values("--allow-tool") == ["look up", "read"]
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_service_of_the_same_name_has_a_command_of_its_own_for_each_tenant(tmp_path: Path) -> None:
    shop, bank, other = (Tenant(f"x-scope-orgid={name}") for name in ("shop", "bank", "other"))
    of_bank = Remembered(options=("--expect", "1"), command=("bank",))
    assert remember(tmp_path, shop, "tickets", ASKED)
    assert remember(tmp_path, bank, "tickets", of_bank)
    found = [remembered(tmp_path, tenant, "tickets") for tenant in (shop, bank, other, NO_TENANT)]
    assert found == [ASKED, of_bank, None, None]


def test_a_service_named_like_another_tenants_key_has_not_its_command(tmp_path: Path) -> None:
    bank = Tenant("x-scope-orgid=bank")
    assert remember(tmp_path, bank, "tickets", ASKED)
    (key,) = json.loads((tmp_path / "experiments.json").read_text())
    assert remembered(tmp_path, NO_TENANT, key) is None
    assert remember(tmp_path, NO_TENANT, key, ASKED)
    assert remembered(tmp_path, bank, "tickets") is None


def test_an_entry_without_a_tenant_is_found_for_runs_without_a_tenant(tmp_path: Path) -> None:
    entry = {"options": ASKED.options, "command": ASKED.command}
    (tmp_path / "experiments.json").write_text(json.dumps({"tickets": entry}))
    assert remembered(tmp_path, NO_TENANT, "tickets") == ASKED
    assert remembered(tmp_path, Tenant("x-scope-orgid=shop"), "tickets") is None


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
    assert not remember(tmp_path, NO_TENANT, "tickets", asked)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_no_service_has_used_is_not_made(tmp_path: Path) -> None:
    assert not remember(tmp_path / "none", NO_TENANT, "tickets", ASKED)
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
def test_a_damaged_file_is_ignored_and_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "experiments.json").write_text(content)
    asked = Remembered(options=("--expect", "480"), command=("x",))
    assert remembered(tmp_path, NO_TENANT, "tickets") is None
    assert remember(tmp_path, NO_TENANT, "tickets", asked)
    assert remembered(tmp_path, NO_TENANT, "tickets") == asked


def test_the_latest_hundred_services_are_kept(tmp_path: Path) -> None:
    for number in range(130):
        remember(tmp_path, NO_TENANT, str(number), ASKED)
    known = json.loads((tmp_path / "experiments.json").read_text())
    assert next(iter(known)) == "30"
    assert len(known) == 100
