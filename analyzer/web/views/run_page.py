"""A run as its page shows it: verdict, picture, steps with the evidence found in their texts. Pure.

Texts are cut here and cleaned of what no eye sees; that they are escaped is the
templates' business, and always on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.present import plain
from analyzer.visible import visible, visible_run
from analyzer.web.picture import Suspicion, draw, lanes_of, name_board
from semconv.model import SpanStatus, Step, Trajectory

WINDOW: Final = 200
"""Steps on one page."""
_BEFORE: Final = 150
"""Of them, how many stand before the decisive one where all do not fit."""
MOST_TEXT: Final = 6_000
"""Characters of one text on a page; evidence beyond them is shown with its surroundings."""
_AROUND: Final = 400
_LINE: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of a step's text."""

    text: str
    is_evidence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """One text of a step."""

    name: str
    pieces: tuple[Piece, ...]
    left_out: int = 0
    """Characters that are not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """One step as the page shows it."""

    step: Step
    line: str
    texts: tuple[ShownText, ...]
    probability: float = 0.0
    is_decisive: bool = False
    is_open: bool = False
    """Whether its texts are shown at once."""

    @property
    def failed(self) -> bool:
        """Whether its span ended in error."""
        return self.step.status is SpanStatus.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The stretch of a long run that one page shows."""

    first: int
    end: int
    total: int

    @property
    def before(self) -> int | None:
        """Where the stretch before begins, if there is one."""
        return max(0, self.first - WINDOW) if self.first else None

    @property
    def after(self) -> int | None:
        """Where the stretch after begins, if there is one."""
        return self.end if self.end < self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run's steps and picture."""

    task: str
    output: str
    steps: tuple[ShownStep, ...]
    picture: str
    """SVG, safe as it stands."""
    board: str
    """The names of its lanes, likewise."""
    window: Window
    agents: tuple[str, ...]
    has_texts: bool


def view(trajectory: Trajectory, verdict: Mapping[str, Any], first: int | None = None) -> RunView:
    """Return what the page shows of a run.

    Args:
        trajectory: the run.
        verdict: on it, as programs get it.
        first: the first step to show; by default the decisive one is among those shown.
    """
    run = visible_run(trajectory)
    suspicion = suspicion_of(verdict)
    window = _window(len(run.steps), suspicion.decisive, first)
    steps = run.steps[window.first : window.end]
    quotes = quotes_of(verdict)
    return RunView(
        task=_cut(run.task),
        output=_cut(run.output),
        steps=tuple(_shown(step, suspicion, quotes.get(step.index, ())) for step in steps),
        picture=draw(steps, suspicion),
        board=name_board(steps, suspicion),
        window=window,
        agents=lanes_of(run.steps),
        has_texts=any(step.output or step.input or step.error for step in run.steps),
    )


def suspicion_of(verdict: Mapping[str, Any]) -> Suspicion:
    """Return which steps a verdict suspects, and how much."""
    ranking = {one["step"]: float(one["probability"]) for one in verdict.get("ranking") or ()}
    decisive = verdict.get("step")
    if decisive is not None:
        ranking.setdefault(decisive, float(verdict.get("confidence") or 0.0))
    return Suspicion(decisive=decisive, probabilities=ranking)


def quotes_of(verdict: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Return the verdict's quotes, by step."""
    quotes: dict[int, tuple[str, ...]] = {}
    for found in verdict.get("evidence") or ():
        quotes[found["step"]] = (*quotes.get(found["step"], ()), found["quote"])
    return quotes


def telling(evidence: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the quotes but those that another of the same step contains, each once."""
    kept: list[Mapping[str, Any]] = []
    for found in evidence:
        longer = (one["quote"] for one in evidence if one["step"] == found["step"])
        is_part = any(found["quote"] in quote != found["quote"] for quote in longer)
        if not is_part and found not in kept:
            kept.append(found)
    return kept


def highlighted(text: str, quotes: Iterable[str]) -> tuple[Piece, ...]:
    """Cut a text where a quote begins or ends; quotes that overlap are one piece."""
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


def _shown(step: Step, suspicion: Suspicion, quotes: Sequence[str]) -> ShownStep:
    is_decisive = step.index == suspicion.decisive
    named = (("what came in", step.input), ("what came out", step.output), ("error", step.error))
    return ShownStep(
        step=step,
        line=plain(step.error or step.output or step.input or step.name, _LINE),
        texts=tuple(_text(name, text, quotes) for name, text in named if text),
        probability=suspicion.probabilities.get(step.index, 0.0),
        is_decisive=is_decisive,
        is_open=is_decisive or bool(quotes),
    )


def _text(name: str, text: str, quotes: Sequence[str]) -> ShownText:
    pieces = highlighted(text, (visible(quote) for quote in quotes))
    if len(text) <= MOST_TEXT:
        return ShownText(name=name, pieces=pieces)
    shortened = tuple(_shortened(piece) for piece in pieces)
    shown = sum(len(piece.text) for piece in shortened)
    return ShownText(name=name, pieces=shortened, left_out=max(0, len(text) - shown))


def _shortened(piece: Piece) -> Piece:
    """Return a piece of a long text: evidence as it is, what stands around it by its ends."""
    if piece.is_evidence or len(piece.text) <= MOST_TEXT // 2:
        return Piece(text=piece.text[:MOST_TEXT], is_evidence=piece.is_evidence)
    head, tail = piece.text[: MOST_TEXT // 2 - _AROUND], piece.text[-_AROUND:]
    return Piece(text=f"{head}\n […] \n{tail}")


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " […]"
