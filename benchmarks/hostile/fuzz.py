"""``python -m benchmarks.hostile.fuzz``: coverage-guided fuzzing of all code that reads untrusted input.

Needs atheris (dependency group ``fuzz``). Each target runs in its own process, from the valid inputs of
``tests/security/seeds.py``, with libFuzzer's mutations and our own, which keep the protobuf valid. Prints one
JSON object per target; findings are stored in ``--findings`` and make the exit code 1: fix them, and add the
input to ``tests/security/findings``, which the default tests replay.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Final

PACKAGES: Final = ["semconv", "collector_processor", "analyzer"]
ALL: Final = "all"
NAMES: Final = (
    "scan", "wire", "decode", "slow-lane", "from-json", "recordings", "replies", "unpack", "text"
)  # fmt: skip
"""As in ``tests/security/targets.py``, which is imported only in the instrumented process."""
_DONE: Final = re.compile(r"Done (\d+)(?: runs)? in (\d+) second")
_COVERED: Final = re.compile(r"cov: (\d+)")
_OWN_MUTATIONS: Final = 0.25
_SLOWEST_S: Final = 10
_MEMORY_MIB: Final = 2_048


def main() -> int:
    """Fuzz one target, or all of them one after another."""
    arguments = _arguments()
    if arguments.child:
        _fuzz(arguments)
        return 0
    names = NAMES if arguments.target == ALL else (arguments.target,)
    results = [_run(name, arguments) for name in names]
    return 0 if all(result["found"] == [] and result["runs"] for result in results) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=(ALL, *NAMES), default=ALL)
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=int, default=4_096, help="bytes of an input")
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "blamespan-findings")
    parser.add_argument("--corpus", type=Path, help="kept between runs; default: made anew")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fuzz one target in its own process: libFuzzer ends the process it runs in."""
    findings: Path = arguments.findings / name
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        corpus = (arguments.corpus or Path(scratch)) / name
        corpus.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.hostile.fuzz", "--child", "--target", name]
        command += ["--runs", str(arguments.runs), "--seed", str(arguments.seed)]
        command += ["--longest", str(arguments.longest)]
        command += ["--findings", str(findings), "--corpus", str(corpus)]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    done, covered = _DONE.search(ended.stderr), _COVERED.findall(ended.stderr)
    found = sorted(str(path) for path in set(findings.iterdir()) - before)
    if found or done is None:
        sys.stderr.write(ended.stderr[-4_000:])
    result = {
        "target": name,
        "runs": int(done.group(1)) if done else 0,
        "seconds": round(time.monotonic() - started, 1),
        "edges": int(covered[-1]) if covered else None,
        "found": found,
    }
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    return result


def _fuzz(asked: argparse.Namespace) -> None:
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=PACKAGES):
        targets = importlib.import_module("tests.security.targets")
        seeds = importlib.import_module("tests.security.seeds")
    target = targets.TARGETS[asked.target]
    for number, good in enumerate(seeds.seeds(asked.target)):
        (asked.corpus / f"seed-{number}").write_bytes(good)

    def change(data: bytes, most: int, number: int) -> bytes:
        chance = Random(number)
        if chance.random() < _OWN_MUTATIONS:
            return bytes(target.mutate(data, chance))[:most]
        return bytes(atheris.Mutate(data, most))

    options = [f"-runs={asked.runs}", f"-seed={asked.seed}", f"-max_len={asked.longest}"]
    options += [
        f"-artifact_prefix={asked.findings}/",
        f"-timeout={_SLOWEST_S}",
        f"-rss_limit_mb={_MEMORY_MIB}",
    ]
    atheris.Setup([sys.argv[0], *options, str(asked.corpus)], target.run, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    raise SystemExit(main())
