"""ag2tracer from its package: for ``benchmarks.accuracy.judge_speed``.

It is installed into a temporary virtual environment; if the registry does not have it, that is reported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.resources.commands import count, environment, timed

PACKAGE = "ag2tracer==0.1.1"
DRIVER = Path(__file__).with_name("peer_ag2tracer_run.py")


def time_ag2tracer(dataset: Path, url: str, scratch: Path) -> None:
    """Install it, run it on every run of the data set, and print the duration."""
    python = install(scratch / "ag2tracer")
    if python is None:
        print(f"{PACKAGE}: the package registry does not have it, or cannot be reached")
        return
    before = count(url)["calls"]
    run = timed([str(python), str(DRIVER), str(dataset)], environment(url, scratch))
    print(f"{PACKAGE} all-at-once: {run.output.strip()} in {run.seconds:.2f} s,")
    print(f"  {count(url)['calls'] - before} calls, one at a time, peak {run.peak_mib:.0f} MiB")


def install(place: Path) -> Path | None:
    """Install it into its own environment; return that environment's Python, or ``None``."""
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = place / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
    return python if subprocess.run(command, check=False).returncode == 0 else None
