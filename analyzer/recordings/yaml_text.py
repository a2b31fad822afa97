"""YAML parser for untrusted text. Pure.

Built from parser events with a stack of our own: PyYAML's composer recurses, so that nested text ends the
process, its numbers of base 60 take quadratic time, and aliases unfold a small file into gigabytes.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import yaml

MAX_DEPTH: Final = 100
"""Bound on nested lists and mappings."""
_LITERAL: Final = re.compile(r"true|false|-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?")
"""Pattern of plain scalars that are not text; dates, ``yes`` and other YAML 1.1 forms stay text, as in YAML
1.2."""
_TAGS: Final = frozenset({None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))})
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def read_yaml(text: str) -> list[Any]:
    """Return the documents of a YAML text as JSON types: dicts with text keys, lists, scalars.

    Raises:
        ValueError: the text is not YAML, or it holds aliases, tags, keys that are not text, or more than
            ``MAX_DEPTH`` levels; the message says which.
    """
    documents: list[Any] = []
    stack: list[list[Any]] = [documents]
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            _take(event, stack)
    except yaml.YAMLError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    return documents


def _take(event: yaml.Event, stack: list[list[Any]]) -> None:
    """Add one event to the innermost list; a mapping is a list of keys and values until it ends."""
    if isinstance(event, yaml.AliasEvent):
        raise ValueError("YAML aliases are not supported")  # noqa: TRY004 - the text is wrong, not an argument's type
    if isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent) and event.tag not in _TAGS:
        raise ValueError(f"a value with the tag {event.tag}")
    if isinstance(event, yaml.CollectionStartEvent):
        if len(stack) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels of nesting")
        stack.append([])
    elif isinstance(event, yaml.ScalarEvent):
        stack[-1].append(_scalar(event))
    elif isinstance(event, yaml.SequenceEndEvent):
        ended = stack.pop()
        stack[-1].append(ended)
    elif isinstance(event, yaml.MappingEndEvent):
        ended = stack.pop()
        stack[-1].append(_mapping(ended))


def _mapping(items: list[Any]) -> dict[str, Any]:
    keys = items[::2]
    if not all(isinstance(key, str) for key in keys):
        raise ValueError("a key that is not text")
    return dict(zip(keys, items[1::2], strict=True))


def _scalar(event: yaml.ScalarEvent) -> Any:
    is_plain = event.implicit[0]
    text: str = event.value
    if is_plain and text in _NULLS:
        return None
    return json.loads(text) if is_plain and _LITERAL.fullmatch(text) else text
