"""Stored positions of a run's spans, from which a label can still write carriers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collector_processor.core.runs import Run
from collector_processor.otlp import NO_TENANT
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from collector_processor.writeback.annotate import CarrierPolicy, Judgement
from collector_processor.writeback.carriers import MAX_PLACE_BYTES, carriers, pack_place, unpack_place
from semconv.model import Attribution, Blame, Resource, SpanId, Trace, Trajectory
from tests.factories import TRACE, agent, chat, span_id, workflow

SPANS = (
    replace(workflow(1, task="a secret task"), trace_state="vendor=1", flags=0x101),
    agent(2, "planner"),
    chat(3, parent=2, answer="a secret answer"),
    agent(4, "writer"),
    chat(5, parent=4, answer="2"),
)


def run_of(*spans: object) -> Run:
    (run,) = rebuild([encode(spans)])  # type: ignore[arg-type]
    return run


def kept(run: Run, blamed: int = 3) -> bytes:
    place = pack_place(run, NO_TENANT, (TRACE, span_id(blamed)))
    assert place is not None
    return place.packed


def carriers_of(run: Run) -> list[object]:
    blame = Blame(agent="writer", step=1, reason="wrong", confidence=1.0)
    attribution = Attribution(run_id=TRACE, verdict=blame, method="person")
    judgement = Judgement(trajectory=run.trajectory, attribution=attribution, version=2, supersedes=None)
    return list(carriers(judgement, run.trace, CarrierPolicy()))


def test_carriers_of_a_kept_run_equal_those_of_the_run() -> None:
    run = run_of(*SPANS)
    assert carriers_of(unpack_place(kept(run))) == carriers_of(run)


def test_no_text_of_the_run_is_kept() -> None:
    again = unpack_place(kept(run_of(*SPANS)))
    assert "secret" not in repr(again)
    assert [span.name for span in again.trace.spans] == [""] * len(again.trace.spans)


def test_a_run_without_spans_has_no_place() -> None:
    bare = Run(trace=Trace(spans=()), trajectory=Trajectory(run_id="r", steps=()))
    assert pack_place(bare, NO_TENANT, (None, None)) is None


def test_for_a_large_run_only_the_root_and_the_blamed_span_are_kept() -> None:
    ids = [SpanId(f"{number * 0x9E3779B97F4A7C15 & (2**64 - 1):016x}") for number in range(1, 9_000)]
    many = [replace(chat(9, parent=2, answer=str(one)), span_id=one) for one in ids]
    run = run_of(*SPANS, *many)
    packed = kept(run)
    assert len(packed) <= MAX_PLACE_BYTES
    again = unpack_place(packed)
    assert [span.span_id for span in again.trace.spans] == [span_id(1), span_id(3)]
    assert again.trajectory.steps == ()


def test_positions_of_a_run_that_is_too_large_are_not_kept() -> None:
    vast = Resource(attributes={str(number): str(number**9) for number in range(20_000)})
    run = run_of(*(replace(one, resource=vast) for one in SPANS))
    assert pack_place(run, NO_TENANT, (TRACE, span_id(3))) is None


@pytest.mark.parametrize("packed", [b"", b"rot", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_damaged_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"stored place|Expecting"):
        unpack_place(packed)
