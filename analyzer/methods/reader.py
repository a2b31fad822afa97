"""The reading tools that a model is offered as words: ``read_step``, ``read_range``, ``search``.

A request is a JSON object in the model's text, so any model can make one; no provider's
tool calling is needed. What is read comes back under the run's own marker, as fenced as the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.render import excerpt, one_line
from semconv.model import Step, Trajectory

MANUAL: Final = """\
{"tool": "read_step", "step": n} shows step n whole
{"tool": "read_range", "first": a, "last": b} shows the steps a to b
{"tool": "search", "text": "words"} shows where the words stand, in which steps"""

_MOST_REQUESTS: Final = 4
"""Of one reply; a model that asks for all at once has not chosen."""
_MOST_HITS: Final = 12
_AROUND: Final = 80
_SHORTEST_SEARCH: Final = 2
_LONGEST_SEARCH: Final = 200
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One use of a tool, as the model wrote it, made harmless."""

    tool: str
    first: int = 0
    last: int = 0
    text: str = ""

    @property
    def title(self) -> str:
        """What was asked for, in one line."""
        if self.tool == "search":
            return f'search "{one_line(self.text)}"'
        return (
            f"read steps {self.first} to {self.last}"
            if self.last != self.first
            else f"read step {self.first}"
        )

    def steps_of(self, trajectory: Trajectory) -> tuple[int, ...]:
        """Return the steps of the run that it asks to see whole."""
        if self.tool == "search":
            return ()
        return tuple(step.index for step in trajectory.steps if self.first <= step.index <= self.last)


def requests_in(found: Mapping[str, Any]) -> tuple[Request, ...]:
    """Return the requests of a reply's object: one, or a list under ``do``; what is none is left out."""
    listed = found.get("do")
    candidates: Sequence[Any] = listed if isinstance(listed, list) else [found]
    requests = (_request(each) for each in candidates[:_MOST_REQUESTS] if isinstance(each, Mapping))
    return tuple(dict.fromkeys(request for request in requests if request is not None))


def _request(found: Mapping[str, Any]) -> Request | None:
    tool = found.get("tool")
    if tool == "read_step":
        step = _integer(found.get("step"))
        return None if step is None else Request(tool="read_step", first=step, last=step)
    if tool == "read_range":
        first, last = _integer(found.get("first")), _integer(found.get("last"))
        if first is None or last is None:
            return None
        return Request(tool="read_range", first=min(first, last), last=max(first, last))
    text = found.get("text")
    if tool == "search" and isinstance(text, str) and len(text.strip()) >= _SHORTEST_SEARCH:
        return Request(tool="search", text=text.strip()[:_LONGEST_SEARCH])
    return None


def carry_out(request: Request, trajectory: Trajectory, marker: str, *, max_chars: int) -> str:
    """Return what a request shows, at most about ``max_chars`` characters; or why it shows nothing."""
    if request.tool == "search":
        return _search(request.text, trajectory, marker, max_chars)
    steps = [step for step in trajectory.steps if request.first <= step.index <= request.last]
    if not steps:
        last = trajectory.steps[-1].index
        return f"{marker} there is no such step: the run has steps 0 to {last}"
    return excerpt(trajectory, steps, marker, max_chars=max_chars)


def _search(text: str, trajectory: Trajectory, marker: str, max_chars: int) -> str:
    wanted = _SPACE.sub(" ", text).casefold()
    hits = [(step, around) for step in trajectory.steps if (around := _around(step, wanted))]
    lines = [f"{marker} in step {step.index} of {one_line(step.agent)}\n{around}" for step, around in hits]
    kept = _within(lines[:_MOST_HITS], max_chars)
    if len(kept) < len(hits):
        others = ", ".join(str(step.index) for step, _ in hits[len(kept) : len(kept) + 40])
        kept.append(f"{marker} also in the steps {others}")
    return "\n".join(kept) if hits else f"{marker} nowhere in the run"


def _around(step: Step, wanted: str) -> str:
    """Some text around the first place where ``wanted`` stands in a step; empty if it does not."""
    for text in (step.output, step.input, step.error):
        folded = _SPACE.sub(" ", text)
        at = folded.casefold().find(wanted)
        if at >= 0:
            return folded[max(0, at - _AROUND) : at + len(wanted) + _AROUND].strip()
    return ""


def _within(lines: Sequence[str], max_chars: int) -> list[str]:
    return list(_until(lines, max_chars))


def _until(lines: Sequence[str], max_chars: int) -> Iterator[str]:
    left = max_chars
    for line in lines:
        left -= len(line)
        if left < 0:
            return
        yield line


def _integer(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,9}\s*", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
