"""JSON parser for untrusted text, and a writer for long documents. Pure.

``json.loads`` accepts half a surrogate pair (an escaped ``d83d`` alone), which UTF-8 cannot encode:
protobuf, SQLite and terminals then fail. It is replaced by U+FFFD, as in Go's parser. Every unreadable text
raises ``ValueError``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_HALF_PAIR: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_DECODER: Final = json.JSONDecoder()
_BEGINNINGS: Final = ("{", "[", '"')


def read_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON (a ``json.JSONDecodeError``), is nested too deeply, or
            holds a number of thousands of digits.
    """
    if "\\ud" in text or "\\uD" in text:
        text = with_whole_pairs(text)
    try:
        if text.startswith(_BEGINNINGS):  # fast path: no surrounding white space
            found, end = _DECODER.raw_decode(text)
            if end == len(text):
                return found
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def written_in_turns(value: Any, levels: int) -> Iterator[str]:
    """Yield a value as compact JSON in pieces: each value ``levels`` below it is a piece of its own.

    A single ``json.dumps`` blocks all other threads until its end, 0.2 s for 64 MB.
    """
    if levels and isinstance(value, list):
        for number, each in enumerate(value):
            yield "," if number else "["
            yield from written_in_turns(each, levels - 1)
        yield "]" if value else "[]"
    elif levels and isinstance(value, dict):
        for number, (name, each) in enumerate(value.items()):
            yield f"{',' if number else '{'}{_compact(name)}:"
            yield from written_in_turns(each, levels - 1)
        yield "}" if value else "{}"
    else:
        yield _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def with_whole_pairs(text: str) -> str:
    """Return the JSON text with unpaired escaped surrogates replaced by U+FFFD."""
    return _HALF_PAIR.sub(r"\\ufffd", text)
