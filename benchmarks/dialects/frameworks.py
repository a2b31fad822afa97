"""Every recorded framework: what is read of its runs, and the verdicts on them.

    python -m benchmarks.dialects.frameworks [--each] [--page FILE]

Two stories. *Wrong figure*: the run ends normally, and an agent's sum is wrong, or it misquotes its tool.
*Failure*: a tool raises until the agents give up or are stopped, or the model breaks. A passing twin is the
same recording with the right figure in place of the wrong one. Verdicts are those of the service without a
model. ``--each`` lists what is missed.

The dialects were written with these recordings: expect less of a framework that is not among them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analyzer.analyses.analyst import RunAnalyst
from analyzer.inquiry.intervals import wilson
from analyzer.methods.attribution import Attributor
from analyzer.recordings.read_files import read_recording
from benchmarks.dialects.unread import Case, Share, measured
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from semconv.model import BLAMELESS, Attribution, Blame, Status, Trajectory
from tests.contract.recorded import SHARED
from tests.frameworks.catalogue import RunScript, single_runs
from tests.frameworks.kit.story import PURSER, REGISTRAR
from tests.frameworks.script import MISREAD, RIGHT_ANSWER, WRONG_ANSWER, WRONG_TOTAL
from tests.frameworks.truth import REGISTRARS_FAULT, decisive_step, expected_steps, read_truth

READER: Final = open_reader()
ANALYST: Final = RunAnalyst(attributor=Attributor())
WRONG_FIGURE: Final = frozenset({"normal", "parallel", "streaming", "delegating", "misread", "structured"})
SOUND: Final = frozenset({"sound", "reported"})
FAILURES: Final = frozenset({"crash", "max_turns", "given_up"})
_TWINS: Final = {
    "parallel": {WRONG_ANSWER: "10,500"},
    "structured": {f":{space}{WRONG_TOTAL}": f":{space}7140" for space in ("", " ")},
    "misread": {f"{MISREAD} seats": "850 seats", f"{MISREAD} x": "850 x", "48,720": "71,400"},
}
"""Wrong and right figures of a variant, if other than usual."""
_WRONG_COST: Final = re.compile(rb"(?<!\d)450(?!\d)")
_RIGHT_COST: Final = b"480"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One recording: what was read, and the verdict on it."""

    name: str
    group: str
    share: Share
    story: str
    """``figure``, ``failure`` or ``passing``."""
    is_noticed: bool
    is_agent_right: bool = False
    is_step_right: bool = False
    twin_alarms: tuple[bool, ...] = ()
    """Whether the passing twin was taken for a failure; empty if there is no twin."""


def runs_of(parts: Sequence[bytes]) -> list[Trajectory]:
    """Return the runs with steps in some files."""
    recorded = [read_recording(part) for part in parts]
    spans = [body for each in recorded for body in each.bodies(Signal.TRACES)]
    logs = [body for each in recorded for body in each.bodies(Signal.LOGS)]
    runs = rebuild(spans, logs, reader=READER)
    return [run.trajectory for run in runs if run.trajectory.steps]


def verdict_on(runs: Sequence[Trajectory]) -> tuple[Trajectory, Attribution]:
    """Return the run with most steps and the verdict on it; there is at least one run."""
    run = max(runs, key=lambda each: len(each.steps))
    analysis = ANALYST.unasked(run)
    assert analysis is not None, "without a model nothing is left to ask"
    return run, analysis.attribution


def is_alarm(attribution: Attribution) -> bool:
    """Say whether a verdict takes the run for a failure."""
    return attribution.status not in {*BLAMELESS, Status.UNREADABLE}


def recordings() -> Iterator[Seen]:
    """Yield the project's recordings."""
    for name, script in single_runs().items():
        for variant in script.variants:
            if variant in WRONG_FIGURE | FAILURES | SOUND:
                yield _recording(name, script, variant)


def _recording(name: str, script: RunScript, variant: str) -> Seen:
    data = gzip.decompress(script.fixture(variant).read_bytes())
    expected = expected_steps(script, read_truth(script.truth(variant)))
    case = Case(
        name=f"{name} {variant}",
        group=name,
        files=(),
        expected=tuple((each.kind, each.agent) for each in expected),
    )
    runs = runs_of([data])
    run, attribution = verdict_on(runs)
    blame = attribution.verdict if isinstance(attribution.verdict, Blame) else None
    decisive = decisive_step(expected, run)
    culprit = REGISTRAR if variant in REGISTRARS_FAULT | {"max_turns"} else PURSER
    is_agent_right = blame is not None and blame.agent == script.named.get(culprit, culprit)
    is_step_right = blame is not None and decisive is not None and blame.step == decisive.index
    if variant == "max_turns":  # each of the registrar's failing look-ups is as decisive as the next
        is_step_right = is_agent_right
    twins: tuple[bool, ...] = ()
    if variant in WRONG_FIGURE:
        for wrong, right in _TWINS.get(variant, {WRONG_ANSWER: RIGHT_ANSWER}).items():
            data = data.replace(wrong.encode(), right.encode())
        twins = (is_alarm(verdict_on(runs_of([data]))[1]),)
    return Seen(
        name=case.name,
        group=f"{script.framework}, {script.instrumentation}",
        share=measured(case, runs),
        story="passing" if variant in SOUND else "figure" if variant in WRONG_FIGURE else "failure",
        is_noticed=is_alarm(attribution),
        is_agent_right=is_agent_right,
        is_step_right=is_step_right,
        twin_alarms=(is_alarm(attribution),) if variant in SOUND else twins,
    )


