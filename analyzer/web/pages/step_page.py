"""One step of a run's page: its row in the list, its texts, its raw span, and their routes.

The texts of the steps that matter are on the page; the others' are requested when a step is opened. A stretch
in which the same few steps come again and again is shown once, with the number of times.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from analyzer.inquiry.present import plain
from analyzer.inquiry.whole_run import WholeRun, WholeStep
from analyzer.web.api import run_document
from analyzer.web.front import PageContext, routed
from analyzer.web.pages.picture import Clock, Suspicion
from analyzer.web.pages.step_texts import (
    MOST_TEXT,
    MOST_WHOLE,
    ShownText,
    ShownTool,
    prompt_of,
    shown_text,
    text_length,
    texts_of,
    tools_of,
)
from analyzer.web.reads.whole_runs import ReadRun
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import CleanRun
from semconv.model import Span, SpanStatus, Status, Step, StepKind, Trajectory

WINDOW: Final = 200
"""Number of steps in one picture; a longer run has a map instead, and only the texts of its open steps."""
_MOST_INSIDE: Final = 60_000
"""Characters of steps' texts on one page; those of further steps are requested when a step is opened."""
_LINE: Final = 160
_AROUND_FIND: Final = 60
_LONGEST_CYCLE: Final = 4
_LEAST_TIMES: Final = 4
"""Fewer repetitions are shown one by one."""
_COMPARED: Final = 200
_MOST_DIGITS: Final = 9


def step_routes(context: PageContext) -> list[web.RouteDef]:
    """Return the routes of a step."""
    return routed(
        context,
        ("GET", "/runs/{run_id}/steps/{step}", _show_texts),
        ("GET", "/runs/{run_id}/steps/{step}/span.json", _show_span),
    )


async def _show_texts(context: PageContext, request: web.Request) -> web.Response:
    """Return a step's texts as a part of a page; with ``?full=1`` regardless of their length."""
    verdict, read, step = await _asked(context, request)
    document, is_full = run_document(verdict), request.query.get("full") == "1"
    body = await asyncio.to_thread(body_of, read.whole, step, document, is_full=is_full)
    page = f"/runs/{quote(verdict.run_id, safe='')}"
    return await context.front.renderer.page(
        "step.html", body=body, page=page, links=context.pages.trace_link
    )


async def _show_span(context: PageContext, request: web.Request) -> web.Response:
    _, read, step = await _asked(context, request)
    span = _span_of(read, step)
    if span is None:
        raise web.HTTPNotFound(text="the span of this step is not kept\n")
    text = await asyncio.to_thread(span_json, span, context.pages.clean)
    return web.Response(text=text, content_type="application/json")


async def _asked(context: PageContext, request: web.Request) -> tuple[StoredVerdict, ReadRun, int]:
    """Return the run and the step of a request's path.

    Raises:
        web.HTTPNotFound: there is no such run or step, or its steps are not kept.
    """
    verdict = await context.find(request)
    read = await context.whole.of(verdict)
    if read is None:
        raise web.HTTPNotFound(text="the steps of this run are not kept\n")
    text = request.match_info["step"]
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_number or int(text) >= len(read.whole.steps):
        raise web.HTTPNotFound(text=f"no such step: expected 0 to {len(read.whole.steps) - 1}\n")
    return verdict, read, int(text)


