"""Fields of JSON documents as readers need them: texts, objects, lists, ids, times. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, TypeAlias

from analyzer.recordings.recording import Records
from semconv.json_text import read_json
from semconv.model import SpanId, TraceId

Object: TypeAlias = Mapping[str, Any]
"""A JSON object."""


def dialogues_in(
    records: Records, are_messages: Callable[[Records], bool], held: Callable[[Any], Records]
) -> list[Records]:
    """Return the dialogues of a file, each a list of messages; empty unless it holds nothing else.

    Args:
        records: the messages of one dialogue, or documents that hold one each.
        are_messages: tells whether a list is a dialogue.
        held: returns the list in a document.
    """
    if are_messages(records):
        return [records]
    found: list[Records] = []
    for record in records:  # most files are of another format: the first document tells
        found.append(held(record))
        if not are_messages(found[-1]):
            return []
    return found


def objects(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list; empty if the value is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list | tuple) else []


def text_at(value: object, key: str) -> str:
    """Return the text that an object has at a key; empty without one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def object_at(value: object, key: str) -> Mapping[str, Any]:
    """Return the object that an object has at a key; empty without one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def all_have(records: Iterable[Any], *keys: str) -> bool:
    """Tell whether there are records and each is an object with all these keys."""
    found = list(records)
    return bool(found) and all(isinstance(each, dict) and all(key in each for key in keys) for each in found)


def unwrapped(records: Records, *keys: str) -> Records:
    """Return the list that a single document holds under one of these keys; otherwise the records themselves.

    APIs answer ``{"data": [...]}`` where a program writes the same items one per line.
    """
    only = records[0] if len(records) == 1 else None
    held = [only.get(key) for key in keys] if isinstance(only, dict) else []
    return next((each for each in held if isinstance(each, list)), records)


_WRAPPERS: Final = (
    *("data", "result", "results", "items", "records", "rows", "row", "value", "values", "documents", "docs"),
    *("trace", "traces", "spans", "run", "runs", "session", "sessions", "events", "messages"),
    *("conversation", "conversations", "thread", "threads", "chat", "chats"),
    *("state", "channel_values", "samples", "simulations"),
    *("traj", "trajectory", "trajectories"),
    *("prompt_blueprint", "prompt_template"),
    *("response", "payload", "body", "export", "hits", "_source", "log", "entries", "interactions"),
)
"""Keys below which programs and APIs put what they return."""
_RARE_WRAPPERS: Final = ("tables", "actor", "account", "nrql", "agent", "config", "list")
"""Keys that are wrappers only where no other is: beside one they are settings."""


def opened(records: Records) -> Records | None:
    """Return what stands below the one key that all records have for it, joined: pages of an API, say.

    ``None`` if a record is no object, or has several such keys with objects or lists, or not the first one's.
    Without any, a text that is JSON stands for what it holds: a table's cell. A list in it is not joined with
    those of other rows, and messages, one in each row, are a list for each session.
    """
    key, found = None, list[Any]()
    for one in map(_logged, records):
        if not isinstance(one, dict):
            return None
        keys = _held(one, _WRAPPERS) or _held(one, _RARE_WRAPPERS)
        if not keys and key is None:
            return _of_cells(records)
        if len(keys) != 1 or key not in (None, keys[0]):
            return None
        key = keys[0]
        found += one[key] if isinstance(one[key], list) else [one[key]]
    return found


_CELLS: Final = ("messages", "message_data", "conversation", "history", "chat_history", "trajectory", "traj")
"""Columns of dialogues; a log's line may be JSON too, and is no run."""
_SESSIONS: Final = ("session_id", "thread_id", "conversation_id", "chat_id")


def _of_cells(records: Records) -> Records | None:
    """Return what the records hold as JSON text, all under the same key; ``None`` if they do not."""
    key, sessions = None, dict[str, list[Any]]()
    for place, one in enumerate(records):
        texts = {each: value for each in _CELLS if (value := text_at(one, each)).startswith(("{", "["))}
        if len(texts) != 1 or key not in (None, *texts):
            return None
        ((key, text),) = texts.items()
        try:
            held = read_json(text)
        except ValueError:
            return None
        session = next((f"{one[each]}" for each in _SESSIONS if each in one), "")
        sessions.setdefault(f"row {place}" if isinstance(held, list) else session, []).append(held)
    held = [found[0] if isinstance(found[0], list) else found for found in sessions.values()]
    return held[0] if len(held) == 1 else held


def _held(one: Mapping[str, Any], wrappers: Iterable[str]) -> list[str]:
    return [key for key in wrappers if isinstance(one.get(key), dict | list) and one[key]]


_LINES: Final = {"ingestionTime": "message", "statusCode": "body"}
"""Keys of texts that are JSON, each by another key that stands beside it."""


