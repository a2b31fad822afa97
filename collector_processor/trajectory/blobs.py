"""Base64 in the texts of a run: images and files are named, never dumped. Pure.

A picture that a tool returns takes up to megabytes of a step's text; what stands after it would be cut off.
Base64 is told from words by its length without a space, and from hashes, sequences and hex dumps by having
capitals, small letters and digits. Lines of MIME's base64 (RFC 2045) have one length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from semconv.dialects import Action, Message, ToolCall
from semconv.record import replace

LEAST_CHARS: Final = 500
"""Shortest base64 that is left out: 375 bytes. Ids, hashes and keys are shorter."""
_PART: Final = LEAST_CHARS // 2
PLACEHOLDER: Final = "[base64 data]"
_CHAR: Final = r"[A-Za-z0-9+/_-]"
_RUN: Final = re.compile(
    # Possessive, so that the time is linear. A full stop before it is that of a token or a host name.
    rf"(?<![A-Za-z0-9+/_.-])(?:{_CHAR}{{60,}}+(?:(?:\\r)?\\n|\r?\n)?)++(?:{_CHAR}{{1,59}}+)?={{0,2}}"
)
_BREAK: Final = re.compile(r"(?:\\r)?\\n|\r?\n")
_MIXED: Final = (re.compile("[A-Z]"), re.compile("[a-z]"), re.compile("[0-9]"))


def without_base64(text: str) -> str:
    """Return a text with ``PLACEHOLDER`` in place of each long base64; the text itself if there is none."""
    return _RUN.sub(_named, text) if len(text) >= LEAST_CHARS and _may_have(text) else text


def _may_have(text: str) -> bool:
    """Return whether an aligned part of a text has no space: every base64 that is long enough fills one.

    Most texts have no such part, and looking for one takes a hundredth of the expression's time.
    """
    starts = range(0, len(text) - _PART + 1, _PART)
    return any(" " not in (part := text[at : at + _PART]) and part.isascii() for at in starts)


def _named(found: re.Match[str]) -> str:
    whole = found[0]
    lines = _BREAK.split(whole)
    is_one_width = len({len(line) for line in lines[:-1]}) <= 1
    is_base64 = len(whole) >= LEAST_CHARS and is_one_width and all(each.search(lines[0]) for each in _MIXED)
    return PLACEHOLDER if is_base64 else whole


def name_blobs(action: Action | None) -> Action | None:
    """Return an action whose texts have no base64; the action itself if it has none."""
    if action is None:
        return None
    changed: dict[str, Any] = {}
    for name in ("input", "output", "error", "task", "answer", "instructions"):
        text: str = getattr(action, name)
        if text and (kept := without_base64(text)) is not text:
            changed[name] = kept
    for name in ("input_messages", "output_messages"):
        messages: Sequence[Message] = getattr(action, name)
        named = tuple(map(_named_message, messages))
        if any(one is not other for one, other in zip(named, messages, strict=True)):
            changed[name] = named
    return replace(action, **changed) if changed else action


def _named_message(message: Message) -> Message:
    text, results = without_base64(message.text), without_base64(message.results)
    calls = tuple(map(_named_call, message.calls)) if message.calls else ()
    is_same = text is message.text and results is message.results and calls == message.calls
    return message if is_same else replace(message, text=text, results=results, calls=calls)


def _named_call(call: ToolCall) -> ToolCall:
    arguments = without_base64(call.arguments)
    return call if arguments is call.arguments else replace(call, arguments=arguments)
