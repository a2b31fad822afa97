"""A labelled trace of a data set: the run is rebuilt from its spans, the label has its weight."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzer.inquiry.errors import UnreadableInput
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.recordings.otlp_file import trace_document
from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from tests.factories import chat, workflow

SPANS = encode([workflow(1), chat(2, answer="4", agent_name="planner")])
OTHER = encode([workflow(1, trace_id=TraceId("b" * 32)), chat(2, agent_name="x", trace_id=TraceId("b" * 32))])
LABEL = {"agent": "planner", "step": 0, "category": "wrong_value", "weight": 0.9}


def test_a_labelled_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = tmp_path / "faults.jsonl"
    line = json.dumps({"source": "shop", "subset": "loop", "label": LABEL, **trace_document([SPANS], [])})
    place.write_text(f"{line}\n{line}\n")
    one, _ = read_dataset(place)
    assert one.label is not None
    assert (one.label.agent, one.label.step, one.label.category, one.label.trust) == (
        "planner",
        0,
        "wrong_value",
        0.9,
    )
    assert (one.source, one.subset) == ("shop", "loop")
    assert [(step.agent, step.output) for step in one.trajectory.steps] == [("planner", "4")]


@pytest.mark.parametrize("weight", [0, -1, 2, "much", None, True, float("nan")])
def test_an_invalid_weight_counts_fully(tmp_path: Path, weight: object) -> None:
    place = tmp_path / "faults.jsonl"
    document = {"label": {**LABEL, "weight": weight}, **trace_document([SPANS], [])}
    place.write_text(json.dumps(document) + "\n")
    (one,) = read_dataset(place)
    assert one.label is not None
    assert one.label.trust == 1.0


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"label": LABEL, **trace_document([SPANS, OTHER], [])}, "2 runs", id="two runs"),
        pytest.param({"label": LABEL, "resourceSpans": []}, "0 runs", id="no span"),
        pytest.param({"label": LABEL, "resourceSpans": [5]}, "cannot be read", id="no spans at all"),
    ],
)
def test_anything_but_one_run_is_refused(tmp_path: Path, document: object, expected: str) -> None:
    place = tmp_path / "faults.jsonl"
    place.write_text(json.dumps(document) + "\n")
    with pytest.raises(UnreadableInput, match=expected):
        read_dataset(place)
