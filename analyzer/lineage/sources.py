"""Sources of a run's figures, and columns of figures that an answer may add up. Pure.

Sources are results of tools, people's messages and instructions. An agent's words are never a source, even
if repeated in the next agent's input, in the result of a tool that is itself an agent, or in a file that was
written before it was read. Columns are those of tables, lists and repeated calls of a tool.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from analyzer.lineage.entries import cells_apart, document_in
from analyzer.lineage.figures import Figure, figures
from analyzer.texts.run_view import HEAD, THINKING, Reading, spoken_input
from semconv.model import ContentState, Step, StepKind

_OWN: Final = frozenset({"assistant"})
_RELAYED: Final = 15
"""Number of characters from which equal texts are the same text and not equal by chance."""
LATIN_SENTENCE: Final = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]?")
_DIGIT: Final = re.compile(r"\d")
_LOST: Final = frozenset(
    {ContentState.TRUNCATED, ContentState.DROPPED, ContentState.REDACTED, ContentState.ABSENT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A text from outside the run's agents."""

    step: int | None
    """The step that returned it; ``None`` for the task and instructions."""
    text: str
    figures: tuple[Figure, ...]
    is_result: bool
    """Whether a tool returned it."""


@lru_cache(maxsize=2)
def sources(reading: Reading) -> tuple[Source, ...]:
    """Return every text from outside once, in the order of the steps."""
    return tuple(
        Source(step=step, text=text, figures=tuple(figures(cells_apart(text))), is_result=is_result)
        for step, text, is_result in _distinct_texts(reading)
    )


def results(reading: Reading) -> Iterator[str]:
    """Yield the texts of those sources that tools returned."""
    return (source.text for source in sources(reading) if source.is_result)


def _distinct_texts(reading: Reading) -> Iterator[tuple[int | None, str, bool]]:
    seen: set[str] = set()
    for step, whole, is_result in _texts(reading):
        text = whole[:HEAD].strip()
        dense = "".join(text.split())  # a model hears a result's JSON with other blanks than the tool's span
        if text and dense not in seen:
            seen.add(dense)
            yield step, text, is_result


def is_blind(reading: Reading) -> bool:
    """Return whether texts of tools are missing, so that a figure may have an unrecorded source."""
    return bool(lost_steps(reading.steps))


def lost_steps(steps: Sequence[Step]) -> tuple[int, ...]:
    """Return the steps whose missing or cut texts may be the source of a figure."""
    return tuple([step.index for step in steps if _is_lost(step)])


def _is_lost(step: Step) -> bool:
    if step.kind is StepKind.TOOL and len(step.output) > HEAD:
        return True
    return step.content in _LOST and (step.kind is StepKind.TOOL or not step.input)


def has_results(steps: Sequence[Step]) -> bool:
    """Return whether the run shows what a tool returned."""
    return any(
        (step.kind is StepKind.TOOL and step.output) or any(one.role == "tool" for one in step.heard)
        for step in steps
    )


def _texts(reading: Reading) -> Iterator[tuple[int | None, str, bool]]:
    steps, said = reading.steps, _Said()
    work = _Work(steps)
    yield None, reading.trajectory.task, False
    for step in steps:
        yield None, step.instructions, False
    for position, step in enumerate(steps):
        if step.kind is StepKind.TOOL:
            if not said.repeats(step.output) and not work.is_given_by(step):
                yield position, step.output, True
            continue
        for text, is_result in _heard(step):
            if not said.repeats(text):
                yield position, text if is_result else said.without_repeated(text), is_result
        if step.kind is StepKind.HUMAN:
            yield position, step.output, False
        elif step.said:
            yield from (
                (position, step.output[one.start : one.end], True) for one in step.said if one.role == "tool"
            )
            said.add("\n".join(step.output[one.start : one.end] for one in step.said if one.role != "tool"))
        else:
            said.add(step.output)


def _heard(step: Step) -> Iterator[tuple[str, bool]]:
    """Yield the messages of an input that no agent wrote, each with whether it is a tool's result."""
    if not step.heard:
        yield spoken_input(step), False
    for one in step.heard:
        if one.role not in _OWN:
            yield step.input[one.start : one.end], one.role == "tool"


class _Work:
    """What agents wrote in each span of time, to find what a tool's call contains."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._spans: Final = sorted(
            (step.start_ns, step.end_ns, plain)
            for step in steps
            if step.kind in THINKING and step.start_ns < step.end_ns and (plain := _plain(step.output))
        )
        self._starts: Final = [start for start, _, _ in self._spans]

    def is_given_by(self, tool: Step) -> bool:
        """Tell whether a tool's call contains another agent's work: its result is that agent's word."""
        if not tool.start_ns or tool.end_ns <= tool.start_ns or not tool.output:
            return False
        first, after = bisect_left(self._starts, tool.start_ns), bisect_right(self._starts, tool.end_ns)
        within = [said for _, end, said in self._spans[first:after] if end <= tool.end_ns]
        returned = _plain(tool.output) if within else ""
        return any(said in returned or returned in said for said in within)


