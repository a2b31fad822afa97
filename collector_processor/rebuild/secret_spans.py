"""Secrets that a pattern alone does not show: cards, addresses, cookies, random tokens. Pure.

Each public function gets a text and the place of a pattern's match in it, and yields the secrets there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final


def cards_in(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the payment cards in a run of digits with separators.

    A card is one group of digits, or several, as printed on cards; fractions, hashes and long tables of
    numbers hold none.
    """
    groups = [(found.start(), found.end()) for found in re.finditer(r"[0-9]+", text[start:end])]
    last = -1
    for first in range(len(groups)):
        for stop in range(first, first + (5 if len(groups) <= _MOST_GROUPS else 1)):
            if first <= last or stop >= len(groups):
                break
            begin, until = start + groups[first][0], start + groups[stop][1]
            if _is_card(text, begin, until):
                yield begin, until
                last = stop
                break


_MOST_GROUPS: Final = 7
_CARD: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]\d{2}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720))\d{12}"
    r"|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|(?:6011|64[4-9]\d|65\d\d|352[89]|35[3-8]\d|62\d\d|220[0-4])\d{12,15}"
    r"|(?:5018|50[23]8|5893|6304|67(?:59|6[1-3]))\d{8,15}"
)
"""Visa; Mastercard; American Express; Diners; Discover, JCB, UnionPay, Mir; Maestro (ISO/IEC 7812 ranges)."""
_GROUPED: Final = re.compile(r"\d{4}([ ._-])(?:\d{4}\1\d{4}(?:\1?\d{1,4}){1,2}|\d{6}\1\d{4,5})")
"""Printed groups: four digits each, or four, six and the rest."""


def _is_card(text: str, start: int, end: int) -> bool:
    shown = text[start:end]
    digits = re.sub(r"[ ._-]", "", shown)
    if digits != shown and not _GROUPED.fullmatch(shown):
        return False
    return bool(_CARD.fullmatch(digits)) and _luhn(digits) and _stands_alone(text, start, end)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Return whether digits are part of neither a fraction nor a hash nor an id."""
    around = text[max(0, start - 2) : start], text[end : end + 2]
    if re.fullmatch(r"[0-9][.,]", around[0]) or re.fullmatch(r"[.][0-9]", around[1]):
        return False
    before = re.search(r"[0-9A-Za-z]*$", text[max(0, start - 40) : start])
    after = re.match(r"[0-9A-Za-z]*", text[end : end + 40])
    words = (before.group() if before else "", after.group() if after else "")
    return all(not word or (word.isalpha() and re.search(r"[g-zG-Z]", word)) for word in words)


def _luhn(digits: str) -> bool:
    doubled = [
        sum(divmod(2 * int(digit), 10)) if place % 2 else int(digit)
        for place, digit in enumerate(digits[::-1])
    ]
    return sum(doubled) % 10 == 0


_LOCAL_PART: Final = re.compile(r"""(?:"[^"\n@]{1,64}"|[\w+][\w.+%&'-]{0,63})$""")


def address(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the e-mail address whose ``@`` is at ``start``."""
    begin = max(0, start - 66)
    local = _LOCAL_PART.search(text[begin:start])
    if local:
        yield begin + local.start(), end


_MOST_OF_COOKIES: Final = 1_000
_COOKIE: Final = re.compile(r"=([^\s;,=\"']{16,})")
_REST: Final = re.compile(r"[^\s;,=\"']*")


def cookies(text: str, _start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the long values of a header ``Cookie`` or ``Set-Cookie``, whose name ends at ``end``.

    Its attributes are short.
    """
    until = end + len(re.split(r"[\r\n\"']", text[end : end + _MOST_OF_COOKIES], maxsplit=1)[0])
    for found in _COOKIE.finditer(text, end, until):
        rest = _REST.match(text, found.end())
        yield found.start(1), found.end() if rest is None else rest.end()


def random_token(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a token of mixed characters; lower-case ids, words and names of files are not tokens."""
    found = re.search(r"[A-Za-z][A-Za-z0-9]{1,9}[_-]([\w-]{32,})$", text[start:end])
    longest = max(re.split("[_-]", found[1]), key=len) if found else ""
    in_parts = found is not None and len(found[1]) >= 40 and len(longest) >= 16 and not _is_words(longest)
    is_long = len(longest) >= 32 or in_parts
    if found and is_long and all(re.search(each, longest) for each in ("[a-z]", "[A-Z]", "[0-9]")):
        yield start + found.start(), end


def _is_words(text: str) -> bool:
    """Return whether text looks like ``AnnualSummary2024``: random text changes its kind of character often.

    Of 16 random letters and digits, 1 in 200 looks like words.
    """
    changes = re.findall(r"(?<=[a-z])[^a-z]|(?<=[A-Z])[^A-Z]|(?<=[0-9])[^0-9]", text)
    return 3 * len(changes) < len(text) - 1
