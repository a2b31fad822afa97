"""Take secrets out of text before it leaves. Pure.

Patterns are few and precise: a redactor that eats ordinary numbers would take
the evidence with it. Each replacement says what stood there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

Redact = Callable[[str], str]

_PATTERNS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    # Private keys first: their base64 would match the token patterns piecemeal.
    (
        "private key",
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]{0,20000}?"
            r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
        ),
    ),
    ("token", re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    (
        "key",
        re.compile(
            r"\b(?:sk|pk|rk)[-_][\w-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_\w{20,}|\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{30,}"
        ),
    ),
    ("token", re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{12,}")),
    (
        "secret",
        re.compile(
            r"""(?ix)(?<=[\s"'_-])?\b(?:password|passwd|secret|api[_-]?key|access[_-]?token)["']?\s{0,3}[:=]\s{0,3}["']?[^\s"',;&]{6,}"""
        ),
    ),
    ("e-mail", re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}\b")),
)
_CARD: Final = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")


def redact(text: str) -> str:
    """Return ``text`` with keys, tokens, secrets, card numbers and e-mail addresses named, not shown."""
    for name, pattern in _PATTERNS:
        text = pattern.sub(f"[{name}]", text)
    return _CARD.sub(_hide_card, text)


def keep(text: str) -> str:
    """Return ``text`` as it is."""
    return text


def omit(_text: str) -> str:
    """Return nothing, whatever stands there."""
    return ""


def _hide_card(match: re.Match[str]) -> str:
    digits = [int(char) for char in match.group() if char.isdigit()]
    return "[card number]" if _luhn(digits) else match.group()


def _luhn(digits: list[int]) -> bool:
    """Card numbers carry a check digit; most other long numbers fail it."""
    doubled = [
        sum(divmod(2 * digit, 10)) if place % 2 else digit for place, digit in enumerate(reversed(digits))
    ]
    return sum(doubled) % 10 == 0
