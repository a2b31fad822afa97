"""Reading session of ``investigate``: the overview, the text read so far, and the remaining budget.

Each prompt is built from the overview and the newest results: the conversation so far
is not sent again, so the cost grows linearly with the calls.

The reading tools are ``read_step``, ``read_range`` and ``search``. A request is a JSON object in the
model's text, so any model can make one; no provider's tool calling is needed. Results are fenced under
the run's own marker, as the run is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from analyzer.inquiry.method import Prompt
from analyzer.inquiry.render import Rendering, excerpt, one_line, render
from analyzer.methods.briefing import ask
from analyzer.methods.investigation.influence import Influence, InfluenceGraph, Tie, influence_graph
from analyzer.methods.judge import OUTPUT_TOKENS, WANTED
from semconv.model import Step, Trajectory

MANUAL: Final = """\
{"tool": "read_step", "step": n} shows step n whole
{"tool": "read_range", "first": a, "last": b} shows the steps a to b
{"tool": "search", "text": "words"} shows where the words stand, in which steps"""

_MOST_REQUESTS: Final = 4
"""Requests served per reply: a model must choose rather than request everything."""
_MOST_HITS: Final = 12
_AROUND: Final = 80
_SHORTEST_SEARCH: Final = 2
_LONGEST_SEARCH: Final = 200
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One tool request from the model's text, sanitised."""

    tool: str
    first: int = 0
    last: int = 0
    text: str = ""

    @property
    def title(self) -> str:
        """The request in one line."""
        if self.tool == "search":
            return f'search "{one_line(self.text)}"'
        return (
            f"read steps {self.first} to {self.last}"
            if self.last != self.first
            else f"read step {self.first}"
        )

    def steps_of(self, trajectory: Trajectory) -> tuple[int, ...]:
        """Return the steps of the run that the request shows in full."""
        if self.tool == "search":
            return ()
        return tuple(step.index for step in trajectory.steps if self.first <= step.index <= self.last)


def requests_in(found: Mapping[str, Any]) -> tuple[Request, ...]:
    """Return the valid requests in a reply's object: one, or a list under ``do``."""
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
    """Return the result of a request, up to about ``max_chars`` characters, or why there is none."""
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
    kept = list(_until(lines[:_MOST_HITS], max_chars))
    if len(kept) < len(hits):
        others = ", ".join(str(step.index) for step, _ in hits[len(kept) : len(kept) + 40])
        kept.append(f"{marker} also in the steps {others}")
    return "\n".join(kept) if hits else f"{marker} nowhere in the run"


def _around(step: Step, wanted: str) -> str:
    """Return text around the first occurrence of ``wanted`` in a step; empty if there is none."""
    for text in (step.output, step.input, step.error):
        folded = _SPACE.sub(" ", text)
        at = folded.casefold().find(wanted)
        if at >= 0:
            return folded[max(0, at - _AROUND) : at + len(wanted) + _AROUND].strip()
    return ""


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


_BYTES_PER_TOKEN: Final = 3
_MOST_CALLS: Final = 8
_WHOLE_BYTES: Final = 48_000
"""Longest run that is shown in full from the start."""
_OVERVIEW_BYTES: Final = 24_000
"""Size of the overview of a longer run."""
_READ_CHARS: Final = 18_000
"""Size of the results that stay in the prompt; the newest are kept."""
_RESULT_CHARS: Final = 8_000
_MOST_EDGES: Final = 3
_DUTY: Final = "You trace back which step made a multi-agent run fail. You can read more of the run."
_TASK: Final = f"""\
"builds on" says which earlier steps a step is known to use: from the trace (span), a handoff, or \
text that is used again. Long steps are folded; read what you need before you blame. To read on, \
answer with one JSON object {{"note": "what you know so far", "do": [requests]}}, requests being
{MANUAL}
To answer, start where the wrong result shows and go upstream, one step at a time, only as far \
as the text of each step itself shows the fault. {WANTED} Add the key path: a list of \
{{step, quote}} from the step where it shows to the decisive one, each quote word for word from its step."""
_CONCLUDE: Final = "No more reading: give your answer now."