def _span_of(read: ReadRun, index: int) -> Span | None:
    step = read.whole.steps[index]
    spans = read.kept.run.trace.spans if read.kept.run is not None else ()
    found = ((span.trace_id, span.span_id) == (step.trace_id, step.span_id) for span in spans)
    return next((span for span, is_it in zip(spans, found, strict=True) if is_it), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some steps in a row."""

    first: int
    """Position of the first one in the sequence."""
    end: int
    times: int = 1
    """Number of times that the same steps come; 1 for a step without repetition."""

    @property
    def cycle(self) -> int:
        """Number of steps that come again."""
        return (self.end - self.first) // self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The part of a run to show."""

    first: int | None = None
    """First step; with ``None``, the part with the decisive step is shown."""
    step: int | None = None
    """Step to open; it decides the part too."""
    full: int | None = None
    """Step whose texts are shown in full, regardless of length."""
    find: str = ""
    """Only steps that contain this text are listed."""
    room: int | None = None
    """Characters of steps' texts on the page; ``None`` for the usual number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBody:
    """Contents of an opened step."""

    whole: WholeStep
    texts: tuple[ShownText, ...]
    tools: tuple[ShownTool, ...] = ()
    prompt: ShownText | None = None
    same_prompt_as: int | None = None
    """Step of the same agent whose prompt, shown there, is the same."""
    since_s: float = 0.0
    """Seconds from the run's start to the step's."""
    retried_by: int | None = None
    is_full: bool = False
    """Whether its texts are shown in full."""

    @property
    def left_out(self) -> int:
        """Number of characters that are kept but not shown."""
        return sum(text.left_out for text in self.texts) + (self.prompt.left_out if self.prompt else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """View of one step."""

    step: Step
    whole: WholeStep
    line: str
    found: tuple[str, str, str] | None = None
    """The search term with the text before and after it; instead of ``line``."""
    bar: str
    """SVG of its time."""
    body: StepBody | None
    """``None`` if it is requested when the step is opened."""
    probability: float = 0.0
    is_decisive: bool = False
    word: str = "decisive"
    is_open: bool = False
    """Whether its texts are expanded initially."""
    is_handover: bool = False
    """Whether another agent acted before it."""

    @property
    def failed(self) -> bool:
        """Whether its span ended in error."""
        return self.step.status is SpanStatus.ERROR

    @property
    def texts(self) -> tuple[ShownText, ...]:
        """Its texts, if they are on the page."""
        return self.body.texts if self.body else ()

    @property
    def tokens(self) -> int | None:
        """Tokens read and written; ``None`` if neither is known."""
        known = [one for one in (self.whole.input_tokens, self.whole.output_tokens) if one is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStretch:
    """Some steps in a row; more than one if they repeat."""

    steps: tuple[ShownStep, ...]
    times: int = 1
    is_open: bool = False

    @property
    def cycle(self) -> int:
        """Number of steps that come again."""
        return len(self.steps) // self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Makes the list of steps."""

    whole: WholeRun
    clock: Clock
    suspicion: Suspicion
    wanted: Wanted

    def stretches(
        self,
        steps: Sequence[Step],
        quotes: Mapping[int, Sequence[str]],
        found: Mapping[int, tuple[str, str, str]] | None,
    ) -> Iterator[ShownStretch]:
        """Yield the rows, repeated ones together; each text that is repeated is shown at the first only."""
        opened = {self.suspicion.decisive, self.wanted.step, self.wanted.full, *quotes}
        room = self.wanted.room if self.wanted.room is not None else _usual_room(len(steps))
        prompts: dict[tuple[str, str], int] = {}
        rows: list[ShownStep] = []
        for number, step in enumerate(steps):
            whole = self.whole.steps[step.index]
            body = None
            if step.index in opened or (room > 0 and text_length(whole) <= room):
                body = self.body(whole, quotes.get(step.index, ()), prompts)
                room -= text_length(whole)
            rows.append(
                ShownStep(
                    step=step,
                    whole=whole,
                    line=shown_text(plain(step.error or step.output or step.input or step.name, _LINE)),
                    found=None if found is None else found.get(step.index),
                    bar=self.clock.bar(step),
                    body=body,
                    probability=self.suspicion.probabilities.get(step.index, 0.0),
                    is_decisive=step.index == self.suspicion.decisive,
                    word=self.suspicion.word,
                    is_open=step.index in opened,
                    is_handover=number > 0 and steps[number - 1].agent != step.agent,
                )
            )
        for stretch in stretches(steps):
            part = tuple(rows[stretch.first : stretch.end])
            yield ShownStretch(steps=part, times=stretch.times, is_open=any(one.is_open for one in part))

    def body(
        self, step: WholeStep, quotes: Sequence[str], prompts: dict[tuple[str, str], int] | None = None
    ) -> StepBody:
        """Return a step's body; ``prompts`` are those shown so far, by agent and text."""
        is_full = step.index == self.wanted.full
        limit = MOST_WHOLE if is_full else MOST_TEXT
        key = (step.agent, f"{step.instructions}\0{step.tools}")
        first = step.index if prompts is None or step.index == self.wanted.step else prompts.get(key)
        if prompts is not None:
            prompts.setdefault(key, step.index)
        is_repeated = first is not None and first != step.index and bool(step.instructions or step.tools)
        retries = (one.index for one in self.whole.steps[step.index + 1 :] if one.retry_of == step.index)
        return StepBody(
            whole=step,
            texts=texts_of(step, quotes, limit),
            tools=() if is_repeated else tools_of(step),
            prompt=None if is_repeated else prompt_of(step, quotes, limit),
            same_prompt_as=first if is_repeated else None,
            since_s=self.clock.since(self.whole.trajectory.steps[step.index]),
            retried_by=next(retries, None) if step.status is SpanStatus.ERROR else None,
            is_full=is_full,
        )


def _usual_room(count: int) -> int:
    return _MOST_INSIDE if count <= WINDOW else 0


def finds(steps: Sequence[WholeStep], find: str) -> dict[int, tuple[str, str, str]]:
    """Return, for each step that contains a text, the text where it is found, with its surroundings.

    The case of letters is ignored.
    """
    wanted = find.lower()
    found: dict[int, tuple[str, str, str]] = {}
    for step in steps:
        for text in _searched(step):
            at = text.lower().find(wanted)
            if at >= 0:
                end = at + len(find)
                before = plain(text[max(0, at - _AROUND_FIND) : at], _LINE)
                found[step.index] = (
                    before,
                    plain(text[at:end], _LINE),
                    plain(text[end : end + _LINE], _LINE),
                )
                break
    return found


def _searched(step: WholeStep) -> Iterator[str]:
    """Yield the texts of a step that a search looks through, the long ones at the end."""
    yield from (step.error, step.output, step.input, step.target or "", step.agent, step.name, step.model)
    for message in (*step.answers, *step.messages):
        yield message.text
        for call in message.calls:
            yield f"{call.name} {call.arguments}"
    yield from (step.instructions, step.tools, step.span_id or "")


def stretches(steps: Sequence[Step]) -> Iterator[Stretch]:
    """Split a run where repetition begins and ends; every step is in one stretch, in order."""
    marks = [_mark(step) for step in steps]
    at = 0
    while at < len(marks):
        cycle, times = max(
            ((cycle, _times(marks, at, cycle)) for cycle in range(1, _LONGEST_CYCLE + 1)),
            key=lambda found: (found[1] >= _LEAST_TIMES, found[0] * found[1]),
        )
        if times < _LEAST_TIMES:
            cycle = times = 1
        yield Stretch(first=at, end=at + cycle * times, times=times)
        at += cycle * times


def _times(marks: Sequence[object], at: int, cycle: int) -> int:
    """Return how often the steps of a cycle come, one after the other."""
    end = at + cycle
    while end < len(marks) and marks[end] == marks[end - cycle]:
        end += 1
    return (end - at) // cycle


def _mark(step: Step) -> tuple[object, ...]:
    """Return what two repetitions of a step have in common."""
    text = step.input or step.output or step.error
    return (step.agent, step.kind, step.target, step.status, text[:_COMPARED])


def body_of(run: WholeRun, index: int, verdict: Mapping[str, Any], *, is_full: bool) -> StepBody:
    """Return the view of one step; ``is_full`` shows its texts regardless of length."""
    wanted = Wanted(full=index if is_full else None)
    rows = Rows(
        whole=run, clock=Clock.of(run.trajectory.steps), suspicion=suspicion_of(verdict), wanted=wanted
    )
    return rows.body(run.steps[index], quotes_of(verdict).get(index, ()))


def suspicion_of(verdict: Mapping[str, Any]) -> Suspicion:
    """Return a verdict's probability of blame by step."""
    ranking = {one["step"]: float(one["probability"]) for one in verdict.get("ranking") or ()}
    decisive = verdict.get("step")
    if decisive is not None:
        ranking.setdefault(decisive, float(verdict.get("confidence") or 0.0))
    word = "suspected" if verdict.get("status") == Status.SUSPECTED else "decisive"
    return Suspicion(decisive=decisive, word=word, probabilities=ranking)


def quotes_of(verdict: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Return the verdict's quotes, by step."""
    quotes: dict[int, tuple[str, ...]] = {}
    for found in verdict.get("evidence") or ():
        quotes[found["step"]] = (*quotes.get(found["step"], ()), found["quote"])
    return quotes


def span_json(span: Span, clean: CleanRun) -> str:
    """Return a span as JSON without secrets; ``<`` is escaped, so that no program takes it for a page."""
    plain = _as_json(span)
    texts = list(dict.fromkeys(_texts_in(plain)))
    steps = [Step(index=at, agent="", kind=StepKind.OTHER, input=text) for at, text in enumerate(texts)]
    cleaned = clean(Trajectory(run_id="", steps=tuple(steps)))
    names = dict(zip(texts, (step.input for step in cleaned.steps), strict=True))
    return json.dumps(_renamed(plain, names), indent=2).replace("<", "\\u003c")


def _as_json(value: Any) -> Any:
    """Return a value as JSON has it; decoding bounds how deep it is nested."""
    if is_dataclass(value):
        return {field.name: _as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _as_json(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [_as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(one)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names[value]
    if isinstance(value, dict):
        return {name: _renamed(one, names) for name, one in value.items()}
    return [_renamed(one, names) for one in value] if isinstance(value, list) else value
