"""Signals on the origin of a run's final answer, and on the step that lost the correct one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.texts.normalize import SearchText, normalized, outside_code
from analyzer.texts.run_view import HEAD, QUOTE, Finding, Reading, Role, final_answer

_LONGEST_VALUE: Final = 12
"""Number of words from which an answer counts as prose around a result."""
_LONGEST_ANSWER: Final = 200
_SHOWN: Final = 60
"""Characters of a result that a reason repeats."""
_MOST_RESULTS: Final = 4
"""Number of highlighted phrases from which an answer counts as a report, with the phrases as headings."""
_SAYS_SOMETHING: Final = re.compile(r"\d|(?<=[a-z,;:] )[A-Z]\w|[\"“”]")
"""A number, a name or a quotation: a sentence without any of them is only a closing remark."""
_SET_OFF: Final = re.compile(r"\*\*([^*\n]{2,80})(?<![:\s])\*\*(?!\s?:)|\\boxed\{([^{}\n]{1,80})\}")


def answer_origin(reading: Reading) -> Iterator[Finding]:
    """Find where the answer of a failed run first appears; later steps only repeat it.

    An answer that an agent's own call returned counts as supported and yields no finding.
    """
    for stated in _stated_answers(final_answer(reading.trajectory)[:HEAD]):
        sought = SearchText(normalized(stated))
        if sought.is_in(reading.trajectory.task):
            continue
        position = next((place for place, text in enumerate(reading.texts) if sought.is_in(text)), None)
        if position is None or reading.roles[position] in (Role.STATING, Role.CALL):
            continue
        if position - 1 in reading.failures_told:
            continue  # an excuse that a failed call explains, and not a result
        author = reading.responsible_steps[position]
        yield Finding(
            step=author,
            signal="answer_origin",
            weight=1.5 if author == position else 1.0,
            reason=f"was the first to state {_shown(stated)}, which is in the final answer"
            if author == position
            else f"made the call that returned {_shown(stated)}, which is in the final answer",
            quote=_verbatim(reading.steps[position].output, stated),
            quoted_step=position,
        )


def _shown(stated: str) -> str:
    """Return a stated result in quotation marks, on one line; its beginning if it is long."""
    whole = " ".join(stated.split()).strip(" .!*`\"'")
    shown = beginning(whole, _SHOWN)
    return f"“{shown}”" if shown == whole else f"“{shown} …”"


def _stated_answers(text: str) -> tuple[str, ...]:
    """Return the results stated in an answer: all of it if short, else the phrases its prose highlights.

    A sentence without a number, name or quotation is a closing remark and not a result.
    """
    prose = "".join(outside_code(text))
    is_value = len(text.split()) <= _LONGEST_VALUE
    if is_value or (len(text) <= _LONGEST_ANSWER and _SAYS_SOMETHING.search(prose)):
        found: tuple[str, ...] = (text,)
    else:
        found = tuple(dict.fromkeys(match[1] or match[2] for match in _SET_OFF.finditer(prose)))
    results = tuple(value for value in found if 3 <= len(normalized(value)) <= _LONGEST_ANSWER)
    return results if len(results) <= _MOST_RESULTS else ()


def right_answer_seen(reading: Reading) -> Iterator[Finding]:
    """Exonerate the steps up to the last one that still had the correct answer (needs a reference)."""
    reference = normalized(reading.trajectory.reference or "")
    sought = SearchText(reference)
    if len(reference) < 3 or sought.is_in(reading.trajectory.task):
        return
    last = max((i for i, text in enumerate(reading.texts) if sought.is_in(text)), default=-1)
    for position in range(last + 1):
        yield Finding(
            step=position,
            signal="right_answer_seen",
            weight=-1.5,
            reason=f"acted before the right answer was lost: step {last} still had it",
        )


def _verbatim(text: str, wanted: str) -> str:
    wanted = wanted.strip(" \t\r\n.!*`\"'")
    at = text.casefold().find(wanted.casefold())
    return text[at : at + len(wanted)][:QUOTE] if at >= 0 else ""
