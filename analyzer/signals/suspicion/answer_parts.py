"""What an answer says, apart from its markup: its prose, the values of its data, its quotations. Pure.

Quotation marks are marks of many things: of strings in JSON, in code and in attributes, of titles, of irony.
An answer quotes somebody only where it says so: a word of saying or citing beside the marks (``Kind.CITES``),
a name after a dash, or a block quote that such a line introduces. All passes are linear in the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final

from analyzer.lineage.figures import prose_of
from analyzer.texts.wordings import Kind, languages_in, says
from semconv.record import record

_DEEPEST: Final = 3
"""Levels of data within strings of data that are read."""
_DATA: Final = re.compile(r"[{\[]|\b[A-Z]\w*\((?=\w+=)")
"""Where JSON, a Python value or a record of a Python library may begin: ``Reply(title='…')``."""
_TOKEN: Final = re.compile(
    r"\s+|(?P<string>\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*')|(?P<mark>[{}\[\](),:=])"
    r"|-?\d[\w.+-]*|(?:true|false|null|None|True|False|NaN)\b|(?P<name>[A-Za-z_]\w*)(?=\s*[(=:])",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\(.)", re.DOTALL)
_BLANKS: Final = {"n": "\n", "r": "\n", "t": "\t"}
_FRONT_MATTER: Final = re.compile(r"\A\s*---\n(.{0,4000}?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_SETTING: Final = re.compile(r"^[ \t]*(?:- )?(\w[\w-]*):[ \t]+(.*)$", re.MULTILINE)
_MARKUP: Final = re.compile(r"`[^`\n]{1,400}`|</?[A-Za-z!][^<>\n]{0,400}>")
_QUOTED: Final = re.compile(
    r"(?<![\w.,!?=(\[{+\\])(?<!= )\"(?=\S)([^\"\n]{8,400})(?<=\S)\"(?!\w)|“([^“”\n]{8,400})”"
    r"|„([^„“”\n]{8,400})[“”]"
    r"|«([^«»\n]{8,400})»|「([^「」\n]{8,400})」|『([^『』\n]{8,400})』"
)
"""Text between quotation marks; a straight mark after ``=`` or a bracket begins a string of code."""
_OPENING: Final = frozenset('"“„«「『')
_BLOCK: Final = re.compile(r"(?:^[ \t]{0,3}>[^\n]*(?:\n|\Z))+", re.MULTILINE)
_BEFORE: Final = 80
_AFTER: Final = 50
"""Characters before and after a quotation within which a word of saying stands beside it."""
_CLAUSE: Final = re.compile(r"[.!?;](?=\s)|[。!?।|\n\"“”«»「」『』]")
_DECORATION: Final = ' \t>*_#-•"“”„«»'
_COLONS: Final = (":", "\uff1a")
_DASHED: Final = re.compile(r"[\s>*_]{0,8}(?:[–—―]|--?(?=\s))[\s*_(]{0,4}([^\n]{3,80})(?:\n|\Z)")  # noqa: RUF001 - typeset
_JOINS_NAMES: Final = frozenset("of de del da di du la von van den der the und and et y e".split())  # noqa: SIM905 - shorter
_MOST_NAMED: Final = 8
_FEWEST_WORDS: Final = 5
_FEWEST_CHARACTERS: Final = 10
"""Characters that are as telling as five words in a script without blanks."""
_WIDE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


@record
class Part:
    """A stretch of an answer's prose, or one text of the data in it."""

    text: str
    key: str = ""
    """The name of a value; empty for prose."""


@functools.lru_cache(maxsize=16)
def parts_of(answer: str) -> tuple[Part, ...]:
    """Return what an answer says, in order: without code, and the texts of data without its marks."""
    parts = [Part(text=prose_of(answer))]
    for _level in range(_DEEPEST):
        found = [part for one in parts for part in _split(one)]
        if found == parts:
            break
        parts = found
    return tuple(part for part in parts if part.text.strip())


def _split(part: Part) -> Iterator[Part]:
    """Yield the prose of a text and, between it, the texts of the data in it."""
    text, place = part.text, 0
    front = _FRONT_MATTER.match(text)
    if front is not None:
        yield from (Part(text=value.strip(" \"'"), key=key) for key, value in _SETTING.findall(front[1]))
        place = front.end()
    told = place
    while found := _DATA.search(text, place):
        data = _Data(text, found.end() - 1)
        if data.is_whole:
            yield Part(text=text[told : found.start()], key=part.key)
            yield from data.values
            told = data.end
        place = data.end
    yield Part(text=text[told:], key=part.key)


