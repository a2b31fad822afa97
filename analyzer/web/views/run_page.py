"""View model of a run's page: picture, and steps with the evidence highlighted. Pure.

Texts are shortened and freed of invisible characters here; the templates always escape them.

Links to the run's trace lead to Jaeger, and to Grafana with Tempo.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from analyzer.inquiry.present import plain
from analyzer.inquiry.visible import visible, visible_run
from analyzer.web.views.picture import Suspicion, draw, lanes_of, name_board
from collector_processor.rebuild.redaction import count_replaced
from semconv.model import SpanStatus, Status, Step, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLink:
    """Address of a trace in the user's backend, from a template; without a template there is no link."""

    template: str = ""
    """Contains ``{trace_id}``, and ``{span_id}`` if the backend can show a span."""

    def to(self, trace_id: str | None, span_id: str | None) -> str:
        """Return the address, or nothing; ids are escaped, so that each stays in its place."""
        if not self.template or not trace_id:
            return ""
        address = self.template.replace("{trace_id}", quote(trace_id, safe=""))
        return address.replace("{span_id}", quote(span_id or "", safe=""))


WINDOW: Final = 200
"""Number of steps per page."""
_BEFORE: Final = 150
"""Number of steps shown before the decisive one if not all fit."""
MOST_TEXT: Final = 6_000
"""Characters shown of one text; evidence beyond them is shown with its surroundings."""
MOST_WHOLE: Final = 2_000_000
"""Characters shown of one text that is requested in full."""
_CUT: Final = re.compile(r"\[[0-9]+ characters left out\]")
_AROUND: Final = 400
_LINE: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of a step's text."""

    text: str
    is_evidence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """One text of a step."""

    name: str
    pieces: tuple[Piece, ...]
    left_out: int = 0
    """Number of characters that are kept but not shown."""
    replaced: int = 0
    """Number of secrets replaced in it."""
    is_cut: bool = False
    """Whether part of it was too long to be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """View of one step."""

    step: Step
    line: str
    texts: tuple[ShownText, ...]
    probability: float = 0.0
    is_decisive: bool = False
    word: str = "decisive"
    is_open: bool = False
    """Whether its texts are expanded initially."""

    @property
    def failed(self) -> bool:
        """Whether its span ended in error."""
        return self.step.status is SpanStatus.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a long run that one page shows."""

    first: int
    end: int
    total: int

    @property
    def before(self) -> int | None:
        """First step of the previous part, if there is one."""
        return max(0, self.first - WINDOW) if self.first else None

    @property
    def after(self) -> int | None:
        """First step of the next part, if there is one."""
        return self.end if self.end < self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run's steps and picture."""

    task: str
    output: str
    steps: tuple[ShownStep, ...]
    picture: str
    """SVG with all text escaped."""
    board: str
    """SVG of its lanes' names, escaped likewise."""
    window: Window
    agents: tuple[str, ...]
    has_texts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The part of a run to show."""

    first: int | None = None
    """First step; with ``None``, the part with the decisive step is shown."""
    full: int | None = None
    """Step whose texts are shown in full, regardless of length."""


WHOLE: Final = Wanted()


def view(trajectory: Trajectory, verdict: Mapping[str, Any], wanted: Wanted = WHOLE) -> RunView:
    """Return the view of a run."""
    run = visible_run(trajectory)
    suspicion = suspicion_of(verdict)
    window = _window(len(run.steps), suspicion.decisive, wanted.first)
    steps = run.steps[window.first : window.end]
    quotes = quotes_of(verdict)
    return RunView(
        task=_cut(run.task),
        output=_cut(run.output),
        steps=tuple(_shown_steps(steps, suspicion, quotes, wanted.full)),
        picture=draw(steps, suspicion),
        board=name_board(steps, suspicion),
        window=window,
        agents=lanes_of(run.steps),
        has_texts=any(step.output or step.input or step.error for step in run.steps),
    )


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


def telling(evidence: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return distinct quotes, without those contained in another of the same step."""
    kept: list[Mapping[str, Any]] = []
    for found in evidence:
        longer = (one["quote"] for one in evidence if one["step"] == found["step"])
        is_part = any(found["quote"] in quote != found["quote"] for quote in longer)
        if not is_part and found not in kept:
            kept.append(found)
    return kept


