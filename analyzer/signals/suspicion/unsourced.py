"""Ids, links, quotations and named sources of the answer that occur nowhere in the run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.sources import Source, is_blind, sources
from analyzer.signals.normalize import excerpt, normalized
from analyzer.signals.run_view import HEAD, Reading, final_answer
from analyzer.signals.suspicion.answer_parts import parts_of, quotations
from analyzer.signals.wordings import languages_in
from semconv.model import Evidence, StepKind

_ID: Final = re.compile(
    r"(?<![\w/.-])(?:#\d{3,}|[A-Za-z]{1,8}[-_]?\d{2,}(?:[-_]\d+)*|[A-Z]{2,}[-_][A-Z0-9]{2,}[-_]?\d*)(?![\w%])"
)
_SPOKEN: Final = re.compile(
    r"(?:q|h|fy|covid|top|mp|utf|sha|iso|rfc|python|gpt|gpt-|http|ipv|pm|co|step|v|day|page|p)[-_]?\d+",
    re.IGNORECASE,
)
"""Words with digits that are not ids of the run."""
_LINK: Final = re.compile(r"https?://[^\s)\]>\"'“”]+")
_NAME: Final = r"((?:[A-Z][\w&'-]{1,60}+\s?(?:&\s)?){1,4})"
"""Words that are taken whole: otherwise a key in capitals splits into words in thousands of ways."""
_NAMED: Final = re.compile(
    rf"\b(?:[Aa]ccording to|[Dd]ata from|[Rr]eported by)\s(?:the\s)?(?:\d{{4}}\s)?{_NAME}"
    rf"|\b{_NAME}(?:stated|confirmed|reported|announced|said)\b"
)
_LEFT_OUT: Final = re.compile(r"…|\.\.\.|\[[^\]\n]{0,80}\]|\(\.\.\.\)")
"""What quotations replace or add: they are compared piece by piece."""


def unsourced(reading: Reading) -> Iterator[Clue]:
    """Yield the answer's references that neither a tool nor a person gave."""
    origins = sources(reading)
    if is_blind(reading) or not any(source.is_result for source in origins):
        return
    answer = final_answer(reading.trajectory)[:HEAD]
    given = "\n".join(source.text for source in origins)
    called = "\n".join(
        f"{step.target} {step.input[:2_000]}" for step in reading.steps if step.kind is StepKind.TOOL
    )
    told = "\n".join(part.text for part in parts_of(answer))
    for what, found, signs in (
        *_references(told, f"{given}\n{called}".casefold(), reading.trajectory.agents),
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


def _references(
    answer: str, small: str, agents: Sequence[str]
) -> Iterator[tuple[str, str, dict[str, float]]]:
    links = _LINK.sub(" ", answer)
    shapes = {_shape(found) for found in _ID.findall(small)}
    for found in dict.fromkeys(_ID.findall(links)):
        if found.casefold() in small or _SPOKEN.fullmatch(found) or _is_number(found, small):
            continue
        yield "the id", found, {"id": 1.0, "alike": float(_shape(found) in shapes)}
    for found in dict.fromkeys(_LINK.findall(answer)):
        link = found.rstrip(".,;:!?")
        host = _host(link)
        if link.casefold().rstrip("/") in small:
            continue
        yield "the link", link, {"link": 1.0, "known_host": float(bool(host) and host in small)}
    for match in _NAMED.finditer(links):
        name = (match[1] or match[2]).strip()
        if name.casefold() not in small and name not in agents and len(name) > 3:
            yield "as a source", name, {"name": 1.0}


def _is_number(found: str, small: str) -> bool:
    """Tell whether a text has the number of ``#655``, which data holds without its sign."""
    return found.startswith("#") and re.search(rf"(?<!\d){found[1:]}(?!\d)", small) is not None


def _host(link: str) -> str:
    """Return a link's host; empty if there is none, as in a template such as ``https://[your-domain]/x``."""
    try:
        return (urlsplit(link).hostname or "").removeprefix("www.")
    except ValueError:
        return ""


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
