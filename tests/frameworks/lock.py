"""Renews pins: ``python -m tests.frameworks.lock NAME…`` writes ``requirements/NAME.txt`` from ``NAME.in``.

Needs ``uv``. Every package becomes the newest compatible version; record again afterwards, and read what
changed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Final

from tests.frameworks.catalogue import FOLDER

OPTIONS: Final = (
    *("--universal", "--python-version", "3.11", "--upgrade"),
    *("--no-emit-index-url", "--no-header", "--no-annotate", "--quiet"),
)


def main() -> int:
    """Renew the sets named on the command line; by default all."""
    folder = FOLDER / "requirements"
    known = sorted(path.stem for path in folder.glob("*.in"))
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.lock", description=__doc__)
    parser.add_argument("name", nargs="*", default=known, metavar="NAME", help=", ".join(known))
    for name in parser.parse_args().name:
        command = ["uv", "pip", "compile", *OPTIONS, f"{name}.in", "-o", f"{name}.txt"]
        subprocess.run(command, cwd=folder, check=True)
        print(folder / f"{name}.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
