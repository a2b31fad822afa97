"""Creates the environments of the run scripts, each in the user's cache under the hash of its pins.

``python -m tests.frameworks.install [NAME… | live | all]``. Uses ``uv`` if available, else ``venv`` and
``pip``. Everything comes from the Python package index; a second run is instant.
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
from tests.frameworks.catalogue import RunScript, catalogue

PYTHON: Final = "bin/python"
PATIENCE_S: Final = 1200.0
"""Seconds for the largest set (a few hundred MB) on a slow line."""


class InstallError(Exception):
    """An environment could not be created; the message has the end of the installer's log."""


def python_of(run: RunScript) -> Path | None:
    """Return the interpreter of an existing environment; does not install."""
    return cache.kept(_folder(run), PYTHON)


def install(run: RunScript) -> Path:
    """Return the interpreter of the run's environment, creating it first if necessary.

    Raises:
        InstallError: the installer failed.
    """
    return cache.keep(_name(run), _folder(run), PYTHON, lambda folder: _make(run, folder))


def _make(run: RunScript, folder: Path) -> None:
    log = cache.cache_root() / f"{_name(run)}.log"
    cache.say(f"{_name(run)}: installing the first time (log: {log}) …")
    began = time.monotonic()
    with log.open("wb") as out:
        for command in _commands(folder, run.requirements_file):
            done = subprocess.run(command, stdout=out, stderr=out, check=False, timeout=PATIENCE_S)
            if done.returncode:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
                raise InstallError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    cache.say(f"{_name(run)}: installed in {time.monotonic() - began:.0f} s")


def _commands(folder: Path, requirements: Path) -> list[list[str]]:
    python, pins = str(folder / PYTHON), ("-r", str(requirements))
    if uv := shutil.which("uv"):
        return [
            [uv, "venv", "--python", sys.executable, "--allow-existing", str(folder)],
            # Compiled now, as pip does: the scripts write nothing, and a cold start takes seconds.
            [uv, "pip", "install", "--python", python, "--no-deps", "--compile-bytecode", *pins],
        ]
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    return [[sys.executable, "-m", "venv", str(folder)], [*pip, *pins]]


def _name(run: RunScript) -> str:
    return f"framework-{run.requirements_file.stem}"


def _folder(run: RunScript) -> str:
    pins = (run.requirements_file.read_text(), f"{sys.version_info.major}.{sys.version_info.minor}")
    return f"{_name(run)}-{cache.key_of(pins)}"


def main() -> int:
    """Install what the command line names; print each interpreter's path."""
    known = catalogue()
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.install", description=__doc__)
    parser.add_argument("name", nargs="*", default=["live"], help=f"live, all, or: {', '.join(known)}")
    asked = parser.parse_args().name
    runs = [
        run for run in known.values() if "all" in asked or run.name in asked or ("live" in asked and run.live)
    ]
    if unknown := set(asked) - set(known) - {"all", "live"}:
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
