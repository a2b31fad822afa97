"""Every span that a dialect reads has one of the scopes or keys that the dialect declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzer.recordings.read_files import read_recording
from collector_processor.otlp import Signal
from collector_processor.rebuild.decode import decode
from semconv.dialects import DIALECTS, Surroundings
from tests.shown import fixtures


@pytest.mark.parametrize("path", list(fixtures()), ids=lambda path: path.name)
def test_a_dialect_reads_no_span_without_its_marks(path: Path) -> None:
    bodies = read_recording(path.read_bytes()).bodies(Signal.TRACES)
    spans = [span for body in bodies for span in decode(body).spans]
    surroundings = Surroundings(spans)
    marked = [dialect for dialect in DIALECTS if dialect.scopes or dialect.keys]
    for span in surroundings.walked:
        for dialect in marked:
            has_mark = span.scope.name.startswith(dialect.scopes) or not dialect.keys.isdisjoint(
                span.attributes
            )
            assert has_mark or dialect.read(span, surroundings) is None, dialect.name
