"""Redaction of secrets in texts and runs, before a model, the store, a page or a backend sees them. Pure.

``secret_rules`` finds secrets, each of a kind that can be switched off, and so do the user's own patterns;
``unescape`` decodes the text first, so that escapes hide no secret. Each replacement names the kind of
secret. Within one run, equal secrets get equal replacements and different ones different (``[e-mail 1]``,
``[e-mail 2]``), in any spelling, so that a mail sent to the wrong person is still visible as such.

All texts of a run pass through one redactor, and replacements are counted. Names of agents and tools are
kept: verdicts refer to them, and people must find them in the trace. Ids and times are kept too.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock
from typing import Any, Final, NamedTuple, TypeAlias

from collector_processor.core.patterns import compile_pattern, compile_rule
from collector_processor.rebuild.secret_rules import ALL_KINDS, ENCODED, OWN, Finder, Rule, all_rules
from collector_processor.rebuild.unescape import decode_run, placed_readings, readings
from semconv.dialects.reading.messages import render_call
from semconv.model import Heard, Step, ToolCall, Trajectory, at_marks, marks_of
from semconv.record import replace

__all__ = [
    "ALL_KINDS", "OWN", "Redact", "Redactor", "RunRedactor", "check_pattern", "describe",
    "keep", "make_redactor", "omit", "read_kinds", "redact",
]  # fmt: skip

Redact = Callable[[str], str]

_NONE: Final = "none"
_OWN_WORD: Final = "redacted"
_SHORTEST_TEXT: Final = 6
"""In characters; no rule of ours matches a shorter secret."""
_MOST_AT_ONCE: Final = 32
"""Number of texts checked in one search; if it finds anything, each text is redacted separately."""
_BETWEEN: Final = "\n\x01\n"
"""Separates texts that are checked in one search: no secret spans it."""
_ROUNDS: Final = 4
"""Bound on searches of one text: a secret may become visible only after another one beside it is replaced."""
_NESTING: Final = 2
"""Bound on levels of base64 in base64."""


class _Secret(NamedTuple):
    start: int
    end: int
    rule: Rule
    value: str
    """The text as it reads once decoded."""


class Redactor:
    """Finds and replaces the secrets of its rules."""

    def __init__(self, rules: Sequence[Rule] | None = None) -> None:
        """Use ``rules``, by default all built-in ones."""
        self.rules: Final = tuple(all_rules() if rules is None else rules)
        self._finder: Final = Finder(self.rules)
        self._own: Final = Finder([rule for rule in self.rules if rule.kind == OWN])
        self._has_own: Final = any(rule.kind == OWN for rule in self.rules)

    def redact(self, text: str) -> str:
        """Return ``text`` with secrets replaced by their kind, not numbered."""
        return self.replace(text, lambda secret: f"[{secret.rule.word}]")

    def for_run(self) -> RunRedactor:
        """Return a redactor for all texts of one run."""
        return RunRedactor(redactor=self)

    def replace(self, text: str, name: Callable[[_Secret], str]) -> str:
        """Return ``text`` with each secret replaced by its name."""
        return self.replace_marked(text, (), name)[0]

    def replace_marked(
        self, text: str, marks: Sequence[int], name: Callable[[_Secret], str]
    ) -> tuple[str, Sequence[int]]:
        """Return ``text`` with each secret replaced by its name, and where ``marks`` are then.

        Args:
            text: the text.
            marks: places in it, ascending; one inside a secret moves to the end of the secret's name.
            name: returns the name of a secret.
        """
        text = _without_surrogates(text)
        for _ in range(_ROUNDS):
            if self.holds_nothing(text):
                break
            edits = [(secret.start, secret.end, name(secret)) for secret in _apart(self._secrets(text))]
            marks = _moved(marks, edits)
            text = _edited(text, edits)
        return text, marks

    def holds_nothing(self, text: str, depth: int = 0) -> bool:
        """Return whether ``text``, which has no surrogates, contains no secret."""
        if len(text) < _SHORTEST_TEXT and not self._has_own:
            return True
        if self._has_own and any(self._own.find(text)):
            return False
        reading = text
        for reading in readings(text):
            if any(self._finder.find(reading)):
                return False
        return all(self.holds_nothing(said, depth + 1) for _, _, said in _decoded_runs(reading, depth))

    def _secrets(self, text: str, depth: int = 0) -> Iterator[_Secret]:
        for found in self._own.find(text) if self._has_own else ():
            yield _Secret(*found, text[found.start : found.end])
        for reading in placed_readings(text):
            for start, end, rule in self._finder.find(reading.text):
                yield _Secret(*reading.place(start, end), rule, reading.text[start:end])
        for start, end, said in _decoded_runs(reading.text, depth):
            inner = next(_apart(self._secrets(said, depth + 1)), None)
            if inner is not None:  # the whole run of characters: part of it cannot be replaced
                yield _Secret(*reading.place(start, end), inner.rule, inner.value)


_Edit: TypeAlias = tuple[int, int, str]
"""Start and end of a secret, and the name that replaces it."""


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    out: list[str] = []
    at = 0
    for start, end, name in edits:
        out += (text[at:start], name)
        at = end
    return "".join((*out, text[at:]))


def _moved(marks: Sequence[int], edits: Sequence[_Edit]) -> Sequence[int]:
    """Return where ascending places in a text are after the edits."""
    moved: list[int] = []
    shift, place = 0, 0
    for mark in marks:
        while place < len(edits) and edits[place][1] <= mark:
            start, end, name = edits[place]
            shift += len(name) - (end - start)
            place += 1
        inside = edits[place] if place < len(edits) and edits[place][0] < mark else None
        moved.append(mark + shift if inside is None else inside[0] + shift + len(inside[2]))
    return moved


@dataclass(slots=True, kw_only=True)
class RunRedactor:
    """Redacts the texts of one run: gives equal secrets the same number and counts replacements."""

    redactor: Redactor
    counts: Counter[str] = field(default_factory=Counter)
    """Replacements by kind."""
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _words: Counter[str] = field(default_factory=Counter)
    _clean: set[str] = field(default_factory=set)
    """Texts without secrets; many recur, such as an agent's instructions at each of its steps."""

    def find_clean(self, texts: Iterable[str]) -> bool:
        """Record which of the run's texts contain no secret; return whether all of them are clean.

        Searches many texts at once: most contain no secret, and each search costs time.
        """
        different = [text for text in dict.fromkeys(texts) if text not in self._clean]
        batches = [different[at : at + _MOST_AT_ONCE] for at in range(0, len(different), _MOST_AT_ONCE)]
        clean = [batch for batch in batches if self._is_clean(_BETWEEN.join(batch))]
        for batch in clean:
            self._clean.update(batch)
        return len(clean) == len(batches)

    def _is_clean(self, text: str) -> bool:
        return _without_surrogates(text) is text and self.redactor.holds_nothing(text)

    def __call__(self, text: str) -> str:
        """Return ``text`` with secrets replaced by their kind and a number."""
        return self._replaced(text, (), self._name)[0]

    def marked(self, text: str, marks: Sequence[int]) -> tuple[str, Sequence[int]]:
        """Return ``text`` redacted, and where ``marks``, ascending places in it, are then."""
        return self._replaced(text, marks, self._name)

    def again(self, text: str, marks: Sequence[int] = ()) -> tuple[str, Sequence[int]]:
        """Return what ``marked`` does for a text that most often stands in another text too.

        Counts only secrets that the run did not have before.
        """
        return self._replaced(text, marks, self._name_again)

    def _replaced(
        self, text: str, marks: Sequence[int], name: Callable[[_Secret], str]
    ) -> tuple[str, Sequence[int]]:
        if not text or text in self._clean:
            return text, marks
        redacted, places = self.redactor.replace_marked(text, marks, name)
        if redacted == text:
            self._clean.add(text)
        return redacted, places

    def _name(self, secret: _Secret) -> str:
        self.counts[secret.rule.kind] += 1
        word, key = secret.rule.word, _key(secret)
        if key not in self._names:
            self._words[word] += 1
            self._names[key] = f"[{word} {self._words[word]}]"
        return self._names[key]

    def _name_again(self, secret: _Secret) -> str:
        return self._names.get(_key(secret)) or self._name(secret)


