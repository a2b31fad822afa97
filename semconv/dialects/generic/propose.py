"""Proposal of a mapping for a run that was read by inference; the user corrects it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from semconv.dialects.generic.infer import Inferred
from semconv.dialects.mapped import FIELDS, KINDS, SpanMapping
from semconv.dialects.reading.action import ActionKind, key_of
from semconv.dialects.reading.values import text
from semconv.model import Span

_MODEL_FIELDS: Final = {"input_messages": "input", "output_messages": "output"}


def propose(inferred: Inferred, spans: Sequence[Span], name: str) -> SpanMapping:
    """Return the mapping with which a dialect would read the inferred actions.

    The field of an attribute is the one that most spans read from it. Kinds go by the attribute that states
    them on most spans; spans that have none, by their names.
    """
    read = [span for span in spans if key_of(span) in inferred.actions]
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    stating: Counter[str] = Counter()
    for span in read:
        sources = inferred.sources.get(key_of(span), {})
        stating.update([sources["kind"]] if "kind" in sources else [])
        is_call = inferred.actions[key_of(span)].kind is ActionKind.LLM
        for field, attribute in _fields(sources, is_call=is_call).items():
            votes[attribute][field] += 1
    attribute = max(stating, key=lambda key: (stating[key], key), default="")
    kinds = _majority([(text(span.attributes, attribute) or "", _kind(inferred, span)) for span in read])
    kinds.pop("", None)
    others = [span for span in read if not attribute or not text(span.attributes, attribute)]
    return SpanMapping(
        name=name,
        scopes=tuple(sorted({span.scope.name for span in read} - {""})),
        kind_attribute=attribute if kinds else "",
        kinds=kinds,
        names=_majority([(span.name, _kind(inferred, span)) for span in others if span.name]),
        fields={key: count.most_common(1)[0][0] for key, count in sorted(votes.items()) if key != attribute},
    )


def _fields(sources: Mapping[str, str], *, is_call: bool) -> Mapping[str, str]:
    found = {field: key for field, key in sources.items() if field in FIELDS}
    if is_call:  # its messages are the input, not the longest other text
        found |= {_MODEL_FIELDS[field]: key for field, key in sources.items() if field in _MODEL_FIELDS}
    return found


def _kind(inferred: Inferred, span: Span) -> ActionKind:
    action = inferred.actions[key_of(span)]
    kind = action.kind
    if kind is ActionKind.HANDOFF and action.tool:
        return ActionKind.TOOL  # its name tells that it hands over
    return kind if kind.value in KINDS else ActionKind.CONTAINER


def _majority(pairs: Sequence[tuple[str, ActionKind]]) -> dict[str, ActionKind]:
    votes: defaultdict[str, Counter[ActionKind]] = defaultdict(Counter)
    for key, kind in pairs:
        votes[key[:200]][kind] += 1
    return {key: count.most_common(1)[0][0] for key, count in sorted(votes.items())}
