"""Share of every recorded run that is read with all dialects switched off.

    python -m benchmarks.dialects.unread [--rename]

The rules were written while looking at these recordings: the table is in-distribution. ``--rename`` replaces
the first word of every attribute of three or more (``gen_ai.agent.name`` becomes ``unknown.agent.name``) and
every scope, so that nothing can rest on a namespace.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from collector_processor.trajectory import order
from semconv.dialects import Reader
from semconv.model import Attributes, Scope, Span, Trace, Trajectory
from semconv.record import replace
from tests.contract.recorded import SHARED
from tests.frameworks.catalogue import single_runs
from tests.frameworks.truth import ANYBODY, expected_steps, read_truth

OFF: Final = Reader(())
Wanted: TypeAlias = tuple[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A recorded run and the steps that happened."""

    name: str
    group: str
    files: tuple[Path, ...]
    expected: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Shares of one run that were read, 0 to 1."""

    steps: float
    """Steps of the right kind, whatever their place."""
    order: float
    """Steps of the right kind in the right order."""
    agents: float
    """Steps of the right kind and agent in the right order."""
    is_exact: bool


def cases() -> Iterator[Case]:
    """Yield the fixtures, then the captures where they are beside the repository."""
    for name, run in single_runs().items():
        for variant in run.variants:
            steps = expected_steps(run, read_truth(run.truth(variant)))
            yield Case(
                name=f"{name} {variant}",
                group=name,
                files=(run.fixture(variant),),
                expected=tuple((each.kind, each.agent) for each in steps),
            )
    index = SHARED / "captures" / "INDEX.json"
    for name, told in json.loads(index.read_text()).items() if index.exists() else ():
        files = (SHARED / "captures" / f"{name}.json", SHARED / "captures" / f"{name}.logs.json")
        yield Case(
            name=f"capture {name}",
            group="captures",
            files=tuple(file for file in files if file.exists()),
            expected=tuple((kind, agent) for agent, kind, _ in told["expected_steps"]),
        )


def read(case: Case, reader: Reader, *, renames: bool = False) -> list[Trajectory]:
    """Return the runs of a case that have steps."""
    recorded = [read_recording(file.read_bytes()) for file in case.files]
    spans = [body for each in recorded for body in each.bodies(Signal.TRACES)]
    logs = [body for each in recorded for body in each.bodies(Signal.LOGS)]
    runs = rebuild(spans, logs, reader=reader)
    found = [order(_renamed(run.trace), reader) if renames else run.trajectory for run in runs]
    return [trajectory for trajectory in found if trajectory.steps]


def _renamed(trace: Trace) -> Trace:
    """Return a trace whose attributes and scopes stand in no namespace that is known."""
    return replace(trace, spans=tuple(map(_renamed_span, trace.spans)))


def _renamed_span(span: Span) -> Span:
    return replace(
        span,
        attributes=_renamed_keys(span.attributes),
        events=tuple(replace(each, attributes=_renamed_keys(each.attributes)) for each in span.events),
        logs=tuple(replace(each, attributes=_renamed_keys(each.attributes)) for each in span.logs),
        scope=Scope(name="unknown"),
    )


def _renamed_keys(attributes: Attributes) -> Attributes:
    return {_renamed_key(key): value for key, value in attributes.items()}


def _renamed_key(key: str) -> str:
    first, _, rest = key.partition(".")
    return f"unknown.{rest}" if first and "." in rest else key


def measured(case: Case, runs: Sequence[Trajectory]) -> Share:
    """Compare the longest run of a case with what happened."""
    got = max(([(str(step.kind), step.agent) for step in run.steps] for run in runs), key=len, default=[])
    most = max(len(got), len(case.expected), 1)
    kinds = [kind for kind, _ in case.expected]
    found = [kind for kind, _ in got]
    order = _common(found, kinds, lambda one, other: one == other) / most
    agents = _common(got, case.expected, lambda g, e: g[0] == e[0] and e[1] in {ANYBODY, g[1]}) / most
    steps = sum((Counter(found) & Counter(kinds)).values()) / most
    return Share(steps=steps, order=order, agents=agents, is_exact=agents == 1.0)


def _common(got: Sequence[T], wanted: Sequence[T], same: Callable[[T, T], bool]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(wanted) + 1)
    for one in got:
        before = 0
        for place, other in enumerate(wanted, start=1):
            kept = row[place]
            row[place] = before + 1 if same(one, other) else max(row[place], row[place - 1])
            before = kept
    return row[-1]


WHAT: Final = ("steps", "order", "agents", "is_exact")


def table(found: Mapping[str, Sequence[Share]]) -> Iterator[str]:
    """Yield the rows of the table: one a framework and instrumentation, then all recordings."""
    yield f"{'recordings':36} {'n':>3}  " + "".join(f"{what.removeprefix('is_'):>8}" for what in WHAT)
    every = [share for shares in found.values() for share in shares]
    for name, shares in [*found.items(), ("all", every)]:
        means = (sum(getattr(share, what) for share in shares) / len(shares) for what in WHAT)
        yield f"{name:36} {len(shares):3}  " + "".join(f"{100 * mean:6.0f} %" for mean in means)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dialects.unread", description=__doc__)
    parser.add_argument("--rename", action="store_true", help="no attribute in a known namespace")
    asked = parser.parse_args()
    found: defaultdict[str, list[Share]] = defaultdict(list)
    for case in cases():
        found[case.group].append(measured(case, read(case, OFF, renames=asked.rename)))
    for row in table(found):
        print(row)


if __name__ == "__main__":
    main()
