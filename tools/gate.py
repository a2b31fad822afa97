"""``python3 -m tools.gate``: all that a change must pass, in stages that run side by side.

``.ci/run`` starts it on a bare clone; it needs Python and the tools that the stages name. Each stage's output
is printed in one piece when the stage ends, and kept in ``dist/gate``. Afterwards come a table of the stages
and the sum of all tests as one line. Exit code 1 if a stage failed or could not run.

A change that adds more than 30 s says in its commit what it took out, or beside which stage it runs. What is
long (200 rounds of kills, fuzzing, further frameworks, benchmarks) is a command of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).parents[1]
LOGS: Final = ROOT / "dist" / "gate"
RESULTS: Final = ROOT / "dist" / "junit"
PLACES: Final = 3
"""Places for stages that run at once: one more than cores, since every stage waits now and then."""
SLOW: Final = 1.5
"""A stage is called slow from this multiple of its usual time."""
LONGEST_S: Final = 85 * 60
"""Seconds after which the gate ends by itself: CI ends it at 90 minutes, and its output would be lost."""
REQUIRED: Final[Mapping[str, str]] = {
    "BLAMESPAN_REQUIRE_BACKENDS": "true",
    "BLAMESPAN_REQUIRE_BROWSER": "true",
}
"""Makes tests fail, not skip, where a backend or the browser is missing."""
_SHORT_S: Final = 10.0
"""A stage below this is never called slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of the gate."""

    name: str
    command: str
    """Bash, run in the checkout; ``$WORK`` is an empty folder of this stage's own."""
    usual_s: int
    """Seconds on two idle cores with warm caches."""
    places: int = 1
    needs: tuple[str, ...] = ()


class End(StrEnum):
    """How a stage ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A stage that ended, with its seconds of wall and CPU time."""

    stage: Stage
    end: End
    began_s: float = 0.0
    """Seconds since the gate began."""
    wall_s: float = 0.0
    cpu_s: float = 0.0


DEBIAN: Final = """
missing=
for program in promtool amtool prometheus prometheus-alertmanager chromium buildah debootstrap; do
    command -v "$program" >/dev/null || missing=$program
done
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing=initdb
if [ -n "$missing" ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \\
        prometheus prometheus-alertmanager postgresql chromium fonts-liberation \\
        buildah crun debootstrap >/dev/null
fi
"""
DOCS: Final = """
tools/environment.sh python3 "$WORK/docs" requirements/docs.txt
"$WORK/docs/bin/zensical" build --strict --clean
.venv/bin/python -m tools.built_site dist/site
"""
WHEEL: Final = """
make --no-print-directory release
dist/tools/bin/python -m tools.audit || [ $? -eq 3 ] # 3: the advisories cannot be reached
diff <(git ls-files semconv collector_processor analyzer | sort) \\
    <(.venv/bin/python -m zipfile -l dist/release/*.whl | awk 'NR > 1 {print $1}' | grep -v dist-info | sort)
tools/environment.sh python3 "$WORK/venv" requirements/server.txt
"$WORK/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps dist/release/*.whl
(cd "$WORK" && venv/bin/blamespan demo --format json >/dev/null) # the server's pinned set is enough
# The tests need the pinned set of .venv: only its path, since its .pth files name the checkout.
packages='import sysconfig; print(sysconfig.get_path("purelib"))'
.venv/bin/python -c "$packages" >"$("$WORK/venv/bin/python" -c "$packages")/pinned.pth"
cp -r tests pyproject.toml "$WORK/"
cd "$WORK" && BLAMESPAN_WHEEL=true venv/bin/python -m pytest -q -o pythonpath=. \\
    tests/e2e/test_distribution.py
"""

