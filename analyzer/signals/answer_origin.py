"""Where a run's answer comes from, and where the right one was lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.finding import QUOTE, Finding
from analyzer.folding import Sought, folded, outside_code
from analyzer.reading import HEAD, Reading, Role, final_answer

_LONGEST_VALUE: Final = 12
"""Words beyond which an answer is prose around a result."""
_LONGEST_ANSWER: Final = 200
_MOST_RESULTS: Final = 4
"""Phrases set off beyond which an answer is a report, and they are its headings."""
_SAYS_SOMETHING: Final = re.compile(r"\d|(?<=[a-z,;:] )[A-Z]\w|[\"“”]")
"""A figure, a name or a quotation: without any of them a sentence only closes the talk."""
_SET_OFF: Final = re.compile(r"\*\*([^*\n]{2,80})(?<![:\s])\*\*(?!\s?:)|\\boxed\{([^{}\n]{1,80})\}")


def answer_origin(reading: Reading) -> Iterator[Finding]:
    """Where the answer of a failed run first appears: everything after it repeats it.

    What an agent's own call returned is supported, right or wrong: it marks no one.
    """
    for stated in _stated_answers(final_answer(reading.trajectory)[:HEAD]):
        sought = Sought(folded(stated))
        if sought.is_in(reading.trajectory.task):
            continue
        position = next((place for place, text in enumerate(reading.texts) if sought.is_in(text)), None)
        if position is None or reading.roles[position] in (Role.STATING, Role.CALL):
            continue
        author = reading.authors[position]
        yield Finding(
            step=author,
            signal="answer_origin",
            weight=1.5 if author == position else 1.0,
            reason="the answer that the run ended with, and failed with, first appears here"
            if author == position
            else "what this step asked for gave the answer that the run ended with, and failed with",
            quote=_verbatim(reading.steps[position].output, stated),
            quoted_step=position,
        )


def _stated_answers(text: str) -> tuple[str, ...]:
    """What an answer gives as its result: all of it if it is short, else what its prose sets off.

    A sentence that counts, names and quotes nothing is no result: it closes the talk.
    """
    prose = "".join(outside_code(text))
    is_value = len(text.split()) <= _LONGEST_VALUE
    if is_value or (len(text) <= _LONGEST_ANSWER and _SAYS_SOMETHING.search(prose)):
        found: tuple[str, ...] = (text,)
    else:
        found = tuple(dict.fromkeys(match[1] or match[2] for match in _SET_OFF.finditer(prose)))
    results = tuple(value for value in found if 3 <= len(folded(value)) <= _LONGEST_ANSWER)
    return results if len(results) <= _MOST_RESULTS else ()


def right_answer_seen(reading: Reading) -> Iterator[Finding]:
    """With the right answer known: while it stood in the run, the run could still succeed."""
    reference = folded(reading.trajectory.reference or "")
    sought = Sought(reference)
    if len(reference) < 3 or sought.is_in(reading.trajectory.task):
        return
    last = max((i for i, text in enumerate(reading.texts) if sought.is_in(text)), default=-1)
    for position in range(last + 1):
        yield Finding(
            step=position,
            signal="right_answer_seen",
            weight=-1.5,
            reason=f"the right answer still stood in the run at step {last}",
        )


def _verbatim(text: str, wanted: str) -> str:
    wanted = wanted.strip(" \t\r\n.!*`\"'")
    at = text.casefold().find(wanted.casefold())
    return text[at : at + len(wanted)][:QUOTE] if at >= 0 else ""
