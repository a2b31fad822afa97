"""Records frameworks' telemetry: ``python -m tests.frameworks.record [NAME…] [--variant V] [--check]``.

Installs, runs and captures each, prints what changed against the stored recording and whether blamespan reads
it correctly, and stores the new one. With ``--check`` nothing is stored, and a change is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.backends.cache import say
from tests.frameworks.catalogue import VARIANTS, RunScript, catalogue
from tests.frameworks.changes import changes, runs_of, side_by_side
from tests.frameworks.install import InstallError, install
from tests.frameworks.play import Recorded, RunFailed, record
from tests.frameworks.server import Happening
from tests.frameworks.truth import Truth, differences, expected_steps, read_truth

LARGEST: Final = 60_000
"""Most bytes of a fixture: there are many, and they stay in git's history."""


def main() -> int:
    """Record what the command line names; return the number of failures."""
    known = catalogue()
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.record", description=__doc__)
    parser.add_argument("name", nargs="*", default=list(known), metavar="NAME", help=", ".join(known))
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="by default all of the run's")
    parser.add_argument("--check", action="store_true", help="keep nothing; a change is an error")
    parser.add_argument("--show", action="store_true", help="print what the script and the model said")
    parser.add_argument("--requests", type=Path, help="write what the framework asked the model there")
    options = parser.parse_args()
    if unknown := set(options.name) - set(known):
        parser.error(f"no run called {', '.join(sorted(unknown))}")
    failed = 0
    for name in options.name:
        run = known[name]
        for variant in [each for each in run.variants if each in (options.variant or VARIANTS)]:
            try:
                failed += _record(run, variant, options)
            except (InstallError, RunFailed) as error:
                say(f"error: {name} {variant}: {error}")
                failed += 1
    return failed


def _record(run: RunScript, variant: str, options: argparse.Namespace) -> bool:
    """Record one variant; return whether something is wrong with it."""
    recorded = record(run, variant, python=install(run))
    if options.show:
        print(recorded.played.said)
        for happened in recorded.played.truth.log:
            print(f"  {happened}")
    if options.requests:
        options.requests.write_text(json.dumps(recorded.played.requests, indent=1))
    data = recorded.data
    print(f"{run.name} {variant}: {len(recorded.lines)} requests, {len(data)} bytes")
    changed = _told_changes(run, variant, recorded)
    for line in [*changed, *_misses(run, recorded)]:
        print(f"  {line}")
    if len(data) > LARGEST:
        print(f"  too large: at most {LARGEST} bytes are kept")
        return True
    if options.check:
        return bool(changed)
    if changed or not run.fixture(variant).exists():
        run.fixture(variant).write_bytes(data)
        recorded.played.truth.write(run.truth(variant))
    return False


def _told_changes(run: RunScript, variant: str, recorded: Recorded) -> list[str]:
    kept = run.fixture(variant)
    if not kept.exists():
        return ["new"]
    truths = (read_truth(run.truth(variant)), recorded.played.truth)
    told = changes(kept.read_bytes(), recorded.data, truths)
    return [*told, *(["what happened changed"] if _log(truths[0]) != _log(truths[1]) else [])]


def _misses(run: RunScript, recorded: Recorded) -> list[str]:
    """Describe how blamespan's steps differ from the true ones, for authors of dialects."""
    expected = expected_steps(run, recorded.played.truth)
    runs = [found.trajectory for found in runs_of(recorded.data) if found.trajectory.steps]
    if len(runs) != run.runs:
        return [f"{len(runs)} runs with steps, expected {run.runs}"]
    return differences(expected, side_by_side(runs))


def _log(truth: Truth) -> list[Happening]:
    """Return the events without their numbers; parallel ones in a fixed order."""
    ordered = sorted(truth.log, key=lambda each: (each.agent, each.kind, each.text, each.began))
    return [replace(each, began=0, ended=0) for each in ordered]


if __name__ == "__main__":
    sys.exit(min(main(), 1))
