"""Programs and sessions on the pages are complete, and print what the pages say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.backends.supervise import wait_until
from tests.e2e.line import Line, StartLine, environment
from tests.frameworks.catalogue import RunScript, catalogue
from tests.frameworks.languages import PYTHON
from tests.shown import FIXTURES
from tools.frameworks.framework_code import YOURS, instrumenting_program
from tools.markdown_blocks import DOCS, ROOT, blocks
from tools.references import mcp_session

LONGEST_S = 600
PROGRAM = "# … your program …"
RIGHT = 'f"{seats * 12} euros"'


def python_blocks(page: Path) -> list[str]:
    return [block.text for block in blocks(page) if block.language == "python"]


def printed(program: str, folder: Path) -> str:
    """Run a program in a folder, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder, env=environment(HOME=str(folder), PYTHONPATH=str(ROOT)), capture_output=True, text=True,
        timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run_of(program: str, line: Line, folder: Path) -> dict[str, Any]:
    """Run a program that exports to the service; return the service's verdict on its run."""
    environ = environment(OTEL_EXPORTER_OTLP_ENDPOINT=line.http, HOME=str(folder))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: line.runs() or None, what="the run on the page")
    return line.verdict(line.runs()[0]["run_id"])


def instrumented(*, seats: int) -> str:
    """Return the page's program, which multiplies by another number of seats unless it is 120."""
    exporting, program = python_blocks(DOCS / "instrument.md")
    assert PROGRAM in exporting
    assert RIGHT in program
    outcome = "success" if seats == 120 else "failure"
    told = program.replace(RIGHT, f'f"{{{seats} * 12}} euros"').replace('"success"', f'"{outcome}"')
    return exporting.replace(PROGRAM, told)


@pytest.mark.parametrize(("seats", "expected"), [(120, ("no_failure", None)), (12, ("attributed", "purser"))])
def test_the_program_on_instrumenting_is_judged(
    seats: int, expected: tuple[str, str | None], start_line: StartLine, tmp_path: Path
) -> None:
    verdict = run_of(instrumented(seats=seats), start_line(), tmp_path)
    assert (verdict["status"], verdict["agent"]) == expected


def test_the_programs_on_recorded_runs_print_who_broke_it(tmp_path: Path) -> None:
    attributing, comparing, waiting, retrying, _ = python_blocks(DOCS / "programs.md")
    for name, recorded in (("trace", "langgraph_openinference-crash"), ("passed", "langgraph_openinference")):
        (tmp_path / f"{name}.json").write_bytes((FIXTURES / f"{recorded}.json.gz").read_bytes())
    assert printed(attributing, tmp_path).startswith("attributed purser 8\n")
    lines = printed(comparing, tmp_path).splitlines()
    assert len(lines) == 10
    assert "gpt-4.1-mini" in lines[0]
    assert lines[-1].startswith("StepPair(change=<Change.TEXT: 'text'>, left=8, right=8")
    assert printed(waiting, tmp_path) == "['purser']\n"
    advised, answer = printed(retrying, tmp_path).splitlines()
    assert advised.startswith("clerk 0 ")
    assert answer.endswith("= 840")


def test_the_program_on_a_running_service_prints_its_runs(start_line: StartLine, tmp_path: Path) -> None:
    line = start_line()
    run_of(instrumented(seats=12), line, tmp_path)
    program = python_blocks(DOCS / "programs.md")[4].replace("http://127.0.0.1:8500", line.web)
    assert " purser " in printed(program, tmp_path).splitlines()[0]


def test_a_coding_agent_gets_the_answers_that_the_page_shows() -> None:
    assert mcp_session.sessions() == mcp_session.shown(), "run: python -m tools.references.mcp_session"


IMPORT: Final = "from my_agents import "


PYTHONS: Final = [run for run in catalogue().values() if run.language == PYTHON]


@pytest.mark.parametrize("run", PYTHONS, ids=lambda run: run.name)
def test_the_program_that_is_shown_is_complete_and_of_the_scripts_lines(run: RunScript) -> None:
    shown = instrumenting_program(run.script)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F", "--quiet", "-"],
        input=shown, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), "a name is undefined, or an import unused"
    lines = [*run.script.read_text().splitlines(), ""]
    added = [line.strip() for line in shown.splitlines() if line not in lines]
    assert [line for line in added if line != YOURS and not line.startswith(IMPORT)] == []
    assert shown.count(IMPORT) == 1
