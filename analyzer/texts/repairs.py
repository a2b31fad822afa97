"""Detection of repaired faults: a later success of the same tool for the same purpose.

A success on another object repairs nothing: a mail to Bob is not the mail to Alice. A retry often changes a
parameter or corrects the object, so only a clearly different object is told apart: it was requested before
the failure, the task names both, or the arguments have nothing in common. If arguments are unknown, any
later success of the tool counts.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

from semconv.json_text import read_json
from semconv.model import Step, StepKind, Stop

_NEAREST: Final = 16
"""Number of later successes of a tool to compare: a retry comes soon."""
_VALUE: Final = 200
_ARGUMENTS: Final = 20_000
_SLIP: Final = 2
"""Letters that may differ in the middle of a mistyped name; digits distinguish objects."""
_ALIKE: Final = 0.5
_WORD: Final = re.compile(r"\w{4,}")
_DONE: Final = (None, Stop.HANDED_OVER)
"""What a step that did its work may have ended with: a retry that waits or was cancelled repairs nothing."""


def repaired(
    steps: Sequence[Step], faulty: Sequence[bool], asked: Sequence[int | None], task: str
) -> tuple[bool, ...]:
    """Tell, for each faulty step, whether a later step of the same tool or agent succeeded instead."""
    later: defaultdict[tuple[str, str], deque[int]] = defaultdict(lambda: deque(maxlen=_NEAREST))
    found = [False] * len(steps)
    wanted = task.casefold()
    for position in range(len(steps) - 1, -1, -1):
        step = steps[position]
        successes = later[step.kind, step.target or step.agent]
        if not faulty[position]:
            if step.stop in _DONE:
                successes.appendleft(position)
            continue
        found[position] = any(
            step.kind is not StepKind.TOOL
            or _serves(step, steps[success], wanted, is_retry=not _asked_before(asked[success], position))
            for success in successes
        )
    return tuple(found)


def _asked_before(asker: int | None, failure: int) -> bool:
    return asker is not None and asker < failure


def _serves(failed: Step, success: Step, task: str, *, is_retry: bool) -> bool:
    before, after = _arguments(failed.input), _arguments(success.input)
    if not before or not after or before == after:
        return True
    changed = [(before.get(key, ""), after.get(key, "")) for key in {**before, **after}]
    changed = [(old, new) for old, new in changed if old != new]
    if not is_retry or any(_named(old, task) and _named(new, task) for old, new in changed):
        return False
    shared = sum(after.get(key) == value for key, value in before.items())
    return 2 * shared >= len(before) or any(_related(old, new) for old, new in changed)


def _arguments(text: str) -> Mapping[str, str]:
    """Parse arguments by name, normalised; empty if they are unknown."""
    text = text[:_ARGUMENTS].strip()
    if not text:
        return {}
    try:
        document = read_json(text)
        if isinstance(document, Mapping):
            return {str(key): _folded(str(value)) for key, value in document.items()}
    except (ValueError, RecursionError):  # JSON that can be parsed may still nest too deep to serialise
        return {"": _folded(text)}
    return {} if document is None else {"": _folded(text)}


def _folded(text: str) -> str:
    return text.casefold().strip()[:_VALUE]


def _named(value: str, task: str) -> bool:
    if not value or value not in task:  # most values are not: a pattern for each would have to be compiled
        return False
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", task) is not None


def _related(old: str, new: str) -> bool:
    """Tell whether one value may replace the other: a parameter, shared words, an addition, a typo fixed."""
    if _is_number(old) and _is_number(new):
        return True
    if " " in old and " " in new:
        return bool({*_WORD.findall(old)} & {*_WORD.findall(new)})
    start = _shared_start(old, new)
    end = _shared_start(old[start:][::-1], new[start:][::-1])
    if not start + end:
        return False
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if not old or not new:
        return True
    return not (old + new).isdigit() and (
        max(len(old), len(new)) <= _SLIP or SequenceMatcher(None, old, new, autojunk=False).ratio() > _ALIKE
    )


def _shared_start(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?|true|false|none", text) is not None
