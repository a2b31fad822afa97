"""Timed runs of commands, with peak memory, against a slow model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MEBI = 1024  # ru_maxrss is in KiB on Linux


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One command that ran to its end."""

    seconds: float
    cpu_s: float
    peak_mib: float
    output: str


@contextmanager
def slow_model(delay_s: float, quote: str = "") -> Iterator[str]:
    """Run the model in its own process; yield its base URL."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.resources.slow_model",
        "--delay",
        str(delay_s),
        "--quote",
        quote,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()


def count(url: str) -> dict[str, int]:
    """Return the model's count of requests."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/count", timeout=10) as answer:
        counted: dict[str, int] = json.load(answer)
        return counted


def timed(command: Sequence[str], environment: Mapping[str, str]) -> Timed:
    """Run a command to its end."""
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(environment), text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return Timed(
        seconds=time.monotonic() - started,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss / MEBI,
        output=output,
    )


def environment(url: str, home: Path) -> dict[str, str]:
    """Return an environment that directs model calls to ``url``."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("BLAMESPAN_", "OTEL_"))}
    return own | {
        "BLAMESPAN_DATA_DIR": str(home),
        "OPENAI_API_BASE": url,
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "COLUMNS": "100",
    }
