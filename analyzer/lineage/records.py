"""Fields of a structured answer that contradict the record that it copies, ``489.80`` for ``499.80``. Pure.

A record of the answer is the copy of a record of a result if they share a name or a number that no other
record has, or two values, and fewer fields of it differ than agree. A field that alone differs is a mistake,
unless the run gives a reason for the new value: another text has it, arithmetic gives it, the task asks for a
change or a judgement, or a deed came between.

Two kinds of fields contradict the answer itself: a total of net and tax, and the count of a list beside it.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import agree, dates_in
from analyzer.lineage.deeds import acts_of
from analyzer.lineage.derivation import plain_results
from analyzer.lineage.entries import Scalar, document_in, is_number, is_scalar
from analyzer.lineage.figures import CURRENCY_CODES
from analyzer.lineage.known import Known
from analyzer.texts.commands import call_name
from analyzer.texts.tool_names import deed_of
from semconv.model import StepKind
from semconv.record import record

_Key: TypeAlias = frozenset[str]
"""The words of a key, without those that say nothing: ``totalAmount`` and ``total`` are one."""
_FENCE: Final = "```"
_KEY_WORD: Final = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]|\d+")
_NEUTRAL: Final = frozenset(
    """
    amount value betrag importe monto montant importo valor number nr no num nummer numero número id code eur
    usd gbp chf euro name date datum fecha the of de
    """.split()  # noqa: SIM905 - readable in this form
)
"""Words of keys that another system leaves out."""
_BLANKS: Final = frozenset(
    ("", "n/a", "na", "none", "null", "todo", "tbd", "string", "unknown", "-", "?", "xxx")
)
"""What stands in a field that was not filled in."""
_CHANGES: Final = re.compile(
    r"\b(?:set|assign|classif|categori|chang|updat|correct|convert|translat|estimat|predict|forecast|suggest"
    r"|recommend|propos|decid|determin|rate\b|rank|prioriti|normali|anonymi|redact|mask|apply|adjust|discount"
    r"|triage|grad(?:e|ing)|scor|assess|evaluat|review|judg|verdict|analy|compar|calculat|comput|remain|left"
    r"|without|exclud|omit|only|raise|lower|increase|reduc|double|halve|draft|plan|new"
    r"|setz|ändere|änder|korrigier|rechne|umrechn|übersetz|schätz|empfiehl|entscheid|bewert|einstuf|ordne"
    r"|klassifizier|vorschlag|schlag|nur|ohne|rabatt|neu"
    r"|cambi|actualiz|corrig|conviert|traduc|estim|recomiend|clasific|propon|aplic|descuent|sólo"
    r"|solo|sin|nuev|modifi|conver|propos|décid|évalu|appliqu|remise|sans|seulement|nouve|henkou|kaete)",
    re.IGNORECASE,
)
"""Words of a task that asks for other values than the records have."""
_LANGUAGES: Final = frozenset(("en", "de", "es", "fr", "it", "pt"))
"""Languages of these words; in another one, a task may ask for a change that is not recognised."""
_RETRIEVES: Final = re.compile(
    r"\b(?:return|give|get|extract|export|show|list|summar|report|fetch|print|look up|read|retriev|provide"
    r"|gib|gebt|zeig|hol|lies|stammdaten|auszug|fass|dame|devuelv|muestr|extra|resum|obtén|busca"
    r"|donne|renvoi|affich|résum|dammi|mostra|elenca|retorn|mostr|geef|toon|kudasai|oshiete)",
    re.IGNORECASE,
)
"""Words of a task that asks for what records have."""
_REASONS: Final = re.compile(
    r"reason|rationale|explan|note|comment|grund|begründ|motiv|justif|riyuu", re.IGNORECASE
)
"""Keys of an answer that says why it differs."""
_WORDS_OF: Final[tuple[frozenset[str], ...]] = (
    frozenset(
        ("lowest", "low", "minor", "medium", "normal", "moderate", "high", "major", "urgent", "critical")
    ),
    frozenset(
        ("open", "opened", "closed", "new", "resolved", "in_progress", "on_hold", "cancelled", "canceled")
    ),
    frozenset(
        ("pending", "approved", "rejected", "denied", "declined", "paid", "unpaid", "overdue", "refunded")
    ),
    frozenset(("shipped", "delivered", "processing", "returned", "lost", "backordered", "in_transit")),
    frozenset(("active", "inactive", "suspended", "disabled", "enabled", "expired", "valid", "invalid")),
    frozenset(("passed", "failed", "pass", "fail", "ok", "error", "healthy", "degraded", "down")),
    frozenset(("yes", "no", "true", "false")),
    frozenset(one for one in (*CURRENCY_CODES, "clp", "cop", "mxn", "ars", "pen", "zar", "nzd")),
    frozenset(("niedrig", "mittel", "hoch", "dringend", "offen", "geschlossen", "bezahlt", "erledigt")),
    frozenset(("baja", "media", "alta", "urgente", "abierto", "cerrado", "pagado", "pendiente")),
)
"""Values of enumerations, each beside those that contradict it."""
_BASE: Final = frozenset("subtotal net netto neto base zwischensumme".split())  # noqa: SIM905 - as above
_ADDED: Final = frozenset(
    "vat tax taxes mwst ust iva tva service shipping versand envío envio fee fees tip delivery porto".split()  # noqa: SIM905 - as above
)
_TOTAL: Final = frozenset("total gesamt brutto gross grandtotal".split())  # noqa: SIM905 - as above
_COUNTS: Final = frozenset("count anzahl num number cantidad numero número nombre n conteo kensuu".split())  # noqa: SIM905 - as above
_COUNTED: Final = re.compile(r"count|total|anzahl|num|cantidad|size|hits|matches|rows|found", re.IGNORECASE)
"""Keys that count what a result has or found."""
_MOST: Final = 60
"""Records of an answer, and fields of a record."""
_CENTS: Final = 0.02
"""By how much a part of a total may be rounded."""
_SLIP: Final = 0.2
"""Share by which a total that is a slip differs; others are totals of something else."""
_RATES: Final = (5, 7, 8, 10, 19, 20, 21, 22, 23, 25)
"""Usual rates of taxes and discounts."""
_UNITS: Final = (10, 12, 24, 60, 100, 1000, 1024, 3600, 1.609344, 0.45359237, 2.54, 3.6)
"""Between usual units of the same thing."""
_MOST_SOURCES: Final = 400
_MOST_NODES: Final = 2_000
_MOST_OPERANDS: Final = 8
_LONGEST: Final = 60
_LEAST_NAME: Final = 2
_LEAST_NUMBER: Final = 1000
"""Least whole number that names a thing, such as an order: smaller ones may be counts."""
_WITHIN: Final = 0.51
"""Units of the last digit within which two numbers are one, as for ``Figure.is_about``."""
_ENOUGH: Final = 2
"""Values from which two records that agree are one."""
_OFF: Final = 2
"""Entries by which a count is likely wrong, and not that of a longer list."""


@record
class _Record:
    """An object with the scalars in it and in the objects within it, and the lengths of its lists."""

    fields: Mapping[_Key, tuple[str, Scalar | None]]
    lists: Mapping[_Key, int]


@record
class _Given:
    """A record of a result."""

    position: int
    fields: Mapping[_Key, tuple[str, Scalar | None]]


def contradicting_fields(known: Known) -> Iterator[Clue]:
    """Yield the fields of a structured answer that contradict the record that it copies, or the answer."""
    stated = _records(_document(known.answer))
    if not stated or known.is_blind:
        return
    yield from _within(known, stated)
    given = _given(known) if known.has_results else []
    if given and _asks_for_copies(known):
        found = _Copies(known, given)
        yield from islice((clue for one in stated for clue in found.contradictions(one)), 1)


def _asks_for_copies(known: Known) -> bool:
    """Tell whether a task may ask for what records have, and in no word that we know for a change of it.

    A short task may be in one of many languages: then it has a word for getting something.
    """
    if _CHANGES.search(known.asked) is not None:
        return False
    languages = frozenset(known.languages)
    is_telling = _RETRIEVES.search(known.asked) is not None and not languages.isdisjoint(_LANGUAGES)
    return is_telling or languages <= _LANGUAGES


def _document(text: str) -> Any:
    """Return the JSON that a text is, or that stands in its first fence."""
    _, fence, inside = text.partition(_FENCE)
    return document_in((inside.partition(_FENCE)[0].removeprefix("json") if fence else text).strip())


def _records(document: Any) -> list[_Record]:
    """Return the objects of a document that are no field of another, outermost first."""
    found: list[_Record] = []
    waiting: list[Any] = [document] if isinstance(document, dict | list) else []
    for one in islice(waiting, _MOST_NODES):
        if isinstance(one, list):
            waiting += [each for each in one[:_MOST] if isinstance(each, dict | list)]
        elif len(found) < _MOST_SOURCES:
            found.append(_record(one, waiting))
    return found


def _record(whole: Mapping[str, Any], waiting: list[Any]) -> _Record:
    fields: dict[_Key, tuple[str, Scalar | None]] = {}
    lists: dict[_Key, int] = {}
    twice: set[_Key] = set()
    inner: list[tuple[str, Mapping[str, Any]]] = [("", whole)]
    for of, one in inner:
        for name, value in list(one.items())[:_MOST]:
            key = _key(str(name), of)
            if isinstance(value, dict) and len(inner) < _MOST:
                inner.append((str(name), value))
            elif isinstance(value, list):
                waiting.append(value)
                lists[key] = len(value)
            elif value is None or is_scalar(value):
                twice |= {key} & fields.keys()
                fields[key] = (str(name), value)
    return _Record(fields={key: one for key, one in fields.items() if key not in twice}, lists=lists)


def _key(name: str, of: str = "") -> _Key:
    """Return the words of a key; for the ``name`` in an object, also those of the object's own."""
    whole = f"{of}_{name}" if name.casefold() == "name" else name
    words = frozenset(word.casefold() for word in _KEY_WORD.findall(whole[:_LONGEST]))
    return words - _NEUTRAL or words or frozenset((name,))


