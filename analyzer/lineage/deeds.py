"""Deeds: calls that change something, what they returned, and what the answer says was done. Pure.

Four readers. A call takes more than the maximum that an earlier call returned, or than people ordered: 210
bags, as a result said, where somebody then said "order 120 bags, not more". The answer reports another
figure than the result of the very deed that it reports. The answer claims a deed for which there was no call:
each claim needs a call of its own, by whatever name, so a claim is accused only if all calls that change
something are spoken for.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Final

import tomli

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.entries import fields_in
from analyzer.lineage.figures import Figure, figures, words_of
from analyzer.lineage.known import Known, around
from analyzer.texts.commands import call_name, commands_of
from analyzer.texts.normalize import lowercased
from analyzer.texts.run_view import HEAD, QUOTE
from analyzer.texts.tool_names import deed_of, looks_up
from analyzer.texts.tool_results import Fault
from analyzer.texts.vocabulary import phrases
from analyzer.texts.wordings import Kind, languages_in, may_say, says
from semconv.model import Evidence, Step, StepKind
from semconv.record import record

SENTENCE: Final = re.compile(r"[^.!?。！？।\n]+(?:[.!?](?!\s|$)[^.!?。！？।\n]*)*[.!?。！？।]?")  # noqa: RUF001 - other scripts
QUESTION_MARKS: Final = ("?", "？", "؟")  # noqa: RUF001 - of other scripts
_WORD: Final = re.compile(r"[^\W\d_]+")
VERB_LETTERS: Final = 4
"""Letters that the forms of a verb have in common: ``anular`` and ``anules``."""
_LIMITS: Final = frozenset(
    {"max", "maximum", "limit", "allowed", "allowance", "cap", "ceiling", "upto", "most"}
)
"""Words of keys whose value is the most that may be taken."""
_MOST_SENTENCES: Final = 80
_MOST_KEYS: Final = 40


_ENGLISH: Final = "en"
_ADVERBS: Final = r"(?:\s(?:also|just|already|now|then|successfully|since|been)){0,3}"
_SAYS_DONE: Final = re.compile(
    rf"\b(?:I|we)(?:['’]ve|\s(?:have|had))?{_ADVERBS}\s(?:[a-z]{{3,14}}ed|sent|paid|bought)\b"  # noqa: RUF001 - an apostrophe
    rf"|\b(?:has|have|had|was|were|is|are){_ADVERBS}\s(?:[a-z]{{3,14}}ed|sent|paid|bought)\b(?!\sby\b)",
    re.IGNORECASE,
)
"""An English sentence that says that something was done, by the speaker or in the passive."""
_PASSIVE: Final = re.compile(r"\b(?:was|were)\s[a-z]{3,14}ed\b")
_FIRST_PERSON: Final = re.compile(r"\b(?:I|we|our|my)\b", re.IGNORECASE)
NOT_DONE: Final = re.compile(
    r"\b(?:if|once|when|unless|until|no|not|nothing|nobody|none|never|cannot|whether|to be|be)\b",
    re.IGNORECASE,
)


@record
class _Deed:
    """A call that may have changed something, and succeeded."""

    position: int
    tool: str
    texts: str
    """The texts among its arguments, without their quotes."""
    result: str


@record
class _Words:
    """Words that say what was done, by how they are found in a text in lower case."""

    whole: Mapping[str, str]
    beginnings: Mapping[str, str]
    parts: Mapping[str, str]
    """Of scripts whose words are not separated, or change in their middle."""
    other: re.Pattern[str]
    """Matches the beginnings, and the parts."""


@functools.cache
def _words(*, with_tools: bool) -> _Words:
    rows = tomli.loads((files(__package__) / "deeds.toml").read_text(encoding="utf-8"))
    told = {
        word: act
        for act, row in rows.items()
        for language, words in row.items()
        if with_tools or language != "tools"
        for word in words.split()
    }
    apart = {word: act for word, act in told.items() if ord(word[0]) < _LAST_SPACED}
    beginnings = {word[:-1]: act for word, act in apart.items() if word.endswith("-")}
    parts = {word: act for word, act in told.items() if word not in apart}
    return _Words(
        whole={word: act for word, act in apart.items() if not word.endswith("-")},
        beginnings=beginnings,
        parts=parts,
        other=re.compile(rf"(?<!\w)(?:{'|'.join(beginnings)})|{'|'.join(parts)}"),
    )


_LAST_SPACED: Final = 0x0530
"""The first character after the Latin, Greek and Cyrillic scripts."""


def acts_in(text: str, *, with_tools: bool = False) -> frozenset[str]:
    """Return what a text says was done (``cancel``), in any of the languages.

    Args:
        text: any text.
        with_tools: whether the words of tools' names count as well.
    """
    words, small = _words(with_tools=with_tools), text.casefold()
    tokens = set(_WORD.findall(small))
    found = {words.whole[token] for token in tokens & words.whole.keys()}
    if not small.isascii():
        found |= {words.beginnings.get(one) or words.parts[one] for one in words.other.findall(small)}
    return frozenset(found)


@functools.lru_cache(maxsize=256)
def acts_of(tool: str) -> frozenset[str]:
    """Return what a tool does by its name: ``cancel`` for ``cancelOrder``, in any of the languages."""
    return acts_in(spaced(tool), with_tools=True)


def _deeds(known: Known) -> list[_Deed]:
    """Return the successful calls that change something, or whose names do not tell."""
    reading = known.reading
    return [
        _Deed(position=place, tool=_does(step), texts=_texts(step.input), result=step.output[:HEAD])
        for place, step in enumerate(reading.steps)
        if step.kind is StepKind.TOOL
        and not looks_up(call_name(step))
        and reading.faults[place] is Fault.NONE
    ]


def _does(step: Step) -> str:
    """Return the names of all that a call does: of the tool, or of each command of a shell."""
    return "; ".join(commands_of(step)) or call_name(step)


def _texts(arguments: str) -> str:
    return "\n".join(value for value in fields_in(arguments[:HEAD]).values() if isinstance(value, str))


def claimed_deeds(known: Known) -> Iterator[Clue]:
    """Yield the deeds that the answer claims, that no call did, and that nothing in the run speaks of."""
    tools = [_does(step) for step in known.reading.steps if step.kind is StepKind.TOOL]
    claims = claims_in(known.answer) if tools else ()
    if not any(acts for _, acts in claims) or _are_unspoken_for(known, claims):
        return
    spoken = [*map(spaced, tools), *(text for _, text in known.results())]
    done = acts_in("\n".join(spoken), with_tools=True)
    asked = acts_in(known.asked, with_tools=True)
    for sentence, acts in claims:
        if acts and acts.isdisjoint(done) and (not _is_passive(sentence) or acts & asked):
            yield _claim(known, sentence)


def _is_passive(sentence: str) -> bool:
    """Tell whether an English sentence only says that something was done: by anybody, at any time."""
    return _PASSIVE.search(sentence) is not None and _FIRST_PERSON.search(sentence) is None


@functools.lru_cache(maxsize=4)
def claims_in(answer: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the sentences that say that something was done, each with what; the readers ask in turn."""
    return tuple(_claims(answer))


