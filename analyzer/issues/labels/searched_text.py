"""The text of a run that searches look through: the beginnings of its redacted texts. Pure.

At most ``MOST_CHARS`` characters: the task, the final answer and the run's error have up to ``_HEAD`` each,
the steps' outputs, errors and arguments of calls equal shares of the rest. What a step repeats from another
one takes no room: many agents hand texts on as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector_processor.rebuild.redaction import Redact
from semconv.model import Step, Trajectory

MOST_CHARS: Final = 4_000
"""Characters of a run's texts; with the index, 6 KB in the store."""
_HEAD: Final = 700
_LEAST: Final = 60
"""Characters of a text, while there is room for any."""
_MARGIN: Final = 5_000
"""Characters beyond a cut that are also cleaned, so that a secret across the cut is recognised."""


def searched_text(trajectory: Trajectory, clean: Redact) -> str:
    """Return the searched text of a run; ``clean`` removes what may not be kept."""
    found = dict.fromkeys(filter(None, (trajectory.task, trajectory.output, trajectory.root_error)))
    parts = [_beginning(text, _HEAD, clean) for text in found]
    room = MOST_CHARS - sum(map(len, parts)) - len(parts)
    rest = [
        text
        for text in dict.fromkeys(text for step in trajectory.steps for text in _texts(step) if text)
        if text not in found
    ]
    for at, text in enumerate(sorted(rest, key=len)):  # short texts leave their room to long ones
        if room <= 0:
            break
        share = max(_LEAST, room // (len(rest) - at))
        parts.append(_beginning(text, min(share, room), clean))
        room -= len(parts[-1]) + 1
    return "\n".join(parts)


def task_alone(trajectory: Trajectory, clean: Redact) -> str:
    """Return the searched text of a run whose steps are not kept."""
    return _beginning(trajectory.task, _HEAD, clean)


def _texts(step: Step) -> Iterator[str]:
    yield step.output
    yield step.error
    yield from (call.arguments for call in step.calls)


def _beginning(text: str, length: int, clean: Redact) -> str:
    return clean(text[: length + _MARGIN])[:length]
