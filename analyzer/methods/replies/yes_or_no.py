"""Parser of the two-way answers that step-by-step and binary search ask for.

Reads every format that is unambiguous to a careful reader: ``1. **Yes**``,
``1) yes``, ``Answer: No``, JSON, "not the upper half, the lower half". An ambiguous
reply is ``None``, never one of the two; the reference code takes an unclear reply to
step-by-step as "no" and picks one at random for binary search.
"""

from __future__ import annotations

import re
from typing import Final

from analyzer.methods.replies.free_text import LONGEST, objects, spoken

_MARKUP: Final = re.compile(r"[*`#>|_\"']{1,3}")
_TAG: Final = re.compile(r"</?[a-z_]{1,20}>|\\boxed\{([^{}\n]{0,200})\}", re.IGNORECASE)
_ECHO: Final = re.compile(r"^[^\n?]{0,200}\?[ \t]{0,9}(?=\W{0,4}(?:yes|no)\b)", re.IGNORECASE | re.MULTILINE)
"""The question repeated before its answer."""
_LABEL: Final = (
    r"[^\w\n(\[]{0,9}(?:\(?\d{1,6}[.):\]][ \t]{0,9})?(?:the )?(?:final |short |my )?"
    r"(?:(?:answer|verdict|judge?ment|response|conclusion|(?:contains )?(?:an? )?(?:error|mistake)"
    r"|step \d{1,6})"
    r"[ \t]{0,9}(?:is\b:?|[:\-=])[ \t]{0,9})?"
    r"(?:yes ?(?:/|or) ?no[ \t]{0,9}[:\-=]?[ \t]{0,9})?[(\[]?"
)
_ANSWER: Final = re.compile(
    rf"^{_LABEL}(yes|no)\b(?! ?(?:/|or|and) ?(?:yes|no)\b)(.*)$", re.IGNORECASE | re.MULTILINE
)
_BARE: Final = re.compile(r"[\s.,!:;)\]]{0,9}")
_FAULT: Final = r"(?:error|mistake|fault)"
_DENIED: Final = re.compile(
    rf"\b(?:no|not|without|free (?:of|from)|(?:do|does|did|is|was|are|were|ca|could|would)n'?t)\b"
    rf"[^.\n]{{0,40}}\b{_FAULT}s?\b|\b{_FAULT}-free\b|^\W{{0,9}}{_FAULT}s?[ \t]{{0,9}}[:=][ \t]{{0,9}}none\b",
    re.IGNORECASE,
)
_STATED: Final = re.compile(
    rf"\b(?:there (?:is|was)|contains?|made|makes|has|is)[ \t]an?[ \t][^.\n]{{0,30}}\b{_FAULT}\b",
    re.IGNORECASE,
)
_YES_KEYS: Final = (
    "answer", "error", "mistake", "verdict", "haserror", "containserror", "iserror", "containsmistake",
    "hasmistake", "ismistake", "judgment",
)  # fmt: skip
_TRUTH: Final = {"yes": True, "true": True, "no": False, "false": False}
_UPPER: Final = "upper"
_LOWER: Final = "lower"
_OTHER: Final = {_UPPER: _LOWER, _LOWER: _UPPER}
_WORDS: Final = {
    **dict.fromkeys(("first", "earlier", "top"), _UPPER),
    **dict.fromkeys(("second", "later", "bottom"), _LOWER),
}
_WHICH: Final = r"upper|lower|first|second|earlier|later|top|bottom"
_PART: Final = r"[ \t_-]?(?:half|part|portion)"
_HALF: Final = re.compile(
    r"(?P<turned>\b(?:not|than|instead of|as opposed to)[ \t](?:being[ \t])?(?:in[ \t])?(?:the[ \t])?)?"
    rf"\b(?P<half>{_WHICH}){_PART}\b"
    r"(?P<cleared>[ \t](?:(?:is|was|looks|seems)[ \t](?:all[ \t])?(?:fine|correct|right|sound|ok|okay)\b"
    r"|(?:contains|has|shows)[ \t]no\b))?",
    re.IGNORECASE,
)
_ALONE: Final = re.compile(r"(?:^|[:=])[ \t]{0,9}(?:the )?(upper|lower)[\s.!}]{0,9}$", re.IGNORECASE)
_UNDECIDED: Final = re.compile(
    rf"\b(?:either |neither )?(?:the )?(?:{_WHICH})(?:{_PART})?"
    rf"[ \t](?:or|and|nor)[ \t](?:the )?(?:{_WHICH}){_PART}\b",
    re.IGNORECASE,
)
_CLOSING: Final = re.compile(
    rf"[:.!\n][ \t]{{0,9}}(?:(?:so|thus|hence|therefore)[,: \t]{{1,3}})?"
    rf"(?:the )?({_WHICH}){_PART}[\s.!]{{0,9}}\Z",
    re.IGNORECASE,
)
_CONCLUSION: Final = re.compile(
    r"^[ \t]{0,9}"
    r"(?:(?:the )?(?:final )?(?:answer|prediction|verdict|conclusion)[ \t]{0,9}(?:is\b|[:=])?[ \t]{0,9})?"
    rf"(?:the )?({_WHICH}){_PART}[ \t.!]{{0,9}}$",
    re.IGNORECASE | re.MULTILINE,
)


def read_yes_or_no(text: str) -> bool | None:
    """Return whether a reply says yes; ``None`` if it says neither or both."""
    text = spoken(text)[:LONGEST]
    for found in objects(text):
        fields = {re.sub(r"[\W_]+", "", str(key)).casefold(): value for key, value in found.items()}
        value = next((fields[key] for key in _YES_KEYS if key in fields), None)
        said = _TRUTH.get(str(value).strip(" .").casefold())
        if said is not None:
            return said
    plain = _ECHO.sub("", _MARKUP.sub("", _TAG.sub(r"\n\1\n", text)))
    answers = [(match.group(1).casefold() == "yes", match.group(2)) for match in _ANSWER.finditer(plain)]
    if answers:
        bare = {said for said, rest in answers if _BARE.fullmatch(rest)}
        choices = bare or {answers[0][0]}
        return choices.pop() if len(choices) == 1 else None
    denied, stated = bool(_DENIED.search(plain)), bool(_STATED.search(plain))
    return stated if denied != stated else None


def read_half(text: str) -> str | None:
    """Return ``upper`` (the earlier half) or ``lower``; ``None`` if a reply says neither or both."""
    plain = _UNDECIDED.sub("", _MARKUP.sub("", _TAG.sub(r"\n\1\n", spoken(text)[:LONGEST])))
    concluded = {_which(match.group(1)) for match in _CONCLUSION.finditer(plain)}
    if len(concluded) == 1:
        return concluded.pop()
    alone = _ALONE.search(plain)
    mentions = [
        (_which(match["half"]), bool(match["turned"] or match["cleared"])) for match in _HALF.finditer(plain)
    ]
    meant = {half for half, turned in mentions if not turned}
    if not mentions and alone:
        return _which(alone.group(1))
    if not meant:  # ruling out one half leaves the other
        meant = {_OTHER[half] for half, turned in mentions if turned}
    if len(meant) == 1:
        return meant.pop()
    closing = None if concluded else _CLOSING.search(plain)
    return _which(closing.group(1)) if closing else None


def _which(word: str) -> str:
    return _WORDS.get(word.casefold(), word.casefold())