def _claims(answer: str) -> Iterator[tuple[str, frozenset[str]]]:
    languages = languages_in(answer)
    others = tuple(code for code in languages if code != _ENGLISH)
    may_claim = bool(others) and may_say(Kind.CLAIM_DONE, answer, others)
    for found in list(SENTENCE.finditer(answer))[:_MOST_SENTENCES]:
        sentence = found[0].strip()
        is_english = _ENGLISH in languages and _SAYS_DONE.search(sentence) and not NOT_DONE.search(sentence)
        is_claim = is_english or (may_claim and says(Kind.CLAIM_DONE, sentence, others))
        if is_claim and not sentence.endswith("?"):
            yield sentence, acts_in(sentence)


def _are_unspoken_for(known: Known, claims: Sequence[tuple[str, frozenset[str]]]) -> bool:
    """Tell whether more calls changed something than claims are left for: a claim may mean such a call."""
    named = frozenset[str]().union(*(acts for _, acts in claims))
    vague = sum(not acts for _, acts in claims)
    unnamed = [
        deed
        for deed in _deeds(known)
        if acts_of(deed.tool).isdisjoint(named)
        and not any(_carries(deed, sentence) for sentence, _ in claims)
    ]
    return len(unnamed) > vague


def _carries(deed: _Deed, sentence: str) -> bool:
    """Tell whether a call only delivers the words of a sentence."""
    return sentence in deed.texts


