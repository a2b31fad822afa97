"""Deeds that break a condition which stands in the words of the task or the instructions. Pure.

"Refunds above 100 EUR need an approval", "never ship to Canada", "only orders under 30 days may be cancelled"
name a quantity or a value, and a deed that it allows or forbids. The deed is aligned by its verb, or by its
object if its tool only makes one; the quantity by its unit or the name of its field, in the arguments or in
the record that they name by its id; a value by standing word for word in one field of that record. A clause
with an exception is left alone, and so is what can be aligned in two ways, or bars only a kind of the deed:
"no express delivery".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.lineage.checks import CHECKS
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import Amount, acts_in, acts_of, amounts_of, forms_of, spaced
from analyzer.lineage.entries import document_in, lists_in, stands_in
from analyzer.lineage.figures import Figure, unit_of
from analyzer.lineage.known import Known, around
from analyzer.lineage.limits import MONEY, PRICE
from analyzer.lineage.rules import (
    LEAST,
    Bar,
    Limit,
    Rule,
    bar_of,
    limit_of,
    plain_beginnings,
    plain_spans,
    rules_of,
    share,
)
from analyzer.lineage.vocabulary import all_languages, phrases, spans
from analyzer.signals.run_view import HEAD, callers_of
from analyzer.signals.tool_names import deed_of, looks_up
from analyzer.signals.tool_results import Fault
from semconv.dialects.reading.values import mapping
from semconv.model import Evidence, StepKind
from semconv.record import record, replace

_MOST: Final = 0.8
_MOST_DEEDS: Final = 40
_MOST_ROWS: Final = 300
_LONGEST_RULE: Final = 60
"""Words of a clause; a longer one is a text without marks."""
_LONGEST_CLAUSE: Final = 16
"""Words from which a clause may state two conditions at once."""
_LONGEST_VALUE: Final = 30
_LONG: Final = 4
_ADJACENT: Final = 6
"""Characters between a deed and the word that bars it: ``a refund is not allowed``."""
_NAME: Final = re.compile(r"[^\W\d_]+(?:[-_][^\W\d_]+)*")
_MOST_QUOTED: Final = 160
_LEAST_NUMBER: Final = 10_000
_CLAUSE: Final = re.compile(r"[;:()\n]|\s[–—-]\s")  # noqa: RUF001 - a dash
_PER: Final = re.compile(
    r"[^\w\n]{0,3}(?:[^\W\d]{1,12}[^\w\n]{1,2})?(?:per|pro|je|par|por|each|na|за|/|每)(?!\w)|[^\w\n]{0,3}/",
    re.IGNORECASE,
)
"""Makes a quantity one of each night or person, which the whole may exceed."""
_ID: Final = re.compile(r"(?=\D*\d)(?!\d{1,4}[-./:]\d)[^\s]{3,60}")
_TELLS: Final = re.compile(r"mail|message|sms|notif|note|alert|report|log(?:_|$)", re.IGNORECASE)


@record
class _Deed:
    """A call that changed something, by its position."""

    position: int
    tool: str
    row: Mapping[str, Any]
    """Its arguments."""
    named: tuple[Mapping[str, Any], ...]
    """The record that its arguments name, if there is one."""

    @property
    def verb(self) -> str:
        """The word of its name that says what it does."""
        does = phrases("does", all_languages()).search(spaced(self.tool).casefold())
        return deed_of(self.tool) or (does[0] if does else "") or " ".join(sorted(acts_of(self.tool)))

    def is_named_in(self, text: str) -> bool:
        """Tell whether a text names the deed: by its verb, or by its object if it only makes one."""
        makes = phrases("makes", all_languages()).fullmatch(self.verb)
        name = spaced(self.tool) if makes else self.verb
        words, acts = plain_beginnings(name), acts_in(name, with_tools=True)
        return bool(acts & acts_in(text, with_tools=True)) or share(
            words | forms_of(acts), plain_beginnings(text)
        )


@record
class _Stated:
    """What a sentence demands."""

    rule: Rule
    free: Limit | None
    """The quantity above which it asks for a consent."""
    clauses: tuple[Rule, ...]
    """Its clauses that deny or limit something."""


def broken_conditions(known: Known) -> Iterator[Clue]:
    """Yield the deeds that break a condition; of each the first that it breaks."""
    deeds = _deeds(known)
    stated = list(_stated(known)) if deeds else []
    for each in deeds if stated else ():
        deed = replace(each, named=_record_of(known, each))
        found = (words for one in stated for words in _broken(known, deed, one))
        words = next(found, None)
        if words is not None:
            yield _clue(known, deed, *words)


def _stated(known: Known) -> Iterator[_Stated]:
    """Yield the sentences that demand something."""
    for rule in rules_of(known):
        free = limit_of(rule) if _asks_for_consent(rule) else None
        parts = (
            Rule(words=words, before="", following="", languages=rule.languages)
            for words in _CLAUSE.split(rule.words)
            if len(words.split()) <= _LONGEST_RULE
        )
        clauses = tuple(
            one
            for one in parts
            if one.has("no", "only") and not one.is_open and not _consent().search(one.words)
        )
        if free is not None or clauses:
            yield _Stated(rule=rule, free=free, clauses=clauses)


def _asks_for_consent(rule: Rule) -> bool:
    """Tell whether a sentence asks for a consent, or the one after it for what lies above: ``above that``."""
    following = _consent().search(rule.following)
    return bool(
        _consent().search(rule.words)
        or (following and phrases("exceeds", rule.languages).search(rule.following))
    )


def _consent() -> re.Pattern[str]:
    return phrases("approval", all_languages())


def _broken(known: Known, deed: _Deed, stated: _Stated) -> Iterator[tuple[str, str, str]]:
    """Yield what breaks a rule: what the deed was done with, its literal, and the words of the rule."""
    if stated.free is not None:
        yield from _unapproved(known, deed, stated.rule, stated.free)
    for clause in stated.clauses:
        yield from _beyond(deed, clause)
        yield from _ruled_out(deed, clause)
        yield from _mistaken(deed, clause)


def _deeds(known: Known) -> list[_Deed]:
    steps = enumerate(known.reading.steps)
    return [
        _Deed(position=place, tool=step.target or "", row=mapping(step.input[:HEAD]), named=())
        for place, step in steps
        if step.kind is StepKind.TOOL
        and step.output
        and known.reading.faults[place] is Fault.NONE
        and _is_deed(step.target or "")
    ][:_MOST_DEEDS]


def _is_deed(tool: str) -> bool:
    """Tell whether a tool changes something by its name, and neither asks nor tells somebody."""
    name = spaced(tool)
    if looks_up(tool) or CHECKS.search(tool) or _consent().search(name):
        return False
    is_deed = deed_of(tool) or acts_of(tool) or phrases("does", all_languages()).search(name)
    return bool(is_deed) and not (_TELLS.search(tool) and deed_of(tool) in {"", "send"})


def _unapproved(known: Known, deed: _Deed, rule: Rule, limit: Limit) -> Iterator[tuple[str, str, str]]:
    """Yield the amount of a deed for which the rule asks for a consent that nothing in the run speaks of."""
    if not _may_mean(rule, deed, limit):
        return
    result = known.reading.steps[deed.position].output
    for row in (deed.row, mapping(result[:HEAD])):
        amounts = _amounts(row, limit.figure)
        above = [one for one in amounts if one.figure.value > max(limit.figure.readings)]
        if above and not _is_consented(known, deed, rule, limit):
            literal = above[0].figure.literal
            yield f"{above[0].key} {literal} and no approval", literal, rule.words
        if amounts:
            return


def _may_mean(rule: Rule, deed: _Deed, limit: Limit) -> bool:
    """Tell whether a rule names the deed, or only its object, or nothing right after the deed was named."""
    if deed.is_named_in(rule.words):
        return True
    own = plain_beginnings(f"{deed.tool} {' '.join(deed.row)}") - plain_beginnings(limit.figure.unit)
    is_other = bool(acts_in(rule.words, with_tools=True) - {"approve", "send"})
    return not is_other and (share(own, plain_beginnings(rule.words)) or deed.is_named_in(rule.before))


def _amounts(row: Mapping[str, Any], limit: Figure) -> list[Amount]:
    """Return the least amount of each entry of an object's lists, or of the object itself."""
    inner = [one for value in row.values() if isinstance(value, list) for one in value[:_MOST_ROWS]]
    found = [_least(one, limit) for one in inner if isinstance(one, dict)]
    listed = [one for one in found if one is not None]
    own = _least(row, limit)
    return listed or ([own] if own is not None else [])


