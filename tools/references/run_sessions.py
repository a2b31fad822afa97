"""Recorder of the sessions in docs/first-run.md: ``python -m tools.references.run_sessions``.

Runs each program of ``examples/programs`` through ``blamespan run`` against a scripted model, and writes what
the terminal shows. Times are left out (``…``). A session whose framework is not installed stays as it is:
``python -m tests.frameworks.install programs vercel_ai_v7`` installs all.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from semconv.record import record
from tests.backends.forked import ran
from tests.e2e.sales_desk import sales_model
from tests.frameworks.catalogue import EXAMPLES, NODE_EXAMPLES, catalogue
from tests.frameworks.install import python_of

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "first-run.md"
_SESSION: Final = re.compile(r"(?<=```console\n)\$ blamespan run -- ([^\n]*)\n.*?(?=```)", re.DOTALL)
_TIME: Final = re.compile(r"· \d+ ms *│")
_COLUMNS: Final = "100"
_PATIENCE_S: Final = 300


@record
class Program:
    """A program of agents as ``blamespan run`` starts it, in ``examples/programs``."""

    command: str
    with_spans: str = ""
    """The command that sends its framework's own spans; empty where auto-instrumentation does that."""


PLAIN: Final = Program(command="python plain_openai.py")
PROGRAMS: Final = (
    PLAIN,
    Program(command="python langgraph_agents.py"),
    Program(command="python openai_agents.py"),
    Program(command="python pydantic_ai_agents.py", with_spans="python pydantic_ai_telemetry.py"),
    Program(command="node ai_sdk.mjs", with_spans="node --import ./ai_sdk_telemetry.mjs ai_sdk.mjs"),
)


def environment(program: Program) -> Path | None:
    """Return the folder of what runs a program, ``None`` if its framework is not installed here."""
    runner = python_of(catalogue()[NODE_EXAMPLES] if program.command.startswith("node") else EXAMPLES)
    return None if runner is None else runner.parent


def play(command: str, found_in: Path, folder: Path, story: str, **variables: str) -> tuple[str, str]:
    """Run a command of ``blamespan run``; return what it writes on standard output and on standard error.

    Args:
        command: its options and the program's command.
        found_in: the folder of what runs the program.
        folder: an empty folder, for the programs.
        story: how the scripted model answers.
        variables: more environment variables.
    """
    shutil.copytree(ROOT / "examples" / "programs", folder, dirs_exist_ok=True)
    if (runner := python_of(catalogue()[NODE_EXAMPLES])) is not None:
        (folder / "node_modules").symlink_to(runner.parents[1] / "node_modules")
    path = f"{found_in}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT), "COLUMNS": _COLUMNS}
    with sales_model(story) as url:
        done = ran(
            [sys.executable, "-P", "-m", "analyzer", "run", *command.split()],
            environ={**own, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-of-nobody", **variables},
            folder=folder,
            timeout_s=_PATIENCE_S,
        )
    done.check_returncode()
    return done.stdout, done.stderr


def session(program: Program) -> str | None:
    """Return what the terminal shows of a program; ``None`` if its framework is not installed here."""
    found_in = Path(sys.executable).parent if program is PLAIN else environment(program)
    if found_in is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        out, told = play(f"-- {program.command}", found_in, Path(folder), "sum")
    beforehand = [line for line in told.splitlines() if "instrumentation is on" in line]
    lines = [*beforehand, *out.splitlines(), *(line for line in told.splitlines() if line not in beforehand)]
    text = "\n".join(line.rstrip() for line in lines)
    return f"$ blamespan run -- {program.command}\n{_TIME.sub(_without, text)}\n"


def _without(found: re.Match[str]) -> str:
    return f"{'· …':<{len(found[0]) - 1}}│"


def shown() -> dict[str, str]:
    """Return the sessions of the page, by the program's command."""
    return {found[1]: found[0] for found in _SESSION.finditer(PAGE.read_text(encoding="utf-8"))}


def main() -> None:
    """Write the sessions of installed frameworks into the page."""
    recorded = {one.command: session(one) for one in PROGRAMS}
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_SESSION.sub(lambda found: recorded[found[1]] or found[0], text), encoding="utf-8")
    for command in (command for command, text in recorded.items() if text is None):
        print(f"{command}: not installed here; its session stays as it is", file=sys.stderr)


if __name__ == "__main__":
    main()