STAGES: Final[Sequence[Stage]] = (
    Stage(name="environment", command="make --no-print-directory .venv/.ready", usual_s=40, places=2),
    Stage(name="Debian's packages", command=DEBIAN, usual_s=2, places=0),
    Stage(
        name="frameworks",  # mostly downloads
        command=".venv/bin/python -m tests.frameworks.install gate",
        usual_s=2,
        places=0,
        needs=("environment",),
    ),
    Stage(
        name="backends",
        command=".venv/bin/python -m tests.backends.install all",
        usual_s=2,
        places=0,
        needs=("environment",),
    ),
    Stage(
        name="axe-core",
        command=".venv/bin/python -m tools.axe",
        usual_s=2,
        places=0,
        needs=("environment",),
    ),
    Stage(
        name="whole line",  # the longest by far: all others run beside it
        command="make --no-print-directory test-whole",
        usual_s=1700,
        places=2,
        needs=("environment", "Debian's packages", "backends", "frameworks", "axe-core"),
    ),
    Stage(name="demo", command="make --no-print-directory demo", usual_s=8, needs=("environment",)),
    Stage(
        name="check",
        command=".venv/bin/python -m tools.registry --check\nmake --no-print-directory check",
        usual_s=150,
        needs=("environment",),
    ),
    Stage(name="tests", command="make --no-print-directory test", usual_s=400, needs=("environment",)),
    Stage(name="documentation", command=DOCS, usual_s=30, needs=("environment",)),
    Stage(name="wheel", command=WHEEL, usual_s=150, needs=("environment",)),
    Stage(
        name="image",  # the first time on a machine it also makes a Debian, in a minute or two
        command='tools/image.sh "$WORK"',
        usual_s=150,
        needs=("Debian's packages",),
    ),
    Stage(
        name="soak",  # judges ratios, never durations, so it may run beside others
        command=".venv/bin/python -m benchmarks.soak"
        " --minutes 2 --runs 10 --first 3000 --memory 0.15 --cost 1.0",
        usual_s=190,
        needs=("environment",),
    ),
    Stage(name="laws", command="make --no-print-directory test-laws", usual_s=150, needs=("environment",)),
)
"""In the order in which they start, as far as needs and places allow; each stands after those it needs."""


