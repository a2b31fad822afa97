"""Installs the programs that we compare with: ``python -m benchmarks.ingest.install [NAME…]``.

Each gets its own virtual environment, beside the backends, from the Python package index.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.backends import cache

_PATIENCE_S: Final = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package to install, and its program."""

    requirement: str
    program: str
    """Path of the program in the virtual environment; a glob pattern."""


PACKAGES: Final[Mapping[str, Package]] = {
    # Not its script, whose first line names the folder of the original installation.
    "phoenix": Package(requirement="arize-phoenix==20.26.1", program="bin/python"),
    "rotel": Package(requirement="rotel==0.0.1a15", program="lib/python*/site-packages/rotel/rotel-agent"),
}
_MARK: Final = "bin/python"


class MissingError(SystemExit):
    """The program is not installed; the message says how to install it."""


def program(name: str) -> Path:
    """Return the program of an installed package; installs nothing.

    Raises:
        MissingError: it is not installed.
    """
    python = cache.kept(_folder(name), _MARK)
    if python is None:
        raise MissingError(f"no {name} here: python -m benchmarks.ingest.install {name}")
    return next(python.parents[1].glob(PACKAGES[name].program))


def install(name: str) -> Path:
    """Return the program of a package, after installing it if necessary."""
    cache.keep(name, _folder(name), _MARK, lambda folder: _make(name, folder))
    return program(name)


def _make(name: str, folder: Path) -> None:
    cache.say(f"installing {PACKAGES[name].requirement} …")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / _MARK), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, PACKAGES[name].requirement], check=True, timeout=_PATIENCE_S)


def _folder(name: str) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"{name}-{cache.key_of((PACKAGES[name].requirement, version))}"


def main() -> None:
    """Install the requested packages; print each program's path."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest.install", description=__doc__)
    parser.add_argument("name", nargs="*", metavar="|".join(PACKAGES), default=list(PACKAGES))
    for name in parser.parse_args().name:
        print(install(name), flush=True)


if __name__ == "__main__":
    main()
