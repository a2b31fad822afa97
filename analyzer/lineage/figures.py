"""Figures in text: value, precision, unit, and the words around them. Pure.

A figure is a number that stands for a quantity: dates, times, versions, ids, list markers and numbers in
links are not figures. Numbers are read as written in English (``1,234.5``), in much of Europe (``1.234,5``,
``45.870.000``), in India (``12,34,567``), in Switzerland (``1'234``) and with spaces between groups; scale
words and suffixes (``2.1 million``, ``9.6k``) belong to the number.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from analyzer.texts.normalize import lowercased, plain_typography
from analyzer.texts.numbers import DENSE
from semconv.record import record, replace

MOST: Final = 400
"""Bound on the figures read from one text, for tables and dumps."""
_REMEMBERED: Final = 128
"""Number of texts whose figures are cached: those of one run of usual length."""
_NOWHERE: Final = (sys.maxsize, sys.maxsize)
_DIGIT: Final = re.compile(r"\d")
_WITHIN: Final = 0.51
"""Units of the last digit within which a value is the figure: a half, and a little for binary fractions."""
_REACH: Final = 48
"""Characters on either side searched for the words that name a figure."""
_MILLIONS: Final = r"[1-9]\d{0,2}(?:\.\d{3}){2}(?:\.(?:000|[3-9]\d\d))?(?!\d|\.\d|-\w)"
"""A million or more in groups with points; four groups that may be an address of the internet are none."""
_OTHER_GROUPS: Final = (
    r"[1-9]\d{0,2}(?:'\d{3})+(?:[.,]\d+)?"
    r"|(?:(?<=₹)|(?<=₹\s)|(?<=Rs\s)|(?<=Rs\.\s)|(?<=Rs\.)|(?<=INR\s))[1-9]\d?(?:,\d{2})+,\d{3}(?:\.\d+)?"
    r"|[1-9]\d?(?:,\d{2})+,\d{3}(?:\.\d+)?(?=\s?(?:₹|रु|टका|টাকা|روپ|rupee|Rs\b|INR\b))"
)
"""Groups as in Switzerland, and beside rupees those of India: elsewhere ``10,20,300`` are three numbers."""
_NUMBER: Final = re.compile(
    rf"(?=[\d−+-])(?<![^\W{DENSE}])(?<![.,/-])(?:(?<=\s)[-−+])?"  # noqa: RUF001 - the actual minus sign
    rf"({_OTHER_GROUPS}|(?!0)\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|(?!0)\d{{1,3}}(?:\.\d{{3}})+,\d+|{_MILLIONS}"
    r"|\d{1,3}(?:[    ]\d{3})+(?:[.,]\d+)?(?!\d)"
    r"|\d{1,15}(?:[.,]\d{1,15})?)"
    r"(?:\s?(k|K|M|G|bn|B|thousand|million|billion|trillion|Millionen|Mio\.?|millones|millions"
    r"|Mrd\.?|Milliarden|mln|mld|miliardi|milioni|milhões|lakh|crore|тыс|млн|млрд)\b(?!\s?[A-Za-z]*[Bb]ytes?)"
    r"|\s?(万|萬|만|亿|億|억))?"
)
_AMBIGUOUS: Final = re.compile(r"(?!0)\d{1,3}[.,]\d{3}")
"""``3.200`` is 3.2 in English and 3200 in German, ``3,200`` the other way round."""
_SCALES: Final = {
    "k": 1e3, "K": 1e3, "thousand": 1e3, "M": 1e6, "million": 1e6, "Millionen": 1e6, "Mio": 1e6, "Mio.": 1e6,
    "millones": 1e6, "millions": 1e6, "G": 1e9, "bn": 1e9, "B": 1e9, "billion": 1e9, "trillion": 1e12,
    "Mrd": 1e9, "Mrd.": 1e9, "Milliarden": 1e9, "mln": 1e6, "mld": 1e9, "miliardi": 1e9, "milioni": 1e6,
    "milhões": 1e6, "lakh": 1e5, "crore": 1e7, "тыс": 1e3, "млн": 1e6, "млрд": 1e9, "万": 1e4, "萬": 1e4,
    "만": 1e4, "亿": 1e8, "億": 1e8, "억": 1e8,
}  # fmt: skip
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
_MONTHS: Final = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_PHONE: Final = r"\+?\d{1,3}[ -]\(?\d{2,4}\)?[ -]\d{3,4}[ -]?\d{2,4}\b"
_SKIPPED: Final = re.compile(
    # Links, mail addresses, paths; each begins where no earlier character could, so that time stays linear.
    # Only the first two begin right after a Latin letter: one check spares all others within a word. The next
    # ones spare marks, the rest of a number except of a telephone's, names that no digit, slash or mark of an
    # address follows, and words without a digit in them or right after them.
    r"#\d+|\[\d{1,3}\]|(?<![a-zA-Z])(?=[\w.+/-])(?:[hH][tT]{2}[pP][sS]?://\S+"
    r"|(?<!\w)(?=[^\s\d@/#\"':,;(){}\[\]<>=|*!?]{0,256}+(?:[@/#]|\s?\d))(?=[^\s\d]{0,256}\s?\d)"
    r"(?:(?<![\w.+-])[\w.+-]{1,64}@[\w.-]+\.\w+|(?<![\w.-])(?:[\w.-]*/){2,}[\w.-]*"
    r"|(?=\w)(?:\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}\S*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
    r"|\d{1,2}:\d{2}(?::\d{2})?(?:\s?[apAP]\.?[mM]\b)?"
    rf"|(?<!\d\.)[vV]?(?!{_MILLIONS})\d+\.\d+\.\d+\S*|[vV]\d+(?:\.\d+)?\b"
    r"|[A-Za-z]+[-_/#]?\d[\w-]*|\d+[-_][A-Za-z][\w-]*|(?=\w*[a-fA-F])(?=\w*\d)[0-9a-fA-F]{6,}\b"
    rf"|(?!{_PHONE})(?i:{_DAY}(?:\.|st|nd|rd|th)?\s(?:of\s)?(?:{_MONTHS}|Mai|Okt|Dez|mars|avril)[a-zäéû]*\.?,?(?:\s\d{{4}})?"
    rf"|(?:{_MONTHS})[a-z]*\.?\s{_DAY}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?\b|\d+(?:st|nd|rd|th)\b)))"
    rf"|{_PHONE})|^[^\S\n]*(?:\(?\d{{1,3}}[.)]|[-*•][^\S\n]*\d{{1,3}}[.)])(?=\s)",
    re.MULTILINE,
)
"""Parts of a text whose digits are not figures."""
_NUMBERED: Final = (
    "step", "version", "section", "chapter", "page", "figure", "table", "line", "item", "option", "room",
    "gate", "no", "no.", "number", "nr", "nr.", "q", "quarter", "phase", "level", "tier", "part", "id",
    "port", "article", "rule", "question", "ticket", "order", "invoice", "flight", "case", "year", "fy",
    "schritt", "seite", "in", "since", "by", "from", "until", "of",
)  # fmt: skip
_NUMBERED_BACKWARDS: Final = re.compile(
    rf"\n?#?\s?(?:{'|'.join(re.escape(word[::-1]) for word in _NUMBERED)})\b"
)
"""The end of the text before the number of a thing, in lower case and backwards, which is found faster."""
_YEAR: Final = re.compile(r"1[0-9]\d\d|20\d\d")
_UNIT: Final = re.compile(
    r"[^\S\n]?(?![xX]\s?[\d(])(%|°[CF]?|[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024fµ€$£¥₹²³°/]{1,14}|小时|小時|時間|分钟|分鐘|分|秒|天|日|시간|분|[\u0430-\u044f]{1,8})"
)
"""A unit after a number; the ``x`` of ``580 x 12`` is a sign."""
_CURRENCY: Final = re.compile(
    r"((?:\b(?:US|R|A|C|S|HK|NT))?\$|[€£¥₹₩₽₺₫฿₪]"
    r"|\b(?:USD|EUR|GBP|CHF|JPY|INR|CNY|RMB|SEK|NOK|DKK|PLN|CZK|HUF|IDR|BRL|KRW|TRY|VND|THB|Rp\.?|Rs\.?)\s?)\s?$"
)
_ENDS_CURRENCY: Final = frozenset("$€£¥₹₩₽₺₫฿₪.DRPFYBKNLWps")
"""The last characters of what ``_CURRENCY`` finds; before most numbers stands another."""
_WORD: Final = re.compile(r"[^\W\d_]{2,}|\b[A-Z]\b")
_JOINT: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|[_-]")
_LONGEST: Final = 60
"""Characters of a number; the powers of ten of a longer one may be beyond what a float holds."""
_LONGEST_CURRENCY: Final = 6
_LONGEST_NOUN: Final = 12
_LONGEST_HEDGE: Final = 24
"""Characters in which these three patterns match, and one before them."""
_LEAST_NOUN: Final = 3
"""Letters of a noun that may have an ending: ``gün`` and ``gündür``."""
_KEY_BACKWARDS: Final = re.compile(r"\n?[\"']?\s*[:=]\s*[\"']?(\w+)")
"""The end of the text before the value of a key, backwards."""
_HEDGED: Final = re.compile(
    r"\b(?:about|around|approx\w*|roughly|nearly|almost|circa|ca\.?|some|over|under|more than|less than"
    r"|at least|at most|up to|fewer than|just|close to|etwa|rund|knapp|environ|près de|unos|casi|between)"
    r"\W{1,3}(?:[$€£]\s?)?$|[~≈<>±]\s?$",
    re.IGNORECASE,
)
_CURRENCIES: Final = {
    "$": "usd", "us$": "usd", "usd": "usd", "dollar": "usd", "dollars": "usd", "€": "eur", "eur": "eur",
    "euro": "eur", "euros": "eur", "£": "gbp", "gbp": "gbp", "pounds": "gbp", "¥": "jpy", "jpy": "jpy",
    "yen": "jpy", "chf": "chf", "cny": "cny", "rmb": "cny", "sek": "sek", "nok": "nok", "dkk": "dkk",
    "pln": "pln", "zł": "pln", "czk": "czk", "huf": "huf", "₹": "inr", "inr": "inr",
    "rs": "inr", "rs.": "inr", "rp": "idr", "rp.": "idr", "idr": "idr", "r$": "brl", "brl": "brl",
    "a$": "aud", "c$": "cad", "s$": "sgd", "hk$": "hkd", "nt$": "twd", "₩": "krw", "krw": "krw", "₽": "rub",
    "₺": "try", "try": "try", "tl": "try", "₫": "vnd", "vnd": "vnd", "đ": "vnd", "฿": "thb", "thb": "thb",
    "₪": "ils",
    "cents": "cent", "percent": "%", "prozent": "%", "pct": "%",
    "watt": "w", "watts": "w", "kilowatt": "kw", "kilowatts": "kw", "hours": "h", "hour": "h", "hrs": "h",
    "minutes": "min", "minute": "min", "mins": "min", "seconds": "s", "second": "s", "sec": "s",
    "days": "day", "kilometers": "km", "kilometres": "km", "meters": "m", "metres": "m", "kilograms": "kg",
    "tonnes": "t",
    "gigabytes": "gb", "megabytes": "mb", "terabytes": "tb", "milliseconds": "ms", "degrees": "°",
}  # fmt: skip
CURRENCY_CODES: Final = frozenset((
    "usd", "eur", "gbp", "jpy", "chf", "inr", "cny", "sek", "nok", "dkk", "pln", "czk", "huf", "idr", "brl",
    "aud", "cad", "sgd", "hkd", "twd", "krw", "rub", "try", "vnd", "thb", "ils",
))  # fmt: skip
"""Normalised units that are currencies."""
_KEY_UNITS: Final = frozenset((
    "w", "kw", "kwh", "mwh", "wh", "gb", "mb", "tb", "kb", "ms", "s", "h", "min", "kg", "g", "t", "km", "m",
    "mm", "cm", "l", "ml", "mi", "ft", "lb", "oz", "mg", "cent",
))  # fmt: skip
"""Units that end the key of a JSON object (``total_w``)."""
_RATE: Final = re.compile(
    r"(?:per|par|por|pro|je|na|za|al|au|op|[axp]|at|ogni|tiap|na|за|на|每|毎)$"
    r"|rate|price|pri[sx]|preis|prec|preç|prezz|prij|cen[ay]|fiyat|harga|tarif|cost|kost|cout|coût|цен|ставк",
    re.IGNORECASE,
)
"""Words of a key whose unit stands below a fraction bar."""
_STOP: Final = frozenset((
    "the", "a", "an", "of", "in", "on", "at", "is", "are", "was", "were", "be", "and", "or", "for", "to",
    "by", "with", "from", "as", "it", "its", "this", "that", "has", "have", "had", "which", "so", "der",
    "die", "das", "und", "ist", "sind", "mit", "von", "für", "auf", "le", "la", "les", "et", "de", "des",
    "du", "el", "los", "y", "en", "que", "per", "about", "we", "you", "i", "our", "your", "their", "they",
    "there", "than", "then", "also", "not", "no",
))  # fmt: skip


@record
class Figure:
    """A number in a text that stands for a quantity."""

    value: float
    literal: str
    written: str
    """The figure as written, with the word of its scale."""
    before: str
    after: str
    """Characters on either side, up to ``_REACH``."""
    step: float
    """Value of one unit of its last digit: 100 for ``9.6k``, 0.1 for ``2.5``."""
    unit: str
    """Normalised unit; empty if there is none."""
    start: int
    end: int
    is_small: bool
    """A count up to 12, or a year, which texts use without a source."""
    is_label: bool
    """Whether it is a year or the number of a thing, not a quantity."""

    def is_about(self, value: float) -> bool:
        """Tell whether a value is this figure, within half a unit of its last digit."""
        return abs(self.value - value) <= _WITHIN * self.step

    def has_unit_of(self, other: Figure) -> bool:
        """Tell whether two figures have the same unit; a noun may have the ending of its case."""
        one, two = sorted((self.unit, other.unit), key=len)
        return one == two or (len(one) >= _LEAST_NOUN and one.isalpha() and two.startswith(one))

    @property
    def is_hedged(self) -> bool:
        """Whether the text says that it is not exact."""
        return _HEDGED.search(self.before[-_LONGEST_HEDGE:]) is not None

    @property
    def shown(self) -> str:
        """The figure as written, with its unit."""
        money = _currency(self.before)
        if money is not None:
            return f"{money[1]}{self.written}"
        unit = _UNIT.match(self.after)
        is_unit = unit is not None and unit[1].casefold() not in _STOP
        return f"{self.written}{unit[0]}" if unit is not None and is_unit else self.written

    @property
    def words(self) -> frozenset[str]:
        """Words around it, in lower case, without the most frequent ones."""
        return words_near(self.before, self.after)

    @property
    def readings(self) -> tuple[float, ...]:
        """Its value, and what it is where the mark before its last three digits has the other meaning."""
        if _AMBIGUOUS.fullmatch(self.literal) is None:
            return (self.value,)
        return (self.value, self.value / 1000 if "," in self.literal else self.value * 1000)

    def as_read(self) -> Iterator[Figure]:
        """Yield the figure in each of its readings."""
        for value in self.readings:
            yield (
                self
                if value == self.value
                else replace(self, value=value, step=self.step * value / self.value)
            )

    @property
    def digits(self) -> str:
        """Significant digits without trailing zeros."""
        return self.literal_digits.strip("0") or "0"

    @property
    def literal_digits(self) -> str:
        """Digits as written."""
        plain = self.literal.replace(",", "").replace(".", "")
        return plain if plain.isdigit() else "".join(filter(str.isdigit, plain))


@lru_cache(maxsize=_REMEMBERED)
def figures(text: str) -> tuple[Figure, ...]:
    """Return the figures of a text, in order, at most ``MOST``; cached, since texts are read repeatedly."""
    if _DIGIT.search(text) is None:
        return ()
    text = plain_typography(text)
    skipped = (found.span() for found in _SKIPPED.finditer(text))
    found: list[Figure] = []
    start, end = 0, 0  # of the next part to skip; none is searched for after the last number
    for match in _NUMBER.finditer(text):
        while end <= match.start():
            start, end = next(skipped, _NOWHERE)
        if start < match.end():
            continue
        figure = _figure(text, match)
        if figure is not None:
            found.append(figure)
        if len(found) >= MOST:
            break
    return tuple(found)


_HUNK: Final = re.compile(
    r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@[^\n]*(?:\n[ +\-\\][^\n]*|\n(?=\n|$))*", re.MULTILINE
)
"""A part of a patch in the unified format."""
_FENCED_DATA: Final = re.compile(r"(?:json\w*)?\s*([{\[].*[}\]]\s*)\Z", re.DOTALL | re.IGNORECASE)
"""A fence's label, if any, and its JSON; code begins with other characters."""


