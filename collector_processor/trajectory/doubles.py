"""Model calls that two instrumentations write side by side.

One that does not make its span the current one (Traceloop's of OpenAI and Anthropic, LiteLLM's callback)
leaves the other's beside it, where a parent and its child would tell that they are one. They are one if
they are siblings of different scopes, the one runs within the other and for most of its time, and they
do not tell different answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from collector_processor.trajectory.acts import Act, Stage
from semconv.dialects import ActionKind
from semconv.dialects.conversation import last_answer

_MOST: Final = 0.5
"""The part of a call's time that another span of it takes at the least."""


def fold_doubles(stage: Stage) -> frozenset[int]:
    """Let one span of each such call tell all that both do; return the positions of the others."""
    families: defaultdict[int, list[Act]] = defaultdict(list)
    for act in stage.acts:
        if act.action.kind is ActionKind.LLM and not act.below:
            families[stage.parents[act.position]].append(act)
    return frozenset(position for family in families.values() for position in _folded(family))


def _folded(family: Sequence[Act]) -> Iterable[int]:
    if len({act.span.scope.name for act in family}) == 1:
        return
    outer: Act | None = None
    for act in sorted(family, key=lambda each: (each.span.start_ns, -each.span.end_ns, each.position)):
        if outer is None or not _are_one(outer, act):
            outer = act
            continue
        kept, other = (act, outer) if act.richness > outer.richness else (outer, act)
        kept.absorb(other)
        outer = None
        yield other.position


def _are_one(outer: Act, inner: Act) -> bool:
    whole, part = outer.span, inner.span
    is_inside = part.end_ns <= whole.end_ns
    is_most = part.end_ns - part.start_ns >= _MOST * (whole.end_ns - whole.start_ns)
    return is_inside and is_most and part.scope.name != whole.scope.name and not _differ(outer, inner)


def _differ(outer: Act, inner: Act) -> bool:
    first, second = (_answer(act) for act in (outer, inner))
    return bool(first) and bool(second) and first != second


def _answer(act: Act) -> tuple[str, ...]:
    """Return what a call answered, however it is written: its text, or the tools it asked for."""
    if text := (last_answer(act.action.said) or act.action.output).strip():
        return (text,)
    return tuple(call.name for call in act.action.requested)
