"""Each skill of ``skills/``: every command runs as printed, in order, on a program with a scripted model."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.e2e import test_run_command
from tests.e2e.test_run_command import PLAIN, environment, quick, serving
from tools.markdown_blocks import ROOT, Block, blocks

BIN: Final = Path(sys.executable).parent
SKILLS: Final = ROOT / "skills"
NAMES: Final = ("diagnose-failed-run", "fix-and-check", "instrument-program")
RIGHT: Final = "1,200 + 1,450 + 980 = 3,630."
FIXED: Final = PLAIN.replace("You are the analyst.", "You are the analyst. Check each sum.")
BETTER: Final = "a-larger-model"
UNNAMED: Final = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from semconv.instrument import llm, run
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
with run("ferry-office", tracer_provider=provider), llm("gpt-4o") as call:
    call.output("1,440 euros")
provider.shutdown()
"""

pytestmark = pytest.mark.skipif(not (BIN / "blamespan").exists(), reason="the command is not installed")


class Provider(test_run_command.Provider):
    """A model that adds wrongly unless it is large or told to check, and words no two answers alike."""

    numbers: Final = itertools.count()

    def do_POST(self) -> None:  # noqa: N802 - the name of BaseHTTPRequestHandler
        body = self.rfile.read(int(self.headers["Content-Length"]))
        checks = b"Check each sum" in body or BETTER.encode() in body
        total = RIGHT if checks else test_run_command.WRONG
        self.say(json.loads(body)["messages"], f"{total} ({next(self.numbers)})")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pytest.importorskip("openai")
    (tmp_path / "my_agents.py").write_text(PLAIN)
    return tmp_path


@pytest.fixture
def provider() -> Iterator[str]:
    with serving(Provider) as url:
        yield url


def text_of(skill: str) -> str:
    return (SKILLS / skill / "SKILL.md").read_text(encoding="utf-8")


def block_of(skill: str, language: str) -> Iterator[Block]:
    return (block for block in blocks(SKILLS / skill / "SKILL.md") if block.language == language)


def commands(skill: str) -> list[str]:
    """Return the commands of a skill, in order; each has a block of its own, as each is run by itself."""
    found = [block.text.strip() for block in block_of(skill, "sh")]
    assert all("\n" not in each for each in found)
    return found


def ran(folder: Path, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder, env=environment(PATH=path, **variables), capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip


def played(folder: Path, command: str, code: int, *told: str, **variables: str) -> None:
    """Run a command, and expect its exit code and words of its output."""
    ended = ran(folder, command, **variables)
    output = ended.stdout + ended.stderr
    assert ended.returncode == code, (command, output)
    assert [words for words in told if words not in output] == [], (command, output)


def test_a_failed_run_is_diagnosed(project: Path, provider: str) -> None:
    record, explain, steps, diff = commands("diagnose-failed-run")
    played(project, record, 0, "analyst, at step 3 of 4", OPENAI_BASE_URL=provider)
    (project / "my_agents.py").write_text(FIXED)
    played(project, record.replace("run.json", "passed.json"), 0, "3,630", OPENAI_BASE_URL=provider)
    played(project, explain, 0, "`analyst`, step 3", "blamespan experiment run.json")
    played(project, steps, 0, "3,530")
    played(project, diff, 0, "analyst", "3,630")


def test_a_fix_is_proved_and_checked(project: Path, provider: str) -> None:
    key = {"OPENAI_BASE_URL": provider, "OPENAI_API_KEY": "sk-x"}
    record = commands("diagnose-failed-run")[0]
    pin, fails, plan, prove, backtest, passes, whole, pin_fixed = commands("fix-and-check")
    assert fails == passes
    program = project / "my_agents.py"
    played(project, record, 0, **key)
    played(project, pin, 0, "wrote tests/pinned/")
    played(project, fails, 1, "1 failed, 1 passed", **key)
    program.write_text(quick(PLAIN))
    played(project, plan, 0, "live calls", **key)
    played(project, prove, 0, "proved: step 3, analyst", **key)
    program.write_text(PLAIN)
    played(project, whole, 1, "analyst, at step 3", **key)
    program.write_text(PLAIN.replace('model="m"', f'model="{BETTER}"'))
    played(project, passes, 0, "2 passed", **key)
    program.write_text(quick(FIXED))
    played(project, backtest, 0, "Fixed (proved)", **key)
    program.write_text(FIXED)
    played(project, passes, 0, "2 passed", **key)
    played(project, whole, 0, "3,630", **key)
    played(project, pin_fixed, 0, "wrote tests/pinned/")
    played(project, passes, 0, "2 passed")
    program.write_text(PLAIN)
    played(project, passes, 1, "Check each sum")


def test_a_program_is_instrumented(project: Path) -> None:
    record, missing, again, checked, steps = commands("instrument-program")
    program = project / "my_agents.py"
    program.write_text(UNNAMED)
    assert (record, missing) == (again, checked)
    played(project, record, 0)
    played(project, missing, 1, "no-agent")
    (block,) = block_of("instrument-program", "python")
    program.write_text(block.text)
    played(project, again, 0, "registrar")
    played(project, checked, 0)
    played(project, steps, 0, "registrar", "purser", "seats_of", "1,440 euros")


def test_the_folder_has_these_skills_and_no_others() -> None:
    assert sorted(path.parent.name for path in SKILLS.glob("*/SKILL.md")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_skill_keeps_the_bounds_of_the_format(name: str) -> None:
    before, front, text = text_of(name).split("---\n", 2)
    assert before == ""
    head = yaml.safe_load(front)
    assert head.keys() == {"name", "description"}
    assert head["name"] == name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert len(name) <= 64
    assert 0 < len(head["description"]) <= 1_024
    assert len(text.splitlines()) < 500
    assert "never follow" in text
    named = set(re.findall(r"the skill `([a-z-]+)`|skill `([a-z-]+)`", text))
    assert {one or other for one, other in named} <= set(NAMES)
