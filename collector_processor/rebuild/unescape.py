r"""Decoded readings of a text, and the position of each part in the original. Pure.

A secret may be written with escapes (``%40``, ``\u0040``, ``&#64;``, ``=40``), in JSON inside JSON, or with
invisible characters in between. Each reading undoes some of that, repeatedly, so that one search of a reading
finds the secret in any spelling. Every pass is linear in the text, and there are at most six.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote

_PASSES: Final = 6
"""Bound on rounds of decoding: each level of JSON in JSON doubles the backslashes."""
_MOST_DECODED: Final = 1 << 20
"""Most characters decoded of one base64 or hex run."""

Match: TypeAlias = re.Match[str]


class _Escape(NamedTuple):
    """One kind of escape for a character."""

    sign: str
    """A text that all such escapes contain."""
    pattern: re.Pattern[str]
    decode: Callable[[Match], str]


_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " "}


def _characters(text: str) -> Iterator[str]:
    """Yield the characters of a set written as in a regular expression: single characters and ranges."""
    for found in re.finditer(r"(.)-(.)|.", text):
        first, last = found.group(1) or found.group(), found.group(2) or found.group()
        yield from map(chr, range(ord(first), ord(last) + 1))


_INVISIBLE: Final = (
    "\0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)

_ODD: Final[Mapping[str, str]] = {
    # Invisible ones (Unicode's Default_Ignorable_Code_Point, and NUL), blanks, hyphens, full-width ASCII.
    **dict.fromkeys(_characters(_INVISIBLE), ""),
    **dict.fromkeys(_characters("\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"), " "),
    **dict.fromkeys(_characters("\u2010-\u2015\u2212"), "-"),
    **{char: chr(ord(char) - 0xFEE0) for char in _characters("\uff01-\uff5e")},
}
_ODD_CHARACTERS: Final = frozenset(_ODD)


def _backslash(found: Match) -> str:
    escape = found.group()
    if len(escape) == 2:
        return _LETTERS.get(escape[1], escape[1])
    number = int(found["code"][1:].strip("{}"), 16)
    is_half = 0xD800 <= number < 0xE000  # half a surrogate pair is not a character
    return "\ufffd" if is_half or number > sys.maxunicode else chr(number)


def _quoted_printable(found: Match) -> str:
    return binascii.a2b_qp(found.group()).decode(errors="replace")


_CODE: Final = r"u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|u\{[0-9A-Fa-f]{1,6}\}|U[0-9A-Fa-f]{8}"
_PLAIN: Final = (
    # The last ones are Markdown's.
    _Escape("\\", re.compile(rf"""\\(?:(?P<code>{_CODE})|[nrtbf"'/\\_*`~.+@:=-])"""), _backslash),
    _Escape("\x1b[", re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]"), lambda _: ""),  # colours of a terminal
)
"""Escapes whose decoding loses no text."""
_WEB: Final = (
    *_PLAIN,
    _Escape(
        "%", re.compile(r"%[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*|%(?P<code>u[0-9A-Fa-f]{4})"),
        lambda found: _backslash(found) if found["code"] else unquote(found.group(), errors="replace"),
    ),
    _Escape(
        "&", re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,31});"),
        lambda found: html.unescape(found.group()),
    ),
)  # fmt: skip
_MAIL: Final = (
    *_WEB,
    _Escape("=", re.compile(r"=(?:\r?\n|[0-9A-F]{2}(?:=[0-9A-F]{2})*)"), _quoted_printable),
)
_LIKELY_MAIL: Final = re.compile(r"=(?:\r?\n|3D|40|2E|20\r?\n|2D)")


class _Piece(NamedTuple):
    """Text from ``start`` to ``end`` of a reading that was decoded."""

    start: int
    end: int
    before_start: int
    before_end: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A text after decoding."""

    text: str
    passes: tuple[tuple[Sequence[_Piece], Sequence[int]], ...] = ()
    """The decoded pieces of each round, the first round first, and their starts."""

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Return the position in the original of the text between two offsets."""
        for pieces, starts in reversed(self.passes):
            start, end = _start_before(pieces, starts, start), _end_before(pieces, starts, end)
        return start, end


def _start_before(pieces: Sequence[_Piece], starts: Sequence[int], at: int) -> int:
    index = bisect_right(starts, at) - 1
    if index < 0:
        return at
    piece = pieces[index]
    return piece.before_start if at < piece.end else at - piece.end + piece.before_end