def _plain(text: str) -> str:
    return " ".join(text.split())


class _Said:
    """Texts that agents have said so far, each once."""

    def __init__(self) -> None:
        self._texts: Final[dict[str, None]] = {}
        self._long: Final[list[str]] = []
        """Those that are not equal to a part of a text by chance."""
        self._joined: str | None = ""
        """All of them, a line each, so that one search reads them; ``None`` until it is made."""

    def add(self, text: str) -> None:
        plain = _plain(text)
        if not plain or plain in self._texts:
            return
        self._texts[plain] = None
        self._joined = None
        if len(plain) >= _RELAYED:
            self._long.append(plain)

    def without_repeated(self, text: str) -> str:
        """Return a text without the sentences with numbers that agents have said: they are passed on.

        The call that passes them on may hide its arguments (Traceloop's of LangChain.js).
        """
        may_repeat = self._texts and _DIGIT.search(text)
        for sentence in dict.fromkeys(LATIN_SENTENCE.findall(text[:HEAD])) if may_repeat else ():
            plain = _plain(sentence)
            if len(plain) >= _RELAYED and _DIGIT.search(plain) and self._holds(plain):
                text = text.replace(sentence, " ")
        return text

    def repeats(self, text: str) -> bool:
        """Tell whether a text is an agent's words, alone or within other text."""
        plain = _plain(text)
        if not plain:
            return False
        if plain in self._texts or (len(plain) >= _RELAYED and self._holds(plain)):
            return True
        return any(map(plain.__contains__, self._long))

    def _holds(self, plain: str) -> bool:
        """Tell whether one of the texts has these words, which are on one line."""
        if self._joined is None:
            self._joined = "\n".join(self._texts)
        return plain in self._joined


_COLUMN: Final = range(2, 401)
LARGEST: Final = 1e15
"""Size of a number that a person adds up; JSON may hold any, and what is no number."""


def listed_columns(stated: Sequence[Figure], loose: frozenset[float]) -> Iterator[tuple[float, ...]]:
    """Yield the known figures in an answer, by unit: the answer may add up some of a tool's figures."""
    by_unit: defaultdict[str, list[float]] = defaultdict(list)
    for figure in stated:
        if figure.value in loose:
            by_unit[figure.unit].append(figure.value)
    for values in by_unit.values():
        if len(values) in _COLUMN:
            yield tuple(values)


@lru_cache(maxsize=2)
def columns_of(reading: Reading) -> tuple[tuple[float, ...], ...]:
    """Return the columns of each source: of its table or lines, and of equal places in a tool's results."""
    return tuple(_columns(reading, sources(reading)))


def answered_columns(text: str) -> tuple[tuple[float, ...], ...]:
    """Return the columns of a structured answer, which it may add up.

    Figures are read without their sign, so a column with values below zero is given with both signs.
    """
    found = [tuple(column) for column in _json_columns(text).values() if len(column) in _COLUMN]
    return (*found, *(tuple(-value for value in column) for column in found if min(column) < 0))


def _columns(reading: Reading, origins: Sequence[Source]) -> Iterator[tuple[float, ...]]:
    by_tool: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for source in origins:
        table = _json_columns(source.text)
        columns = list(table.values()) if table else _line_columns(source.text)
        yield from (tuple(column) for column in columns if len(column) in _COLUMN)
        if source.is_result and source.step is not None:
            tool = reading.steps[source.step].target or ""
            for place, figure in enumerate(source.figures[:8]):
                by_tool[tool, place].append(figure.value)
    yield from (tuple(column) for column in by_tool.values() if len(column) in _COLUMN)


def _json_columns(text: str) -> dict[str, list[float]]:
    """Return the numbers of a JSON document by their key, in order."""
    stack: list[tuple[str, Any]] = [("", document_in(text))]
    found: defaultdict[str, list[float]] = defaultdict(list)
    while stack:
        key, value = stack.pop()
        if isinstance(value, Mapping):
            stack += [(str(name), one) for name, one in reversed(list(value.items()))]
        elif isinstance(value, list):
            stack += [(key, one) for one in reversed(value)]
            found[f"#{key}"] += [float(len(value))]
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST:
            found[key].append(float(value))
        elif isinstance(value, str):
            found[key] += [figure.value for figure in figures(value)[:1]]
    return found


def _line_columns(text: str) -> list[list[float]]:
    """Return the n-th figures of the lines of a text, for each n; of its clauses if it is one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        lines = re.split(r"[;,] (?=[A-Za-z])|\. ", text)
    rows = [row for line in lines if (row := [figure.value for figure in figures(line)])]
    width = max((len(row) for row in rows), default=0)
    return [[row[place] for row in rows if len(row) > place] for place in range(min(width, 8))]