def prose_of(text: str) -> str:
    """Return a text without code and patches, replaced by blanks so that positions do not change.

    JSON in a code fence is what the text says, not code, if it is longer than all the text outside fences:
    models fence an answer in JSON. Beside a longer explanation it may be an example.
    """
    text = _HUNK.sub(lambda found: " " * len(found[0]), text) if "@@ -" in text else text
    if "```" not in text:
        return text
    parts = text.split("```")
    outside = sum(map(len, parts[::2]))
    return "   ".join(
        part if place % 2 == 0 else _data_of(part, outside) or " " * len(part)
        for place, part in enumerate(parts)
    )


def _data_of(fenced: str, least: int) -> str:
    """Return the JSON in a fence with its label blanked; empty if it is something else, or shorter."""
    data = _FENCED_DATA.match(fenced)
    return " " * data.start(1) + data[1] if data and len(fenced) > least else ""


def words_of(text: str) -> frozenset[str]:
    """Return the significant words of a text, in lower case and without plural endings."""
    words = map(str.casefold, _WORD.findall(_JOINT.sub(" ", text)))
    return frozenset([_stem(word) for word in words if word not in _STOP])


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _figure(text: str, match: re.Match[str]) -> Figure | None:
    literal, word, sign = match.groups()
    (start, end), scale = match.span(), word or sign
    after = text[end : end + _REACH]
    if len(literal) > _LONGEST or after[:1] == "_" or after[:1].isdigit():
        return None
    before = text[max(0, start - _REACH) : start]
    value, step = _value(literal)
    factor = _SCALES.get(scale or "", 1.0)
    if not math.isfinite(value * factor):
        return None
    if text[start] in "-−":  # noqa: RUF001 - the actual minus sign
        value = -value
    unit = _unit(before, after)
    may_be_year = not unit and scale is None and _YEAR.fullmatch(literal) is not None
    may_be_numbered = may_be_year or ("." not in literal and value < 100 and not unit)
    is_named = may_be_numbered and _is_numbered(before)
    is_year = may_be_year and (is_named or literal[:2] in ("19", "20"))
    is_label = is_year or (is_named and "." not in literal and value < 100)
    small = scale is None and 0 <= value <= 12 and value == int(value)
    return Figure(
        value=value * factor,
        literal=literal,
        written=text[match.start(1) : end],
        before=before,
        after=after,
        step=step * factor,
        unit=unit,
        start=start,
        end=end,
        is_small=small or is_label,
        is_label=is_label,
    )


