"""``python -m tools.release FOLDER [--version X.Y.Z]``: builds all files of a release in one folder.

Wheel, sdist (with ``deploy/Dockerfile`` and the pinned set of the image), bill of materials (CycloneDX),
provenance (an in-toto statement with SLSA's predicate, unsigned), known vulnerabilities of the pinned set
(``audit.json``: pip-audit's result, or why there is none) and checksums. Builds are reproducible: their times
are the commit's; only ``audit.json`` depends on the day. With ``--version`` the version and the change notes'
heading are written first; commit and tag them afterwards. Nothing is uploaded. Needs ``cyclonedx-py`` and
``pip-audit`` (dependency group ``audit``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tools.audit import look_up, write_sbom

ROOT: Final = Path(__file__).parents[1]
PINNED: Final = ROOT / "requirements" / "image.txt"
VERSION: Final = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
LINES: Final = {
    "pyproject.toml": '\nversion = "{}"\n',
    "deploy/helm/blamespan/Chart.yaml": "\nappVersion: {}\n",
    "deploy/compose/jaeger.yaml": "image: blamespan:{}\n",
    "deploy/compose/kafka.yaml": "image: blamespan:{}\n",
    "deploy/compose/tempo.yaml": "image: blamespan:{}\n",
}
"""Files that contain the version, and the pattern of its line."""
UNRELEASED: Final = "## Unreleased\n"
NOT_YET: Final = "(not released yet)"
"""Stands for the date in the heading of a version whose notes are written before it is released."""
_FORM: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class ReleaseError(Exception):
    """The release cannot be made; the message says why."""


def main() -> int:
    """Make the requested release."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", help="write this version first")
    asked = parser.parse_args()
    try:
        if asked.version:
            set_version(ROOT, asked.version, datetime.now(UTC))
        made = build(asked.folder)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("\n".join(f"{path.stat().st_size:>10,}  {path.name}" for path in made))
    print(f"blamespan {version_of(ROOT)} in {asked.folder}")
    if asked.version:
        print(f"next: git commit -am 'Release {asked.version}' && git tag v{asked.version}")
    return 0


def version_of(root: Path) -> str:
    """Return the version in the project's metadata."""
    found = VERSION.search((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def set_version(root: Path, version: str, now: datetime) -> None:
    """Write a version into the metadata, the deployments and the change notes.

    Raises:
        ReleaseError: it is not a version, not a new one, or the change notes have nothing to release,
            or unreleased notes beside those of the version.
    """
    notes = root / "CHANGELOG.md"
    text = notes.read_text(encoding="utf-8")
    if not _FORM.fullmatch(version):
        raise ReleaseError(f"{version!r} is not a version such as 0.2.0 or 0.2.0rc1")
    notes.write_text(_dated(text, version, now), encoding="utf-8")
    former = version_of(root)
    for name, line in LINES.items():
        path = root / name
        path.write_text(
            path.read_text(encoding="utf-8").replace(line.format(former), line.format(version)),
            encoding="utf-8",
        )


def _dated(notes: str, version: str, now: datetime) -> str:
    """Return the change notes with a version's heading: of its own section, or of what is unreleased."""
    heading, planned = f"## {version} ({now.date()})\n", f"## {version} {NOT_YET}\n"
    before, found, after = notes.partition(UNRELEASED)
    is_empty = not found or after.lstrip().startswith("## ") or not after.strip()
    if planned in notes:
        if not is_empty:
            raise ReleaseError(f"CHANGELOG.md has notes under '## Unreleased': move them to {version}")
        return notes.replace(planned, heading)
    if f"## {version} " in notes:
        raise ReleaseError(f"{version} has a section already in CHANGELOG.md")
    if is_empty:
        raise ReleaseError("CHANGELOG.md has nothing under '## Unreleased'")
    return f"{before}{UNRELEASED}\n{heading}{after}"


def build(folder: Path) -> list[Path]:
    """Fill an empty folder; return its files."""
    if folder.exists() and any(folder.iterdir()):
        raise ReleaseError(f"{folder} is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    commit, seconds = _git("log", "-1", "--format=%H %ct").split()
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-t",
        "sdist",
        "-d",
        str(folder.resolve()),
    ]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": seconds}
    subprocess.run(
        command, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    write_sbom(folder / "sbom.cdx.json", PINNED)
    artefacts = sorted(folder.iterdir())
    statement = provenance(
        artefacts, commit=commit, is_clean=not _git("status", "--porcelain"), version=version_of(ROOT)
    )
    for name, document in (("provenance.json", statement), ("audit.json", look_up(PINNED))):
        (folder / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    made = sorted(folder.iterdir())
    sums = "".join(f"{_digest(path)}  {path.name}\n" for path in made)
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    return [*made, folder / "SHA256SUMS"]


def provenance(artefacts: Iterable[Path], *, commit: str, is_clean: bool, version: str) -> dict[str, Any]:
    """Return the in-toto statement on files (https://slsa.dev/spec/v1.0/provenance)."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": _digest(path)}} for path in artefacts],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:blamespan:make-release:1",
                "externalParameters": {"version": version},
                "internalParameters": {"clean": is_clean, "python": sys.version.split()[0]},
                "resolvedDependencies": [
                    {"uri": "git+blamespan", "digest": {"gitCommit": commit}},
                    {"uri": f"requirements/{PINNED.name}", "digest": {"sha256": _digest(PINNED)}},
                ],
            },
            "runDetails": {"builder": {"id": "urn:blamespan:make-release"}},
        },
    }


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
