"""Describes how a new recording differs from the stored one. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from analyzer.recordings.read_files import read_recording
from collector_processor.core.runs import Run
from collector_processor.otlp import Signal
from collector_processor.rebuild.stages import rebuild
from semconv.model import Span, Trajectory
from semconv.record import replace
from tests.frameworks.truth import Truth

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Occurs in AutoGen's span names, different in each run."""


def runs_of(data: bytes) -> tuple[Run, ...]:
    """Return the runs in a recording, with the content of its logs."""
    recording = read_recording(data)
    return rebuild(recording.traces, recording.bodies(Signal.LOGS))


def side_by_side(runs: Sequence[Trajectory]) -> Trajectory:
    """Return the first run with the steps of all, one after the other."""
    return replace(runs[0], steps=tuple(step for run in runs for step in run.steps))


def changes(old: bytes, new: bytes, truths: tuple[Truth, Truth]) -> list[str]:
    """Return changes of versions, span names, attribute keys and steps; ids, times and texts are ignored."""
    before, after = _spans(old), _spans(new)
    was, now = (truth.versions for truth in truths)
    return [
        *_compared("version", _pairs(was), _pairs(now)),
        *_compared("scope", _scopes(before), _scopes(after)),
        *_compared("span", Counter(map(_shape, before)), Counter(map(_shape, after))),
        *_keys(before, after),
        *_compared("step", Counter(_steps(old)), Counter(_steps(new))),
        *_order(list(_steps(old)), list(_steps(new))),
    ]


def _spans(data: bytes) -> list[Span]:
    return [span for run in runs_of(data) for span in run.trace.spans]


def _shape(span: Span) -> str:
    return f"{_name(span)} ({span.status})"


def _name(span: Span) -> str:
    return _UUID.sub("<uuid>", span.name)


def _pairs(versions: dict[str, str]) -> Counter[str]:
    return Counter(f"{name} {version}" for name, version in versions.items())


def _scopes(spans: Iterable[Span]) -> Counter[str]:
    return Counter({f"{span.scope.name} {span.scope.version}".strip() for span in spans})


def _keys(before: Sequence[Span], after: Sequence[Span]) -> Iterator[str]:
    """Return attribute keys lost and gained on spans of one name; new and missing names are reported
    separately."""
    was, now = _keys_by_name(before), _keys_by_name(after)
    for name in was.keys() & now.keys():
        yield from _compared(f"attribute of {name!r}:", Counter(was[name]), Counter(now[name]))


def _keys_by_name(spans: Iterable[Span]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for span in spans:
        found[_name(span)].update(span.attributes)
    return found


def _steps(data: bytes) -> Iterator[str]:
    for run in runs_of(data):
        yield from (f"{step.agent} {step.kind}" for step in run.trajectory.steps)


def _order(before: list[str], after: list[str]) -> Iterator[str]:
    if before != after and sorted(before) == sorted(after):
        yield "the order of the steps changed"


def _compared(what: str, before: Counter[str], after: Counter[str]) -> Iterator[str]:
    for name in sorted((before - after).elements()):
        yield f"- {what} {name}"
    for name in sorted((after - before).elements()):
        yield f"+ {what} {name}"
