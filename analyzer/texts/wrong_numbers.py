"""Signals on numbers: wrong calculations, and numbers of the answer without a source.

``disowned`` detects claims that are only quoted, asked, denied or supposed. It is for English only and looks
at the words right beside the claim, because words further away may refer to something else.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from analyzer.texts.arithmetic import WrongCalculation, wrong_calculations
from analyzer.texts.normalize import excerpt
from analyzer.texts.numbers import derivable, numbers, stated_numbers, written_out
from analyzer.texts.run_view import HEAD, Finding, Reading, Role, final_answer, spoken_input, spoken_output
from analyzer.texts.wording import is_logged
from semconv.model import Step, StepKind

_REACH: Final = 160
"""Characters before and after a claim searched for its negation."""
_SENTENCE_END: Final = re.compile(r"[.!?…](?=[^\w]|$)|\n")
_ATTRIBUTED: Final = re.compile(
    r"(?<!\bI )(?<!\bwe )\b(?:claim(?:s|ed)?|sa(?:ys|id)|stat(?:es|ed)|wrote|writes|assert(?:s|ed)"
    r"|according to|argu(?:es|ed)|suggest(?:s|ed)|report(?:s|ed)|propos(?:es|ed)|tells? (?:me|us|you))"
    r"\b[^.!?\n]*$",
    re.IGNORECASE,
)
_REJECTED_BEFORE: Final = re.compile(
    r"\b(?:(?:wrong|incorrect|false|untrue|mistaken|not true) (?:that|to (?:say|claim|write))"
    r"|incorrectly|wrongly|erroneously|mistakenly|instead of|rather than|disagree (?:that|with)|not)"
    r"\W+(?:[a-z]+\W+){0,3}$"
    r"|\b(?:whether|if|unless|suppose(?: that)?|where|assert)\W*$",
    re.IGNORECASE,
)
_REJECTED_AFTER: Final = re.compile(
    r"\W{0,6}(?:(?:and|but|which|that|this|it|the|a|an|claim|sum|calculation|computation|result|is|was|are|looks|seems"
    r"|clearly|simply|plainly|actually|of course)\W{1,3}){0,6}"
    r"(?:wrong|incorrect|false|untrue|mistaken|erroneous|mistake|error"
    r"|(?:is|was)n.t (?:right|correct|true|so|accurate|valid)|not (?:right|correct|true|so|accurate|valid)"
    r"|(?:does not|doesn.t) (?:hold|add up|check out))\b",
    re.IGNORECASE,
)
_ANSWERED_NO: Final = re.compile(r"[.!?…]\W*\s\W*no\b\s*(?:[^\w\s]|$)", re.IGNORECASE)
_CORRECTED: Final = re.compile(
    r"\b(?:(?:must|should|ought to|has to|can only) (?:be|have been|read|equal|say)"
    r"|(?:the )?(?:correct|right|true|actual) (?:answer|result|sum|value|total|figure) (?:is|would be|was))"
    r"\W{1,4}(?P<then>\d[\d,.]*)",
    re.IGNORECASE,
)


def disowned(text: str, start: int, end: int, stated: float) -> bool:
    """Tell whether the author of a text does not assert the passage from ``start`` to ``end``.

    Args:
        text: The author's text.
        start: Where the claim begins.
        end: Where it ends, excluded.
        stated: The number that the claim states; another number in its place denies it.
    """
    before = text[max(0, start - _REACH) : start]
    before = before[max((found.end() for found in _SENTENCE_END.finditer(before)), default=0) :]
    after = text[end : end + _REACH]
    closing = _SENTENCE_END.search(after)
    if closing is not None and closing.group() == "?":
        return True
    if _ATTRIBUTED.search(before) or _REJECTED_BEFORE.search(before):
        return True
    if _REJECTED_AFTER.match(after) or _ANSWERED_NO.match(after):
        return True
    corrected = _CORRECTED.search(_two_sentences(after))
    return corrected is not None and stated not in numbers(corrected["then"].rstrip(".,"))


def _two_sentences(text: str) -> str:
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return text[: ends[1]] if len(ends) > 1 else text


_MOST_FIGURES: Final = 40
_RECENT_FIGURES: Final = 12
_LIST_MARK: Final = re.compile(r"[.)](?:\s|$)")
_TELLING_DIGITS: Final = 2
"""Significant digits from which on a number is recognised at another scale: 5 and 5,000 may be unrelated."""


def wrong_sum(reading: Reading) -> Iterator[Finding]:
    """Find wrong calculations where they are first made.

    A calculation repeated from the task or a person, or quoted to be denied, is not blamed. A tool's output
    does not excuse an agent: its text may come from anywhere, and an agent that adopts a calculation is
    responsible for it.
    """
    answer = numbers(final_answer(reading.trajectory)[:HEAD])

    def telling(one: WrongResult) -> tuple[bool, float]:
        """Sort key: calculations whose result is in the answer first, then the largest error."""
        return one.error.stated not in answer, -abs(one.error.stated / (one.error.right or 1.0) - 1)

    for stated in sorted(wrong_results(reading), key=telling):
        right_step = _tool_that_gave(reading, stated.error.right_shown, before=stated.step)
        yield Finding(
            step=stated.step,
            signal="wrong_computation",
            weight=6.0,
            reason=f"calculated “{stated.error.quote}”; the result is {stated.error.right_shown}",
            detail="" if right_step is None else _told_right(reading.steps[right_step]),
            quote=stated.quote,
            right_step=right_step,
        )


def _tool_that_gave(reading: Reading, right: str, *, before: int) -> int | None:
    """Return the last earlier tool call whose result has the right number, if any.

    A number of one or two digits stands in many results by chance, and so counts for nothing.
    """
    if sum(letter.isdigit() for letter in right) <= _TELLING_DIGITS:
        return None
    wanted = numbers(right)
    return next(
        (
            place
            for place in reversed(range(before))
            if reading.steps[place].kind is StepKind.TOOL and wanted & numbers(reading.outputs[place])
        ),
        None,
    )


def _told_right(call: Step) -> str:
    return f"The tool {call.target or call.name} gave the right result at step {call.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongResult:
    """A wrong calculation that a step makes."""

    step: int
    error: WrongCalculation
    quote: str
    """The calculation as the step wrote it."""


@lru_cache(maxsize=2)
def wrong_results(reading: Reading) -> tuple[WrongResult, ...]:
    """Return each agent's wrong calculations where they are first made, except those of tools and people."""
    return tuple(_wrong_results(reading))


