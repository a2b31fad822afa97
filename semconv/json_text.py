"""JSON that strangers wrote: read without surprises further on. Pure.

``json.loads`` takes half a surrogate pair (an escaped ``d83d`` alone) for a character,
which then no UTF-8 can carry: not protobuf, not SQLite, not a terminal. Here it
becomes U+FFFD, as in Go's parser. Whatever cannot be read is one kind of error.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_HALF_PAIR: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_DECODER: Final = json.JSONDecoder()
_BEGINNINGS: Final = ("{", "[", '"')


def read_json(text: str) -> Any:
    """Return what the text says.

    Raises:
        ValueError: it is no JSON (then a ``json.JSONDecodeError``), is nested too deeply,
            or holds a number of thousands of digits.
    """
    text = with_whole_pairs(text)
    try:
        if text.startswith(_BEGINNINGS):  # most does, and ends with its value: no white space to look for
            found, end = _DECODER.raw_decode(text)
            if end == len(text):
                return found
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def with_whole_pairs(text: str) -> str:
    """Return a text of JSON in which every escaped surrogate is one of a pair."""
    if "\\ud" in text or "\\uD" in text:
        return _HALF_PAIR.sub(r"\\ufffd", text)
    return text
