"""Facts about one run from which invariants of its workflow are mined. Pure.

A run is reduced to its calls in order. For each argument the facts say where its value stood before: in the
task, or at a path of an earlier call's result or arguments. Values are compared by what they say: numbers by
value, whatever separates their thousands and decimals, and with or without a unit (``20.0``, ``20`` and ``20
EUR`` are equal), so a workflow may change formats; other values by their words, which are runs of letters, or
single characters of scripts that write no blanks. Texts (the answer, and arguments of prose)
are reduced to the values that they repeat, their length, their language, and digests of words that nothing
before them contains.

What is kept of a value is what a rule may state: numbers and short words as they are, of anything else its
shape and a digest. The texts must be redacted before. A packed run has at most ``MAX_BYTES`` bytes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from decimal import Decimal, InvalidOperation
from hashlib import blake2b
from typing import Any, Final

from analyzer.texts.normalize import plain_typography
from analyzer.texts.numbers import DENSE
from analyzer.texts.run_view import callers_of, final_answer
from analyzer.texts.tool_results import Fault, fault_of
from analyzer.texts.wordings import languages_in
from semconv.dialects.reading.values import structured
from semconv.model import Step, StepKind, Trajectory
from semconv.record import record, replace

MAX_BYTES: Final = 2_048
"""Bytes of a packed run; of a run that needs more, the first half of the calls is kept, and so on."""
MAX_CALLS: Final = 64
MAX_TEXT: Final = 20_000
"""Characters of one text that are read."""
_MAX_ALL_TEXT: Final = 400_000
_MAX_SEARCHED: Final = 40_000_000
"""Characters that are searched for the values of a run's arguments: a tenth of a second."""
_CHARS_A_VALUE: Final = 50
"""Characters whose search takes as long as a look at one known value."""
_MAX_SOURCES: Final = 8
_MAX_WORDS: Final = 48
_LITERAL: Final = 60
_KEPT: Final = 24
ANSWER: Final = ""
"""Name of the last call of a run, which gives the answer."""
TURN: Final = "@"
"""First letter of the name of a call that is an agent's turn."""
TASK: Final = "task"
"""The source of values that stand in the task or in another message of a user."""
MANY: Final = "…"
"""Last source of a value that has more than are kept."""
_ASKING: Final = frozenset({"user", "human"})
_DISTINCT: Final = 2
"""Characters from which a value that a text contains is no chance."""


@record
class Argument:
    """One value that a call was given, or the answer."""

    path: str
    kind: str
    """``number``, ``word`` (kept as it is), ``shape`` (kept as shape and digest) or ``text``."""
    value: str
    sources: tuple[str, ...]
    """Where the value stood before; for a text, the sources whose values it contains."""
    literal: str = ""
    """Beginning of the value; empty in a packed run."""
    unsourced: int = 0
    """Numbers in a text that stand nowhere before it."""
    length: int = 0
    """Words of a text."""
    language: str = ""
    words: tuple[int, ...] = ()
    """Digests of the words of a text that stand nowhere before it."""


