"""Lines of ``TIME: key="value", key="value"``, as CrewAI logs tasks. Pure.

Values are not escaped: they may hold quotes and line breaks. An entry therefore ends where the next one
begins, and a value where the next known key begins.
"""

from __future__ import annotations

import re
from typing import Final

_START: Final = re.compile(r'^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d): (?=[a-z_]{2,20}=")', re.MULTILINE)
_KEY: Final = re.compile(
    r'(?:\A|", )(task_name|task|agent|status|output|input|message|level|crew|flow|tool|error|duration'
    r'|metadata)="'
)


CUT: Final = "cut"
"""The only key of an entry that is cut short; the value is what is left of it."""


def split_pairs(text: str) -> tuple[list[dict[str, str]], str]:
    """Return the entries of a log, and what is wrong with its last one; empty unless it begins with one."""
    starts = list(_START.finditer(text))
    if not starts or text[: starts[0].start()].strip():
        return [], ""
    ends = [*(found.start() for found in starts[1:]), len(text)]
    bodies = [text[found.end() : end].rstrip() for found, end in zip(starts, ends, strict=True)]
    entries = [{"timestamp": found[1], **_pairs(body)} for found, body in zip(starts, bodies, strict=True)]
    if bodies[-1].endswith('"'):
        return entries, ""
    entries[-1] = {CUT: bodies[-1]}
    return entries if len(entries) > 1 else [], "the last entry is cut short and was left out"


def _pairs(body: str) -> dict[str, str]:
    """Return the values of an entry by its known keys; one that a value repeats is part of that value."""
    found: list[re.Match[str]] = []
    known: set[str] = set()
    for match in _KEY.finditer(body):
        if match[1] not in known:
            found.append(match)
            known.add(match[1])
    ends = [*(match.start() for match in found[1:]), len(body) - 1][: len(found)]
    return {match[1]: body[match.end() : end] for match, end in zip(found, ends, strict=True)}