def captures() -> Iterator[Seen]:
    """Yield the earlier captures, where they are beside the repository."""
    folder = SHARED / "captures"
    index = folder / "INDEX.json"
    for name, told in json.loads(index.read_text()).items() if index.exists() else ():
        files = [file for file in (folder / f"{name}.json", folder / f"{name}.logs.json") if file.exists()]
        expected = tuple((kind, agent) for agent, kind, _ in told["expected_steps"])
        case = Case(name=f"capture {name}", group="", files=(), expected=expected)
        parts = [file.read_bytes() for file in files]
        runs = runs_of(parts)
        run, attribution = verdict_on(runs)
        blame = attribution.verdict if isinstance(attribution.verdict, Blame) else None
        gold = told.get("gold_span") or {}
        is_failure = name.endswith("-crash")
        twin = () if is_failure else (_is_twin_alarm(parts),)
        yield Seen(
            name=case.name,
            group="earlier captures",
            share=measured(case, runs),
            story="failure" if is_failure else "figure",
            is_noticed=is_alarm(attribution),
            is_agent_right=blame is not None and blame.agent == told.get("gold_agent"),
            is_step_right=blame is not None and run.steps[blame.step].span_id == gold.get("span_id"),
            twin_alarms=twin,
        )


def _is_twin_alarm(parts: Sequence[bytes]) -> bool:
    return is_alarm(verdict_on(runs_of([_WRONG_COST.sub(_RIGHT_COST, part) for part in parts]))[1])


def _share(found: Sequence[bool]) -> str:
    return f"{sum(found)}/{len(found)}" if found else "-"


def _row(name: str, seen: Sequence[Seen]) -> str:
    figure = [one for one in seen if one.story == "figure"]
    failure = [one for one in seen if one.story == "failure"]
    cells = [
        _share([one.share.is_exact for one in seen]),
        _share([one.is_noticed for one in figure]),
        _share([one.is_agent_right for one in figure]),
        _share([one.is_step_right for one in figure]),
        _share([one.is_noticed for one in failure]),
        _share([one.is_agent_right for one in failure]),
        _share([one.is_step_right for one in failure]),
        _share([alarm for one in seen for alarm in one.twin_alarms]),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _total(what: str, found: Sequence[bool]) -> str:
    ends = wilson(sum(found), len(found))
    mean, low, high = (100 * each for each in (sum(found) / len(found), ends.low, ends.high))
    return f"| {what} | {_share(found)} | {mean:.0f} % | {low:.0f} to {high:.0f} % |"


def tables(seen: Sequence[Seen]) -> Iterator[str]:
    """Yield the totals with their 95 % intervals, then a row for each framework."""
    failed = [one for one in seen if one.story != "passing"]
    noticed = [one for one in failed if one.is_noticed]
    figure = [one for one in seen if one.story == "figure"]
    failure = [one for one in seen if one.story == "failure"]
    yield "| of all recordings | n | share | 95 % |"
    yield "|---|---|---|---|"
    yield _total("steps, agents and order exact", [one.share.is_exact for one in seen])
    yield _total("wrong figure noticed", [one.is_noticed for one in figure])
    yield _total("failure noticed", [one.is_noticed for one in failure])
    yield _total("right agent blamed, of those noticed", [one.is_agent_right for one in noticed])
    yield _total("right step blamed, of those noticed", [one.is_step_right for one in noticed])
    yield _total("false alarms on passing twins", [alarm for one in seen for alarm in one.twin_alarms])
    yield ""
    yield (
        "| framework, instrumentation | exact | wrong figure noticed | its agent | its step"
        " | failure noticed | its agent | its step | false alarms |"
    )
    yield f"|---{'|---' * 8}|"
    groups: defaultdict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        groups[one.group].append(one)
    for name, found in sorted(groups.items(), key=lambda each: each[0].lower()):
        yield _row(name, found)


def misses(seen: Sequence[Seen]) -> Iterator[str]:
    """Yield what went wrong, a line for each recording."""
    for one in seen:
        told = [
            *(["steps"] if not one.share.is_exact else []),
            *(["unnoticed"] if one.story != "passing" and not one.is_noticed else []),
            *(["agent"] if one.story != "passing" and one.is_noticed and not one.is_agent_right else []),
            *(["step"] if one.story != "passing" and one.is_noticed and not one.is_step_right else []),
            *(["false alarm"] if any(one.twin_alarms) else []),
        ]
        if told:
            yield f"{one.name}: {', '.join(told)}"
    yield f"{len(seen)} recordings"


def main() -> None:
    """Print the tables, or put them into a page between its marks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dialects.frameworks", description=__doc__)
    parser.add_argument("--each", action="store_true", help="list what is missed")
    parser.add_argument("--page", type=Path, help="write the tables into this page, between its marks")
    asked = parser.parse_args()
    seen = [*recordings(), *captures()]
    if asked.each:
        print("\n".join(misses(seen)))
        return
    told = "\n".join(tables(seen))
    if asked.page is None:
        print(told)
        return
    before, _, rest = asked.page.read_text().partition("<!-- measured -->\n")
    _, _, after = rest.partition("<!-- end -->\n")
    asked.page.write_text(f"{before}<!-- measured -->\n{told}\n<!-- end -->\n{after}")


if __name__ == "__main__":
    main()
