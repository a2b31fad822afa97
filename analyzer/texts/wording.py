"""Signals on wording: English phrases that go with mistakes.

They are weak evidence with low weights: an agent may state an assumption and be right. Few texts contain such
phrases, so a plain search for word stems runs first; it takes a tenth of the patterns' time. Each step is
searched for them, which the tables of ``wordings`` would make slow: these are for the few texts that decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.texts.normalize import excerpt, lowercased
from analyzer.texts.run_view import Finding, Reading, Role
from semconv.model import Step

_LINE: Final = 400
"""Characters before a match to search for the beginning of a log line."""
_CLAUSE: Final = 60
"""Characters of a clause that a reason repeats."""
_CLAUSE_END: Final = re.compile(r"[.,;:!?](?=[\s\"”)]|$)|[\n()]")
_LISTED: Final = re.compile(r"\W*\d+[.)]\s")
_OWN_WORDS: Final = frozenset({Role.ACTING, Role.COORDINATING})
_CLAIMS_DONE: Final = re.compile(
    r"\b(?:confirmed|verified|is correct|are correct|accurate|final answer|conclu(?:de|sion)|therefore"
    r"|the (?:answer|result) is|successfully|has been (?:confirmed|verified))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Phrases that go with a kind of mistake, and the finding they yield."""

    signal: str
    weight: float
    reasons: tuple[tuple[str, str], ...]
    """Predicates by the words, in lower case, that a match must contain; the first that fits is used."""
    stems: tuple[str, ...]
    """Lower case; every match of the pattern contains one of them."""
    pattern: re.Pattern[str]

    def find(self, text: str) -> re.Match[str] | None:
        """Return the first match in a text, except in lines written by a program."""
        small = lowercased(text)
        if not any(stem in small for stem in self.stems):
            return None
        return next((found for found in self.pattern.finditer(text) if not is_logged(text, found)), None)

    def as_predicate(self, found: re.Match[str]) -> str:
        """Return a match as a predicate of its author."""
        matched = found[0].lower()
        did = next(did for words, did in self.reasons if words in matched)
        return f"{did}: it wrote {_clause(found)}"


_LOGGED: Final = re.compile(r"\b\w*(?:Warning|Error|Exception):|\.py:\d+")


def is_logged(text: str, found: re.Match[str]) -> bool:
    """Tell whether a match is in a warning or a traceback, which are not the agent's words."""
    begin = text.rfind("\n", 0, found.start()) + 1
    return _LOGGED.search(text, max(begin, found.start() - _LINE), found.start()) is not None


MADE_UP: Final = Wording(
    signal="made_up_data",
    weight=1.2,
    reasons=(
        ("assum", "made an assumption"),
        ("let", "made an assumption"),
        ("hypothe", "made an assumption"),
        ("memory", "may have answered from memory"),
        ("knowledge", "may have answered from memory"),
        ("", "may have used made-up data"),
    ),
    stems=(
        *("let's ", "let us ", "assum", "simulat", "hypothetical", "placeholder", "mock", "dummy"),
        *("ple data", "for demonstration", "for illustration", "fabricat", "memory", "knowledge"),
    ),
    pattern=re.compile(
        r"\b(?:let(?:'s| us) (?:assume|say|suppose|pretend)|(?:we|I)(?:'ll| will| can)? assum(?:e|ed|ing)\b"
        r"|assuming\b|simulat(?:e|ed|ing)\b|hypothetical\w*"
        r"|placeholder|mock(?:ed)? (?:data|up|result)|dummy (?:data|value)"
        r"|sample data|example data|for (?:demonstration|illustration)\b|as an example dataset"
        r"|fabricat(?:e[ds]?|ing)\b|from (?:my )?(?:memory|general knowledge)"
        r"|based on (?:my )?(?:general|prior|common) knowledge)",
        re.IGNORECASE,
    ),
)
HEDGE: Final = Wording(
    signal="hedging",
    weight=0.3,
    reasons=(("", "sounded unsure"),),
    stems=(
        *("i think", "i believe", "i guess", "probably", "presumably", "might be", "may be", "to be"),
        *("roughly", "it is ", "sure", "certain", "verif"),
    ),
    pattern=re.compile(
        r"\b(?:I (?:think|believe|guess)|probably|presumably|might be|may be|appears to be|seems to be"
        r"|roughly|it is (?:likely|possible)|not (?:entirely )?(?:sure|certain)"
        r"|without (?:further )?verif\w+)",
        re.IGNORECASE,
    ),
)
GIVE_UP: Final = Wording(
    signal="gave_up",
    weight=0.4,
    reasons=(("", "may have given up"),),
    stems=("unable", "not able", "cannot", "can't", "could not", "couldn't", "information"),
    pattern=re.compile(
        r"\b(?:I(?:'m| am|'ve| have)? (?:was |been )?(?:unable|not able)"
        r"|(?:cannot|can't|could not|couldn't) (?:be )?"
        r"(?:find|access|complete|determine|retrieve|locate|answer|proceed|verif\w+)"
        r"|unable to (?:find|access|complete"
        r"|determine|retrieve|locate|answer|proceed)|no (?:further )?information (?:is )?available)",
        re.IGNORECASE,
    ),
)


