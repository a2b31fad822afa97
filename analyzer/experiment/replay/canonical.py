"""Canonical form of requests to a model, so that a recorded and a repeated request compare equal. Pure.

Roles, texts, names and arguments of calls; ids are renumbered by the order of the calls. Instrumentations
join and split messages (Anthropic's tool results are one message, OpenAI's are several), so neighbours of one
role are joined; empty texts and the white space around texts are dropped; arguments are compared as JSON.

A *masked* form leaves out parts that differ between two runs without significance: results of tools, and
times and random ids inside texts. It is used only for calls before a change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NewType

from semconv.dialects.reading.action import Message
from semconv.json_text import read_json
from semconv.model import ToolCall
from semconv.record import record

Key = NewType("Key", bytes)
"""Digest of a canonical form."""

_RESULT: Final = "result"
_USER: Final = "user"
SYSTEM: Final = "system"
CALL: Final = "call"
SPOKEN_RESULTS: Final = "spoken results"
"""One of the roles to omit: tools' results are sent as the user's messages. smolagents records its messages
before it turns results into these."""
_REASONING: Final = "reasoning"
_SPOKEN: Final = frozenset({"system", "user", "assistant"})
_MONTHS: Final = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_VOLATILE: Final = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?\b"
    rf"|\b(?:\d{{1,2}} )?(?:{_MONTHS})[a-z]*\.?(?: \d{{1,2}},)? \d{{4}}\b"
    r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
    r"|\b\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm])?\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{16,64}\b"
    r"|\b1[5-9]\d{8}(?:\d{3}|\.\d+)?\b"
)
"""Dates, times of day, UUIDs, long hexadecimal ids, seconds and milliseconds since 1970."""
_MEDIA: Final = re.compile(
    r"^\[(?:image|image_url|input_image|audio|input_audio|file|blob|uri|video|document)\b.*\]$"
)
_NO_TEXT: Final = frozenset({"None", "null"})
"""Text that AG2 sends for a message that only calls tools."""
_EMPTY_LINES: Final = re.compile(r"\n{2,}")
_EXCERPT: Final = 160
_PIECE: Final = 32 << 10
"""Fewest characters of a piece of text that is masked at once, which takes 3 ms."""
_CUT: Final = re.compile(r"\n|(?<=[a-z]) (?=[a-z])")
"""Places outside all volatile parts: these never span lines or have a blank between two letters."""


@record
class Utterance:
    """A unit of conversation: neighbouring texts of one role, a requested call, or neighbouring results."""

    role: str
    """``system``, ``user``, ``assistant``, ``call`` or ``result``."""
    text: str


@record
class Difference:
    """The first difference between a request and a recorded call."""

    call: int | None
    """Index of the recorded call most like the request; ``None`` if no call was left."""
    message: int = 0
    """Index of the first different utterance: the length of the common beginning."""
    expected: str = ""
    found: str = ""


def canonical(messages: Iterable[Message], omitted: frozenset[str] = frozenset()) -> tuple[Utterance, ...]:
    """Return the canonical form, without utterances of the roles in ``omitted``."""
    numbers: dict[str, int] = {}
    pieces = [piece for piece in _pieces(messages, numbers) if piece.role not in omitted]
    joined: list[Utterance] = []
    for role, group in groupby(pieces, key=lambda piece: piece.role):
        texts = [piece.text for piece in sorted(group, key=lambda piece: piece.number)]
        if role == CALL:
            joined.extend(Utterance(role=role, text=text) for text in texts)
        elif text := "\n".join(filter(None, texts)):
            joined.append(Utterance(role=role, text=text))
        elif role == _RESULT:
            joined.append(Utterance(role=role, text=""))
    return _with_spoken_results(joined) if SPOKEN_RESULTS in omitted else tuple(joined)


def _with_spoken_results(utterances: Iterable[Utterance]) -> tuple[Utterance, ...]:
    """Return a form without calls, with tools' results as the user's messages; drops empty lines."""
    roles = (
        (_USER if utterance.role == _RESULT else utterance.role, utterance.text) for utterance in utterances
    )
    return tuple(
        Utterance(role=role, text=_EMPTY_LINES.sub("\n", "\n".join(text for _, text in group)))
        for role, group in groupby(roles, key=itemgetter(0))
    )


def masked(utterances: Iterable[Utterance]) -> tuple[Utterance, ...]:
    """Return the form without results of tools, times and random ids."""
    return tuple(
        Utterance(role=utterance.role, text="" if utterance.role == _RESULT else _masked_text(utterance.text))
        for utterance in utterances
    )


def _masked_text(text: str) -> str:
    """Mask a text in pieces: other threads wait for the end of a substitution."""
    return "".join(_VOLATILE.sub("~", piece) for piece in _cut(text))


def _cut(text: str, least: int = _PIECE) -> Iterator[str]:
    """Yield a text in pieces of ``least`` characters or more, cut only where nothing volatile can be."""
    begin = 0
    while len(text) - begin > least and (found := _CUT.search(text, begin + least)):
        yield text[begin : found.start()]
        begin = found.start()
    yield text[begin:]


def key_of(utterances: Iterable[Utterance]) -> Key:
    """Return the digest by which forms are compared."""
    digest = blake2b(digest_size=16)
    for utterance in utterances:
        body = utterance.text.encode("utf-8", "surrogatepass")
        digest.update(b"%s %d:" % (utterance.role.encode(), len(body)))
        digest.update(body)
    return Key(digest.digest())


def first_difference(recorded: Mapping[int, Sequence[Utterance]], found: Sequence[Utterance]) -> Difference:
    """Return the difference of ``found`` from the recorded call with the longest common beginning.

    Args:
        recorded: the remaining calls, by their index, in recorded order.
        found: the request.
    """
    if not recorded:
        return Difference(call=None, found=_excerpt(found, 0))
    lengths = {index: _common(utterances, found) for index, utterances in recorded.items()}
    call = max(lengths, key=lambda index: (lengths[index], -index))
    at = lengths[call]
    expected, got = _around_difference(_text_at(recorded[call], at), _text_at(found, at))
    return Difference(call=call, message=at, expected=expected, found=got)


@record
class _Piece:
    role: str
    text: str
    number: int = 0
    """For a result, the number of its call; 0 for everything else, whose order is kept."""


def _pieces(messages: Iterable[Message], numbers: dict[str, int]) -> Iterator[_Piece]:
    for message in messages:
        if message.role == "tool":
            number = min((numbers.get(each, len(numbers)) for each in message.answers), default=len(numbers))
            yield _Piece(role=_RESULT, text=_clean(message.text), number=number)
            continue
        if message.role == _REASONING:
            continue  # some providers drop it, and only some instrumentations record it
        role = message.role if message.role in _SPOKEN else "user"
        text = _clean(message.text)
        if text and not (message.calls and text in _NO_TEXT):
            yield _Piece(role=role, text=text)
        for call in message.calls:
            numbers.setdefault(call.call_id, len(numbers))
            yield _Piece(role=CALL, text=_call(call))


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").strip()
    if "[" in text:
        text = "\n".join("[media]" if _MEDIA.match(line) else line for line in text.split("\n"))
    return text


def _call(call: ToolCall) -> str:
    return f"{call.name}({canonical_json(call.arguments)})"


def canonical_value(value: Any) -> str:
    """Return a JSON value as JSON with sorted keys and without white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_json(text: str) -> str:
    """Return JSON with sorted keys and without white space; other texts trimmed."""
    try:
        return canonical_value(read_json(text) if text.strip() else {})
    except (ValueError, RecursionError):
        return text.strip()


def _common(one: Sequence[Utterance], other: Sequence[Utterance]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _text_at(utterances: Sequence[Utterance], at: int) -> str:
    return f"{utterances[at].role}: {utterances[at].text}" if at < len(utterances) else "(nothing more)"


def _excerpt(utterances: Sequence[Utterance], at: int) -> str:
    return _text_at(utterances, at)[:_EXCERPT]


def _around_difference(one: str, other: str) -> tuple[str, str]:
    """Return excerpts of two texts that begin a little before their first difference."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((at for at, pair in pairs if pair[0] != pair[1]), min(len(one), len(other)))
    begin = max(0, same - _EXCERPT // 4)
    dots = "…" if begin else ""
    return dots + one[begin : begin + _EXCERPT], dots + other[begin : begin + _EXCERPT]
