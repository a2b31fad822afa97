"""``python -m tools.audit``: known vulnerabilities of the pinned dependencies.

With ``--sbom FILE`` it also writes their bill of materials. Needs the dependency group ``audit``. Exit code 1
if a dependency has a known vulnerability. If the advisories cannot be reached, pip-audit reports that none
were found; this reports that nothing was checked, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

PINNED: Final = Path(__file__).parents[1] / "requirements" / "dev.txt"
VULNERABLE, UNREACHABLE = 1, 3
NOT_CHECKED: Final = "not_checked"
"""Key of a result that says why it is incomplete, or is none."""
_LONGEST_S: Final = 300


def main() -> int:
    """Audit, and write the bill of materials if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sbom", type=Path, metavar="FILE", help="write CycloneDX JSON")
    parser.add_argument("--only-sbom", action="store_true", help="look nothing up")
    arguments = parser.parse_args()
    if arguments.sbom:
        write_sbom(arguments.sbom)
    return 0 if arguments.only_sbom else _audit()


def _audit() -> int:
    found = look_up(PINNED)
    if NOT_CHECKED in found:
        sys.stderr.write(f"{found[NOT_CHECKED]}\n")
    return report(found.get("dependencies", []))


def look_up(pinned: Path) -> dict[str, Any]:
    """Return pip-audit's result on a pinned set, with ``not_checked`` if advisories cannot be reached."""
    command = [_tool("pip-audit"), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    try:
        ended = subprocess.run(
            [*command, "--format", "json", "--requirement", str(pinned)],
            capture_output=True, text=True, timeout=_LONGEST_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return result("", f"no answer in {_LONGEST_S} s")
    return result(ended.stdout, ended.stderr)


def result(printed: str, errors: str) -> dict[str, Any]:
    """Return what pip-audit printed, and in ``not_checked`` why that is incomplete, or nothing."""
    try:
        found: dict[str, Any] = json.loads(printed)
        skipped = sum("skip_reason" in one for one in found["dependencies"])
    except (ValueError, KeyError):
        return {NOT_CHECKED: f"the advisories cannot be reached: {errors[-400:].strip()}"}
    said = f"{skipped} of {len(found['dependencies'])} dependencies could not be looked up"
    return {NOT_CHECKED: said, **found} if skipped else found


def report(found: list[dict[str, Any]]) -> int:
    """Print the findings; return the exit code."""
    looked_up = [one for one in found if "skip_reason" not in one]
    vulnerable = [one for one in looked_up if one.get("vulns")]
    for one in vulnerable:
        ids = ", ".join(vuln["id"] for vuln in one["vulns"])
        sys.stdout.write(f"{one['name']} {one['version']}: {ids}\n")
    said = f"{len(looked_up)} of {len(found)} dependencies looked up, {len(vulnerable)} vulnerable"
    sys.stdout.write(f"{said}\n")
    if vulnerable:
        return VULNERABLE
    return 0 if found and len(looked_up) == len(found) else UNREACHABLE


def write_sbom(path: Path, pinned: Path = PINNED) -> None:
    """Write the bill of materials of a pinned set as CycloneDX JSON."""
    command = [_tool("cyclonedx-py"), "requirements", str(pinned), "--of", "JSON", "--output-reproducible"]
    subprocess.run([*command, "--output-file", str(path)], timeout=_LONGEST_S, check=True)


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed: it is in the dependency group `audit`")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
