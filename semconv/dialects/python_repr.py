"""Python's own notation inside texts: what ``repr`` and ``str`` made of arguments and objects.

Traceloop writes a langchain tool's arguments as ``{'name': 'x'}``; the contrib
instrumentation of openai-agents writes a model's items as
``ResponseFunctionToolCall(arguments='{}', name='x')``. The text is parsed and
never run, within bounds, because it was written by strangers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, Final

_MAX_CHARS: Final = 200_000
_MAX_LEVELS: Final = 20
_LITERAL: Final = re.compile(r"\s*[\[{(]")
_OBJECT: Final = re.compile(r"\s*[A-Z]\w{0,99}\(\w{1,99}=")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = frozenset("\\'\"nrtxuU")
"""What ``repr`` writes behind a backslash; the parser would warn of others on standard error."""


def from_repr(text: str) -> Any:
    """Return the list, tuple, set or dictionary that ``text`` is the ``repr`` of; else ``text`` itself."""
    if _LITERAL.match(text) is None:
        return text
    body = _parsed(text)
    if body is None:
        return text
    try:
        return ast.literal_eval(body)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return text


def object_in(text: str) -> Mapping[str, Any]:
    """Return the fields of the object that ``text`` shows as ``Name(field=value, …)``; else nothing.

    Fields that are no literals, lists or objects again are left out.
    """
    body = _parsed(text) if _OBJECT.match(text) else None
    fields = _value(body, _MAX_LEVELS) if isinstance(body, ast.Call) else None
    return fields if isinstance(fields, dict) else {}


def _parsed(text: str) -> ast.expr | None:
    if len(text) > _MAX_CHARS or not _ESCAPES.issuperset(_ESCAPED.findall(text)):
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, levels: int) -> Any:
    if levels == 0:
        return None
    if isinstance(node, ast.Call) and not node.args:
        return {each.arg: _value(each.value, levels - 1) for each in node.keywords if each.arg is not None}
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each, levels - 1) for each in node.elts]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