def _wrong_results(reading: Reading) -> Iterator[WrongResult]:
    seen = {error.stated for error in wrong_calculations(reading.trajectory.task[:HEAD])}
    for position, step in enumerate(reading.steps):
        relayed = reading.roles[position] is Role.RELAYING
        if relayed and step.kind is not StepKind.HUMAN:
            continue
        entered = step.input[:HEAD] if step.kind is StepKind.TOOL else ""
        for text, written in ((reading.outputs[position], step.output), (entered, entered)):
            for error in wrong_calculations(text):
                if error.stated in seen:
                    continue
                if not relayed and disowned(text, error.start, error.end, error.stated):
                    continue
                seen.add(error.stated)
                if not relayed:
                    quote = excerpt(written, error.start, error.end, before=60, after=60)
                    yield WrongResult(step=position, error=error, quote=quote)


def unsupported_figure(reading: Reading) -> Iterator[Finding]:
    """Find numbers of the final answer without a source: no tool, person or input showed them.

    The run failed, so its answer is taken to be wrong; the step that introduced the
    number is suspect. A number that two basic operations on known ones give may have been
    computed, and weighs less.
    """
    answer = stated_numbers(final_answer(reading.trajectory)[:HEAD]) - _ordinary(reading.trajectory.task)
    if not answer or len(answer) > _MOST_FIGURES:
        return  # no numbers, or a dump instead of an answer
    forms = {value: _at_any_scale(value) for value in answer}
    known = _known(reading.trajectory.task[:HEAD])
    recent = deque(sorted(known), maxlen=_RECENT_FIGURES)
    blamed: set[float] = set()
    for position, step in enumerate(reading.steps):
        left = {value: same for value, same in forms.items() if value not in blamed and not same & known}
        if not left:
            return
        entered = _known(spoken_input(step)[:HEAD])
        recent.extend(sorted(entered - known))
        known |= entered
        said = spoken_output(step, reading.outputs[position])
        stated = numbers(said)
        scaled = written_out(said) if stated else {}
        if reading.roles[position] in (Role.ACTING, Role.COORDINATING):
            scaled_known = {value for value, full in scaled.items() if full in known}
            brought = {at for at, same in left.items() if not same & known and not scaled_known & same}
            for figure in sorted((at for at in brought if left[at] & stated), key=_telling):
                blamed.add(figure)
                value = figure if figure in stated else min(left[figure] & stated)
                worked_out = derivable(value, recent)
                shown = _as_written(step.output, value)
                place, is_vacuous = _place_of(step.output, shown)
                reason = (
                    f"was the first to state {shown}, which is in the final answer"
                    if worked_out
                    else f"stated {shown}, a number in the final answer that no earlier message contains"
                )
                yield Finding(
                    step=position,
                    signal="unsupported_figure",
                    weight=0.8 if worked_out else 3.0,
                    reason="" if is_vacuous else reason,
                    quote=excerpt(step.output, *place.span(), before=60, after=60) if place else "",
                )
        recent.extend(sorted(stated - known))
        known |= stated | set(scaled.values())


