"""A user's mapping is used wherever a trace is read, not only where runs get their verdicts."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from analyzer.experiment.replay.read_tape import read_tape
from analyzer.experiment.replay.tape import Tape
from analyzer.issues.labels.kept_run import pack
from analyzer.issues.labels.kept_trace import rebuilt
from analyzer.recordings.uploads import read_runs
from analyzer.web.api import read_steps
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.whole_runs import WholeRuns
from collector_processor.mapping_files import open_reader
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.kept_spans import KeptSpans, SpanKeeper
from collector_processor.rebuild.redaction import make_redactor
from collector_processor.rebuild.runs import group_runs, is_stray
from collector_processor.rebuild.stages import rebuild
from semconv.dialects import Reader
from semconv.model import Span, Trace
from semconv.record import replace
from tests.factories import span, trace
from tests.unit.test_mapping_files import MAPPING, odd
from tests.web.stage import verdict_of
from tests.web.test_pages import blame

STEPS = 4


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    path = tmp_path / "acme.yaml"
    path.write_text(MAPPING)
    return open_reader(str(path))


def test_uploads_are_read_by_the_mapping(reader: Reader) -> None:
    (uploaded,) = read_runs([encode(odd())], lambda trajectory: trajectory, reader, "")
    assert len(uploaded.steps) == STEPS


def test_kept_runs_that_are_labelled_again_are_read_by_the_mapping(reader: Reader) -> None:
    run = rebuilt(KeptSpans(traces=encode(odd()), logs=b""), "run", reader)
    assert run is not None
    assert len(run.trajectory.steps) == STEPS


async def test_steps_of_kept_runs_are_read_by_the_mapping(reader: Reader) -> None:
    (run,) = rebuild([encode(odd())], reader=reader)
    rules = make_redactor((), ())
    (packed,) = SpanKeeper(redactor=rules).pack(
        [encode(odd())], (), [(run.trace.spans, rules.for_run())], [True]
    )
    steps = pack(run.trajectory, lambda text: text)

    kept = Mock(spec=RunArchive)
    kept.kept_spans, kept.kept = AsyncMock(return_value=packed), AsyncMock(return_value=steps)
    verdict = verdict_of(run.trajectory, blame(run.trajectory, 1), "shop", 1)
    found = await read_steps(WholeRuns(kept, lambda trajectory: trajectory, reader), verdict)
    assert found is not None
    assert (found["is_whole"], found["total"]) == (True, STEPS)
    assert any(one["messages"] for one in found["steps"])


def test_replay_tapes_are_read_by_the_mapping(reader: Reader) -> None:
    (run,) = rebuild([encode([*chats()])], reader=reader)
    tape = read_tape(run)
    assert isinstance(tape, Tape)
    assert [call.answer.text for call in tape.calls] == ["Ask the analyst."]


def test_parallel_workflows_that_the_mapping_names_are_split(reader: Reader) -> None:
    jobs = [replace(each, attributes={"gen_ai.operation.name": "x"}) for each in jobs_of(2)]
    assert len(group_runs([trace(span(1), *jobs)], reader)) == 2
    assert len(group_runs([trace(span(1), *jobs)])) == 1


def test_a_run_read_by_a_mapping_is_not_a_stray_trace(reader: Reader) -> None:
    begun = Trace(spans=(odd()[0],))
    assert not is_stray(begun, reader, beside_runs=False)
    assert is_stray(begun, beside_runs=False)


def jobs_of(count: int) -> list[Span]:
    """Return workflows under one span, by the mapping's name for them."""
    return [replace(span(n + 2, parent=1, name="job"), scope=odd()[0].scope) for n in range(count)]


def chats() -> list[Span]:
    """Return the run's first model call, alone in its workflow."""
    return odd()[:2]
