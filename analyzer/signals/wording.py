"""Signals in what agents say: words that go with mistakes, in English.

They are weak witnesses, and weigh accordingly: an agent may say that it assumes
something and be right. Few texts have any of them, so that plain search for the
words' stems comes first: it takes a tenth of the time that the patterns take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from analyzer.finding import Finding
from analyzer.folding import in_small
from analyzer.reading import Reading, Role
from semconv.model import Step

_OWN_WORDS: Final = frozenset({Role.ACTING, Role.COORDINATING})
CLAIMS_DONE: Final = re.compile(
    r"\b(?:confirmed|verified|is correct|are correct|accurate|final answer|conclu(?:de|sion)|therefore"
    r"|the (?:answer|result) is|successfully|has been (?:confirmed|verified))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Words that go with a mistake, and what they say of it."""

    signal: str
    weight: float
    reason: str
    stems: tuple[str, ...]
    """In small letters; whatever the pattern finds has one of them in it."""
    pattern: re.Pattern[str]

    def find(self, text: str) -> re.Match[str] | None:
        """Return where the words first stand in a text."""
        small = in_small(text)
        for stem in self.stems:
            if stem in small:
                return self.pattern.search(text)
        return None


MADE_UP: Final = Wording(
    signal="made_up_data",
    weight=1.2,
    reason="works with assumed or made-up data instead of finding out",
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
    reason="guesses instead of finding out",
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
    reason="gives up",
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
    """Assumed, simulated or placeholder data in place of real ones."""
    yield from _worded(reading, MADE_UP)


def hedging(reading: Reading) -> Iterator[Finding]:
    """A guess where the task wants to know."""
    yield from _worded(reading, HEDGE)


def gave_up(reading: Reading) -> Iterator[Finding]:
    """Saying that it cannot be done: more often the end of a failure than its beginning."""
    yield from _worded(reading, GIVE_UP)


def unverified_claim(reading: Reading) -> Iterator[Finding]:
    """An agent that declares a result right without anything having been looked up since the claim."""
    for position, text in enumerate(reading.texts):
        before = reading.roles[position - 1] if position else None
        if reading.roles[position] is not Role.ACTING or before is not Role.ACTING:
            continue
        if "```" not in text and CLAIMS_DONE.search(text):
            yield Finding(
                step=position,
                signal="unverified_claim",
                weight=0.5,
                reason="declares a result without having checked it",
                quote=_quote(CLAIMS_DONE.search(reading.outputs[position]), reading.steps[position]),
            )


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
                reason=wording.reason,
                quote=_quote(found, reading.steps[position]),
            )


def _quote(found: re.Match[str] | None, step: Step) -> str:
    if found is None:
        return ""
    start = max(0, found.start() - 40)
    return step.output[start : found.end() + 80].strip()
