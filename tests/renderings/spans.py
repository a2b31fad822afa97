"""Scenes as span records: ids, parents, times, errors; a renderer adds names and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from semconv.model import Event, Scope, Span, SpanId, SpanStatus, TraceId
from tests.renderings.play import ModelCall, Play, ToolUse, Turn
from tests.renderings.staging import Scene, Stage

TRACE = TraceId("5b8efff798038103d269b633813fc60c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One scene in a dialect."""

    name: str
    attributes: dict[str, Any]
    kind: int = 1
    events: tuple[Event, ...] = ()
    status: SpanStatus | None = None
    """``None``: error if the scene failed, else unset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A dialect in which plays can be written; one file each."""

    name: str
    carries: frozenset[str]
    """What its spans can express: fields of `Line`, and ``reference``."""
    spans: Callable[[Stage], list[Span]]
    """Returns a staged play's spans, parents before children."""
    turns: Callable[[Stage, Sequence[Span]], dict[SpanId, str]]
    """Returns the agent of each span that is a turn."""


Write: TypeAlias = Callable[[Scene], Written | None]
"""Returns ``None`` for a scene without a span in the dialect."""


def error_of(scene: Scene) -> str:
    """Return why the scene failed; a turn and a run fail with their last call."""
    match scene.played:
        case ModelCall(error=error) | ToolUse(error=error):
            return error
        case Turn() as turn:
            return turn.error
        case Play() as play:
            return play.crash
        case _:
            return ""


def spans_of(stage: Stage, write: Write, *, scope: str) -> list[Span]:
    """Return the spans of a staged play, in order of start; span n has the id n in hex."""
    ids = {id(scene): SpanId(f"{number:016x}") for number, scene in enumerate(stage.scenes, 1)}
    spans: list[Span] = []
    for scene in stage.scenes:
        written = write(scene)
        if written is not None:
            parent = None if scene.parent is None else ids[id(scene.parent)]
            spans.append(_span(scene, written, ids[id(scene)], parent, scope))
    return spans


def turns(stage: Stage, spans: Sequence[Span]) -> dict[SpanId, str]:
    """Return the agent of each span of ``spans_of`` that is a turn."""
    return {
        span.span_id: scene.agent
        for span in spans
        if isinstance((scene := stage.scenes[int(span.span_id, 16) - 1]).played, Turn)
    }


def _span(scene: Scene, written: Written, span_id: SpanId, parent: SpanId | None, scope: str) -> Span:
    error = error_of(scene)
    status = written.status
    if status is None:
        status = SpanStatus.ERROR if error else SpanStatus.UNSET
    return Span(
        trace_id=TRACE,
        span_id=span_id,
        parent_id=parent,
        name=written.name,
        kind=written.kind,
        start_ns=scene.start_ns,
        end_ns=scene.end_ns,
        status=status,
        status_message=error if status is SpanStatus.ERROR else "",
        attributes={key: value for key, value in written.attributes.items() if value not in ("", None)},
        events=written.events,
        scope=Scope(name=scope, version="1"),
    )


def exception(scene: Scene) -> tuple[Event, ...]:
    """Return the event that an SDK records for the scene's error."""
    error = error_of(scene)
    if not error:
        return ()
    return (
        Event(
            name="exception",
            time_ns=scene.end_ns,
            attributes={"exception.type": "PlayedError", "exception.message": error},
        ),
    )


def instructions_of(scene: Scene) -> str:
    """Return the instructions of the agent in whose turn ``scene`` is."""
    return scene.parent.played.instructions if scene.parent and isinstance(scene.parent.played, Turn) else ""