def _logged(one: Any) -> Any:
    """Return a line of CloudWatch's log that is JSON as the only value of a wrapper; other records as is.

    Logs Insights lists the fields of each line. An answer of a Lambda function is JSON as its ``body``.
    """
    if isinstance(one, list) and all_have(one, "field", "value"):
        one = {each["field"]: each["value"] for each in one if isinstance(each["field"], str)}
    keys = _LINES.keys() & one.keys() if isinstance(one, dict) else ()
    key = next((_LINES[each] for each in keys), "@message")
    line = text_at(one, key)
    if not line.startswith(("{", "[{")):
        return one
    try:
        return {"value": read_json(line)}
    except ValueError:
        return one


def sessions_of(records: Records, is_head: Callable[[Any], bool]) -> list[Records]:
    """Return the sessions that were joined to a file: each begins with a head, if the first does."""
    heads = [place for place, one in enumerate(records) if is_head(one)]
    if not heads or heads[0]:
        return [records]
    return [records[start:end] for start, end in pairwise([*heads, len(records)])]


def branch(nodes: Mapping[str, Mapping[str, Any]], leaf: str, parent: str) -> list[Mapping[str, Any]]:
    """Return the nodes from a tree's root to a leaf; each names its parent's id under the key ``parent``.

    A node that is its own ancestor ends the way up.
    """
    found: dict[str, Mapping[str, Any]] = {}
    while leaf in nodes and leaf not in found:
        found[leaf] = nodes[leaf]
        leaf = text_at(nodes[leaf], parent)
    return list(found.values())[::-1]


def trace_id_of(text: object) -> TraceId:
    """Return a trace id in OpenTelemetry's form, 32 hex digits; without dashes and ``0x``, others hashed."""
    return TraceId(_id(text, 32))


def span_id_of(text: object) -> SpanId:
    """Return a span id in OpenTelemetry's form: 16 hex digits, ``0x`` removed; others are hashed."""
    return SpanId(_id(text, 16))


_HEX: Final = re.compile(r"[0-9a-f]+")


def _id(text: object, digits: int) -> str:
    given = str(text)
    found = given.lower().removeprefix("0x").replace("-", "")
    if len(found) == digits and _HEX.fullmatch(found) and found.strip("0"):
        return found
    return hashlib.sha256(given.encode("utf-8", "replace")).hexdigest()[:digits]


_UNITS_NS: Final = ((10**17, 1), (10**14, 10**3), (10**11, 10**6))
"""Least value of an epoch in ns, µs and ms, with the unit in ns: in seconds, 10**11 is the year 5138."""


def nanoseconds(moment: object) -> int:
    """Return a moment in ns since the epoch; 0 if there is none.

    Args:
        moment: ISO 8601 (UTC unless it says otherwise), or a number: seconds, ms, µs or ns by its size.

    Raises:
        ValueError: it is another text.
        OverflowError: it lies outside what a span can hold.
    """
    if moment is None or moment == "":
        return 0
    if isinstance(moment, int | float) and not isinstance(moment, bool):
        unit = next((unit for least, unit in _UNITS_NS if abs(moment) >= least), 10**9)
        found = moment * unit if isinstance(moment, int) else round(moment * unit / 1000) * 1000
    else:
        found = _of_iso(str(moment))
    if not 0 <= found < 2**63:
        raise OverflowError(f"a time outside the years 1970 to 2262: {moment!r}")
    return int(found)


def in_order(found: list[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """Return objects by the number or time that all have at a key: many APIs list the newest first.

    Those of one time stay as they are or, if the newest stands first, in the opposite order.
    """
    if not all(isinstance(one.get(key), str | int | float) for one in found):
        return found
    times = [_place(one[key]) for one in found]
    if times and times[0] > times[-1]:
        found, times = found[::-1], times[::-1]
    return [found[place] for place in sorted(range(len(found)), key=times.__getitem__)]


def _place(moment: Any) -> float:
    is_number = not isinstance(moment, str)
    return moment if is_number else int(moment) if moment.isdecimal() else nanoseconds(moment)


_DECIMAL: Final = re.compile(r"[0-9]{1,20}\.[0-9]{1,20}")


_OF_AZURE: Final = "%m/%d/%Y, %I:%M:%S.%f %p"
"""A moment in a table from Azure's portal."""


def _of_iso(text: str) -> int:
    if text.isdecimal():
        return nanoseconds(int(text[:20]))
    if _DECIMAL.fullmatch(text):
        return nanoseconds(float(text))
    try:
        read = datetime.strptime(text, _OF_AZURE) if "/" in text else datetime.fromisoformat(text)  # noqa: DTZ007 - UTC, below
    except ValueError as error:
        raise ValueError(f"not a time: {text[:80]!r}") from error
    read = read if read.tzinfo else read.replace(tzinfo=UTC)
    return round(read.timestamp() * 1e6) * 1000


# ``json.dumps`` makes an encoder for each value, which takes longer than writing a short one.
to_json: Final = json.JSONEncoder(ensure_ascii=False, default=str, check_circular=False).encode


def json_text(value: object) -> str:
    """Return a value as a text: a text unchanged, nothing as an empty one, all else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value)
