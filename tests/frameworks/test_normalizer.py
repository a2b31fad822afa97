"""Recorded runs that the Collector's ``genainormalizer`` has rewritten give the same steps."""

from __future__ import annotations

import functools

import pytest

from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.model import Span, Step
from tests.frameworks.normalizer import SOURCES, normalized
from tests.frameworks.test_fixtures import READ, RUNS

LOSSY = {
    (
        "smolagents_openinference",
        "crash",
    ): "message parts, which name the agent of a failed call, are dropped",
    ("openai_agents_js_openinference", "misread"): "text beside tool calls is dropped",
}
"""What ``remove_originals`` deletes without a copy, so that no reader can restore it."""


@functools.cache
def _recorded(name: str, variant: str) -> tuple[tuple[Span, ...], tuple[bytes, ...]]:
    recording = read_recording(RUNS[name].fixture(variant).read_bytes())
    spans = [span for body in recording.bodies(Signal.TRACES) for span in decode(body).spans]
    return tuple(spans), recording.bodies(Signal.LOGS)


def _is_rewritten(name: str, variant: str) -> bool:
    known = {key for mapping, _ in SOURCES for key in mapping}
    return any(not known.isdisjoint(span.attributes) for span in _recorded(name, variant)[0])


REWRITTEN = [
    (name, variant)
    for name, variant in READ
    if ("openinference" in name or "traceloop" in name) and _is_rewritten(name, variant)
]


def _steps(spans: list[Span], logs: tuple[bytes, ...]) -> list[list[tuple[object, ...]]]:
    runs = rebuild([encode(spans)], logs)
    return [list(map(_seen, run.trajectory.steps)) for run in runs if run.trajectory.steps]


def _seen(step: Step) -> tuple[object, ...]:
    return step.agent, step.kind, step.target, step.error, step.output


@pytest.mark.parametrize(("name", "variant"), REWRITTEN)
def test_copies_beside_the_originals_change_no_step(name: str, variant: str) -> None:
    spans, logs = _recorded(name, variant)
    assert _steps(normalized(spans, remove_originals=False), logs) == _steps(list(spans), logs)


@pytest.mark.parametrize(("name", "variant"), REWRITTEN)
def test_removed_originals_change_no_step(name: str, variant: str) -> None:
    spans, logs = _recorded(name, variant)
    found, told = _steps(normalized(spans, remove_originals=True), logs), _steps(list(spans), logs)
    if (name, variant) in LOSSY:
        assert [len(run) for run in found] == [len(run) for run in told]
        assert found != told, "restored after all: take it off the list"
    else:
        assert found == told


def test_enough_runs_are_rewritten() -> None:
    assert len(REWRITTEN) >= 70
