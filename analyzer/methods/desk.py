"""What a reader of a run has before them, what they have read, and what they may still spend.

Each prompt is put together anew, the overview first, then what was read, newest kept: the
conversation so far is not sent again and again, so the cost grows with the calls and not with
their square.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from analyzer.influence import Influence, InfluenceGraph, Tie, influence_graph
from analyzer.method import Prompt
from analyzer.methods.briefing import ask
from analyzer.methods.judge import OUTPUT_TOKENS, WANTED
from analyzer.methods.reader import MANUAL, Request, carry_out
from analyzer.render import Rendering, one_line, render
from semconv.model import Step, Trajectory

_BYTES_PER_TOKEN: Final = 3
_MOST_CALLS: Final = 8
_WHOLE_BYTES: Final = 48_000
"""A run of no more text is shown whole from the start."""
_OVERVIEW_BYTES: Final = 24_000
"""Of a longer run, what is shown from the start."""
_READ_CHARS: Final = 18_000
"""What was read and is still shown; the newest is kept."""
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
class Desk:
    """What the reader has before them, and what they may still spend."""

    trajectory: Trajectory
    rendering: Rendering
    room: int
    """Characters for what was read."""
    tokens_left: int
    calls: int = 0
    notes: list[str] = field(default_factory=list)
    read: set[int] = field(default_factory=set)
    """Steps that were asked for by number."""

    @property
    def is_last_call(self) -> bool:
        """Whether after the next call there may be none left to conclude in."""
        growth = min(self.room, _RESULT_CHARS) // _BYTES_PER_TOKEN
        return self.calls + 1 >= _MOST_CALLS or (
            _cost(self.prompt(last=False)) + _cost(self.prompt(last=True)) + growth > self.tokens_left
        )

    def prompt(self, *, last: bool) -> Prompt:
        """Return the next prompt; the last one asks to conclude."""
        prompt = ask(
            self.trajectory,
            self.rendering,
            duty=_DUTY,
            question="\n\n".join(filter(None, [_TASK, self._read_so_far(), _CONCLUDE if last else ""])),
            max_output_tokens=OUTPUT_TOKENS,
        )
        return replace(prompt, coverage=self._coverage())

    def affords(self, prompt: Prompt) -> bool:
        """Tell whether a prompt and its longest answer are within what is left."""
        return _cost(prompt) <= self.tokens_left

    def pay(self, prompt: Prompt) -> Prompt:
        """Count a prompt as sent, and return it."""
        self.tokens_left -= _cost(prompt)
        self.calls += 1
        return prompt

    def file(self, note: str, requests: tuple[Request, ...]) -> None:
        """Keep a note of the reader's and what they asked to see; drop the oldest when there is no room."""
        marker = self.rendering.marker
        if note:  # the model may repeat structure that hostile text taught it
            self.notes.append(f"{marker} your note\n{note.replace(marker, '#')}")
        for request in requests:
            self.read.update(request.steps_of(self.trajectory))
            share = min(_RESULT_CHARS, self.room) // len(requests)
            shown = carry_out(request, self.trajectory, marker, max_chars=share)
            self.notes.append(f"{marker} you asked to {request.title.replace(marker, '#')}\n{shown}")
        while self.notes and sum(map(len, self.notes)) > self.room:
            self.notes.pop(0)

    def _coverage(self) -> float:
        """The share of the text that was shown: the overview's, and of the rest what was asked for."""
        total = sum(map(_characters, self.trajectory.steps))
        read = sum(_characters(step) for step in self.trajectory.steps if step.index in self.read)
        shown = self.rendering.coverage
        return shown + (1 - shown) * read / total if total else 1.0

    def _read_so_far(self) -> str:
        marker = self.rendering.marker
        return "\n".join([*self.notes, f"{marker} end of what you read"]) if self.notes else ""


def open_desk(trajectory: Trajectory, *, max_bytes: int, tokens: int) -> Desk:
    """Lay a run out: every step's head with what it builds on, the whole text if there is little."""
    graph = influence_graph(trajectory)
    remarks = {step.index: _remark(graph, step.index) for step in trajectory.steps}
    rendering = render(trajectory, max_bytes=min(max_bytes, _WHOLE_BYTES), remarks=remarks)
    if rendering.truncated:
        rendering = render(trajectory, max_bytes=min(max_bytes, _OVERVIEW_BYTES), remarks=remarks)
    room = min(_READ_CHARS, max(0, max_bytes - len(rendering.text.encode(errors="replace"))))
    return Desk(trajectory=trajectory, rendering=rendering, room=room, tokens_left=tokens)


def _cost(prompt: Prompt) -> int:
    """Tokens that a prompt and the longest answer take, by a careful estimate."""
    size = sum(len(message.content.encode(errors="replace")) for message in prompt.messages)
    return -(-size // _BYTES_PER_TOKEN) + prompt.max_output_tokens


def _remark(graph: InfluenceGraph, step: int) -> str:
    edges = graph.sources.get(step, ())[:_MOST_EDGES]
    return f"builds on {', '.join(map(_edge, edges))}" if edges else ""


def _edge(edge: Influence) -> str:
    return (
        f"{edge.source} ({one_line(edge.sample)})" if edge.tie is Tie.REUSE else f"{edge.source} ({edge.tie})"
    )


def _characters(step: Step) -> int:
    return len(step.input) + len(step.output) + len(step.error)