def _least(row: Mapping[str, Any], limit: Figure) -> Amount | None:
    amounts = (one for one in amounts_of(row) if _measures(one, limit))
    return min(amounts, key=lambda one: one.figure.value, default=None)


def _measures(amount: Amount, limit: Figure) -> bool:
    """Tell whether an amount has the unit of a limit, or is money where the limit is."""
    if amount.figure.unit == limit.unit or limit.unit in _units(amount.key):
        return bool(limit.unit) or PRICE.search(amount.key) is not None
    if limit.unit and limit.unit not in MONEY:
        return False
    is_money = amount.figure.unit in MONEY or (not amount.figure.unit and PRICE.search(amount.key))
    return bool(is_money) and not (limit.unit and amount.figure.unit)


def _units(key: str) -> frozenset[str]:
    """Return what the words of a key may be as units; words for days are the same in all languages."""
    parts = spaced(key).casefold().split()
    return frozenset(str(spans().get(part, unit_of(part))) for part in parts)


def _is_consented(known: Known, deed: _Deed, rule: Rule, limit: Limit) -> bool:
    """Tell whether a person spoke, or something speaks of a consent, apart from the rule itself."""
    consent = _consent()
    asked = known.asked.replace(rule.words, "").replace(rule.following or rule.words, "")
    if consent.search(asked) or consent.search(known.answer):
        return True
    for step in known.reading.steps[: deed.position + 1]:
        if step.kind is StepKind.HUMAN:
            return True
        text = step.output[:HEAD]
        if step.kind is StepKind.TOOL and consent.search(spaced(f"{step.target} {step.input[:HEAD]}")):
            return True
        if limit.figure.literal not in text and consent.search(spaced(text)):
            return True
    return False


