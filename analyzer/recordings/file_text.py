"""Text as records: JSON (one document, lines, or one after another), YAML, tables, logs, transcripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.markdown_text import read_markdown
from analyzer.recordings.table_text import PARQUET, read_csv, read_parquet
from semconv.json_text import read_json, with_whole_pairs
from semconv.record import record

MAX_YAML_BYTES: Final = 16 << 20
"""Largest YAML file: its parser reads about a megabyte a second."""
_YAML: Final = re.compile(r"\s*(?:%YAML[^\n]*\n\s*)?(?:#[^\n]*\n\s*|---\s+)*(?:- |[A-Za-z_][\w.-]*:\s)")
_EVENT: Final = re.compile(rb"\s{0,9}(?:data|event|id|retry)?:")
_EVENT_LINE: Final = re.compile(r"(?:data|event|id|retry)?:")
_DONE: Final = "[DONE]"
"""Data of the last event of OpenAI's streams."""
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_JSON_STARTS: Final = frozenset({b"", b"{", b"[", b"\x1e"})
_ENCODED_TWICE: Final = re.compile(rb'\s{0,9}"\s{0,9}[\[{]')
_PYTHON: Final = re.compile(r"\s{0,9}\[?\s{0,9}(?:\{\s{0,9}'|[A-Z]\w{1,40}\(\w{1,40}=)")
_IN_PYTHON: Final = "Python's print of values, not JSON: write json.dumps(…) of them to the file"
_NODE: Final = re.compile(r"\s{0,9}\[?\s{0,9}\{\s{1,9}[A-Za-z_$]\w{0,40}: ")
_IN_NODE: Final = (
    "Node's print of values, not JSON: write JSON.stringify(…) of them, or send spans by OTLP instead of"
    " ConsoleSpanExporter"
)
_DOTNET: Final = re.compile(rb"\s{0,9}Activity\.TraceId:\s")
_IN_DOTNET: Final = "activities that .NET's ConsoleExporter printed: send them by OTLP (AddOtlpExporter)"
_FLOW: Final = re.compile(r"\s{0,9}[\[{]\s{0,9}\{?[A-Za-z_][\w.-]{0,40}: ")
"""YAML that begins like JSON."""
_COMMENT: Final = re.compile(r"//|/\*|#")
_OTHER_FORMS: Final = (
    (
        re.compile(
            r"\s*(?:[#;][^\n]*\n\s*)*(?:\[\[?[A-Za-z_\"][^\[\]\n,{]{0,99}\]\]?\s*$|[\w.-]{1,40} = \S)",
            re.MULTILINE,
        ),
        "settings in TOML or INI, not a record of a run",
    ),
    (
        re.compile(r"\s*\[\d{4}-\d\d-\d\d[T ]|\d{4}-\d\d-\d\d[T ][\d:.,]+\S* +\[?[A-Z]"),
        "the lines of an application's log, not JSON",
    ),
    (re.compile(r"\s*\[\d\d?[./]\d\d?[./]\d\d"), "the lines of a chat or log, not JSON"),
    (re.compile(r"\s*<(?:\?xml|!DOCTYPE|[a-z][\w:.-]{0,40}[\s/>])", re.IGNORECASE), "XML or HTML, not JSON"),
)
"""What a text that is not read looks like, with its name."""
_FENCE: Final = b"```"
_CSV, _PARQUET = TABLES = ("CSV", "Parquet")
"""Forms whose records are rows."""
EMPTY: Final = "a text"
"""Form of a file without anything but spaces."""
_HEAD: Final = 4096
"""Bytes of a text by which its form is told."""
_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = re.compile(r"[\s\x1e]*")
"""What separates documents; RFC 7464 puts a record separator before each."""
_DECODER: Final = json.JSONDecoder()


@record
class FileText:
    """The records of one file."""

    records: tuple[Any, ...]
    """Lines, rows, the items of a list, documents one after another, or the only document; as parsed JSON."""
    form: str
    """How the file holds them: "JSON lines"."""
    warnings: tuple[str, ...] = ()


