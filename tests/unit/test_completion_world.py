"""The simulation of completion finds no fault if nothing is late."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.completion.counting import count
from benchmarks.completion.stories import KINDS, Shape, tell
from benchmarks.completion.world import Begun, play, requests
from collector_processor.settings import load_settings
from semconv.model import TraceId


@pytest.mark.parametrize(
    "restarts", [pytest.param([], id="undisturbed"), pytest.param([1_002.0], id="killed")]
)
async def test_a_world_in_which_nothing_is_late_has_no_fault(tmp_path: Path, restarts: list[float]) -> None:
    runs = [
        Begun(
            begin_s=1_000,
            story=tell(Shape.FLAT, kind, services=1, pause_s=0, ids=(TraceId(f"{number + 1:032x}"),)),
        )
        for number, kind in enumerate(KINDS)
    ]
    arrivals = list(requests(runs, 0.2, random.Random(1)))
    seen = await play(load_settings({}, data_dir=tmp_path), runs, arrivals, restarts)
    found = count([run.truth for run in runs], seen)
    assert (found.runs, found.wrong, found.innocent, found.passed, found.changed) == (4, 0, 0, 0, 0)
    assert (found.joined, found.blames, len(found.waits)) == (0, 2, 4)
