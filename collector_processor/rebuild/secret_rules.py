"""Rules that find secrets in a decoded text. Pure, except that it reads a data file once.

Rules for vendors' keys come from gitleaks and CredSweeper, as data (``secret_rules.json``, renewed by
``python -m tools.secret_rules``). This module has the rules for formats that are defined by standards or
long-standing custom: PEM, JWT, ``Authorization``, passwords in URLs, ``.netrc`` and assignments, e-mail
addresses, payment cards.

As in gitleaks, one search for all keywords tells which rules can match at all. All patterns run on RE2, in
time linear in the text.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, NamedTuple

import re2

from collector_processor.core.patterns import compile_rule, re2_options
from collector_processor.rebuild import named_secrets as named
from collector_processor.rebuild import named_secrets as tables
from collector_processor.rebuild import secret_places as places
from collector_processor.rebuild.secret_places import address, cards_in, cookies, random_token
from collector_processor.rebuild.unescape import BASE64, HEX

DATA: Final = files("collector_processor.rebuild").joinpath("secret_rules.json")
KEYS, TOKENS, SECRETS, CARDS, EMAILS = "keys", "tokens", "secrets", "cards", "emails"
ALL_KINDS: Final = (KEYS, TOKENS, SECRETS, CARDS, EMAILS)
OWN: Final = "own"
"""Kind of the user's patterns."""
_PLACEHOLDER: Final = re.compile(
    r"\[(?:key|token|secret|password|private key|card number|e-mail|redacted)(?: \d+)?\]"
)


_MOST_OF_LINE: Final = 200
"""Characters of a line before and after a match that may show that it is not a secret."""
_SHORTEST_KEYWORD: Final = 4
"""In characters; shorter keywords occur in many words."""