def split_text(plain: bytes) -> FileText | None:
    """Split a file that is JSON, YAML, CSV, Parquet or a transcript; ``None`` if it looks like none of them.

    A last line that is cut short is left out with a warning: programs write their last line until they die.

    Raises:
        UnreadableInput: it looks like one of them and cannot be parsed.
    """
    plain = _unfenced(plain.removeprefix(_BOM))
    if _ENCODED_TWICE.match(plain):
        plain = _decoded(plain)
    if plain.lstrip()[:1] in _JSON_STARTS:
        try:
            return _json_text(plain.decode())
        except UnicodeDecodeError:
            return None
    if _DOTNET.match(plain):
        raise UnreadableInput(_IN_DOTNET)
    if plain.startswith(PARQUET):
        return FileText(records=read_parquet(plain), form=_PARQUET)
    found = _log_text(plain) or _parts_text(plain) or _event_text(plain) or _markdown(plain)
    found = found or _yaml_text(plain) or _csv_text(plain)
    if found is None and (name := _other_form(plain[:_HEAD].decode(errors="replace"))):
        raise UnreadableInput(name)
    return found


def _other_form(text: str) -> str:
    """Return what a text looks like that is of no form that is read; empty if it is unknown."""
    return next((name for pattern, name in _OTHER_FORMS if pattern.match(text)), "")


def _decoded(plain: bytes) -> bytes:
    """Return JSON that stands in a JSON string: a program encoded it twice."""
    try:
        text = read_json(plain.decode())
    except ValueError:
        return plain
    return text.encode("utf-8", "replace") if isinstance(text, str) else plain


def _csv_text(plain: bytes) -> FileText | None:
    found = read_csv(plain)
    if found is None:
        return None
    rows, warning = found
    return FileText(records=rows, form=_CSV, warnings=(warning,) if warning else ())


def _log_text(plain: bytes) -> FileText | None:
    if not plain[:4].isdigit():
        return None
    records, cut = split_pairs(plain.decode("utf-8", errors="replace"))
    return FileText(records=tuple(records), form="a log", warnings=(cut,) if cut else ()) if records else None


def _markdown(plain: bytes) -> FileText | None:
    if b"**" not in plain[:_HEAD]:
        return None
    turns = read_markdown(plain.decode("utf-8", errors="replace"))
    return FileText(records=tuple(turns), form="Markdown") if turns else None


def _unfenced(plain: bytes) -> bytes:
    """Return what stands in Markdown's fence, if nothing else does: chat programs show JSON like this."""
    held = plain.strip()
    if not held.startswith(_FENCE) or not held.endswith(b"\n" + _FENCE):
        return plain
    inner = held[: -len(_FENCE)].partition(b"\n")[2]
    return plain if b"\n" + _FENCE in inner else inner


def _event_text(plain: bytes) -> FileText | None:
    if not _EVENT.match(plain):
        return None
    events, cut = split_events(plain.decode("utf-8", errors="replace"))
    form = "server-sent events"
    return FileText(records=tuple(events), form=form, warnings=(cut,) if cut else ()) if events else None


# --- the AI SDK's data stream ---
#
# Lines of a code and JSON, as version 4 of the SDK sends them to a page. Source: `data-stream-parts.ts`.

_PART: Final = re.compile(r"([0-9a-k]):(.*)")
_FIRST_PART: Final = re.compile(rb"[0-9a-k]:[\[{\"]")


def _parts_text(plain: bytes) -> FileText | None:
    if not _FIRST_PART.match(plain):
        return None
    events, cut = split_parts(plain.decode("utf-8", errors="replace"))
    form = "the AI SDK's data stream"
    return FileText(records=tuple(events), form=form, warnings=(cut,) if cut else ()) if events else None


def split_parts(text: str) -> tuple[list[Any], str]:
    """Return the parts of a data stream as events of version 5, and what is wrong with the last.

    Without any for another text.
    """
    lines = [line for line in _LINE_END.split(text) if line]
    found: list[dict[str, Any]] = [{"type": "start"}]
    for place, line in enumerate(lines):
        part = _PART.fullmatch(line)
        try:
            value = read_json(part[2]) if part else None
        except ValueError:
            part = None
        if part is None:
            cut = "the last part is cut short and was left out"
            return (found, cut) if place == len(lines) - 1 and place else ([], "")
        found += [_part_event(part[1], value)] if part[1] in _PART_CODES else []
    return found, ""


_PART_CODES: Final = {
    "0": "text-delta",
    "3": "error",
    "9": "tool-input-available",
    "a": "tool-output-available",
    "d": "finish",
    "f": "start-step",
}
"""Events by the codes of their parts."""


_PART_KEYS: Final = {"args": "input", "result": "output"}


def _part_event(code: str, value: Any) -> dict[str, Any]:
    event: dict[str, Any] = {"type": _PART_CODES[code]}
    if isinstance(value, dict):
        held = {_PART_KEYS.get(str(key), str(key)): inner for key, inner in value.items()}
        return {**held, **event}
    return {**event, "errorText" if code == "3" else "delta": value, "id": "0"}


