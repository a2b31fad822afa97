"""Ids and quotations of the answer that occur nowhere in the run.

A source that it names beside is no clue: agents know norms, authors and addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import dates_in
from analyzer.lineage.deeds import acts_in, sentence_at
from analyzer.lineage.known import Known, known_of
from analyzer.lineage.sources import Source, is_blind, sources
from analyzer.signals.suspicion.answer_parts import parts_of, quotations
from analyzer.texts.normalize import excerpt, normalized
from analyzer.texts.numbers import DENSE
from analyzer.texts.run_view import HEAD, Reading, final_answer
from analyzer.texts.wordings import languages_in
from semconv.model import Evidence, StepKind

_ID: Final = re.compile(
    rf"(?<![^\W{DENSE}])(?<![/.-])(?:#\d{{3,}}|[A-Za-z]{{1,8}}[-_]?\d{{2,}}(?:[-_]\d+)*"
    rf"|[A-Z]{{2,}}[-_][A-Z0-9]{{2,}}[-_]?\d*)(?![^\W{DENSE}]|%)"
)
_NUMBER: Final = re.compile(r"[A-Z]{1,5}-\d{2,}")
"""The number of an order, a booking or a ticket, as most of them are written."""
_SPOKEN: Final = re.compile(
    r"(?:q|fy|utf|sha|aes|rsa|gpt|covid|iso|iec|en|din|nf|une|uni|bs|pn|nen|gost|astm|ieee|ansi|jis|gb|nbr|rfc|cve|un)[-_]?\d[\d-]*",
    re.IGNORECASE,
)
"""Periods, and numbers of norms, which agents know."""
_FEWEST_DIGITS: Final = 5
"""Digits from which an id names one thing of many; norms, models and sizes have up to four: ``RTX4090``."""
_LONGEST: Final = 40
_SERIES: Final = 20
"""Numbers after a given one that continue it."""
_LINK: Final = re.compile(r"https?://[^\s)\]>\"'“”]+")
_DIGITS: Final = re.compile(r"\d+")
_LEFT_OUT: Final = re.compile(r"…|\.\.\.|\[[^\]\n]{0,80}\]|\(\.\.\.\)")
"""What quotations replace or add: they are compared piece by piece."""


def unsourced(reading: Reading) -> Iterator[Clue]:
    """Yield the answer's references that neither a tool nor a person gave."""
    origins = sources(reading)
    if is_blind(reading) or not any(source.is_result for source in origins):
        return
    answer = final_answer(reading.trajectory)[:HEAD]
    told = "\n".join(part.text for part in parts_of(answer))
    called = "\n".join(
        f"{step.target} {step.input[:2_000]}" for step in reading.steps if step.kind is StepKind.TOOL
    )
    given = (*(source.text for source in origins), called)
    for what, found, signs in (
        *_ids(told, given, known_of(reading)),
        *_quotations(reading, answer, origins, called),
    ):
        position = _introduced(reading, found)
        step = reading.steps[position]
        at = max(0, step.output.find(found))
        yield Clue(
            step=step.index,
            kind=ClueKind.UNSOURCED,
            reason=f"gave {what} {found[:80]}, which no tool returned",
            evidence=(
                Evidence(
                    step=step.index, quote=excerpt(step.output, at, at + len(found), before=40, after=40)
                ),
            ),
            signs=signs,
        )


def _ids(told: str, given: Sequence[str], known: Known) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield the ids of an answer that neither stand in a text from outside nor are made of what does."""
    ids = [one for one in dict.fromkeys(_ID.findall(_LINK.sub(" ", told))) if not _is_general(one, told)]
    small = "\n".join(given).casefold() if ids else ""
    for found in ids:
        if len(found) <= _LONGEST and not (found.casefold() in small or _is_composed(found, small, known)):
            shapes = {_shape(each) for each in _ID.findall(small)}
            yield "the id", found, {"id": 1.0, "alike": float(_shape(found) in shapes)}


def _is_general(found: str, told: str) -> bool:
    """Tell whether an id is a norm, a model or a name, and no number of one thing of many.

    A short one is the number of one thing in a sentence that reports a deed: "Booked as BK-41".
    """
    is_short = sum(map(str.isdigit, found)) < _FEWEST_DIGITS and not found.startswith("#")
    if not is_short or not _NUMBER.fullmatch(found):
        return is_short or _SPOKEN.fullmatch(found) is not None
    return _SPOKEN.fullmatch(found) is not None or not acts_in(sentence_at(told, told.find(found)))


def _is_composed(found: str, small: str, known: Known) -> bool:
    """Tell whether the numbers of an id are those of texts, dates, or the next ones of a series.

    So are ids that hold their sign apart (``#655``), and names that an agent proposes (``klanten_20260503``).
    """
    given = {int(number) for number in _DIGITS.findall(small) if len(number) <= _LONGEST}
    return all(
        any(int(number) - place in given for place in range(_SERIES)) or _is_date(number, known)
        for number in _DIGITS.findall(found)
    )


def _is_date(number: str, known: Known) -> bool:
    return any(known.has_date(one) for one in dates_in(number))


def _quotations(
    reading: Reading, answer: str, origins: Sequence[Source], called: str
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield what the answer cites and no text from outside says.

    A translated quotation cannot be compared; words that an agent wrote itself may be cited as that agent's.
    """
    cited = dict.fromkeys(quotations(answer))
    if not cited:
        return
    texts = [normalized(text) for text in (*(source.text for source in origins), called)]
    languages = set(languages_in("\n".join(source.text for source in origins if source.is_result)))
    for found in cited:
        if _stands_in(found, texts) or languages.isdisjoint(languages_in(found)):
            continue
        if not _is_own(reading, found):
            yield "the quotation", found, {"quotation": 1.0}


def _stands_in(quoted: str, texts: Sequence[str]) -> bool:
    """Tell whether each piece of a quotation stands in a text, whatever was left out between them."""
    pieces = [normalized(piece) for piece in _LEFT_OUT.split(quoted)]
    return all(any(piece in text for text in texts) for piece in pieces)


def _is_own(reading: Reading, quoted: str) -> bool:
    """Tell whether an agent wrote the words without quoting anybody before they were quoted."""
    first = reading.steps[_introduced(reading, quoted)].output[:HEAD]
    return quoted in first and quoted not in quotations(first)


def _shape(found: str) -> str:
    return re.sub(r"\d+", "0", found.casefold())


def _introduced(reading: Reading, found: str) -> int:
    last = 0
    for position, step in enumerate(reading.steps):
        if step.kind is StepKind.TOOL:
            continue
        last = position
        if found in step.output:
            return position
    return last