def _given(known: Known) -> list[_Given]:
    found = (
        _Given(position=position, fields=one.fields)
        for position, text in known.results()
        for one in _records(document_in(text))
    )
    return list(islice(found, _MOST_SOURCES))


class _Copies:
    """The records of a run's results, by what they have."""

    def __init__(self, known: Known, given: Sequence[_Given]) -> None:
        self._known: Final = known
        self._given: Final = given
        self._by_value: Final[defaultdict[tuple[_Key, str], list[int]]] = defaultdict(list)
        for place, one in enumerate(given):
            for key, (_, value) in one.fields.items():
                self._by_value[key, _plain(value)].append(place)

    def contradictions(self, stated: _Record) -> Iterator[Clue]:
        """Yield the only field in which a record of the answer differs from the one that it copies."""
        if any(_REASONS.search(name) for name, _ in stated.fields.values()):
            return
        same = self._agreeing(stated)
        best = max(map(len, same.values()), default=0)
        copied = [place for place, keys in same.items() if len(keys) == best and self._is_copy(stated, keys)]
        for place in copied:
            one = self._given[place]
            differing = [
                key for key in stated.fields if key in one.fields and self._differs(stated, one, key)
            ]
            if len(differing) != 1:
                continue
            (key,) = differing
            others = (self._given[other].fields[key] for other in copied if key in self._given[other].fields)
            if any(_is_same(stated.fields[key][1], value) for _, value in others):
                continue
            yield from self._judged(stated, one, key, len(same[place]))

    def _agreeing(self, stated: _Record) -> Mapping[int, set[_Key]]:
        """Return the places of the records that share a value, each with the keys of all that it shares."""
        fields = list(stated.fields.items())[:_MOST]
        alike = (self._by_value.get((key, _plain(value)), ())[:_MOST] for key, (_, value) in fields)
        return {
            place: {
                key
                for key, (_, value) in fields
                if key in self._given[place].fields and _is_same(value, self._given[place].fields[key][1])
            }
            for place in dict.fromkeys(place for places in alike for place in places)
        }

    def _differs(self, stated: _Record, one: _Given, key: _Key) -> bool:
        """Tell whether a value is another one, and not the same in other words or another language."""
        ours, theirs = stated.fields[key][1], one.fields[key][1]
        if _is_same(ours, theirs):
            return False
        is_text = isinstance(ours, str) and isinstance(theirs, str) and not _is_blank(ours)
        if not is_text or _is_contrary(ours, theirs) or (dates_in(str(ours)) and dates_in(str(theirs))):
            return True
        return (key, _plain(ours)) in self._by_value or any(map(str.isdigit, str(ours)))

    def _is_copy(self, stated: _Record, keys: set[_Key]) -> bool:
        """Tell whether a record has two values of another, or the one that names it."""
        names = [key for key in keys if _names(stated.fields[key][1])]
        lone = any(len(self._by_value[key, _plain(stated.fields[key][1])]) == 1 for key in names)
        return lone or len(keys) > _ENOUGH

    def _judged(self, stated: _Record, one: _Given, key: _Key, agreeing: int) -> Iterator[Clue]:
        (name, ours), (_, theirs) = stated.fields[key], one.fields[key]
        if theirs is None or _is_blank(theirs) or self._is_changed_after(one.position):
            return
        is_left = _is_blank(ours) or (ours == 0 and is_number(ours) and is_number(theirs))
        is_other = self._is_of_another(key, ours, one)
        is_copy = _is_copied(stated, one, key)
        is_wrong = (is_other and (is_copy or is_number(ours))) or (
            is_copy and self._is_contradiction(ours, theirs, one, agreeing)
        )
        if is_left or is_wrong:
            says = f"left {name} at" if is_left else f"gave {name} as"
            yield self._clue(name, ours, theirs, one, f"{says} {_shown(ours)}")

    def _is_contradiction(self, ours: Scalar | None, theirs: Scalar, one: _Given, agreeing: int) -> bool:
        """Tell whether a value excludes the given one, or is a number or a date from nowhere."""
        if _is_contrary(ours, theirs):
            return _RETRIEVES.search(self._known.asked) is not None
        return agreeing >= _ENOUGH and self._is_from_nowhere(ours, theirs, one)

    def _is_changed_after(self, position: int) -> bool:
        """Tell whether a later call changed something: the record may have another value since."""
        steps = self._known.reading.steps[position + 1 :]
        return any(
            step.kind is StepKind.TOOL and (deed_of(call_name(step)) or acts_of(call_name(step)))
            for step in steps
        )

    def _is_of_another(self, key: _Key, ours: Scalar | None, one: _Given) -> bool:
        """Tell whether only another record of the same result has the value in this field."""
        places = self._by_value.get((key, _plain(ours)), ())
        is_telling = (
            len(_plain(ours)) > _LEAST_NAME and (is_number(ours) or _names(ours)) and len(places) == 1
        )
        return is_telling and any(self._given[place].position == one.position for place in places)

    def _is_from_nowhere(self, ours: Scalar | None, theirs: Scalar, one: _Given) -> bool:
        """Tell whether nothing in the run gives a number or a date that a record has otherwise."""
        known = self._known
        if is_number(ours) and is_number(theirs):
            if known.is_number_read(float(ours), len(known.reading.steps)):
                return False
            numbers = [float(value) for _, value in one.fields.values() if is_number(value)]
            others = [float(count) for count in known.counts]
            computed = [
                *plain_results(numbers[:_MOST_OPERANDS]),
                *_of_two(float(theirs), [*numbers, *others][:_MOST]),
            ]
            return not any(_is_about(float(ours), value) for value in computed)
        if isinstance(ours, str) and isinstance(theirs, str):
            dates = dates_in(ours) if ":" not in ours + theirs else ()  # a time may be one of another zone
            return len(dates) == 1 == len(dates_in(theirs)) and not known.has_date(dates[0])
        return False

    def _clue(self, name: str, ours: Scalar | None, theirs: Scalar, one: _Given, says: str) -> Clue:
        known = self._known
        pair = re.compile(rf'"{re.escape(name)}"\s*:\s*{re.escape(json.dumps(ours, ensure_ascii=False))}')
        place = known.first_said(lambda text: pair.search(text) is not None, after=one.position)
        reason = f"{says}, where {known.giver(one.position)} returned {_shown(theirs)}"
        quotes = (known.quote(one.position, _shown(theirs)), known.quote(place, f'"{name}"'))
        return known.clue(place, ClueKind.CHANGED, reason, *quotes)