def split_events(text: str) -> tuple[list[Any], str]:
    """Return the JSON that a server sent as events, and what is wrong with the last; none of another text.

    An event ends at an empty line; programs that keep each ``data:`` line leave those out.

    Raises:
        UnreadableInput: an event before the last one is broken.
    """
    blocks: list[list[tuple[int, str]]] = [[]]
    for number, line in enumerate(_LINE_END.split(text), start=1):
        if line and not _EVENT_LINE.match(line):
            return [], ""
        said = line[5:].strip() if line.startswith("data:") else ""
        if said and said != _DONE:
            blocks[-1].append((number, said))
        elif not line:
            blocks.append([])
    found: list[Any] = []
    broken = 0
    for number, event in (each for block in blocks if block for each in _events_in(block)):
        if broken and event is not None:
            raise UnreadableInput(f"broken JSON: line {broken}: an event that does not end")
        found += [] if event is None else [event]
        broken = broken or (number if event is None else 0)
    return found, "the last event is cut short and was left out" if broken else ""


def _events_in(block: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Any]]:
    """Yield the objects in numbered lines of data: one in all, or one in each; ``None`` for a broken one."""
    try:
        whole = read_json("\n".join(said for _, said in block))
    except ValueError:
        if len(block) > 1:
            yield from (each for one in block for each in _events_in([one]))
        elif block[0][1].startswith("{"):
            yield block[0][0], None
        return
    if isinstance(whole, dict):
        yield block[0][0], whole


def _json_text(text: str) -> FileText:
    try:
        whole = read_json(text)
    except ValueError as error:
        if _PYTHON.match(text):
            raise UnreadableInput(_IN_PYTHON) from error
        if _NODE.match(text):
            raise UnreadableInput(_IN_NODE) from error
        if name := _other_form(text[:_HEAD]):
            raise UnreadableInput(name) from error
        if isinstance(error, json.JSONDecodeError) and _COMMENT.match(text, error.pos):
            raise UnreadableInput(
                f"JSON with comments, the first in line {error.lineno}: remove them"
            ) from error
        if _FLOW.match(text) and (found := _yaml_text(text.encode(), _FLOW)):
            return found
        return _several(text, error)
    if isinstance(whole, list):
        return FileText(records=tuple(whole), form="a JSON list")
    return FileText(records=(whole,), form="a JSON document")


def _several(text: str, whole: ValueError) -> FileText:
    """Split a text that is not one document: lines, or documents of several lines each."""
    lines = [
        (number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip(" \t\r\x1e")
    ]
    if not lines:
        return FileText(records=(), form=EMPTY)
    try:
        read_json(lines[0][1].strip("\x1e"))
    except ValueError:
        return FileText(records=tuple(_documents(text, whole)), form="JSON documents")
    records, last = [], len(lines) - 1
    for place, (number, line) in enumerate(lines):
        try:
            records.append(read_json(line.strip("\x1e")))
        except ValueError as error:
            if place < last or not place:
                raise UnreadableInput(f"broken JSON: line {number}: {error}") from error
            cut = f"line {number}, the last one, is cut short and was left out: {error}"
            return FileText(records=tuple(records), form="JSON lines", warnings=(cut,))
    return FileText(records=tuple(records), form="JSON lines")


def _documents(text: str, whole: ValueError) -> Iterator[Any]:
    """Yield documents that stand one after another, as Python's ``ConsoleSpanExporter`` prints them."""
    if "\\ud" in text or "\\uD" in text:
        text = with_whole_pairs(text)
    at, count = _end_of(_SPACE, text, 0), 0
    while at < len(text):
        try:
            found, at = _DECODER.raw_decode(text, at)
        except (RecursionError, ValueError) as error:
            # One broken document is reported as such; after others, this one is.
            raise UnreadableInput(f"broken JSON: {error if count else whole}") from error
        yield found
        at, count = _end_of(_SPACE, text, at), count + 1


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _yaml_text(plain: bytes, start: re.Pattern[str] = _YAML) -> FileText | None:
    if not start.match(plain[:_HEAD].decode("utf-8-sig", errors="replace")):
        return None
    if len(plain) > MAX_YAML_BYTES:
        raise UnreadableInput(f"YAML of more than {MAX_YAML_BYTES >> 20} MiB: convert it to JSON")
    try:
        documents = [one for one in _read_yaml(plain.decode("utf-8-sig")) if one is not None]
    except ValueError as error:  # the encoding may be wrong too
        raise UnreadableInput(f"YAML that cannot be read: {error}") from error
    is_list = len(documents) == 1 and isinstance(documents[0], list)
    return FileText(records=tuple(documents[0] if is_list else documents), form="YAML") if documents else None


# --- YAML ---
#
# Built from parser events with a stack of our own: PyYAML's composer recurses, so that nested text ends the
# process, its numbers of base 60 take quadratic time, and aliases unfold a small file into gigabytes.

_MAX_YAML_DEPTH: Final = 100
"""Bound on nested lists and mappings."""
_LITERAL: Final = re.compile(r"true|false|-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?")
"""Pattern of plain scalars that are not text; dates, ``yes`` and other YAML 1.1 forms stay text, as in YAML
1.2."""
_TAGS: Final = frozenset({None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))})
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