class _Data:
    """The texts of JSON or of a Python value that begins with a bracket, read once from left to right."""

    def __init__(self, text: str, start: int) -> None:
        self.values: list[Part] = []
        self.end = start
        """Where the data ends, or the first character that no data has."""
        self.is_whole = False
        """Whether everything up to the end is data; its closing brackets may be cut off."""
        self._key = self._name = ""
        self._depth = 0
        while self.end < len(text):
            token = _TOKEN.match(text, self.end)
            if token is None:
                self._read_cut_string(text)
                return
            self._take(token)
            if self._depth <= 0:
                break
        self.is_whole = True

    def _take(self, token: re.Match[str]) -> None:
        self.end = token.end()
        if token["string"] is not None:
            self._name = _unescaped(token["string"][1:-1])
            self.values.append(Part(text=self._name, key=self._key))
        elif token["name"] is not None:
            self._name = token["name"]
        elif token["mark"] is not None:
            self._depth += (token["mark"] in "{[(") - (token["mark"] in "}])")
            if token["mark"] in ":=" and self._name:
                self._key, self._name = self._name, ""
                if self.values and self.values[-1].text == self._key:
                    self.values.pop()

    def _read_cut_string(self, text: str) -> None:
        """Read the last string of an answer that was cut short: it has no closing mark."""
        if text[self.end] == '"':
            self.values.append(Part(text=_unescaped(text[self.end + 1 :]), key=self._key))
            self.end, self.is_whole = len(text), True


def _unescaped(written: str) -> str:
    return _ESCAPED.sub(_character, written) if "\\" in written else written


def _character(escaped: re.Match[str]) -> str:
    if escaped[1] is not None:
        return _BLANKS.get(escaped[1], escaped[1])
    units = b"".join(bytes.fromhex(unit) for unit in escaped[0].split("\\u")[1:])
    return units.decode("utf-16-be", errors="replace")


def quotations(answer: str) -> Iterator[str]:
    """Yield what the answer says that somebody else said or wrote, in order, each of some length."""
    parts = parts_of(answer)
    if all(_OPENING.isdisjoint(part.text) and ">" not in part.text for part in parts):
        return
    languages = languages_in(without_quotations("\n".join(part.text for part in parts)))
    for part in parts:
        text = _without_markup(part.text)
        for found in _QUOTED.finditer(text) if not _OPENING.isdisjoint(text) else ():
            quoted = next(filter(None, found.groups())).strip()
            if is_telling(quoted) and _is_cited(text, found.start(), found.end(), languages):
                yield quoted
        yield from _block_quotes(text, languages)


def without_quotations(text: str) -> str:
    """Return a text without code spans, tags, and anything between quotation marks."""
    plain = _without_markup(text)
    return plain if _OPENING.isdisjoint(plain) else _QUOTED.sub(" ", plain)


def _without_markup(text: str) -> str:
    is_plain = "`" not in text and "<" not in text
    return text if is_plain else _MARKUP.sub(lambda found: " " * len(found[0]), text)


def is_telling(quoted: str) -> bool:
    """Tell whether a text is so long that other people do not use the same words by chance."""
    return len(quoted.split()) >= _FEWEST_WORDS or len(_WIDE.findall(quoted)) >= _FEWEST_CHARACTERS


def _is_cited(text: str, start: int, end: int, languages: tuple[str, ...]) -> bool:
    """Tell whether the words beside a quotation say that somebody said or wrote it."""
    before = _clause_before(text, start)
    after = _CLAUSE.split(text[end : end + _AFTER], maxsplit=1)[0]
    if says(Kind.CITES, before, languages) or says(Kind.CITES, after, languages):
        return True
    return not before and _is_ascribed(text, end)


def _clause_before(text: str, start: int) -> str:
    """Return the words just before a quotation, or the line that introduces it."""
    before = _CLAUSE.split(text[max(0, start - _BEFORE) : start])[-1].strip(_DECORATION)
    if before:
        return before
    line = text[max(0, start - 2 * _BEFORE) : start].rstrip(_DECORATION + "\n").rpartition("\n")[2]
    return line if line.endswith(_COLONS) and "\n" in text[:start] else ""


def _is_ascribed(text: str, end: int) -> bool:
    """Tell whether nothing but a dash and a name of two words or more follows on the line."""
    dashed = _DASHED.match(text, end)
    words = dashed[1].partition(",")[0].strip(" *_().\r").split() if dashed else []
    names = [word for word in words if word[0].isupper()]
    others = [word for word in words if not word[0].isupper()]
    known = all(word in _JOINS_NAMES or word[0].isdigit() for word in others)
    return known and len(names) >= 2 and len(words) <= _MOST_NAMED


def _block_quotes(text: str, languages: tuple[str, ...]) -> Iterator[str]:
    """Yield the block quotes that a line with a word of saying introduces."""
    for found in _BLOCK.finditer(text) if ">" in text else ():
        line = text[max(0, found.start() - 2 * _BEFORE) : found.start()].rstrip().rpartition("\n")[2]
        lines = [one.strip(_DECORATION) for one in found[0].splitlines() if not _DASHED.match(one)]
        quoted = " ".join(filter(None, lines))
        introduces = line.endswith(_COLONS)
        if introduces and is_telling(quoted) and says(Kind.CITES, line, languages):
            yield quoted