class Allowed(NamedTuple):
    """Exceptions to a rule: matches that are not secrets."""

    target: str
    """``secret``, ``match`` or ``line``."""
    patterns: tuple[str, ...]
    words: frozenset[str]

    def holds(self, targets: Mapping[str, str]) -> bool:
        """Return whether a match is an exception."""
        text, secret = targets[self.target], targets["secret"].lower()
        return any(compile_rule(pattern).search(text) is not None for pattern in self.patterns) or any(
            word in secret for word in self.words
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Pattern of one kind of secret, and the word for its placeholder."""

    kind: str
    word: str
    pattern: str
    """The secret is the first group that matched, else the whole match."""
    keywords: tuple[str, ...] = ()
    """In lower case; a text with none of them, in any case, cannot match. Empty: search every text."""
    entropy: float = 0
    """Entropy that the secret must exceed, in bits a character."""
    group: int = 0
    allowed: tuple[Allowed, ...] = ()
    spans: Callable[[str, int, int], Iterable[tuple[int, int]]] | None = None
    """Returns the secrets within a match, for conditions that a pattern cannot express."""
    command: str = ""
    """Pattern of the command's name that must stand closely before the secret."""


class Found(NamedTuple):
    """A secret in a decoded text."""

    start: int
    end: int
    rule: Rule


class Finder:
    """Finds secrets by a set of rules."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules: Final = rules
        by_hint: dict[str, list[int]] = {}
        for number, rule in enumerate(rules):
            for word in rule.keywords:
                by_hint.setdefault(_hint(rule, word), []).append(number)
        self._numbers: Final = tuple(by_hint.values())
        self._always: Final = frozenset(number for number, rule in enumerate(rules) if not rule.keywords)
        self._hints: Final = re2.Set.SearchSet(re2_options(case_sensitive=False))
        for hint in by_hint:
            self._hints.Add(hint)
        self._hints.Compile()

    def find(self, text: str) -> Iterator[Found]:
        """Yield the secrets in ``text``, rule by rule; they may overlap."""
        raw = text.encode()  # encoded once: RE2 searches bytes
        for number in self._candidates(raw):
            if compile_rule(self._rules[number].pattern).search(raw) is not None:
                yield from _matches(self._rules[number], text)

    def _candidates(self, raw: bytes) -> Iterable[int]:
        hits = self._hints.Match(raw) if self._numbers else ()
        return sorted(self._always.union(*(self._numbers[hit] for hit in hits or ())))


def _hint(rule: Rule, word: str) -> str:
    """Return a pattern for the keyword; short keywords match only at the start of a token."""
    escaped = re2.escape(word)
    is_beginning = len(word) < _SHORTEST_KEYWORD and word[0].isalnum() and not rule.pattern.startswith("(?i)")
    return rf"(?:^|[^A-Za-z0-9]){escaped}[\w.-]{{8}}" if is_beginning and "~" not in word else escaped


def _matches(rule: Rule, text: str) -> Iterator[Found]:
    for match in compile_rule(rule.pattern).finditer(text):
        if rule.spans is not None:
            for start, end in rule.spans(text, *match.span()):
                if not _PLACEHOLDER.search(text, start, end):
                    yield Found(start, end, rule)
            continue
        groups = range(1, (match.re.groups or 0) + 1)
        group = rule.group or next((each for each in groups if match.group(each)), 0)
        start, end = match.span(group)
        is_near = not rule.command or places.is_near(rule.command, text, match.start(), start, end)
        if start < end and is_near and _is_secret(rule, text, match, text[start:end]):
            yield Found(start, end, rule)


def _is_secret(rule: Rule, text: str, match: Any, secret: str) -> bool:
    if _PLACEHOLDER.search(secret) or (rule.entropy and _entropy(secret) <= rule.entropy):
        return False
    if not rule.allowed:
        return True
    before, after = (
        text[max(0, match.start() - _MOST_OF_LINE) : match.start()],
        text[match.end() : match.end() + _MOST_OF_LINE],
    )
    line = before.rpartition("\n")[2] + match.group() + after.partition("\n")[0]
    targets = {"secret": secret, "match": match.group(), "line": line}
    return not any(allowed.holds(targets) for allowed in rule.allowed)


def _entropy(secret: str) -> float:
    """Return Shannon's entropy in bits a character, as gitleaks does."""
    size = len(secret)
    return -sum(count / size * math.log2(count / size) for count in Counter(secret).values())


_ARMOR: Final = r"""[\s>|#*"',+\\]*"""
_BEGIN: Final = r"-{4,5} ?BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_END: Final = r"-{4,5} ?END[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_NAMES: Final = (
    r"pass(?:word|wd|phrase)|pwd|secret|api[_.-]?key|account[_.-]?key|access[_.-]?key|private[_.-]?key"
    r"|(?:access|refresh|private|auth|bearer|bot|id)[_.-]?token|client[_.-]?secret|signing[_.-]?secret"
    r"|secret[_.-]?key|secret[_.-]?access[_.-]?key"
)
_NO_VALUE: Final = (
    r"(?i)^(?:true|false|null|none|undefined)\b|^(?:os|process|self|config|settings)\.|^your[_-]"
)
"""Placeholder values in source code and examples."""
_NAME_WORDS: Final = ("pass", "pwd", "secret", "key", "token")

_WORDS: Final = Allowed("secret", (rf"^(?:{named.WORD})[.,;:!?]?$",), frozenset())
_PLAIN: Final = Allowed("secret", (rf"(?i)^(?:{named.PLAIN})[.,;:!?]?$", r"^\$|^<|^\{|^%\w"), frozenset())
"""Values of options and arguments that are no secrets."""
_CODE_WORDS: Final = ("recovery code", "backup code", "scratch code", "rescue code")
_NAMED: Final = (
    *(
        Rule(kind=SECRETS, word=word, keywords=keywords, pattern=pattern, spans=spans)
        for word, keywords, pattern, spans in (
            ("password", named.PASSWORD_WORDS, named.NAMED_PASSWORD, named.named_password),
            ("secret", named.OTHER_WORDS, named.NAMED_SECRET, named.named_secret),
            ("password", named.PASSWORD_WORDS, tables.COLUMN, tables.password_column),
            ("password", ("insert",), tables.INSERT, tables.inserted),
            ("password", ("<th",), tables.HTML_COLUMN, tables.html_column),
            ("secret", _CODE_WORDS, tables.CODES, tables.codes),
        )
    ),
    *(
        Rule(
            kind=SECRETS,
            word="password",
            keywords=tuple(word.replace("~", " ") for word in words.split()),
            pattern=command + pattern,
            allowed=(_PLAIN,),
            command=command,
        )
        for words, command, pattern in (
            *places.COMMANDS,
            *((words, "", pattern) for words, pattern in places.SETTINGS),
        )
    ),
    *(
        Rule(kind=SECRETS, word=word, keywords=keywords, pattern=pattern, allowed=(_PLAIN,))
        for word, keywords, pattern in (
            ("password", ("pass", "pwd"), places.OPTION),
            ("password", ("auth", "login", "credential"), places.LOGIN),
            ("secret", ("value",), places.IN_ENV_LIST),
            ("secret", ("private",), places.HEX_KEY),
            ("secret", ("mnemonic", "seed", "recovery", "backup"), places.PHRASE),
            ("token", ("response=",), places.DIGEST),
            ("secret", ("pin", "otp", "puk", "code", "passcode", "cvv", "cvc"), places.CODE),
            ("secret", (" is your ",), places.CODE_BEFORE),
            ("password", ("password>", "passwd>", "passwort>"), places.HTML_CELL),
            ("password", ("password",), places.FIELD),
            (
                "secret",
                (
                    "getconnection",
                    "mysqli",
                    "pdo(",
                    "createconnection",
                    "basic",
                    "hmac.new",
                    "wallet(",
                    "private",
                ),
                places.POSITIONAL,
            ),
            ("token", (":aa",), places.TELEGRAM),
            ("token", ('"value"',), places.COOKIE_FIELDS),
        )
    ),
    *(
        Rule(kind=SECRETS, word=word, keywords=keywords, pattern=pattern, allowed=(_PLAIN, _WORDS))
        for word, keywords, pattern in (
            ("secret", _NAME_WORDS, places.OTHER_OPTION),
            ("token", ("key", "token", "secret", "authorization", "passw"), places.PAIR),
            (
                "token",
                ("sess", "csrf", "xsrf", "connect.sid", "auth", "remember_", "__secure", "__host"),
                places.COOKIE,
            ),
            ("token", ("?", "&", "#", " -d", "--data"), places.IN_ADDRESS),
        )
    ),
    Rule(
        kind=KEYS,
        word="key",
        keywords=("mt", "mj", "mz", "nd", "nt", "nj", "nz", "od", "ot"),  # digits of an id in base64
        pattern=places.DISCORD,
    ),
)
"""Values that a word or an option beside them names."""

FORMATS: Final[tuple[Rule, ...]] = (
    Rule(
        kind=KEYS,
        word="private key",
        keywords=("private key",),
        # Only the key's own lines: the first line alone must not cause the text after it to be removed.
        pattern=(
            rf"{_BEGIN}"
            rf"(?:{_ARMOR}(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): ?[^\n]{{0,120}}"
            r"|[A-Za-z0-9+/=]{16,}))*"
            rf"(?:{_ARMOR}[A-Za-z0-9+/=]{{0,76}}{_ARMOR}(?:=[A-Za-z0-9+/]{{4}}{_ARMOR})?"
            rf"{_END})?"
        ),
    ),
    Rule(
        kind=KEYS,
        word="private key",
        keywords=("private key",),
        # As a tool shows the file: with numbers, names, times or markup around each of its long lines.
        pattern=(
            rf"{_BEGIN}(?:(?s:.{{0,80}}?)[A-Za-z0-9+/]{{40,}}={{0,2}})+"
            rf"(?:(?s:.{{0,80}}?)[A-Za-z0-9+/=]{{1,76}}(?s:.{{0,80}}?){_END})?"
        ),
    ),
    Rule(
        kind=KEYS,
        word="private key",
        keywords=('"kty"',),  # a JSON Web Key (RFC 7518)
        pattern=r""""(?:d|p|q|dp|dq|qi|k)"\s{0,3}:\s{0,3}"([\w-]{40,})\"""",
    ),
    Rule(
        kind=KEYS,
        word="private key",
        keywords=("private-lines",),
        pattern=r"Private-Lines: \d{1,3}\s((?:[A-Za-z0-9+/=]{1,80}\s{1,2})+)",
    ),
    Rule(kind=TOKENS, word="token", keywords=("eyj",), pattern=r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    Rule(
        kind=KEYS,
        word="key",
        keywords=("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"),  # secret, public and restricted keys
        pattern=r"\b(?:sk|pk|rk)[-_][\w-]{16,}",
    ),
    Rule(
        kind=TOKENS,
        word="token",
        keywords=("bearer",),
        pattern=r"(?i)\bbearer\s+([\w.~+/=-]{12,})",
        allowed=(Allowed("secret", ("^[a-z]+[.]?$", "^(?i:your|my)[_-]"), frozenset()),),
    ),
    Rule(
        kind=TOKENS,
        word="token",
        keywords=("basic",),
        pattern=r"""(?i)authorization["']?\s{0,3}[:=]\s{0,3}["']?basic\s+([\w+/=-]{8,})""",
    ),
    Rule(
        kind=TOKENS,
        word="token",
        keywords=("authorization",),  # any scheme, or none
        pattern=(
            r"""(?i)authorization["']?\s{0,3}[:=]\s{0,3}["']?(?:[a-z][a-z-]{1,20}\s+)?([\w.~+/=-]{16,})"""
        ),
        allowed=(Allowed("secret", ("^[a-z._-]+$",), frozenset()),),
    ),
    Rule(
        kind=TOKENS,
        word="token",
        keywords=("cookie",),
        # ``cookies`` reads the values after the match: a pattern repeated up to a thousand times takes
        # seconds if the name occurs often.
        pattern=r"""(?i)\b(?:set-)?cookie["']?\s{0,3}:\s{0,3}["']?""",
        spans=cookies,
    ),
    Rule(
        kind=TOKENS,
        word="token",
        keywords=("sig=", "signature="),  # of an address that gives access by itself
        pattern=r"""(?i)[?&](?:sig|(?:x-(?:amz|goog)-)?signature)=([\w+/=-]{20,})""",
    ),
    Rule(
        kind=SECRETS,
        word="password",
        keywords=("$",),  # crypt(5)
        pattern=(
            r"\$(?:[1567y]|2[abxy]|apr1|argon2\w{1,2}|scrypt|pbkdf2[\w-]{0,12})\$"
            r"(?:[\w=,./+-]{1,100}\$){0,3}[\w./+]{22,}"
        ),
    ),
    Rule(
        kind=SECRETS,
        word="secret",
        keywords=_NAME_WORDS,  # an option, or an XML element
        pattern=(
            rf"""(?i)(?:(?:^|[^\w-])--?(?:{_NAMES}|token)(?:\s+|=)["']?([^\s"'<>$-][^\s"'<>]{{5,}})"""
            rf"""|<(?:[\w.-]+:)?(?:{_NAMES})>\s{{0,3}}([^<>\s]{{6,200}})\s{{0,3}}</)"""
        ),
        allowed=(Allowed("secret", (_NO_VALUE, r"^[A-Za-z]?[a-z.,;:_-]+$"), frozenset()),),
    ),
    Rule(
        kind=SECRETS,
        word="password",
        keywords=("://",),
        # The password may contain "@", the host may not.
        pattern=r"""://([^\s/:@\[\]"'<>]{0,100}:[^\s/"'<>]{1,200})@""",
        allowed=(Allowed("secret", (r"^[^:]*:(?:[$<{*]|%[A-Z_]+%|PASS(?:WORD)?$|password$)",), frozenset()),),
    ),
    Rule(
        kind=SECRETS,
        word="password",
        keywords=("login",),  # .netrc
        pattern=r"(?i)(?:\bmachine\s+\S{1,200}|\bdefault)\s+login\s+\S{1,200}\s+password\s+(\S{3,200})",
    ),
    Rule(
        kind=SECRETS,
        word="secret",
        keywords=("auth",),  # Docker's config.json, .npmrc
        pattern=r"""(?i)["']?\b_?auth["']?\s{0,3}[:=]\s{0,3}["']?([A-Za-z0-9+/]{12,}={0,2})(?:["'\s]|$)""",
        entropy=3,
    ),
    *_NAMED,
    Rule(
        kind=EMAILS,
        word="e-mail",
        keywords=("@",),
        # Begins with its keyword, for speed; the text before it is read backwards.
        pattern=r"@[\pL\pN_-]+(?:\.[\pL\pN_-]+)*\.\pL[\pL\pN-]+",
        spans=address,
    ),
    Rule(
        kind=CARDS, word="card number", pattern=r"[0-9](?:[ ._-]?[0-9]){12,}", spans=cards_in
    ),
    Rule(
        kind=KEYS,
        word="key",
        pattern=r"(?:^|[^\w+/-])[A-Za-z][A-Za-z0-9]{1,9}[_-][\w-]{32,}",
        spans=random_token,
    ),
)  # fmt: skip
"""Private keys come first: of overlapping secrets the longer one wins, then the earlier rule."""


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Return the rules of formats and of vendors."""
    document = json.loads(DATA.read_text(encoding="utf-8"))
    everywhere = tuple(_allowed(source["allowed"]) for source in document["sources"])
    prefixes = document["prefixes"]
    cut = Rule(  # tokens that were cut, or whose format is newer than the rules
        kind=KEYS,
        word="key",
        keywords=tuple(prefixes),
        pattern=rf"(?i:\b(?:{'|'.join(map(re.escape, prefixes))}))[A-Za-z0-9]{{20,}}[\w-]*",
    )
    return (*FORMATS, *(_vendor_rule(raw, everywhere) for raw in document["rules"]), cut)


_END_IN_CODE: Final = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
"""What gitleaks wants behind a key."""
_END_IN_PROSE: Final = r"(?:[^\w/+=-]|$)"
"""The same in a sentence, in brackets, in a list or in markup."""


def _ends_anywhere(pattern: str) -> str:
    """Return a vendor's pattern that needs no code around the key; one for a quoted value stays."""
    return pattern if pattern.endswith(f'"){_END_IN_CODE}') else pattern.replace(_END_IN_CODE, _END_IN_PROSE)


def _vendor_rule(raw: Mapping[str, Any], everywhere: tuple[Allowed, ...]) -> Rule:
    kind, word = next(
        (kind, word)
        for part, kind, word in (
            ("jwt", TOKENS, "token"),
            ("json-web", TOKENS, "token"),
            ("generic", SECRETS, "secret"),
            ("password", SECRETS, "secret"),
            ("kubernetes", SECRETS, "secret"),
            ("curl-auth", SECRETS, "secret"),
            ("", KEYS, "key"),
        )
        if part in raw["id"]
    )
    return Rule(
        kind=kind,
        word=word,
        pattern=_ends_anywhere(raw["pattern"]),
        keywords=tuple(raw["keywords"]),
        entropy=raw["entropy"],
        group=raw["group"],
        allowed=(*map(_allowed, raw["allowed"]), *everywhere),
    )


def _allowed(raw: Mapping[str, Any]) -> Allowed:
    return Allowed(raw["target"], tuple(raw["patterns"]), frozenset(raw["words"]))


ENCODED: Final = rf"(?:^|[^\w+/-])({BASE64}|{HEX})"
"""Finds runs of base64 and hex whose content is text."""
