"""``python -m benchmarks.accuracy.invariants [FILE…]``: what invariants explain, notice and accuse wrongly.

Files hold one trajectory a line: ``goal``, ``steps`` (``thought``, ``call`` with ``tool`` and ``args``,
``observation`` with ``ok``, ``data`` and ``error``), ``final_answer`` and ``label``. Without files, the
workflow of ``claims.py``. Each is judged as it is and disguised (``disguise.py``), with 10, 20, 40 and 200
good runs known. The rest of the good runs may be accused, none should be. Of a run that stopped early the
step counts as right if it is the last call or the one after it.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from analyzer.history.broken import accusations, violations
from analyzer.history.facts import Facts, collect, pack, unpack
from analyzer.history.mining import mine
from analyzer.inquiry.intervals import wilson
from analyzer.recordings.read_files import read_recording
from benchmarks.accuracy.invariants.claims import claims
from benchmarks.accuracy.invariants.disguise import disguised
from benchmarks.accuracy.right_runs.__main__ import spans_of
from collector_processor.rebuild.stages import rebuild
from semconv.record import record

_KNOWN: Final = (10, 20, 40, 200)
_EARLY: Final = frozenset({"premature_stop", "stopped_early"})
"""Kinds of faults whose step is the last call or the one after it."""


@record
class Case:
    """A labelled run."""

    facts: Facts
    fault: str
    """Empty for a good run."""
    right: frozenset[int]
    """The steps that may be named."""


def case_of(row: dict[str, Any]) -> Case:
    """Return a trajectory as a run of blamespan, read from spans."""
    steps: list[dict[str, Any]] = []
    places: list[int] = []
    for place, step in enumerate(row["steps"]):
        agent, call, seen = step.get("agent", "agent"), step["call"], step["observation"]
        asked = {"id": f"c{place}", "name": call["tool"], "arguments": call["args"]}
        steps.append({"kind": "llm", "agent": agent, "said": step["thought"] or "", "calls": [asked]})
        ran = {
            "kind": "tool",
            "agent": agent,
            "tool": call["tool"],
            "call_id": f"c{place}",
            "arguments": call["args"],
        }
        steps.append(ran | ({"result": seen["data"]} if seen["ok"] else {"error": str(seen["error"])}))
        places += [place, place]
    agent = row["steps"][-1].get("agent", "agent")
    steps.append({"kind": "llm", "agent": agent, "said": row["final_answer"]})
    places.append(len(row["steps"]))
    run = {
        "id": row["trajectory_id"],
        "domain": "workflow",
        "task": row["goal"],
        "output": row["final_answer"],
        "steps": steps,
    }
    spans = {
        "resourceSpans": [
            {
                "resource": {"attributes": []},
                "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans_of(run))}],
            }
        ]
    }
    recording = read_recording(json.dumps(spans).encode())
    trajectory = rebuild(recording.traces)[0].trajectory
    fault = row["label"]["failure_type"] if row["label"]["faulty"] else ""
    labelled = row["label"].get("failure_step")
    wanted = {labelled, labelled + 1} if fault in _EARLY else {labelled}
    right = frozenset(
        step.index for step, place in zip(trajectory.steps, places, strict=True) if place in wanted
    )
    return Case(facts=collect(trajectory), fault=fault or "", right=right)


def tables(cases: Sequence[Case]) -> Iterator[str]:
    """Yield one table for each number of known runs."""
    good = [case.facts for case in cases if not case.fault]
    for n in _KNOWN:
        if n + 50 > len(good):
            continue
        mined = mine([unpack(pack(facts)) for facts in good[:n]])
        accused = [bool(accusations(facts, mined)) for facts in good[n:]]
        speaking = sum(mined.accuses(one) for one in mined.held)
        kinds = ", ".join(kind for kind in type(mined.held[0].invariant.kind) if kind in mined.accusing)
        yield f"{n} known runs: {len(mined.held)} invariants"
        yield f"  may accuse: {speaking} (limit {mined.limit:.2%}): {kinds}"
        yield f"  good runs accused: {_share(sum(accused), len(accused))}"
        yield from _faults(cases, mined)


def _faults(cases: Sequence[Case], mined: Any) -> Iterator[str]:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        if not case.fault:
            continue
        found, noticed = violations(case.facts, mined), accusations(case.facts, mined)
        is_right = bool(found) and found[0].broken.step in case.right
        for row in (case.fault, "all faults"):
            counts[row].update(n=1, right=is_right, noticed=bool(noticed), both=bool(noticed) and is_right)
    for row, count in sorted(counts.items(), key=lambda one: (one[0] != "all faults", one[0])):
        yield (
            f"  {row:24} n {count['n']:4}  told: right step {_share(count['right'], count['n'])}"
            f"  untold: noticed {_share(count['noticed'], count['n'])},"
            f" step right in {_share(count['both'], count['noticed'])}"
        )


def _share(count: int, n: int) -> str:
    interval = wilson(count, n)
    return f"{count / max(1, n):6.1%} ({interval.low:.0%}-{interval.high:.0%})" if n else "   -"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="trajectories as JSON lines")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.files:
        rows = [json.loads(line) for file in options.files for line in file.read_text().splitlines()]
    else:
        rows = claims(options.seed, 760, 60)
    random.Random(options.seed).shuffle(rows)
    for title, told in (("as it is", rows), ("disguised", disguised(rows, options.seed))):
        cases = [case_of(row) for row in told]
        size = sum(len(pack(case.facts)) for case in cases) / len(cases)
        print(f"{title}: {len(cases)} runs, {size:.0f} bytes kept a run")
        for line in tables(cases):
            print(line)


if __name__ == "__main__":
    main()
