"""Commands import only what they need: users wait for every import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import analyzer.cli.commands
from analyzer.cli.main import COMMANDS, run

HEAVY = (
    *("grpc", "aiohttp", "google.protobuf", "pydantic", "prometheus_client", "uvloop", "litellm"),
    *("sqlalchemy", "alembic", "psycopg"),
)
NEEDLESS = {
    "sklearn",
    "analyzer.service.all_in_one",
    "collector_processor.rebuild.decode",
    "analyzer.cli.commands.analyse.attribute",
}
PROGRAM = """
import json, sys
from analyzer.cli.main import run
run(sys.argv[1:])
sys.stdout.write("\\n" + json.dumps(sorted(sys.modules)))
"""


def imported(*arguments: str) -> frozenset[str]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, check=True, text=True, timeout=300
    )
    return frozenset(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_the_help_needs_no_library(arguments: list[str]) -> None:
    assert imported(*arguments).isdisjoint(HEAVY)


def test_a_benchmark_needs_neither_service_nor_traces_nor_training() -> None:
    found = imported("bench", "--help")
    assert "analyzer.evaluation.benchmark" in found
    assert found.isdisjoint(set(HEAVY) - {"pydantic"})
    assert found.isdisjoint(NEEDLESS)


def test_every_command_is_listed_by_its_first_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "Measure how often a method is right" in listed
    for name in COMMANDS:
        assert f" {name} " in listed
        assert run([name, "--help"]) == 0
        assert f" {name} [OPTIONS]" in capsys.readouterr().out


def test_every_file_of_a_command_is_listed() -> None:
    folder = Path(analyzer.cli.commands.__file__).parent
    own = {f"{path.parent.name}.{path.stem}" for path in folder.glob("*/*.py") if path.stem != "__init__"}
    assert own == set(COMMANDS.values())


@pytest.mark.parametrize("arguments", [["--", "steps"], ["steps"]])
def test_a_command_is_found_wherever_it_stands(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert "Missing argument" in capsys.readouterr().err