def _is_numbered(before: str) -> bool:
    """Tell whether a number stands after the name of things that have numbers: ``step 3``."""
    return _NUMBERED_BACKWARDS.match(lowercased(before[: -_LONGEST_NOUN - 1 : -1])) is not None


_GROUPED: Final = re.compile(r"(?!0)\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_GROUPED_BY_POINTS: Final = re.compile(r"(?!0)\d{1,3}(?:\.\d{3})+,\d+")


def _value(literal: str) -> tuple[float, float]:
    """Return the value of a literal, and of one unit of its last digit."""
    if literal.isdigit():
        return float(literal), 1.0
    whole, _, decimals = literal.partition(".")
    if whole.isdigit() and decimals.isdigit():
        return float(literal), 10.0 ** -len(decimals)
    plain = "".join(literal.split()).replace("'", "")
    if "'" in literal:
        plain = plain.replace(",", ".")
    elif plain.count(",") > 1 or _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    elif "," in plain:
        is_grouped = _GROUPED_BY_POINTS.fullmatch(plain) is not None
        plain = (plain.replace(".", "") if is_grouped else plain).replace(",", ".")
    elif plain.count(".") > 1:
        plain = plain.replace(".", "")
    decimals = plain.partition(".")[2]
    return float(plain), 10.0 ** -len(decimals)


def _unit(before: str, after: str) -> str:
    money = _currency(before)
    if money is not None:
        return _CURRENCIES.get(money[1].strip().casefold(), "")
    found = _UNIT.match(after)
    if found is None:
        key = _KEY_BACKWARDS.match(before[::-1])
        return _unit_of_key(key[1][::-1].casefold()) if key else ""
    return unit_of(found[1].strip("/"))


def _currency(before: str) -> re.Match[str] | None:
    nearest = before[-_LONGEST_CURRENCY:]
    return _CURRENCY.search(nearest) if nearest.rstrip()[-1:] in _ENDS_CURRENCY else None


def _unit_of_key(key: str) -> str:
    """Return the unit at the end of a key, or its currency; empty for a rate such as ``mg_par_kg``."""
    *before, ending = key.split("_")
    if before and before[0] in CURRENCY_CODES and ending != "rate":
        return before[0]  # usd_price
    is_rate = any(word in _KEY_UNITS or word in _CURRENCIES or _RATE.match(word) for word in before)
    return "" if is_rate else _CURRENCIES.get(ending, ending if ending in _KEY_UNITS else "")


def unit_of(word: str) -> str:
    """Return the unit that a word names, normalised; empty if it names none."""
    small = word.casefold()
    known = _CURRENCIES.get(small)
    if known is not None:
        return known
    return "" if small in _STOP else _stem(small)


@lru_cache(maxsize=_REMEMBERED)
def words_near(before: str, after: str) -> frozenset[str]:
    """Return the words of the clause around a figure, which say what it counts or measures."""
    cut = max(before.rfind(mark) for mark in ("\n", ". ", "; ", "! ", "? ", "},", "], "))
    left = before[cut + 1 :]
    ends = [
        place for mark in ("\n", ". ", "; ", "! ", "? ", "}", "]", ', "') if (place := after.find(mark)) >= 0
    ]
    right = after[: min(ends)] if ends else after
    return words_of(left) | words_of(right)