class Gate:
    """Runs stages, as many at once as there are places."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._waiting = list(stages)
        self._running: dict[Future[Ended], subprocess.Popen[bytes]] = {}
        self._ended: dict[str, Ended] = {}
        self._free = PLACES
        self._began = time.monotonic()

    def run(self) -> list[Ended]:
        """Run all stages; return them in the order of their ends."""
        with ThreadPoolExecutor(len(self._waiting)) as threads:
            while self._start_all(threads) or self._running:
                left_s = self._began + LONGEST_S - time.monotonic()
                done, _ = wait(self._running, timeout=max(left_s, 1), return_when=FIRST_COMPLETED)
                if not done:
                    self._stop_all()
                for future in done:
                    del self._running[future]
                    self._note(future.result())
        return list(self._ended.values())

    def _start_all(self, threads: ThreadPoolExecutor) -> int:
        """Start the stages that can start now, and note those that never can; return how many started.

        A stage that waits keeps its places from those after it, or they would take them in turn for ever.
        """
        started = 0
        unreserved = self._free
        for stage in tuple(self._waiting):
            needed = [self._ended.get(name) for name in stage.needs]
            if any(one and one.end is not End.PASSED for one in needed):
                self._waiting.remove(stage)
                self._note(Ended(stage=stage, end=End.NOT_RUN))
                continue
            if all(needed) and stage.places <= unreserved:
                self._waiting.remove(stage)
                self._free -= stage.places
                began = time.monotonic()
                say(f"-- {stage.name}: started at {began - self._began:.0f} s")
                process = _start(stage)
                future = threads.submit(_await_end, stage, process, began - self._began)
                self._running[future] = process
                started += 1
            unreserved -= stage.places
        return started

    def _stop_all(self) -> None:
        say(f"gate: {LONGEST_S} s are over; stopping what still runs")
        self._waiting.clear()
        for process in self._running.values():
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)

    def _note(self, ended: Ended) -> None:
        self._ended[ended.stage.name] = ended
        if ended.end is End.NOT_RUN:
            say(f"== {ended.stage.name}: not run, for a stage that it needs failed")
            return
        self._free += ended.stage.places
        say(f"\n== {ended.stage.name}: {ended.end} after {ended.wall_s:.0f} s; its output:")
        say(_log_of(ended.stage).read_text(errors="replace").rstrip())


def main() -> int:
    """Run the stages that the command line names, or all."""
    parser = argparse.ArgumentParser(prog="python3 -m tools.gate", description=__doc__)
    parser.add_argument("stage", nargs="*", help=f"one of: {', '.join(stage.name for stage in STAGES)}")
    asked = parser.parse_args().stage
    if unknown := set(asked) - {stage.name for stage in STAGES}:
        parser.error(f"no stage is called {', '.join(sorted(unknown))}")
    shutil.rmtree(LOGS, ignore_errors=True)
    shutil.rmtree(RESULTS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    began = time.monotonic()
    chosen = [replace(stage, needs=()) for stage in STAGES if stage.name in asked] if asked else STAGES
    ended = Gate(chosen).run()
    say(f"\n{table(ended, time.monotonic() - began)}\n\n{closing_line(RESULTS)}")
    return int(any(one.end is not End.PASSED for one in ended) or len(ended) < len(chosen))


def table(ended: Sequence[Ended], wall_s: float) -> str:
    """Return the stages with their times; those much slower than usual say so."""
    lines = [f"{'stage':<20}{'began':>8}{'wall s':>8}{'CPU s':>8}{'usual':>8}"]
    for one in ended:
        slow = one.wall_s / one.stage.usual_s
        says = f"  {one.end}" if one.end is not End.PASSED else ""
        says += f"  {slow:.1f} times its usual time" if slow > SLOW and one.wall_s > _SHORT_S else ""
        lines.append(
            f"{one.stage.name:<20}{one.began_s:>8.0f}{one.wall_s:>8.0f}{one.cpu_s:>8.0f}{one.stage.usual_s:>8}{says}"
        )
    lines.append(f"{'all':<20}{0:>8}{wall_s:>8.0f}{sum(one.cpu_s for one in ended):>8.0f}")
    return "\n".join(lines)


def closing_line(results: Path) -> str:
    """Return the sum of all results (JUnit XML) as one line."""
    suites = [suite for file in sorted(results.glob("*.xml")) for suite in ET.parse(file).iter("testsuite")]
    tests, failed, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites for name in names)
        for names in (("tests",), ("failures", "errors"), ("skipped",))
    )
    return f"{tests - failed - skipped} passed, {failed} failed, {skipped} skipped"


def say(text: str) -> None:
    """Print at once, so that what CI shows is never behind."""
    print(text, flush=True)


def environment() -> dict[str, str]:
    """Return the stages' environment; Python keeps what it compiled, or each process compiles it again."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, **REQUIRED}


def _start(stage: Stage) -> subprocess.Popen[bytes]:
    work = LOGS / f"{stage.name}.work"
    work.mkdir()
    with _log_of(stage).open("wb") as log:
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", stage.command],
            cwd=ROOT, env=environment() | {"WORK": str(work)}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip


def _await_end(stage: Stage, process: subprocess.Popen[bytes], began_s: float) -> Ended:
    began = time.monotonic()
    _, status, used = os.wait4(process.pid, 0)  # with the CPU time of the stage's processes
    process.returncode = os.waitstatus_to_exitcode(status)
    shutil.rmtree(LOGS / f"{stage.name}.work", ignore_errors=True)
    return Ended(
        stage=stage,
        end=End.FAILED if process.returncode else End.PASSED,
        began_s=began_s,
        wall_s=time.monotonic() - began,
        cpu_s=used.ru_utime + used.ru_stime,
    )


def _log_of(stage: Stage) -> Path:
    return LOGS / f"{stage.name}.log"


if __name__ == "__main__":
    sys.exit(main())
