"""Investigate: a model with reading tools and an influence graph; quotes must support each hop upstream.

The model sees every step's head with the steps it builds on, and requests more text (``read_step``,
``read_range``, ``search``, as JSON in its reply). It answers with the path of the wrong result: from the step
where it shows, upstream, with a quote from each step. Each quote must occur in its step; blame moves upstream
only as far as the quotes are correct.

Source: the dependency graph is arXiv:2510.10581's idea, built here without a model; this code, not the model,
enforces the rule that blame moves only where the text confirms it. Cost: 1 to 8 model calls, one more to
correct an answer and one to challenge it, and at most 60,000 tokens sent and received, by a conservative
estimate of three bytes a token; a run that fits whole costs little more than ``judge``.

Each prompt is built from the overview and the newest results: the conversation so far is not sent again, so
the cost grows linearly with the calls.

The reading tools are ``read_step``, ``read_range`` and ``search``. A request is a JSON object in the model's
text, so any model can make one; no provider's tool calling is needed. Results are fenced under the run's own
marker, as the run is.

The influence graph links each step to the earlier ones that it builds on. Edges come from the spans
(enclosing step, link, calling step: ``Step.causes``), from handoffs (to the target agent's next step), and
from reused text (word sequences and numbers that the earlier step introduced). It is linear in the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from pydantic import Field, ValidationError

from analyzer.inquiry.method import Inquiry, Prompt, Reply
from analyzer.inquiry.render import Rendering, excerpt, one_line, render
from analyzer.methods.briefing import ask
from analyzer.methods.free_text import LONGEST, objects
from analyzer.methods.judge import OUTPUT_TOKENS, WANTED, JudgeReply, Objects, Quote, claim, supported
from analyzer.methods.settle_answer import (
    check_quotes,
    join_sentences,
    no_such_step,
    nothing_to_judge,
    rank,
    repair,
    step_at,
    unreadable,
)
from semconv.model import Blame, Step, StepKind, Trajectory, Verdict

_HEAD: Final = 20_000
"""Compared characters of a step's text: a bound for dumps."""
_RUN: Final = 5
"""Length of a shared word sequence that counts as reused text."""
_LEAST_REUSE: Final = 2
"""Shared word sequences needed for an edge; one alone may be a common phrase. A number counts as two."""
_MOST_SOURCES: Final = 4
_LONGEST_SAMPLE: Final = 60
_WORD: Final = re.compile(r"\w+(?:[.,]\d+)*")
_FIGURE: Final = re.compile(r"\d[\d.,]{2,}|\w*\d\w*[a-z]\w*\d\w*")