def _key(secret: _Secret) -> tuple[str, str]:
    """Return what two secrets have in common if they are the same one."""
    return secret.rule.word, secret.value.casefold()


def make_redactor(kinds: Iterable[str], patterns: Iterable[str] = ()) -> Redactor:
    """Return a redactor of these kinds and the user's patterns.

    Raises:
        ValueError: a pattern is invalid.
    """
    return _redactor(frozenset(kinds), tuple(patterns))


@functools.lru_cache(maxsize=8)
def _redactor(kinds: frozenset[str], patterns: tuple[str, ...]) -> Redactor:
    for pattern in patterns:
        check_pattern(pattern)
    own = [Rule(kind=OWN, word=_OWN_WORD, pattern=pattern, spans=_whole) for pattern in patterns]
    return Redactor([*(rule for rule in all_rules() if rule.kind in kinds), *own])


def _whole(_: str, start: int, end: int) -> tuple[tuple[int, int]]:
    return ((start, end),)


def read_kinds(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of kinds, or ``none``.

    Raises:
        ValueError: a kind is unknown.
    """
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    if names == (_NONE,):
        return ()
    unknown = [name for name in names if name not in ALL_KINDS]
    if unknown or not names:
        raise ValueError(f"expected a list of {', '.join(ALL_KINDS)}, or none")
    return names


def check_pattern(pattern: str) -> Any:
    """Compile one of the user's patterns for secrets.

    Raises:
        ValueError: RE2 does not accept it, it matches empty text, or it is too long.
    """
    compiled = compile_pattern(pattern)
    if compiled.search("") is not None:
        raise ValueError("expected a pattern that does not match empty text")
    return compiled


def describe(counts: Mapping[str, int]) -> str:
    """Return a sentence with the replacements by kind; empty if there were none."""
    listed = ", ".join(f"{counts[kind]} of {kind}" for kind in (*ALL_KINDS, OWN) if counts.get(kind))
    return f"redacted before the analysis: {listed}" if listed else ""


def redact(text: str) -> str:
    """Return ``text`` with keys, tokens, secrets, card numbers and e-mail addresses replaced."""
    return make_redactor(ALL_KINDS).redact(text)


@functools.cache
def _placeholder() -> re.Pattern[str]:
    words = sorted({_OWN_WORD, *(rule.word for rule in all_rules())})
    return re.compile(rf"\[(?:{'|'.join(map(re.escape, words))})(?: [0-9]+)?\]")


def count_replaced(text: str) -> int:
    """Return how many secrets were replaced in a text, by counting the placeholders."""
    return sum(1 for _ in _placeholder().finditer(text))


def keep(text: str) -> str:
    """Return ``text`` unchanged."""
    return text


def omit(_text: str) -> str:
    """Return an empty text."""
    return ""


def _apart(secrets: Iterable[_Secret]) -> Iterator[_Secret]:
    """Yield the secrets in order; of overlapping ones, the one that begins first, or the longer one."""
    at = 0
    for secret in sorted(secrets, key=lambda secret: (secret.start, -secret.end)):
        if secret.start >= at and secret.end > secret.start:
            yield secret
            at = secret.end


def _decoded_runs(text: str, depth: int) -> Iterator[tuple[int, int, str]]:
    """Yield the runs of base64 and hex in ``text``: start, end and decoded text."""
    end = 0
    for match in compile_rule(ENCODED).finditer(text) if depth < _NESTING else ():
        if match.start(1) >= end:
            said, end = decode_run(text, match.start(1), match.end(1))
            yield match.start(1), end, said


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, which RE2 cannot process, by question marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


_STEP_TEXTS: Final = ("name", "instructions", "tools", "input", "output", "error")
"""Texts of a step. What it heard stands in ``input``; calls and their arguments most often in ``output``."""
_texts_of_step: Final[Callable[[Step], tuple[str, ...]]] = attrgetter(*_STEP_TEXTS)


class Cleaner:
    """Redacts runs, and counts the replacements over all of them."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor: Final = redactor
        self._counts: Final[Counter[str]] = Counter()
        self._lock: Final = Lock()  # runs are redacted in several threads

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of secrets to redact, each once."""
        return tuple(dict.fromkeys(rule.kind for rule in self._redactor.rules))

    def count(self, kind: str) -> int:
        """Return the number of replacements of a kind so far."""
        return self._counts[kind]

    @property
    def counts(self) -> Mapping[str, int]:
        """Replacements so far, by kind."""
        return dict(self._counts)

    def empty_copy(self) -> Cleaner:
        """Return a cleaner with the same rules and empty counts."""
        return Cleaner(self._redactor)

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of another cleaner."""
        if counts:
            with self._lock:
                self._counts.update(counts)

    def for_run(self) -> RunRedactor:
        """Return a redactor for all texts of one run."""
        return self._redactor.for_run()

    def __call__(self, trajectory: Trajectory, redact: RunRedactor | None = None) -> Trajectory:
        """Return the redacted run, with a warning that states the replacements by kind.

        Args:
            trajectory: the run.
            redact: redacts its texts; if given, it is also used for the run's spans.
        """
        redact = redact or self.for_run()
        if redact.find_clean(_texts_of(trajectory)):
            return trajectory
        cleaned = _cleaned(trajectory, redact)
        if cleaned == trajectory:
            return trajectory
        self.add(redact.counts)
        told = describe(redact.counts)  # empty if only half characters were replaced
        return replace(cleaned, warnings=(*trajectory.warnings, *filter(None, [told])))


def _cleaned(trajectory: Trajectory, redact: RunRedactor) -> Trajectory:
    # The task first: secrets are numbered in reading order.
    task = redact(trajectory.task)
    return replace(
        trajectory,
        task=task,
        steps=tuple(_clean_steps(trajectory.steps, redact)),
        output=redact(trajectory.output),
        reference=None if trajectory.reference is None else redact(trajectory.reference),
        root_error=redact(trajectory.root_error),
    )


def _clean_steps(steps: Iterable[Step], redact: RunRedactor) -> Iterable[Step]:
    for step in steps:
        around = (redact(step.name), redact(step.instructions), redact(step.tools))
        given, heard = redact.marked(step.input, marks_of(step.heard))
        wrote, said = redact.marked(step.output, marks_of(step.said))
        changes: Any = dict(zip(_STEP_TEXTS, (*around, given, wrote, redact(step.error)), strict=True))
        cleaned = replace(
            step,
            **changes,
            heard=_clean_authors(at_marks(step.heard, heard), redact),
            said=_clean_authors(at_marks(step.said, said), redact),
            calls=tuple([_clean_call(call, redact) for call in step.calls]),
            failed_evaluations=tuple(map(redact, step.failed_evaluations)),
        )
        yield step if cleaned == step else cleaned


def _clean_authors(messages: Iterable[Heard], redact: RunRedactor) -> tuple[Heard, ...]:
    return tuple([replace(message, author=redact.again(message.author)[0]) for message in messages])


def _clean_call(call: ToolCall, redact: RunRedactor) -> ToolCall:
    """Redact a call's arguments beside its name, which may tell that they are a secret."""
    line = render_call(call)
    end = len(line) - 1
    text, (start, end) = redact.again(line, (end - len(call.arguments), end))
    return replace(call, arguments=redact.again(text[start:end])[0])


def _texts_of(trajectory: Trajectory) -> Iterable[str]:
    yield trajectory.task
    for step in trajectory.steps:
        yield from _texts_of_step(step)
        yield from map(render_call, step.calls)  # texts may be shortened, calls are not
        yield from step.failed_evaluations
        yield from (one.author for one in (*step.heard, *step.said))
    yield from (trajectory.output, trajectory.reference or "", trajectory.root_error)
