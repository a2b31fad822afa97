"""Whether a text makes a claim or only mentions it: quoted, asked, denied, put as a condition.

English, and read off the words right beside the claim: a word further off may
be said of something else.
"""

from __future__ import annotations

import re
from typing import Final

from analyzer.figures import numbers

_REACH: Final = 160
"""Characters before and after a claim in which it may be disowned."""
_SENTENCE_END: Final = re.compile(r"[.!?…](?=[^\w]|$)|\n")
_ATTRIBUTED: Final = re.compile(
    r"(?<!\bI )(?<!\bwe )\b(?:claim(?:s|ed)?|sa(?:ys|id)|stat(?:es|ed)|wrote|writes|assert(?:s|ed)"
    r"|according to|argu(?:es|ed)|suggest(?:s|ed)|report(?:s|ed)|propos(?:es|ed)|tells? (?:me|us|you))"
    r"\b[^.!?\n]*$",
    re.IGNORECASE,
)
_REJECTED_BEFORE: Final = re.compile(
    r"\b(?:(?:wrong|incorrect|false|untrue|mistaken|not true) (?:that|to (?:say|claim|write))"
    r"|incorrectly|wrongly|erroneously|mistakenly|instead of|rather than|disagree (?:that|with)|not)"
    r"\W+(?:[a-z]+\W+){0,3}$"
    r"|\b(?:whether|if|unless|suppose(?: that)?|where|assert)\W*$",
    re.IGNORECASE,
)
_REJECTED_AFTER: Final = re.compile(
    r"\W{0,6}(?:(?:and|but|which|that|this|it|the|a|an|claim|sum|calculation|computation|result|is|was|are|looks|seems"
    r"|clearly|simply|plainly|actually|of course)\W{1,3}){0,6}"
    r"(?:wrong|incorrect|false|untrue|mistaken|erroneous|mistake|error"
    r"|(?:is|was)n.t (?:right|correct|true|so|accurate|valid)|not (?:right|correct|true|so|accurate|valid)"
    r"|(?:does not|doesn.t) (?:hold|add up|check out))\b",
    re.IGNORECASE,
)
_ANSWERED_NO: Final = re.compile(r"[.!?…]\W*\s\W*no\b\s*(?:[^\w\s]|$)", re.IGNORECASE)
_CORRECTED: Final = re.compile(
    r"\b(?:(?:must|should|ought to|has to|can only) (?:be|have been|read|equal|say)"
    r"|(?:the )?(?:correct|right|true|actual) (?:answer|result|sum|value|total|figure) (?:is|would be|was))"
    r"\W{1,4}(?P<then>\d[\d,.]*)",
    re.IGNORECASE,
)


def disowned(text: str, start: int, end: int, stated: float) -> bool:
    """Tell whether what stands at ``start`` to ``end`` of a text is no claim of its author.

    Args:
        text: What the author wrote.
        start: Where the claim begins.
        end: Where it ends, excluded.
        stated: The figure that the claim gives; another in its place denies it.
    """
    before = text[max(0, start - _REACH) : start]
    before = before[_last_end(before) :]
    after = text[end : end + _REACH]
    closing = _SENTENCE_END.search(after)
    if closing is not None and closing.group() == "?":
        return True
    if _ATTRIBUTED.search(before) or _REJECTED_BEFORE.search(before):
        return True
    if _REJECTED_AFTER.match(after) or _ANSWERED_NO.match(after):
        return True
    corrected = _CORRECTED.search(_two_sentences(after))
    return corrected is not None and stated not in numbers(corrected["then"].rstrip(".,"))


def _last_end(text: str) -> int:
    return max((found.end() for found in _SENTENCE_END.finditer(text)), default=0)


def _two_sentences(text: str) -> str:
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return text[: ends[1]] if len(ends) > 1 else text