class Tie(StrEnum):
    """Kind of evidence that one step builds on another; surest first."""

    SPAN = "span"
    HANDOFF = "handoff"
    REUSE = "reuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """One edge: ``target`` builds on ``source``, an earlier step."""

    source: int
    target: int
    tie: Tie
    sample: str = ""
    """Part of the reused text, words only; empty for other kinds."""


InfluenceGraph: TypeAlias = Mapping[int, tuple[Influence, ...]]
"""Edges to the steps that each step builds on, surest first, then by step; by step index."""


def influence_graph(trajectory: Trajectory) -> InfluenceGraph:
    """Build the graph; one edge per pair of steps, the surest."""
    ranks = {tie: rank for rank, tie in enumerate(Tie)}
    edges: dict[tuple[int, int], Influence] = {}
    for edge in (*_spans(trajectory.steps), *_handoffs(trajectory.steps), *_reuse(trajectory)):
        edges.setdefault((edge.target, edge.source), edge)
    sources: defaultdict[int, list[Influence]] = defaultdict(list)
    for edge in edges.values():
        sources[edge.target].append(edge)
    return {
        step: tuple(sorted(influences, key=lambda edge: (ranks[edge.tie], edge.source)))
        for step, influences in sources.items()
    }


def _spans(steps: Sequence[Step]) -> Iterator[Influence]:
    known = {step.index for step in steps}
    for step in steps:
        for cause in step.causes:
            if cause in known and cause < step.index:
                yield Influence(source=cause, target=step.index, tie=Tie.SPAN)


def _handoffs(steps: Sequence[Step]) -> Iterator[Influence]:
    """Link each handoff to the next step of its target agent; a newer handoff to the same agent wins."""
    open_handoffs: dict[str, int] = {}
    for step in steps:
        source = open_handoffs.pop(step.agent, None)
        if source is not None:
            yield Influence(source=source, target=step.index, tie=Tie.HANDOFF)
        if step.kind is StepKind.HANDOFF and step.target:
            open_handoffs[step.target] = step.index


def _reuse(trajectory: Trajectory) -> Iterator[Influence]:
    """Link each step to the steps that introduced the text it reuses.

    Text of the task or of an agent's instructions is not attributed to any step.
    """
    first: dict[str, int] = {}
    for text in (trajectory.task, *(step.instructions for step in trajectory.steps)):
        first.update((mark, -1) for mark, _ in _marks(text[:_HEAD]))
    for step in trajectory.steps:
        shared: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        seen: set[str] = set()
        for mark, weight in _marks(_used(step)):
            source = first.get(mark, -1)
            if source >= 0 and mark not in seen:
                shared[source].append((mark, weight))
            seen.add(mark)
        yield from _strongest(step.index, shared)
        for mark, _ in _marks(_said(step)):
            first.setdefault(mark, step.index)


def _strongest(step: int, shared: Mapping[int, Sequence[tuple[str, int]]]) -> Iterator[Influence]:
    weights = {source: sum(weight for _, weight in marks) for source, marks in shared.items()}
    order = sorted(weights, key=lambda source: (-weights[source], source))
    for source in order[:_MOST_SOURCES]:
        if weights[source] >= _LEAST_REUSE:
            telling = max(shared[source], key=lambda mark: mark[1])[0]
            yield Influence(source=source, target=step, tie=Tie.REUSE, sample=telling[:_LONGEST_SAMPLE])


def _marks(text: str) -> Iterator[tuple[str, int]]:
    """Yield the features that identify reused text: word sequences with weight 1, numbers with 2."""
    words = _WORD.findall(text.casefold())
    for start in range(len(words) - _RUN + 1):
        yield " ".join(words[start : start + _RUN]), 1
    for word in words:
        if _FIGURE.fullmatch(word):
            yield word, _LEAST_REUSE


def _said(step: Step) -> str:
    """Return the text that a step introduces: its output and its tool arguments."""
    return step.output[:_HEAD] + (f"\n{step.input[:_HEAD]}" if step.kind is StepKind.TOOL else "")


def _used(step: Step) -> str:
    return f"{step.input[:_HEAD]}\n{step.output[:_HEAD]}"


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


_MOST_TOKENS: Final = 60_000
_LONGEST_NOTE: Final = 600
_UNCONFIRMED: Final = 0.6
"""Share of the confidence kept if the quotes support only a step later than the blamed one."""


class InvestigatorReply(JudgeReply):
    """A judge's answer with the path of the wrong result, from where it shows to its origin."""

    path: Objects[Quote] = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Investigate:
    """A model with reading tools and a token budget. ``max_bytes`` bounds the run's text in one prompt."""

    max_bytes: int
    marker: str
    """Begins the lines of structure in prompts; occurs in no text."""
    most_tokens: int = _MOST_TOKENS
    name: str = "investigate"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Let the model read until it answers or its budget is used up, then check the answer."""
        if not trajectory.steps:
            return nothing_to_judge()
        session = open_session(
            trajectory, max_bytes=self.max_bytes, marker=self.marker, tokens=self.most_tokens
        )
        reply = yield from _read_on(session)
        answer = _answer_in(reply, trajectory)
        if isinstance(answer, str):
            return unreadable(answer, reply)
        missing = _unconfirmed(trajectory, answer)
        if missing is not None and session.affords(objection := _objection(session, reply, missing)):
            revised = _answer_in((yield session.pay(objection)), trajectory)
            answer = answer if isinstance(revised, str) else revised
        return _verdict(trajectory, answer)


def _read_on(session: ReadingSession) -> Generator[Prompt, Reply, Reply]:
    """Serve requests until a reply contains none; the last affordable prompt asks to conclude."""
    while True:
        last = session.is_last_call
        prompt = session.pay(session.prompt(last=last))
        reply = yield prompt
        answer = _answer_in(reply, session.trajectory)
        if not isinstance(answer, str):
            return reply
        note, requests = _requests_in(reply)
        if requests and not last:
            session.file(note, requests)
            continue
        mended = repair(prompt, reply, answer, "as one JSON object of the shape asked for")
        if not session.affords(mended):
            return reply
        return (yield session.pay(mended))


def _objection(session: ReadingSession, reply: Reply, missing: int) -> Prompt:
    problem = (
        f"nothing it quotes stands in step {missing}. Quote that step word for word,"
        " or blame the last step of the path that you can quote"
    )
    return repair(session.prompt(last=True), reply, problem, "as one JSON object with its path")


def _requests_in(reply: Reply) -> tuple[str, tuple[Request, ...]]:
    for found in objects(reply.text[:LONGEST]):
        requests = requests_in(found)
        if requests:
            note = found.get("note")
            return (note[:_LONGEST_NOTE] if isinstance(note, str) else ""), requests
    return "", ()


def _answer_in(reply: Reply, trajectory: Trajectory) -> InvestigatorReply | str:
    """Return the answer in a reply if it names an existing step, or the problem as text."""
    problem = "it contains neither a request nor an answer as JSON"
    for found in objects(reply.text[:LONGEST]):
        inner = found.get("verdict")
        try:
            answer = InvestigatorReply.model_validate(inner if isinstance(inner, Mapping) else found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            continue
        if step_at(trajectory, answer.step) is not None:
            return answer
        problem = no_such_step(trajectory, answer.step)
    return problem


def _hops(trajectory: Trajectory, answer: InvestigatorReply) -> list[int]:
    """Return the existing steps of the path after the blamed one, latest first, then the blamed step."""
    later = {quote.step for quote in answer.path if quote.step > answer.step}
    known = [step for step in sorted(later, reverse=True) if step_at(trajectory, step) is not None]
    return [*known, answer.step]


def _is_confirmed(trajectory: Trajectory, answer: InvestigatorReply, step: int) -> bool:
    quotes = [(quote.step, quote.quote) for quote in (*answer.path, *answer.evidence) if quote.step == step]
    return bool(check_quotes(trajectory, quotes).evidence)


def _unconfirmed(trajectory: Trajectory, answer: InvestigatorReply) -> int | None:
    """Return the first step upstream without a matching quote; ``None`` if all match."""
    hops = _hops(trajectory, answer)
    return next((step for step in hops if not _is_confirmed(trajectory, answer, step)), None)


def _verdict(trajectory: Trajectory, answer: InvestigatorReply) -> Verdict:
    quoted = [*answer.path, *answer.evidence]
    blame = claim(trajectory, answer.model_copy(update={"evidence": quoted}))
    missing = _unconfirmed(trajectory, answer)
    hops = _hops(trajectory, answer)
    if missing is None or hops[0] == missing:
        return supported(blame)  # all quotes match, or none
    reached = hops[hops.index(missing) - 1]
    return _held_back(trajectory, blame, reached, missing)


def _held_back(trajectory: Trajectory, blame: Blame, reached: int, missing: int) -> Blame:
    step = step_at(trajectory, reached)
    assert step is not None
    note = (
        f"(The model blamed step {blame.step}, but nothing it quoted stands in step {missing};"
        f" blame stays with step {reached})"
    )
    confidence = round(blame.confidence * _UNCONFIRMED, 4)
    others = [
        (each.step, min(each.probability, confidence)) for each in blame.ranking if each.step != reached
    ]
    return replace(
        blame,
        agent=step.agent,
        step=reached,
        reason=join_sentences([blame.reason, note]),
        confidence=confidence,
        fix="" if step.agent != blame.agent else blame.fix,
        ranking=rank(trajectory, step, confidence, others),
    )
