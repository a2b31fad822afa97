"""Conversion of stories to the trajectories that the service reads from their spans, in several dialects."""

from __future__ import annotations

from typing import Final

from benchmarks.accuracy.suspicion.story import Story, as_play
from collector_processor.rebuild.encode import encode
from collector_processor.rebuild.stages import rebuild
from semconv.model import Completion, Trajectory
from tests.renderings.official import OFFICIAL
from tests.renderings.openinference import OPENINFERENCE
from tests.renderings.own import OWN
from tests.renderings.spans import Rendering
from tests.renderings.staging import Stage
from tests.renderings.traceloop import OLD_TRACELOOP, TRACELOOP

RENDERINGS: Final[tuple[Rendering, ...]] = (OFFICIAL, OPENINFERENCE, OWN, TRACELOOP, OLD_TRACELOOP)


def trajectory_of(story: Story, rendering: Rendering) -> Trajectory:
    """Return the run as read from its spans."""
    spans = rendering.spans(Stage(as_play(story)))
    (run,) = rebuild((encode(spans),), (), completion=Completion.ROOT_ENDED)
    return run.trajectory