def _is_copied(stated: _Record, one: _Given, differing: _Key) -> bool:
    """Tell whether all that a record says, but for one field, is what another has: it computes nothing."""
    theirs = {_plain(value) for _, value in one.fields.values()}
    return all(
        _is_blank(value)
        or _plain(value) in theirs
        or (key in one.fields and _is_same(value, one.fields[key][1]))
        for key, (_, value) in stated.fields.items()
        if key != differing
    )


def _plain(value: Scalar | None) -> str:
    if is_number(value):
        return f"{float(value):.10g}"
    return str(value).casefold().strip()


def _shown(value: Scalar | None) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _names(value: Scalar | None) -> bool:
    """Tell whether a value names a thing: a text, or a whole number that is no small count."""
    if isinstance(value, str):
        return len(value.strip()) >= _LEAST_NAME and not _is_blank(value) and not _enumerates(value)
    return is_number(value) and float(value).is_integer() and abs(value) >= _LEAST_NUMBER


def _enumerates(value: str) -> bool:
    return any(_word(value) in words for words in _WORDS_OF)


def _word(value: Scalar | None) -> str:
    return re.sub(r"[\s-]+", "_", str(value).casefold().strip())


def _is_blank(value: Scalar | None) -> bool:
    return value is None or (isinstance(value, str) and value.casefold().strip() in _BLANKS)