@dataclass(slots=True, kw_only=True)
class ReadingSession:
    """Everything that the model has read, and its remaining budget."""

    trajectory: Trajectory
    rendering: Rendering
    room: int
    """Characters for the results read."""
    tokens_left: int
    calls: int = 0
    notes: list[str] = field(default_factory=list)
    read: set[int] = field(default_factory=set)
    """Steps requested by number."""

    @property
    def is_last_call(self) -> bool:
        """Whether the next call may be the last that the budget allows."""
        growth = min(self.room, _RESULT_CHARS) // _BYTES_PER_TOKEN
        return self.calls + 1 >= _MOST_CALLS or (
            _cost(self.prompt(last=False)) + _cost(self.prompt(last=True)) + growth > self.tokens_left
        )

    def prompt(self, *, last: bool) -> Prompt:
        """Return the next prompt; the last one asks for the answer."""
        prompt = ask(
            self.trajectory,
            self.rendering,
            duty=_DUTY,
            question="\n\n".join(filter(None, [_TASK, self._read_so_far(), _CONCLUDE if last else ""])),
            max_output_tokens=OUTPUT_TOKENS,
        )
        return replace(prompt, coverage=self._coverage())

    def affords(self, prompt: Prompt) -> bool:
        """Tell whether the remaining budget covers a prompt and its longest answer."""
        return _cost(prompt) <= self.tokens_left

    def pay(self, prompt: Prompt) -> Prompt:
        """Deduct a prompt's cost, and return the prompt."""
        self.tokens_left -= _cost(prompt)
        self.calls += 1
        return prompt

    def file(self, note: str, requests: tuple[Request, ...]) -> None:
        """Store the model's note and the results of its requests; drop the oldest beyond the bound."""
        marker = self.rendering.marker
        if note:  # the note may repeat structure from hostile text
            self.notes.append(f"{marker} your note\n{note.replace(marker, '#')}")
        for request in requests:
            self.read.update(request.steps_of(self.trajectory))
            share = min(_RESULT_CHARS, self.room) // len(requests)
            shown = carry_out(request, self.trajectory, marker, max_chars=share)
            self.notes.append(f"{marker} you asked to {request.title.replace(marker, '#')}\n{shown}")
        while self.notes and sum(map(len, self.notes)) > self.room:
            self.notes.pop(0)

    def _coverage(self) -> float:
        """Return the share of the text shown: the overview, plus the requested steps."""
        total = sum(map(_characters, self.trajectory.steps))
        read = sum(_characters(step) for step in self.trajectory.steps if step.index in self.read)
        shown = self.rendering.coverage
        return shown + (1 - shown) * read / total if total else 1.0

    def _read_so_far(self) -> str:
        marker = self.rendering.marker
        return "\n".join([*self.notes, f"{marker} end of what you read"]) if self.notes else ""


def open_session(trajectory: Trajectory, *, max_bytes: int, marker: str, tokens: int) -> ReadingSession:
    """Start a session with an overview: every step's head and influences, or the whole text if short."""
    graph = influence_graph(trajectory)
    remarks = {step.index: _remark(graph, step.index) for step in trajectory.steps}
    rendering = render(trajectory, max_bytes=min(max_bytes, _WHOLE_BYTES), marker=marker, remarks=remarks)
    if rendering.truncated:
        rendering = render(
            trajectory, max_bytes=min(max_bytes, _OVERVIEW_BYTES), marker=marker, remarks=remarks
        )
    room = min(_READ_CHARS, max(0, max_bytes - len(rendering.text.encode(errors="replace"))))
    return ReadingSession(trajectory=trajectory, rendering=rendering, room=room, tokens_left=tokens)


def _cost(prompt: Prompt) -> int:
    """Estimate conservatively the tokens of a prompt and its longest answer."""
    size = sum(len(message.content.encode(errors="replace")) for message in prompt.messages)
    return -(-size // _BYTES_PER_TOKEN) + prompt.max_output_tokens


def _remark(graph: InfluenceGraph, step: int) -> str:
    edges = graph.get(step, ())[:_MOST_EDGES]
    return f"builds on {', '.join(map(_edge, edges))}" if edges else ""


def _edge(edge: Influence) -> str:
    return (
        f"{edge.source} ({one_line(edge.sample)})" if edge.tie is Tie.REUSE else f"{edge.source} ({edge.tie})"
    )


def _characters(step: Step) -> int:
    return len(step.input) + len(step.output) + len(step.error)