def _telling(value: float) -> tuple[bool, int, float]:
    """Sort numbers by significance: those with most digits first, years last."""
    is_year = value.is_integer() and 1900 <= value < 2100
    return is_year, -len(f"{value:.10g}".strip("-").replace(".", "").rstrip("0")), value


def _at_any_scale(value: float) -> frozenset[float]:
    """Return a number and its forms in thousandths and thousands of its unit: 9.6 kW is 9600 W."""
    if len(f"{value:.10e}".partition("e")[0].replace(".", "").strip("-0")) < _TELLING_DIGITS:
        return frozenset((value,))
    return frozenset(float(f"{value * scale:.12g}") for scale in (1, 1e3, 1e6, 1e-3, 1e-6))


def _known(text: str) -> set[float]:
    found = numbers(text)
    return {*found, *written_out(text).values()} if found else set()


def _ordinary(task: str) -> frozenset[float]:
    """Return numbers without significance: those of the task, and the smallest integers (list markers)."""
    return numbers(task[:HEAD]) | frozenset(float(n) for n in range(4))


def _as_written(text: str, value: float) -> str:
    """Return a number as it is written in the text: a year has no comma."""
    bare, grouped = f"{value:.10g}", f"{value:,.10g}"
    return bare if bare in text and grouped not in text else grouped


def _place_of(text: str, shown: str) -> tuple[re.Match[str] | None, bool]:
    """Return where a text states a number, and whether it only numbers a list or is in a program's log."""
    alone = rf"(?<![\w.,]){re.escape(shown)}(?![\w]|[.,]\d)"
    places = [*re.finditer(alone, text)] or [*re.finditer(re.escape(shown), text)]
    telling = (place for place in places if not is_logged(text, place) and not _numbers_a_list(text, place))
    found = next(telling, None)
    return found or next(iter(places), None), bool(places) and found is None


def _numbers_a_list(text: str, found: re.Match[str]) -> bool:
    line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
    return not line.strip(" \t#*>-") and _LIST_MARK.match(text, found.end()) is not None