@functools.lru_cache(maxsize=1024)
def spaced(tool: str) -> str:
    """Return a tool's name as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_.-]", " ", tool)


def _claim(known: Known, sentence: str) -> Clue:
    return claim_of(known, sentence, "claimed a deed for which there was no call")


def claim_of(known: Known, sentence: str, reason: str) -> Clue:
    """Return the clue against the step that first says a sentence."""
    position = known.first_with(sentence)
    quote = Evidence(step=known.reading.steps[position].index, quote=sentence[:QUOTE])
    return known.clue(position, ClueKind.CLAIMED, reason, quote)


@record
class Amount:
    """A number of a call's arguments or result, with the words of its key."""

    figure: Figure
    key: str
    words: frozenset[str]


def amounts_in(text: str) -> Iterator[Amount]:
    """Yield the numbers of a JSON object, with their keys; of a text, the only one."""
    for key, value in list(fields_in(text).items())[:_MOST_KEYS]:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        found = figures(f'{{"{key}": {value}}}' if not isinstance(value, str) else value)
        if len(found) == 1:
            yield Amount(figure=found[0], key=key, words=words_of(key))


def exceeded_maxima(known: Known) -> Iterator[Clue]:
    """Yield the calls that take more than the maximum that a result before them gave."""
    maxima: list[tuple[int, Amount]] = []
    deeds = {place for tool, place in known.last_calls.items() if not looks_up(tool or "")}
    for position, step in enumerate(known.reading.steps[: max(deeds, default=-1) + 1]):
        if step.kind is not StepKind.TOOL:
            continue
        if maxima and not looks_up(step.target or ""):
            of_tool = words_of(spaced(step.target or ""))
            for amount in amounts_in(step.input[:HEAD]):
                found = next((one for one in reversed(maxima) if _exceeds(amount, one[1], of_tool)), None)
                if found is not None and _is_latest(maxima, found):
                    yield _excess(known, position, amount, *found)
        small = lowercased(step.output[:HEAD])
        if any(word in small for word in _LIMITS):
            maxima += [(position, one) for one in amounts_in(step.output[:HEAD]) if one.words & _LIMITS]


def exceeded_orders(known: Known) -> Iterator[Clue]:
    """Yield the calls that take more of a thing than the only number of it in what people said to do.

    The call has the number from a result before their last words, which set a cap ("not more"): a surcharge,
    a lot size or a stock to fill up are reasons for other numbers.
    """
    at, last = max(_said_later(known), default=(0, ""))
    stated = [one for one in figures(known.asked) if one.unit and not one.is_label] if last else []
    heard = {figure.literal for figure in figures(last)}
    orders = [(one, sentence_at(known.asked, one.start)) for one in stated if one.literal in heard]
    ordered = [
        (one, acts) for one, said in orders if _caps(said) and (acts := acts_in(said, with_tools=True))
    ]
    for position, step in enumerate(known.reading.steps if ordered else ()):
        if step.kind is not StepKind.TOOL or position < at or looks_up(step.target or ""):
            continue
        for amount in amounts_in(step.input[:HEAD]):
            value = amount.figure.value
            if not known.is_number_read(value, at):
                continue
            meant = [
                figure
                for figure, acts in ordered
                if figure.unit in amount.words and acts & acts_of(step.target or "") and value > figure.value
            ]
            same = [figure for figure in stated if figure.unit in amount.words or figure.value == value]
            if len(meant) == len(same) == 1 and not _is_converted(meant[0], amount):
                yield _over_ordered(known, position, amount, meant[0])


def _said_later(known: Known) -> Iterator[tuple[int, str]]:
    """Yield what people said after the task, with its position."""
    return ((one.step, one.text) for one in known.sources if not one.is_result and one.step is not None)


def _caps(sentence: str) -> bool:
    """Tell whether a sentence allows no more than it says."""
    languages = languages_in(sentence)
    return any(phrases(kind, languages).search(sentence) for kind in ("no", "only", "at_most"))


def is_question(sentence: str) -> bool:
    """Tell whether a sentence ends in a question mark of any script."""
    return sentence.rstrip().endswith(QUESTION_MARKS)


def sentence_at(text: str, place: int) -> str:
    """Return the sentence of a text that has the character at a place; empty if there is none."""
    return next((one[0] for one in SENTENCE.finditer(text) if one.start() <= place < one.end()), "")


def _is_converted(ordered: Figure, amount: Amount) -> bool:
    """Tell whether a call takes as many in another unit: 24 bottles for 2 boxes."""
    return (amount.figure.value / ordered.value).is_integer() if ordered.value else True


