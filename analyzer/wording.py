"""Signals in what agents say: words that go with mistakes, in English.

They are weak witnesses, and weigh accordingly: an agent may say that it assumes
something and be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.finding import Finding
from analyzer.reading import HEAD, Reading, Role
from semconv.model import Step

CLAIMS_DONE: Final = re.compile(
    r"\b(?:confirmed|verified|is correct|are correct|accurate|final answer|conclu(?:de|sion)|therefore"
    r"|the (?:answer|result) is|successfully|has been (?:confirmed|verified))\b",
    re.IGNORECASE,
)
_MADE_UP: Final = re.compile(
    r"\b(?:let(?:'s| us) (?:assume|say|suppose|pretend)|(?:we|I)(?:'ll| will| can)? assum(?:e|ed|ing)\b"
    r"|assuming\b"
    r"|simulat(?:e|ed|ing)\b|hypothetical\w*|placeholder|mock(?:ed)? (?:data|up|result)|dummy (?:data|value)"
    r"|sample data|example data|for (?:demonstration|illustration)\b|as an example dataset|fabricat\w+"
    r"|from (?:my )?(?:memory|general knowledge)|based on (?:my )?(?:general|prior|common) knowledge)",
    re.IGNORECASE,
)
_HEDGE: Final = re.compile(
    r"\b(?:I (?:think|believe|guess)|probably|presumably|might be|may be|appears to be|seems to be|roughly"
    r"|it is (?:likely|possible)|not (?:entirely )?(?:sure|certain)|without (?:further )?verif\w+)",
    re.IGNORECASE,
)
_GIVE_UP: Final = re.compile(
    r"\b(?:I(?:'m| am|'ve| have)? (?:was |been )?(?:unable|not able)"
    r"|(?:cannot|can't|could not|couldn't) (?:be )?"
    r"(?:find|access|complete|determine|retrieve|locate|answer|proceed|verif\w+)"
    r"|unable to (?:find|access|complete"
    r"|determine|retrieve|locate|answer|proceed)|no (?:further )?information (?:is )?available)",
    re.IGNORECASE,
)


def made_up(reading: Reading) -> Iterator[Finding]:
    """Assumed, simulated or placeholder data in place of real ones."""
    yield from _worded(
        reading, _MADE_UP, "made_up_data", 1.2, "works with assumed or made-up data instead of finding out"
    )


def hedging(reading: Reading) -> Iterator[Finding]:
    """A guess where the task wants to know."""
    yield from _worded(reading, _HEDGE, "hedging", 0.3, "guesses instead of finding out")


def gave_up(reading: Reading) -> Iterator[Finding]:
    """Saying that it cannot be done: more often the end of a failure than its beginning."""
    yield from _worded(reading, _GIVE_UP, "gave_up", 0.4, "gives up")


def unverified_claim(reading: Reading) -> Iterator[Finding]:
    """An agent that declares a result right without anything having been looked up since the claim."""
    for position, text in enumerate(reading.texts):
        if reading.roles[position] is not Role.ACTING or not CLAIMS_DONE.search(text):
            continue
        before = reading.roles[position - 1] if position else None
        if before is Role.ACTING and "```" not in text:
            yield Finding(
                step=position,
                signal="unverified_claim",
                weight=0.5,
                reason="declares a result without having checked it",
                quote=_match_quote(CLAIMS_DONE, reading.steps[position]),
            )


def _worded(
    reading: Reading, pattern: re.Pattern[str], signal: str, weight: float, reason: str
) -> Iterator[Finding]:
    for position, step in enumerate(reading.steps):
        if reading.roles[position] not in (Role.ACTING, Role.COORDINATING):
            continue
        if pattern.search(step.output[:HEAD]):
            quote = _match_quote(pattern, step)
            yield Finding(step=position, signal=signal, weight=weight, reason=reason, quote=quote)


def _match_quote(pattern: re.Pattern[str], step: Step) -> str:
    found = pattern.search(step.output[:HEAD])
    if found is None:
        return ""
    start = max(0, found.start() - 40)
    return step.output[start : found.end() + 80].strip()