def _read_yaml(text: str) -> list[Any]:
    """Return the documents of a YAML text as JSON types: dicts with text keys, lists, scalars.

    Raises:
        ValueError: the text is not YAML, or it holds aliases, tags, keys that are not text, or more than
            ``_MAX_YAML_DEPTH`` levels; the message says which.
    """
    documents: list[Any] = []
    stack: list[list[Any]] = [documents]
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            _take(event, stack)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    return documents


def _take(event: yaml.Event, stack: list[list[Any]]) -> None:
    """Add one event to the innermost list; a mapping is a list of keys and values until it ends."""
    if isinstance(event, yaml.AliasEvent):
        raise ValueError("YAML aliases are not supported")  # noqa: TRY004 - the text is wrong, not an argument's type
    if isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent) and event.tag not in _TAGS:
        raise ValueError(f"a value with the tag {event.tag}")
    if isinstance(event, yaml.CollectionStartEvent):
        if len(stack) > _MAX_YAML_DEPTH:
            raise ValueError(f"more than {_MAX_YAML_DEPTH} levels of nesting")
        stack.append([])
    elif isinstance(event, yaml.ScalarEvent):
        stack[-1].append(_scalar(event))
    elif isinstance(event, yaml.SequenceEndEvent):
        ended = stack.pop()
        stack[-1].append(ended)
    elif isinstance(event, yaml.MappingEndEvent):
        ended = stack.pop()
        stack[-1].append(_mapping(ended))


def _mapping(items: list[Any]) -> dict[str, Any]:
    keys = items[::2]
    if not all(isinstance(key, str) for key in keys):
        raise ValueError("a key that is not text")
    return dict(zip(keys, items[1::2], strict=True))


def _scalar(event: yaml.ScalarEvent) -> Any:
    is_plain = event.implicit[0]
    text: str = event.value
    if is_plain and text in _NULLS:
        return None
    return json.loads(text) if is_plain and _LITERAL.fullmatch(text) else text


# --- pairs ---
#
# Lines of ``TIME: key="value", key="value"``, as CrewAI logs tasks.
#
# Values are not escaped: they may hold quotes and line breaks. An entry therefore ends where the next one
# begins, and a value where the next known key begins.


_START: Final = re.compile(r'^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d): (?=[a-z_]{2,20}=")', re.MULTILINE)
_KEY: Final = re.compile(
    r'(?:\A|", )(task_name|task|agent|status|output|input|message|level|crew|flow|tool|error|duration'
    r'|metadata)="'
)


CUT: Final = "cut"
"""The only key of an entry that is cut short; the value is what is left of it."""


def split_pairs(text: str) -> tuple[list[dict[str, str]], str]:
    """Return the entries of a log, and what is wrong with its last one; empty unless it begins with one."""
    starts = list(_START.finditer(text))
    if not starts or text[: starts[0].start()].strip():
        return [], ""
    ends = [*(found.start() for found in starts[1:]), len(text)]
    bodies = [text[found.end() : end].rstrip() for found, end in zip(starts, ends, strict=True)]
    entries = [{"timestamp": found[1], **_pairs(body)} for found, body in zip(starts, bodies, strict=True)]
    if bodies[-1].endswith('"'):
        return entries, ""
    entries[-1] = {CUT: bodies[-1]}
    return entries if len(entries) > 1 else [], "the last entry is cut short and was left out"


def _pairs(body: str) -> dict[str, str]:
    """Return the values of an entry by its known keys; one that a value repeats is part of that value."""
    found: list[re.Match[str]] = []
    known: set[str] = set()
    for match in _KEY.finditer(body):
        if match[1] not in known:
            found.append(match)
            known.add(match[1])
    ends = [*(match.start() for match in found[1:]), len(body) - 1][: len(found)]
    return {match[1]: body[match.end() : end] for match, end in zip(found, ends, strict=True)}