@record
class Call:
    """A call of a tool, an agent's turn, or the answer."""

    tool: str
    agent: str
    step: int = -1
    """The step to blame for the call: its own, or that of another agent that requested it."""
    is_failed: bool = False
    arguments: tuple[Argument, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    """Paths of its result, each with its value if that is one of few (a truth value, a word), else empty."""


@record
class Facts:
    """Facts about one run."""

    calls: tuple[Call, ...]
    is_cut: bool = False
    """Whether calls at the end are missing."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The latest value of each source as text; empty in a packed run."""


def source_of(tool: str, path: str, *, is_asked: bool = False) -> str:
    """Return the name of a path of a tool's results (or of its arguments) as a source of values."""
    return f"{tool}\t{path}\t" if is_asked else f"{tool}\t{path}"


def collect(trajectory: Trajectory) -> Facts:
    """Return the facts about a run; linear in its texts, of which 400,000 characters are read."""
    reader = _Reader()
    reader.hear(trajectory.task[:MAX_TEXT])
    steps = trajectory.steps
    has_tools = any(step.kind is StepKind.TOOL for step in steps)
    askers = callers_of(steps)
    agent = None
    for position, step in enumerate(steps):
        if step.agent != agent and step.kind in {StepKind.LLM, StepKind.AGENT}:
            agent = step.agent
            reader.turn(step)
        for message in step.heard:
            if message.role in _ASKING:
                reader.hear(step.input[message.start : message.end][:MAX_TEXT])
        if step.kind is StepKind.TOOL and step.target:
            asker = askers[position]
            by_other = asker is not None and steps[asker].agent != step.agent
            reader.call(step, steps[asker].index if asker is not None and by_other else step.index)
        elif not has_tools:
            reader.requests(step)
    return reader.finished(trajectory)


class _Reader:
    """Reads a run in order, and knows which values have stood where."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._places: dict[str, list[str]] = {}
        self._texts: dict[str, list[str]] = {}
        self._tokens: set[str] = set()
        self._values: dict[str, str] = {}
        self._room = _MAX_ALL_TEXT
        self._search_room = _MAX_SEARCHED
        self._is_cut = False

    def hear(self, text: str) -> None:
        self._add_text(TASK, text)

    def turn(self, step: Step) -> None:
        if not self._is_full():
            self._tokens.update(tokens_of(self._read(step.instructions)))
            self._calls.append(Call(tool=f"{TURN}{step.agent}", agent=step.agent, step=step.index))

    def call(self, step: Step, blamed: int) -> None:
        assert step.target is not None
        if self._is_full():
            return
        is_failed = fault_of(step, plain_typography(step.output[:MAX_TEXT])) is Fault.FAILED
        leaves = leaves_of(self._read(step.input))
        call = Call(
            tool=step.target,
            agent=step.agent,
            step=blamed,
            is_failed=step.is_failed or is_failed,
            arguments=tuple(self._argument(leaf) for leaf in leaves),
            results=() if is_failed else tuple(self._returned(step.target, self._read(step.output))),
        )
        self._learn_arguments(step.target, leaves)
        self._calls.append(call)

    def requests(self, step: Step) -> None:
        """Read the calls of a run whose tools left no steps; their results stand in what the model heard."""
        for message in step.heard:
            text = self._read(step.input[message.start : message.end])
            if message.role == "tool":
                for path, _ in self._returned(message.author, text):
                    self._values.setdefault(source_of(message.author, path), "")
        for call in step.calls:
            if self._is_full():
                return
            leaves = leaves_of(self._read(call.arguments))
            arguments = tuple(self._argument(leaf) for leaf in leaves)
            self._learn_arguments(call.name, leaves)
            self._calls.append(Call(tool=call.name, agent=step.agent, step=step.index, arguments=arguments))

    def finished(self, trajectory: Trajectory) -> Facts:
        steps = trajectory.steps
        text = final_answer(trajectory)[:MAX_TEXT]
        speaking = (step for step in reversed(steps) if step.kind not in {StepKind.TOOL, StepKind.HANDOFF})
        last = next(speaking, steps[-1] if steps else None)
        if text and last is not None and not self._is_cut:
            arguments = tuple(self._argument(leaf, is_text=not leaf.path) for leaf in leaves_of(text))
            self._calls.append(Call(tool=ANSWER, agent=last.agent, step=last.index, arguments=arguments))
        return Facts(calls=tuple(self._calls), is_cut=self._is_cut, values=self._values)

    def _is_full(self) -> bool:
        """Return whether no further call is read; the answer, which may come from any, is not read then."""
        self._is_cut = self._is_cut or len(self._calls) >= MAX_CALLS
        return self._is_cut

    def _may_search(self, chars: int) -> bool:
        self._search_room -= chars
        return self._search_room >= 0

    def _read(self, text: str) -> str:
        part = text[: min(MAX_TEXT, self._room)]
        self._room -= len(part)
        return part

    def _add_text(self, source: str, text: str) -> None:
        tokens = tokens_of(self._read(text))
        self._tokens.update(tokens)
        self._texts.setdefault(source, []).append(whole(tokens))
        self._values[source] = text[:_LITERAL]

    def _returned(self, tool: str, text: str) -> Iterator[tuple[str, str]]:
        for leaf in leaves_of(text):
            source = source_of(tool, leaf.path)
            if leaf.is_text:
                self._add_text(source, leaf.text)
            else:
                self._learn(source, leaf)
            yield leaf.path, leaf.choice

    def _learn_arguments(self, tool: str, leaves: Sequence[Leaf]) -> None:
        for leaf in leaves:
            if not leaf.is_text:
                self._learn(source_of(tool, leaf.path, is_asked=True), leaf)

    def _learn(self, source: str, leaf: Leaf) -> None:
        self._values[source] = leaf.text[:_LITERAL]
        self._tokens.update(tokens_of(leaf.text))
        key = key_of(leaf.text) if leaf.is_value else ""
        places = self._places.setdefault(key, []) if key else [source]
        if source not in places:
            places.append(source)

    def _argument(self, leaf: Leaf, *, is_text: bool = False) -> Argument:
        if leaf.is_text or is_text:
            return self._text_argument(leaf)
        sources = self._sources(leaf) if leaf.is_value else ()
        kind, value = _kept(leaf)
        return Argument(path=leaf.path, kind=kind, value=value, sources=sources, literal=leaf.text[:_LITERAL])

    def _sources(self, leaf: Leaf) -> tuple[str, ...]:
        key = key_of(leaf.text)
        found = dict.fromkeys(self._places.get(key, ()))
        if not self._may_search(_MAX_ALL_TEXT - self._room):
            return (*found, MANY)
        for source, texts in self._texts.items():
            if key and any(f" {key} " in text for text in texts):
                found[source] = None
        return _bounded(tuple(found))

    def _text_argument(self, leaf: Leaf) -> Argument:
        tokens = tokens_of(leaf.text)
        text, own = whole(tokens), frozenset(tokens)
        may_search = self._may_search(_CHARS_A_VALUE * len(self._places))
        found = dict.fromkeys(
            place
            for key, places in (self._places.items() if may_search else ())
            if len(key) >= _DISTINCT and key.partition(" ")[0] in own and f" {key} " in text
            for place in places
            if not place.endswith("\t")
        )
        new = [token for token in dict.fromkeys(tokens) if token not in self._tokens]
        languages = languages_in(leaf.text)
        return Argument(
            path=leaf.path,
            kind="text",
            value="",
            sources=_bounded(tuple(found), 4 * _MAX_SOURCES) if may_search else (MANY,),
            literal=leaf.text[:_LITERAL],
            unsourced=sum(token[0].isdigit() for token in new),
            length=len(tokens),
            language=languages[0] if len(languages) == 1 else "",
            words=tuple(digest(token) for token in new if not token[0].isdigit())[:_MAX_WORDS],
        )


def _bounded(sources: tuple[str, ...], most: int = _MAX_SOURCES) -> tuple[str, ...]:
    return sources if len(sources) <= most else (*sources[:most], MANY)


def _kept(leaf: Leaf) -> tuple[str, str]:
    """Return the kind of a value, and what is kept of it."""
    if leaf.number is not None:
        return "number", leaf.number
    if leaf.choice:
        return "word", leaf.choice
    return "shape", f"{shape_of(leaf.text)[:_KEPT]}#{digest(' '.join(tokens_of(leaf.text))):x}"


def pack(facts: Facts) -> bytes:
    """Return a run's facts in at most ``MAX_BYTES`` bytes: no texts, of values what ``Argument`` keeps."""
    calls, is_cut = facts.calls, facts.is_cut
    while len(packed := _packed(calls, is_cut=is_cut)) > MAX_BYTES:
        calls, is_cut = calls[: len(calls) // 2], True
    return packed


def unpack(packed: bytes) -> Facts:
    """Return the facts that ``pack`` wrote."""
    names, is_cut, rows = json.loads(zlib.decompress(packed)) if packed else ((), False, ())
    return Facts(calls=tuple(_call(row, names) for row in rows), is_cut=is_cut)


def to_json(facts: Facts) -> list[Any]:
    """Return the facts about a run with its steps and the beginnings of its values."""
    names: dict[str, int] = {}
    rows = [_row(call, names) for call in facts.calls]
    shown = [[call.step, *(argument.literal for argument in call.arguments)] for call in facts.calls]
    return [list(names), facts.is_cut, rows, shown, dict(facts.values)]


def from_json(document: Sequence[Any]) -> Facts:
    """Read what ``to_json`` returned."""
    names, is_cut, rows, shown, values = document
    calls = tuple(
        _shown(_call(row, names), step, literals) for row, (step, *literals) in zip(rows, shown, strict=True)
    )
    return Facts(calls=calls, is_cut=is_cut, values=values)


def _shown(call: Call, step: int, literals: Sequence[str]) -> Call:
    pairs = zip(call.arguments, literals, strict=True)
    return replace(call, step=step, arguments=tuple(replace(one, literal=literal) for one, literal in pairs))


def _packed(calls: Sequence[Call], *, is_cut: bool) -> bytes:
    names: dict[str, int] = {}
    rows = [_row(call, names) for call in calls]
    document = json.dumps([list(names), is_cut, rows], ensure_ascii=False, separators=(",", ":"))
    return zlib.compress(document.encode("utf-8", "surrogatepass"), 9)


def _row(call: Call, names: dict[str, int]) -> list[Any]:
    def number(name: str) -> int:
        return names.setdefault(name, len(names))

    arguments = [
        [number(one.path), number(one.kind), one.value, [number(source) for source in one.sources]]
        + ([one.unsourced, one.length, one.language, list(one.words)] if one.kind == "text" else [])
        for one in call.arguments
    ]
    results = [[number(path), number(choice)] for path, choice in call.results]
    return [number(call.tool), number(call.agent), int(call.is_failed), arguments, results]


def _call(row: Sequence[Any], names: Sequence[str]) -> Call:
    tool, agent, is_failed, arguments, results = row
    return Call(
        tool=names[tool],
        agent=names[agent],
        is_failed=bool(is_failed),
        arguments=tuple(_argument(argument, names) for argument in arguments),
        results=tuple((names[path], names[choice]) for path, choice in results),
    )


def _argument(row: Sequence[Any], names: Sequence[str]) -> Argument:
    path, kind, value, sources, *text = row
    argument = Argument(
        path=names[path], kind=names[kind], value=value, sources=tuple(names[source] for source in sources)
    )
    if not text:
        return argument
    unsourced, length, language, words = text
    return replace(argument, unsourced=unsourced, length=length, language=language, words=tuple(words))


__all__ = ["ANSWER", "MAX_BYTES", "TASK", "TURN", "Argument", "Call", "Facts", "collect", "pack", "unpack"]


# --- values of arguments, results and texts ---

MAX_LEAVES: Final = 48
"""Values of one argument list or result that are read."""
_MAX_DEPTH: Final = 8
_MAX_ITEMS: Final = 16
_LONG: Final = 8
"""Words from which a value is a text."""
_WORD_CHARS: Final = 24
_TOKEN: Final = re.compile(rf"\d+(?:[.,']\d+)*|[{DENSE}]|[^\W\d_{DENSE}]+")
_QUANTITY: Final = re.compile(
    r"\s*(?:[A-Z]{3}\s+|[$€£¥₹]\s*)?([+-]?\d+(?:[.,' ]\d+)*)\s*(?:[^\W\d_]{1,4}|[$€£¥₹%°])?\.?\s*"
)
_DIGITS: Final = re.compile(r"\d+")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_WORD: Final = re.compile(r"[^\W\d]+(?:-[^\W\d]+)?")


@record
class Leaf:
    """One value of a JSON document; the whole text, with an empty path, if it is none."""

    path: str
    """Keys joined by points; an element of a list is ``[]``, whatever its place."""
    text: str
    is_text: bool
    """Whether it is prose rather than a value."""
    is_value: bool
    """Whether an equal value elsewhere may be its source: not for truth values and nothing."""
    choice: str
    """The value if it is one of few: a truth value, a word, or how many elements a list has; else empty."""
    number: str | None = None
    """The canonical number; ``None`` if it is none."""


def leaves_of(text: str) -> list[Leaf]:
    """Return the values of a text: those of its JSON in reading order, at most ``MAX_LEAVES``."""
    leaves: list[Leaf] = []
    waiting: list[tuple[str, int, Any]] = [("", 0, structured(text))] if text.strip() else []
    while waiting and len(leaves) < MAX_LEAVES:
        path, depth, value = waiting.pop()
        inner = structured(value) if isinstance(value, str) and path else value
        parts = list(_parts(path, inner)) if depth < _MAX_DEPTH else []
        if isinstance(inner, list):
            leaves.append(_size(path, len(inner)))
        if parts:
            waiting.extend((each, depth + 1, part) for each, part in reversed(parts))
        elif not isinstance(inner, list | dict):
            leaves.append(_leaf(path, inner))
    return leaves


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, part in list(value.items())[:MAX_LEAVES]:
            yield f"{path}.{name}" if path else str(name), part
    elif isinstance(value, list):
        for part in value[:_MAX_ITEMS]:
            yield f"{path}[]", part


def _size(path: str, count: int) -> Leaf:
    many = "none" if not count else "one" if count == 1 else "several"
    return Leaf(path=f"{path}[] count", text=str(count), is_text=False, is_value=False, choice=many)


def _leaf(path: str, value: Any) -> Leaf:
    if value is None or isinstance(value, bool):
        word = {None: "null", True: "true", False: "false"}[value]
        return Leaf(path=path, text=word, is_text=False, is_value=False, choice=word)
    text = plain_typography(value if isinstance(value, str) else str(value)).strip()
    number = quantity(text)
    is_text = number is None and len(tokens_of(text[: 40 * _LONG])) > _LONG
    is_word = number is None and len(text) <= _WORD_CHARS and _WORD.fullmatch(text)
    choice = text if is_word else ""
    return Leaf(path=path, text=text, is_text=is_text, is_value=bool(text), choice=choice, number=number)


def quantity(text: str) -> str | None:
    """Return the number of a text that is one, with or without a unit or a currency; ``None`` if not."""
    found = _QUANTITY.fullmatch(text) if len(text) <= _WORD_CHARS else None
    if found is None:
        return None
    sign = "-" if found[1].startswith("-") else ""
    return sign + number_of(found[1].lstrip("+-").replace(" ", ""))


def number_of(text: str) -> str:
    """Return a number in canonical form, without separators of thousands and idle zeros.

    The last separator is the decimal one if it occurs once and three digits do not follow a comma.
    A number with leading zeros is a name, and stays as it is.
    """
    if text.isdigit():
        return text
    separator = next(char for char in reversed(text) if not char.isdigit())
    head, _, tail = text.rpartition(separator)
    is_grouped = text.count(separator) > 1 or (separator != "." and len(tail) == 3 and head.isdigit())
    plain = "".join(char for char in head if char.isdigit())
    try:
        value = Decimal(f"{plain}{tail}" if is_grouped else f"{plain}.{tail}")
    except InvalidOperation:
        return text
    return f"{value.normalize():f}"


def tokens_of(text: str) -> list[str]:
    """Return the words and numbers of a text, in canonical form."""
    return [
        number_of(token) if token[0].isdigit() and not token.isdigit() else token
        for token in _TOKEN.findall(plain_typography(text).casefold())
    ]


def whole(tokens: Sequence[str]) -> str:
    """Return the tokens as a text in which those of a value can be found between blanks."""
    return f" {' '.join(tokens)} "


def key_of(text: str) -> str:
    """Return the canonical form of a value, by which values are compared; empty without words."""
    number = quantity(text)
    return " ".join(tokens_of(text)) if number is None else number


def shape_of(text: str) -> str:
    """Return how a value is written: ``A-9`` for ``ORD-4711``."""
    return _LETTERS.sub(lambda found: "A" if found[0].isupper() else "a", _DIGITS.sub("9", text))


def digest(text: str) -> int:
    """Return 16 bits of a digest."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=2).digest())


__all__ = ["Leaf", "digest", "key_of", "leaves_of", "quantity", "shape_of", "tokens_of", "whole"]
