"""A failed run as it is compared with the kept runs of its workflow: its elements, without its texts. Pure.

It is taken where the run's texts are, in a worker process, and compared where the kept runs are.
"""

from __future__ import annotations

import json
from typing import Final

from analyzer.history.elements import Element, elements_of
from semconv.model import Trajectory
from semconv.record import record

MOST_ELEMENTS: Final = 400
"""Elements that are compared, in order of the steps; other runs keep 80."""


@record
class FailedRun:
    """The part of a failed run that is compared with other runs."""

    service: str
    """As in its verdict."""
    elements: tuple[Element, ...]


def failed_run(trajectory: Trajectory, service: str) -> FailedRun:
    """Return what of a failed run is compared."""
    return FailedRun(service=service, elements=elements_of(trajectory)[:MOST_ELEMENTS])


def to_text(run: FailedRun) -> str:
    """Write it as JSON."""
    rows = [(each.key, each.site, each.step, each.text) for each in run.elements]
    return json.dumps({"service": run.service, "elements": rows})


def from_text(text: str) -> FailedRun:
    """Read what ``to_text`` wrote."""
    document = json.loads(text)
    return FailedRun(
        service=document["service"],
        elements=tuple(
            Element(key=key, site=site, step=step, text=told)
            for key, site, step, told in document["elements"]
        ),
    )


__all__ = ["MOST_ELEMENTS", "FailedRun", "failed_run", "from_text", "to_text"]