def _beyond(deed: _Deed, rule: Rule) -> Iterator[tuple[str, str, str]]:
    """Yield the quantity with which a clause forbids the deed."""
    bars, limit = bar_of(rule), limit_of(rule)
    if bars is None or limit is None or _PER.match(rule.words, limit.figure.end):
        return
    for row in (deed.row, *deed.named):
        amounts = [one for one in amounts_of(row) if _is_meant(one, rule, limit)]
        if amounts:
            value, bounds = amounts[0].figure.value, limit.figure.readings
            is_above = (bars == Bar.NEVER) != limit.is_most
            is_wrong = len(amounts) == 1 and (value > max(bounds) if is_above else value < min(bounds))
            if is_wrong and _is_barred(rule, deed, row, limit):
                literal = amounts[0].figure.literal
                yield f"{amounts[0].key} {literal}", literal, rule.words
            return


def _is_barred(rule: Rule, deed: _Deed, row: Mapping[str, Any], limit: Limit | None = None) -> bool:
    """Tell whether a clause bars the whole deed, and not a kind of it or what its object gets.

    The word of the deed follows the word that bars, or stands right before it, or the clause says nothing
    else after it. A word beside it that is neither of the record nor of the call names a kind of it.
    """
    mark = phrases("only" if bar_of(rule) == Bar.ONLY else "no", rule.languages).search(rule.words)
    if mark is None:
        return False
    texts = f"{_text_of(row)} {_text_of(deed.row)} {deed.tool}"
    told = plain_beginnings(texts) | forms_of(acts_of(deed.tool))
    plain = plain_spans(rule)
    for word in _NAME.finditer(rule.words):
        is_before = word.start() < mark.start() and mark.start() - word.end() > _ADJACENT
        ending = _NAME.finditer(rule.words, mark.end()) if is_before else ()
        if deed.is_named_in(word[0]) and all(one.start() in plain for one in ending):
            beside = (one for one in _beside(rule, word, mark, limit) if one.start() not in plain)
            if all(share(plain_beginnings(one[0]), told) for one in beside):
                return True
    return False


def _beside(
    rule: Rule, word: re.Match[str], mark: re.Match[str], limit: Limit | None
) -> Iterator[re.Match[str]]:
    """Yield the words that may narrow a deed: the one before it, its object, and what ends the clause."""
    condition = phrases("if", rule.languages).search(rule.words, word.end())
    end = condition.start() if condition else len(rule.words)
    others = [one for one in _NAME.finditer(rule.words, 0, end) if one.start() != word.start()]
    before = [one for one in others if one.end() <= word.start()][-1:]
    yield from (one for one in before if len(one[0]) > LEAST)
    after = [one for one in others if one.start() > max(word.start(), mark.start())]
    if word.start() > mark.start():
        yield from (one for one in after[:2] if len(one[0]) > LEAST)
        is_end = limit is None or limit.figure.start < word.start()
        yield from (one for one in after if is_end and len(one[0]) > LEAST)
        yield from after[-1:] if is_end else ()
    if limit is not None:
        ends = limit.figure.end
        yield from (one for one in after if one.start() > ends > word.start() and len(one[0]) > _LONG)


def _text_of(row: Mapping[str, Any]) -> str:
    return " ".join(f"{key} {value}" for key, value in row.items() if isinstance(value, str | int | float))[
        :HEAD
    ]


def _is_meant(amount: Amount, rule: Rule, limit: Limit) -> bool:
    """Tell whether an amount has the limit's unit in its value or key, or a word of the rule in its key."""
    unit = limit.figure.unit
    if unit and (amount.figure.unit == unit or not _units(unit).isdisjoint(_units(amount.key))):
        return True
    is_other = bool(unit and amount.figure.unit)
    return not is_other and share(plain_beginnings(amount.key), plain_beginnings(rule.words))