def highlighted(text: str, quotes: Iterable[str]) -> tuple[Piece, ...]:
    """Split a text where quotes begin and end; overlapping quotes form one piece."""
    found = sorted(
        (at, at + len(quote)) for quote in quotes if quote.strip() and (at := text.find(quote)) >= 0
    )
    pieces: list[Piece] = []
    done = 0
    for start, end in _joined(found):
        if start > done:
            pieces.append(Piece(text=text[done:start]))
        pieces.append(Piece(text=text[start:end], is_evidence=True))
        done = end
    if done < len(text):
        pieces.append(Piece(text=text[done:]))
    return tuple(pieces)


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _window(total: int, decisive: int | None, first: int | None) -> Window:
    if first is None:
        at = decisive or 0
        first = 0 if at < WINDOW else at - _BEFORE
    first = min(max(0, first), max(0, total - 1))
    return Window(first=first, end=min(total, first + WINDOW), total=total)


def _shown_steps(
    steps: Sequence[Step], suspicion: Suspicion, quotes: Mapping[int, Sequence[str]], full: int | None
) -> Iterable[ShownStep]:
    """Yield the views of steps; text last_shown at each step of an agent is shown at the first only."""
    last_shown: dict[tuple[str, str], str] = {}
    for step in steps:
        named = [("system prompt", step.instructions), ("tools offered", step.tools)]
        new = [(name, text) for name, text in named if text and last_shown.get((step.agent, name)) != text]
        last_shown |= {(step.agent, name): text for name, text in new}
        limit = MOST_WHOLE if step.index == full else MOST_TEXT
        yield _shown(step, suspicion, quotes.get(step.index, ()), new, limit)


def _shown(
    step: Step, suspicion: Suspicion, quotes: Sequence[str], prompts: Sequence[tuple[str, str]], limit: int
) -> ShownStep:
    is_decisive = step.index == suspicion.decisive
    named = (*prompts, ("input", step.input), ("output", step.output), ("error", step.error))
    return ShownStep(
        step=step,
        line=plain(step.error or step.output or step.input or step.name, _LINE),
        texts=tuple(_text(name, text, quotes, limit) for name, text in named if text),
        probability=suspicion.probabilities.get(step.index, 0.0),
        is_decisive=is_decisive,
        word=suspicion.word,
        is_open=is_decisive or bool(quotes) or limit != MOST_TEXT,
    )


def _text(name: str, text: str, quotes: Sequence[str], limit: int) -> ShownText:
    pieces = highlighted(text, (visible(quote) for quote in quotes))
    replaced, is_cut = count_replaced(text), bool(_CUT.search(text))
    if len(text) <= limit:
        return ShownText(name=name, pieces=pieces, replaced=replaced, is_cut=is_cut)
    shortened = tuple(_shortened(piece) for piece in pieces)
    shown = sum(len(piece.text) for piece in shortened)
    left_out = max(0, len(text) - shown)
    return ShownText(name=name, pieces=shortened, left_out=left_out, replaced=replaced, is_cut=is_cut)


def _shortened(piece: Piece) -> Piece:
    """Shorten a piece of a long text: evidence stays whole, other text keeps its ends."""
    if piece.is_evidence or len(piece.text) <= MOST_TEXT // 2:
        return Piece(text=piece.text[:MOST_TEXT], is_evidence=piece.is_evidence)
    head, tail = piece.text[: MOST_TEXT // 2 - _AROUND], piece.text[-_AROUND:]
    return Piece(text=f"{head}\n […] \n{tail}")


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " […]"