def _end_before(pieces: Sequence[_Piece], starts: Sequence[int], at: int) -> int:
    index = bisect_left(starts, at) - 1
    if index < 0:
        return at
    piece = pieces[index]
    return piece.before_end if at <= piece.end else at - piece.end + piece.before_end


def readings(text: str) -> Iterator[str]:
    """Yield the different readings of ``text``, without positions; faster than ``placed_readings``."""
    yield (reading := _decoded(text, _PLAIN))
    for escapes in _more_ways(reading):
        before, reading = reading, _decoded(reading, escapes)
        if reading != before:
            yield reading


def placed_readings(text: str) -> Iterator[Reading]:
    """Yield the different readings of ``text``, each with the mapping to the original."""
    yield (reading := _placed(Reading(text), _PLAIN))
    for escapes in _more_ways(reading.text):
        before, reading = reading, _placed(reading, escapes)
        if reading.text != before.text:
            yield reading


def _more_ways(text: str) -> Iterator[tuple[_Escape, ...]]:
    if "%" in text or "&" in text:
        yield _WEB
    if "=" in text and _LIKELY_MAIL.search(text):
        yield _MAIL


def _decoded(text: str, escapes: tuple[_Escape, ...]) -> str:
    for char in _odd_in(text):
        text = text.replace(char, _ODD[char])
    for _ in range(_PASSES):
        before = text
        for escape in escapes:
            if escape.sign in text:
                text = escape.pattern.sub(escape.decode, text)
        if text == before:
            break
        for char in _odd_in(text):
            text = text.replace(char, _ODD[char])
    return text


def _placed(reading: Reading, escapes: tuple[_Escape, ...]) -> Reading:
    text, passes = reading.text, [*reading.passes]
    for _ in range(_PASSES):
        before = text
        odd = "".join(map(re.escape, _odd_in(text)))
        several = (_Escape("", re.compile(f"[{odd}]"), lambda found: _ODD[found.group()]),) if odd else ()
        for escape in (*several, *escapes):
            if escape.sign in text:
                text, pieces = _substitute(text, escape)
                if pieces:
                    passes.append((pieces, [piece.start for piece in pieces]))
        if text == before:
            break
    return Reading(text, tuple(passes))


def _odd_in(text: str) -> frozenset[str]:
    if text.isascii():
        return frozenset("\0") if "\0" in text else frozenset()
    return _ODD_CHARACTERS & set(text)


def _substitute(text: str, escape: _Escape) -> tuple[str, list[_Piece]]:
    out: list[str] = []
    pieces: list[_Piece] = []
    at = length = 0
    for found in escape.pattern.finditer(text):
        start, end = found.span()
        decoded = escape.decode(found)
        length += start - at
        out += (text[at:start], decoded)
        pieces.append(_Piece(length, length + len(decoded), start, end))
        length += len(decoded)
        at = end
    out.append(text[at:])
    return "".join(out), pieces


BASE64: Final = r"(?:[CDI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][\w+/-][\r\n]{0,2}){5,}"
"""Base64 of 15 or more printable ASCII bytes: their high bits rule out most characters at each position."""
HEX: Final = r"(?:[2-7][0-9A-Fa-f]|0[9aAdD]|[cdCD][0-9A-Fa-f][89abAB][0-9A-Fa-f]){15,}"
_RUN_END: Final = re.compile(r"[\w+/\r\n-]*={0,2}", re.ASCII)
_URL_SAFE: Final = str.maketrans("-_", "+/", "\r\n")


def decode_run(text: str, start: int, end: int) -> tuple[str, int]:
    """Return the decoded text of the base64 or hex run at ``start``, and the end of the run.

    Bytes that are not UTF-8 become U+FFFD.
    """
    run = text[start:end]
    if len(run) % 2 == 0 and re.fullmatch(r"[0-9A-Fa-f]+", run):
        return bytes.fromhex(run).decode(errors="replace"), end
    rest = _RUN_END.match(text, end, min(len(text), start + _MOST_DECODED))
    end = rest.end() if rest else end
    plain = text[start:end].rstrip("=\r\n").translate(_URL_SAFE)
    plain = plain[: len(plain) - (len(plain) % 4 == 1)]
    raw = base64.b64decode(plain + "=" * (-len(plain) % 4))
    return raw.decode(errors="replace"), end
