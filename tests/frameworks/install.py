"""Creates the environments of the run scripts, each in the user's cache under the hash of its pins.

``python -m tests.frameworks.install [NAME… | gate | live | all]``. With ``uv`` if it
is there, else with ``venv`` and ``pip``; other languages by their own tools
(``languages.py``), Node's from PyPI where the path has none. A second time is instant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.backends import cache
from tests.frameworks.catalogue import EXAMPLES, GATE, NODE_EXAMPLES, SUITES, RunScript, catalogue
from tests.frameworks.languages import LANGUAGES, PYTHON, RUNNER, lay_out, missing, pinned

INTERPRETER: Final = "bin/python"
PATIENCE_S: Final = 1200.0
"""Seconds for the largest set (a few hundred MB) on a slow line."""


class InstallError(Exception):
    """An environment could not be created; the message has the end of the installer's log."""


def python_of(run: RunScript) -> Path | None:
    """Return what runs programs in a finished environment; installs nothing."""
    return cache.kept(_folder(run), _runner(run))


def install(run: RunScript) -> Path:
    """Return what runs programs in the run's environment, made first if need be.

    Raises:
        InstallError: the installer failed, or is not there.
    """
    if (found := python_of(run)) is not None:
        return found
    path = _path(run.language)
    return cache.keep(_name(run), _folder(run), _runner(run), lambda folder: _make(run, folder, path))


def _path(language: str) -> str:
    """Return the path with the commands that a language needs, which may be installed for it."""
    own = os.environ.get("PATH", "")
    lacking = missing(language)
    if not lacking:
        return own
    if not LANGUAGES[language].wheels:
        raise InstallError(f"{language} needs {' and '.join(lacking)} on the path")
    tools = RunScript(name=language, framework="none", instrumentation="none")
    return f"{install(tools).parent}{os.pathsep}{own}"


def _runner(run: RunScript) -> str:
    return INTERPRETER if run.language == PYTHON else RUNNER


def _make(run: RunScript, folder: Path, path: str) -> None:
    log = cache.cache_root() / f"{_name(run)}.log"
    cache.say(f"{_name(run)}: installing the first time (log: {log}) …")
    began = time.monotonic()
    with log.open("wb") as out:
        for command in _building(run, folder):
            done = subprocess.run(
                command, cwd=folder, env=os.environ | {"PATH": path}, stdout=out, stderr=out, check=False,
                timeout=PATIENCE_S,
            )  # fmt: skip
            if done.returncode:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
                raise InstallError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    cache.say(f"{_name(run)}: installed in {time.monotonic() - began:.0f} s")


def _building(run: RunScript, folder: Path) -> list[list[str]]:
    if run.language != PYTHON:
        return lay_out(run.language, run.programs, folder)
    tools = LANGUAGES.get(run.name)
    return [*_commands(folder, run.requirements_file), *([["sh", "-c", tools.wheels]] if tools else [])]


def _commands(folder: Path, requirements: Path) -> list[list[str]]:
    python, pins = str(folder / INTERPRETER), ("-r", str(requirements))
    if uv := shutil.which(
        "uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    ):
        return [
            [uv, "venv", "--python", sys.executable, "--allow-existing", str(folder)],
            # Compiled now, as pip does: the scripts write nothing, and a cold start takes seconds.
            [uv, "pip", "install", "--python", python, "--no-deps", "--compile-bytecode", *pins],
        ]
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    return [[sys.executable, "-m", "venv", str(folder)], [*pip, *pins]]


def _name(run: RunScript) -> str:
    if run.language != PYTHON:
        return f"framework-{run.language}-{run.programs.name}"
    return f"framework-{run.requirements_file.stem}"


def _folder(run: RunScript) -> str:
    if run.language != PYTHON:
        return f"{_name(run)}-{cache.key_of(pinned(run.language, run.programs))}"
    pins = (run.requirements_file.read_text(), f"{sys.version_info.major}.{sys.version_info.minor}")
    return f"{_name(run)}-{cache.key_of(pins)}"


def main() -> int:
    """Install what the command line names; print each interpreter's path."""
    known = catalogue() | SUITES | {EXAMPLES.name: EXAMPLES}
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.install", description=__doc__)
    parser.add_argument("name", nargs="*", default=["live"], help=f"gate, live, all, or: {', '.join(known)}")
    asked = set(parser.parse_args().name)
    groups = {
        "all": set(known),
        "live": {run.name for run in known.values() if run.live},
        "gate": {*GATE, *SUITES, EXAMPLES.name, NODE_EXAMPLES},
    }
    wanted = asked.union(*(groups[name] for name in asked & groups.keys()))
    runs = [run for run in known.values() if run.name in wanted]
    if unknown := asked - known.keys() - groups.keys():
        parser.error(f"no run called {', '.join(sorted(unknown))}")
    os.environ.setdefault("UV_LINK_MODE", "copy")
    for run in runs:
        try:
            print(install(run), flush=True)
        except InstallError as error:
            cache.say(f"error: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