def _over_ordered(known: Known, position: int, amount: Amount, ordered: Figure) -> Clue:
    literal = amount.figure.literal
    asker = known.origin_of(f'"{amount.key}": {literal}', position)
    reason = f"called {known.giver(position)} with {amount.key} {literal}, where people said {ordered.shown}"
    quote = _argument(known, position, amount)
    return known.clue(asker, ClueKind.EXCEEDED, reason, quote, value=amount.figure.value)


def _exceeds(amount: Amount, most: Amount, of_tool: frozenset[str]) -> bool:
    ours, theirs = amount.figure, most.figure
    if ours.unit != theirs.unit or ours.value <= theirs.value + 0.51 * theirs.step:
        return False
    return bool(ours.unit) or bool((most.words - _LIMITS) & (amount.words | of_tool))


def _is_latest(maxima: list[tuple[int, Amount]], found: tuple[int, Amount]) -> bool:
    """Tell whether a maximum is the last one of its key: a later result replaces it."""
    return all(one[0] <= found[0] for one in maxima if one[1].key == found[1].key)


def _excess(known: Known, position: int, amount: Amount, source: int, most: Amount) -> Clue:
    asker = known.origin_of(amount.figure.literal, position)
    step = asker if asker > source else position
    reason = (
        f"called {known.giver(position)} with {amount.figure.shown}, more than the {most.key}"
        f" {most.figure.literal} that {known.giver(source)} returned"
    )
    quotes = (known.quote(source, most.figure.literal), _argument(known, position, amount))
    return known.clue(step, ClueKind.EXCEEDED, reason, *quotes, value=amount.figure.value)


def _argument(known: Known, position: int, amount: Amount) -> Evidence:
    step = known.reading.steps[position]
    return Evidence(step=step.index, quote=around(step.input, amount.figure.literal, reach=40))


def misreported_deeds(known: Known) -> Iterator[Clue]:
    """Yield the deeds that the answer reports with another figure than their result, which it lacks."""
    answer = known.answer
    stated = figures(answer)
    amounts = list(_unsaid_amounts(known, stated)) if any(figure.unit for figure in stated) else []
    reports = list(_reports(answer, stated)) if amounts else []
    for deed, amount in amounts:
        acts = acts_of(deed.tool)
        found = next((report for report in reports if _reports_on(report, amount, acts)), None)
        if found is not None:
            yield _misreport(known, deed, amount, found)


def _unsaid_amounts(known: Known, stated: Sequence[Figure]) -> Iterator[tuple[_Deed, Amount]]:
    """Yield the deeds with the only amount of their result, if the answer does not state it."""
    for deed in _deeds(known):
        if not deed_of(deed.tool):
            continue
        amounts = [one for one in amounts_in(deed.result) if one.figure.unit and not one.figure.is_label]
        if len(amounts) == 1 and not any(figure.is_about(amounts[0].figure.value) for figure in stated):
            yield deed, amounts[0]


@record
class _Report:
    """A sentence of the answer with a figure of a unit that it gives once."""

    sentence: str
    figure: Figure
    acts: frozenset[str]
    words: frozenset[str]


def _reports(answer: str, stated: Sequence[Figure]) -> Iterator[_Report]:
    for found in list(SENTENCE.finditer(answer))[:_MOST_SENTENCES]:
        inside = [figure for figure in stated if found.start() <= figure.start < found.end() and figure.unit]
        units = [figure.unit for figure in inside]
        yield from (
            _Report(sentence=found[0].strip(), figure=one, acts=acts_in(found[0]), words=words_of(found[0]))
            for one in inside
            if units.count(one.unit) == 1
        )


def _reports_on(report: _Report, amount: Amount, acts: frozenset[str]) -> bool:
    """Tell whether a sentence gives a deed's amount: in its unit, with a word for what was done."""
    if report.figure.unit != amount.figure.unit:
        return False
    return bool(acts & report.acts) or bool((amount.words - {amount.figure.unit}) & report.words)


def _misreport(known: Known, deed: _Deed, amount: Amount, report: _Report) -> Clue:
    figure = report.figure
    position = known.first_with(figure.literal, after=deed.position)
    returned = amount.figure
    reason = (
        f"reported {figure.shown}, where {known.giver(deed.position)} returned {returned.literal}"
        f" {returned.unit.upper()}"
    )
    evidence = Evidence(step=known.reading.steps[position].index, quote=report.sentence[:QUOTE])
    quote = known.quote(deed.position, returned.literal)
    return known.clue(position, ClueKind.MISREPORTED, reason, quote, evidence, value=figure.value)
