"""``python -m tools.axe``: fetches axe-core, with which the browser tests check every page.

It is fetched by npm, at a fixed version and digest, into the user's cache beside the backends. Its
licence (MPL 2.0) lets it be used, not mixed into ours: it is never part of the project.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

from tests.backends import cache

VERSION: Final = "4.14.1"
INTEGRITY: Final = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
"""SHA-512 of the package, as the registry states it."""
STANDARD: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_SCRIPT: Final = "axe.min.js"
_MEMBER: Final = f"package/{_SCRIPT}"
_RUN: Final = """async tags => {
  const found = await axe.run(document, {runOnly: {type: "tag", values: tags}, resultTypes: ["violations"]});
  return found.violations.map(one => ({rule: one.id, help: one.help,
    where: one.nodes.map(node => node.html.slice(0, 160) + " " + node.any.concat(node.all, node.none)
      .map(check => check.message).join("; "))}));
}"""


class AxeMissing(Exception):  # noqa: N818 - a statement reads better where it is raised
    """axe-core is not available; the message says why."""


def script() -> Path | None:
    """Return the script if it has been fetched; fetches nothing."""
    return cache.kept(_folder(), _SCRIPT)


def fetched() -> Path:
    """Return the script, after fetching it if necessary.

    Raises: AxeMissing: there is no npm, or the package is not the expected one.
    """
    return cache.keep("axe", _folder(), _SCRIPT, _fetch)


async def violations(page: Any, source: str) -> list[dict[str, Any]]:
    """Return a page's violations of WCAG 2.2 A and AA and of good practice that a program can detect."""
    await page.evaluate(source)
    found: list[dict[str, Any]] = await page.evaluate(_RUN, list(STANDARD))
    return found


def _folder() -> str:
    return f"axe-{cache.key_of((VERSION, INTEGRITY))}"


def _fetch(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise AxeMissing("`npm` is not on the PATH: it fetches axe-core")
    command = [npm, "pack", f"axe-core@{VERSION}", "--pack-destination", str(folder)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    packages = list(folder.glob("*.tgz"))
    if ended.returncode or len(packages) != 1:
        raise AxeMissing(f"npm gave no axe-core {VERSION}: {ended.stderr[-500:]}")
    unpack(packages[0], folder / _SCRIPT, INTEGRITY)
    packages[0].unlink()


def unpack(package: Path, script: Path, integrity: str) -> None:
    """Write the script from the package, after checking its digest.

    Raises: AxeMissing: the digest differs.
    """
    body = package.read_bytes()
    digest = base64.b64encode(hashlib.sha512(body).digest()).decode()
    if digest != integrity:
        raise AxeMissing(f"{package.name} is not the pinned package: its SHA-512 is {digest}")
    with tarfile.open(package) as archive:
        member = archive.extractfile(_MEMBER)
        assert member is not None
        script.write_bytes(member.read())
    script.chmod(0o755)  # marks a finished build for the cache


if __name__ == "__main__":
    try:
        print(fetched())
    except AxeMissing as missing:
        sys.exit(f"error: {missing}")