def made_up(reading: Reading) -> Iterator[Finding]:
    """Find assumed, simulated or placeholder data instead of real data."""
    yield from _worded(reading, MADE_UP)


def hedging(reading: Reading) -> Iterator[Finding]:
    """Find guesses in tasks that ask for facts."""
    yield from _worded(reading, HEDGE)


def gave_up(reading: Reading) -> Iterator[Finding]:
    """Find agents that give up, which is more often the end of a failure than its cause."""
    yield from _worded(reading, GIVE_UP)


def unverified_claim(reading: Reading) -> Iterator[Finding]:
    """Find agents that declare a result correct although nothing was looked up since the claim."""
    for position, text in enumerate(reading.texts):
        before = reading.roles[position - 1] if position else None
        if reading.roles[position] is not Role.ACTING or before is not Role.ACTING:
            continue
        found = None if "```" in text else _claimed(reading.outputs[position])
        if found is not None:
            yield Finding(
                step=position,
                signal="unverified_claim",
                weight=0.5,
                reason=""
                if _is_listed(found)
                else f"may have called a result right without a check: it wrote {_clause(found)}",
                quote=_quote(found, reading.steps[position]),
            )


_PLANNED: Final = re.compile(
    r"^\W*\d+[.)]\s|\b(?:will|shall|should|must|needs? to|let(?:'s| us)|I'll|we'll|going to|once|before"
    r"|until|if|whether|please|ensur\w+|verify|provide)\b",
    re.IGNORECASE,
)
"""Signs of a plan, an instruction or a condition, which claim nothing yet."""


def _claimed(text: str) -> re.Match[str] | None:
    """Return the first claim that a result is right."""
    for found in _CLAIMS_DONE.finditer(text):
        least = max(0, found.start() - _LINE)
        begin = max(least, *(text.rfind(mark, least, found.start()) + 1 for mark in ("\n", ". ", "! ", "? ")))
        if not _PLANNED.search(text[begin : found.start()]):
            return found
    return None


def _worded(reading: Reading, wording: Wording) -> Iterator[Finding]:
    for position, text in enumerate(reading.outputs):
        if reading.roles[position] not in _OWN_WORDS:
            continue
        found = wording.find(text)
        if found is not None:
            yield Finding(
                step=position,
                signal=wording.signal,
                weight=wording.weight,
                reason=wording.as_predicate(found),
                quote=_quote(found, reading.steps[position]),
            )


def _is_listed(found: re.Match[str]) -> bool:
    """Tell whether a match is in a numbered list: a plan's item claims nothing."""
    return _LISTED.match(found.string, found.string.rfind("\n", 0, found.start()) + 1) is not None


def _clause(found: re.Match[str]) -> str:
    """Return a match to the end of its clause, in quotation marks: a reader must see what it is about."""
    rest = found.string[found.start() : found.start() + 2 * _CLAUSE]
    ends = _CLAUSE_END.search(rest, found.end() - found.start())
    whole = " ".join(rest[: ends.start() if ends else len(rest)].replace('"', "'").split())
    shown = beginning(whole, _CLAUSE)
    is_cut = shown != whole or (ends is None and found.start() + len(rest) < len(found.string))
    return f"“{shown} …”" if is_cut else f"“{shown}”"


def _quote(found: re.Match[str] | None, step: Step) -> str:
    if found is None:
        return ""
    return excerpt(step.output, found.start(), found.end(), before=40, after=80)