def _is_same(ours: Scalar | None, theirs: Scalar | None) -> bool:
    """Tell whether two values are one: rounded, or written otherwise."""
    if is_number(ours) and is_number(theirs):
        return _is_about(float(ours), float(theirs))
    if _plain(ours) == _plain(theirs):
        return True
    one, other = dates_in(str(ours)[:_LONGEST]), dates_in(str(theirs)[:_LONGEST])
    return bool(one and other) and agree(one[0], other[0])


def _is_about(ours: float, theirs: float) -> bool:
    digits = len(f"{ours:.10g}".partition(".")[2])
    return abs(ours - theirs) <= _WITHIN * 10.0**-digits


def _is_contrary(ours: Scalar | None, theirs: Scalar | None) -> bool:
    """Tell whether two values of an enumeration exclude each other: ``low`` and ``high``."""
    if isinstance(ours, bool) and isinstance(theirs, bool):
        return ours is not theirs
    one, other = _word(ours), _word(theirs)
    return one != other and any(one in words and other in words for words in _WORDS_OF)


def _of_two(value: float, others: Sequence[float]) -> Iterator[float]:
    """Yield what a value gives with another one, and in usual other units."""
    yield from (value * 1.8 + 32, (value - 32) / 1.8, -value, 100 - value, 1 - value)
    for unit in _UNITS:
        yield from (value * unit, value / unit)
    for rate in _RATES:
        yield from (value * (100 + rate) / 100, value * (100 - rate) / 100, 100 * value / (100 + rate))
    for other in others:
        yield from (value + other, value - other, other - value, value * other)
        yield from (value * (100 + other) / 100, value * (100 - other) / 100, value * other / 100)
        yield from (value / other, 100 * value / (100 + abs(other))) if other else ()