def _record_of(known: Known, deed: _Deed) -> tuple[Mapping[str, Any], ...]:
    """Return the last record before a deed that has an id of its arguments, if only one of its result has."""
    ids = frozenset(_ids(deed.row))
    for place in range(deed.position - 1, -1, -1) if ids else ():
        step = known.reading.steps[place]
        if step.kind is not StepKind.TOOL:
            continue
        if any(one in step.output for one in ids):
            found = [
                one for one in _objects(step.output[:HEAD]) if not ids.isdisjoint(map(str, one.values()))
            ]
            if found:
                return tuple(found) if len(found) == 1 else ()
        if any(one in step.input for one in ids) and not looks_up(step.target or ""):
            return ()  # it may have changed the record
    return ()


def _ids(row: Mapping[str, Any]) -> Iterator[str]:
    for value in row.values():
        is_long = isinstance(value, int) and value >= _LEAST_NUMBER
        if is_long or (isinstance(value, str) and _ID.fullmatch(value)):
            yield str(value)


def _objects(text: str) -> list[Mapping[str, Any]]:
    """Return all objects of a JSON document, or the rows of a table."""
    document = document_in(text)
    if document is None:
        return [entry.fields for listed in lists_in(text) for entry in listed.entries]
    waiting: list[Any] = [document]
    found: list[Mapping[str, Any]] = []
    while waiting and len(found) < _MOST_ROWS:
        one = waiting.pop()
        if isinstance(one, dict):
            found.append(one)
        inner = one.values() if isinstance(one, dict) else one
        waiting += [each for each in inner if isinstance(each, dict | list)]
    return found


def _ruled_out(deed: _Deed, rule: Rule) -> Iterator[tuple[str, str, str]]:
    """Yield the only value of the record with which a clause forbids the deed."""
    bars, is_short = bar_of(rule), len(rule.words.split()) <= _LONGEST_CLAUSE
    if bars is None or not is_short or not deed.is_named_in(rule.words):
        return
    for row in deed.named:
        found = [(key, value) for key, value in row.items() if _is_ruled_out(key, value, rule, deed)]
        if len(found) == 1 and _is_barred(rule, deed, row):
            key, value = found[0]
            yield (
                f"{key} {str(value).casefold() if isinstance(value, bool) else value}",
                str(value),
                rule.words,
            )


def _is_ruled_out(key: str, value: Any, rule: Rule, deed: _Deed) -> bool:
    """Tell whether a clause rules out a field's value: by its name, or a yes or no by the end of its key."""
    is_never = bar_of(rule) == Bar.NEVER
    if isinstance(value, bool):
        last = spaced(key).split()[-1:]
        return value is is_never and bool(
            plain_beginnings(" ".join(last)) & plain_beginnings(rule.words) - plain_beginnings(deed.tool)
        )
    is_changed = any(plain_beginnings(one) & plain_beginnings(key) for one in deed.row)
    return (
        is_never
        and not is_changed
        and _can_class(value)
        and stands_in(value.casefold(), rule.words.casefold())
    )


def _can_class(value: Any) -> bool:
    """Tell whether a value may be a state or a class: a short text without digits."""
    is_short = isinstance(value, str) and LEAST <= len(value) <= _LONGEST_VALUE
    return is_short and not any(map(str.isdigit, value))


def _mistaken(deed: _Deed, rule: Rule) -> Iterator[tuple[str, str, str]]:
    """Yield an argument taken from the field that a rule denies, beside the one that it names."""
    denied = phrases("no", rule.languages).search(rule.words)
    if denied is None:
        return
    wanted = plain_beginnings(rule.words[: denied.start()])
    barred = plain_beginnings(rule.words[denied.end() :])
    values = {value for value in deed.row.values() if isinstance(value, str) and len(value) >= LEAST}
    for row in deed.named if values else ():
        texts = {key: value for key, value in row.items() if isinstance(value, str)}
        for key in (key for key, value in texts.items() if value in values):
            for other, value in texts.items():
                own, theirs = (plain_beginnings(one) for one in (key, other))
                is_barred = own - theirs and own - theirs <= barred - wanted
                is_wanted = theirs - own and theirs - own <= wanted - barred
                if is_barred and is_wanted and value not in values:
                    yield f"{key} {texts[key]}", texts[key], rule.words


def _clue(known: Known, deed: _Deed, what: str, literal: str, words: str) -> Clue:
    """Return the clue against the step that made the call."""
    call = known.reading.steps[deed.position]
    asker = callers_of(known.reading.steps)[deed.position]
    told = " ".join(words.split()).rstrip(".。")[:_MOST_QUOTED]
    reason = f"called {call.target} with {what}, against the rule “{told}”"
    shown = around(call.input, literal) or around(call.output, literal) or call.input[:_MOST_QUOTED]
    quote = Evidence(step=call.index, quote=shown)
    position = deed.position if asker is None else asker
    return known.clue(position, ClueKind.CONSTRAINT, reason, quote, sign="limit", most=_MOST)
