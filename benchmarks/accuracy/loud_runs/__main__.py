"""``python -m benchmarks.accuracy.loud_runs``: failures that a run shows, and right runs with errors.

Each line of a file is a run: the bytes that ``blamespan attribute`` would read (spans of six dialects, or
messages), who is to blame, and words of the steps that are right to blame; a run without a culprit is right.
A file stays as it was written. Its first result stands in docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.composition import open_analyst
from analyzer.recordings.uploads import read_runs
from collector_processor.settings import load_settings
from semconv.model import Blame, Trajectory

_HERE: Final = Path(__file__).parent


def judged(file: Path) -> Iterator[tuple[Mapping[str, Any], Blame | None, bool]]:
    """Yield each run with its verdict, if it blames somebody, and whether the blamed step is a right one."""
    analyst = open_analyst(load_settings({}, directory=_HERE, precision=0.0))
    for line in gzip.decompress(file.read_bytes()).splitlines():
        run = json.loads(line)
        found = [_blame(analyst, each) for each in read_runs([run["body"].encode()], lambda each: each)]
        blame, words = next((each for each in found if each[0] is not None), (None, ""))
        yield run, blame, any(one in words for one in run["steps"])


def _blame(analyst: RunAnalyst, trajectory: Trajectory) -> tuple[Blame | None, str]:
    """Return the verdict on a run, and what the blamed step says, returned and called."""
    analysis = analyst.unasked(trajectory)
    verdict = analysis.attribution.verdict if analysis is not None else None
    if not isinstance(verdict, Blame):
        return None, ""
    step = next(step for step in trajectory.steps if step.index == verdict.step)
    return verdict, f"{step.output}{step.error}{step.target}{step.name}"


def main() -> None:
    """Judge all runs of the files, and print those judged wrongly and a line a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(_HERE.glob("*.jsonl.gz")))
    for file in parser.parse_args().files:
        counts: Counter[str] = Counter()
        for run, blame, is_right_step in judged(file):
            is_wrong, is_agent = bool(run["culprit"]), blame is not None and blame.agent in run["culprit"]
            counts["wrong" if is_wrong else "right"] += 1
            counts["noticed" if is_wrong else "accused"] += blame is not None
            counts["agent"] += is_agent
            counts["step"] += is_agent and is_right_step
            if (blame is not None) is not is_wrong or (is_wrong and not (is_agent and is_right_step)):
                print(
                    f"{run['id']} {run['language']} {run['kind']}: {blame.reason if blame else 'not noticed'}"
                )
        print(
            f"{file.name}: of {counts['wrong']} wrong runs {counts['noticed']} noticed,"
            f" {counts['agent']} with the right agent, {counts['step']} with the right step;"
            f" of {counts['right']} right runs {counts['accused']} accused"
        )


if __name__ == "__main__":
    main()