def _within(known: Known, stated: Sequence[_Record]) -> Iterator[Clue]:
    """Yield totals that are not net and tax, and counts of lists that are longer or shorter."""
    for one in stated[:_MOST]:
        yield from _wrong_total(known, one)
        yield from _wrong_count(known, one)


def _wrong_total(known: Known, one: _Record) -> Iterator[Clue]:
    numbers = {key: (name, value) for key, (name, value) in one.fields.items() if is_number(value)}
    totals = [
        (name, float(value)) for key, (name, value) in numbers.items() if key <= _TOTAL and is_number(value)
    ]
    kinds = Counter("base" if key & _BASE else "added" for key in numbers if key & (_BASE | _ADDED))
    others = [
        float(value)
        for key, (_, value) in numbers.items()
        if key & (_BASE | _ADDED) and is_number(value) and not key & {"rate", "percent", "pct", "satz"}
    ]
    if len(totals) != 1 or kinds["base"] != 1 or not kinds["added"] or len(others) != kinds.total():
        return
    name, total = totals[0]
    is_read = known.is_number_read(total, len(known.reading.steps))
    off = abs(sum(others) - total)
    if is_read or not _CENTS * len(others) < off < _SLIP * sum(others) or len(numbers) > len(others) + 2:
        return
    place = known.first_with(json.dumps(one.fields[_key(name)][1]))
    reason = f"gave {name} as {total:,.10g}; its parts add up to {sum(others):,.10g}"
    yield known.clue(place, ClueKind.CHANGED, reason, known.quote(place, f'"{name}"'), value=total)


def _wrong_count(known: Known, one: _Record) -> Iterator[Clue]:
    for name, value in one.fields.values():
        words = frozenset(word.casefold() for word in _KEY_WORD.findall(name[:_LONGEST]))
        things = {word.removesuffix("s") for word in words - _COUNTS} if words & _COUNTS else set()
        counted = [of for of in one.lists if things and {word.removesuffix("s") for word in of} == things]
        if words <= _COUNTS:
            counted = [*one.lists]
        if not is_number(value) or len(counted) != 1:
            continue
        length = one.lists[counted[0]]
        if 0 < abs(length - value) <= _OFF and length > 1 and not _is_returned(known, value):
            place = known.first_with(f'"{name}": {value}')
            reason = f"gave {name} as {value:g}; the list beside it has {length}"
            yield known.clue(place, ClueKind.CHANGED, reason, known.quote(place, f'"{name}"'), value=value)


def _is_returned(known: Known, value: float) -> bool:
    """Tell whether a result counts as many, or has a list of as many: the list may be a part of that."""
    records = [one for _, text in known.results() for one in _records(document_in(text))]
    counts = (
        given for one in records for name, given in one.fields.values() if _COUNTED.search(name) is not None
    )
    return value in {*counts, *(length for one in records for length in one.lists.values())}
