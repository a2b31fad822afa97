"""A step's span as JSON: attributes, events, links, logs, scope and resource. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from collector_processor.core.runs import CleanRun
from semconv.model import Span, Step, StepKind, Trajectory


def span_json(span: Span, clean: CleanRun) -> str:
    """Return a span as JSON without secrets; ``<`` is escaped, so that no program takes it for a page."""
    plain = _plain(span)
    texts = list(dict.fromkeys(_texts(plain)))
    steps = [Step(index=at, agent="", kind=StepKind.OTHER, input=text) for at, text in enumerate(texts)]
    cleaned = clean(Trajectory(run_id="", steps=tuple(steps)))
    names = dict(zip(texts, (step.input for step in cleaned.steps), strict=True))
    return json.dumps(_renamed(plain, names), indent=2).replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; decoding bounds how deep it is nested."""
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names[value]
    if isinstance(value, dict):
        return {name: _renamed(one, names) for name, one in value.items()}
    return [_renamed(one, names) for one in value] if isinstance(value, list) else value
