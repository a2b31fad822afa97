"""``blamespan serve`` whose analyst never gives the same answer twice.

A model may answer differently when it is asked again, so a run that is analysed twice shows a second answer.
Run it with ``python -m tests.e2e.inconsistent_analyst``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path

from analyzer.service.all_in_one import running_service
from analyzer.telemetry.json_lines import configure_logging
from collector_processor.core.analysis import NOTHING_EARNED, Analysis, Earned
from collector_processor.settings import load_settings
from semconv.model import Abstention, Attribution, Blame, SpanStatus, Status, Trajectory

LONGEST_S = 0.15


class FickleAnalyst:
    """Blames a random step of a run that ended in error, with a new reason each time."""

    async def analyse(self, trajectory: Trajectory, _earned: Earned = NOTHING_EARNED) -> Analysis:
        await asyncio.sleep(random.uniform(0, LONGEST_S))
        return self.glance(trajectory)

    def glance(self, trajectory: Trajectory) -> Analysis:
        reason = f"because of {random.getrandbits(64):x}"
        if trajectory.root_status is not SpanStatus.ERROR or not trajectory.steps:
            return _analysis(trajectory, Abstention(status=Status.NO_FAILURE, reason=reason))
        step = random.choice(trajectory.steps)
        return _analysis(trajectory, Blame(agent=step.agent, step=step.index, reason=reason, confidence=0.5))


def _analysis(trajectory: Trajectory, verdict: Blame | Abstention) -> Analysis:
    attribution = Attribution(run_id=trajectory.run_id, verdict=verdict, method="fickle")
    document = json.dumps({"status": attribution.status.value, "reason": verdict.reason})
    return Analysis(attribution=attribution, document=document)


async def serve(data_dir: Path) -> None:
    """Serve until a component fails."""
    settings = load_settings(os.environ, data_dir=data_dir)
    async with running_service(settings, FickleAnalyst()) as running:
        addresses = {"grpc": str(running.grpc), "http": str(running.http), "web": str(running.web)}
        sys.stdout.write(json.dumps(addresses) + "\n")
        sys.stdout.flush()
        await running.failure


if __name__ == "__main__":
    configure_logging()
    asyncio.run(serve(Path(sys.argv[1])))
