"""Laminar's SDK, with which browser-use traces itself.

Source: lmnr 0.8 on PyPI (``opentelemetry_lib/tracing/attributes.py``) and browser-use/browser-use,
``browser_use/observability.py``. A span's type is ``lmnr.span.type``, its texts are JSON in
``lmnr.span.input`` and ``lmnr.span.output``; ``DEFAULT`` is any traced function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.observations import Observation, action_of
from semconv.dialects.reading.values import text
from semconv.model import Span

NAME: Final = "laminar"

SPAN_TYPE: Final = "lmnr.span.type"
SPAN_INPUT: Final = "lmnr.span.input"
SPAN_OUTPUT: Final = "lmnr.span.output"

_KINDS: Final[Mapping[str, ActionKind]] = {
    "LLM": ActionKind.LLM,
    "TOOL": ActionKind.TOOL,
    "EVALUATOR": ActionKind.EVALUATION,
}
"""Kinds by span type; any other type is a function."""


def read_laminar(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span with one of Laminar's attributes."""
    if SPAN_TYPE not in span.attributes and SPAN_INPUT not in span.attributes:
        return None
    kind = _KINDS.get(text(span.attributes, SPAN_TYPE) or "", ActionKind.CONTAINER)
    above = surroundings.parent(span)
    is_top = above is None or above.scope.name != span.scope.name
    if kind is ActionKind.CONTAINER and is_top:
        kind = ActionKind.WORKFLOW
    seen = Observation(
        dialect=NAME,
        kind=kind,
        given=span.attributes.get(SPAN_INPUT),
        got=span.attributes.get(SPAN_OUTPUT),
        tool=span.name,
        function="" if kind in _KINDS.values() else span.name,
    )
    return action_of(span, seen)


LAMINAR: Final = Dialect(name=NAME, read=read_laminar, keys=frozenset({SPAN_TYPE, SPAN_INPUT}))
