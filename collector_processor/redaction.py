"""Take secrets out of text before a model, the store, a page or a backend sees it. Pure.

A chain of rules, each with a kind that can be switched off, then the user's own
patterns. Ours are few and precise: a redactor that eats ordinary numbers would
take the evidence with it. Each replacement says what stood there; within one run
equal secrets are replaced by equal words and different ones by different words
(``[e-mail 1]``, ``[e-mail 2]``), so that a mail sent to the wrong person can still
be seen to have been.

Patterns are RE2's, whose time is linear in the text whatever the pattern: none can
hang the service, the user's neither. The few that look behind them are ``re``'s, and
have bounded repetitions only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import re2

Redact = Callable[[str], str]

KEYS, TOKENS, SECRETS, CARDS, EMAILS = "keys", "tokens", "secrets", "cards", "emails"
ALL_KINDS: Final = (KEYS, TOKENS, SECRETS, CARDS, EMAILS)
OWN: Final = "own"
"""The kind of the user's patterns."""
_NONE: Final = "none"
_OWN_WORD: Final = "redacted"
_LONGEST_PATTERN: Final = 2_000
_RE2_MEMORY: Final = 8 << 20
_MOST_AT_ONCE: Final = 32
"""Texts that are looked over together: if anything is found in them, each of them is looked at alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one kind of secret looks like, and the word that stands for it."""

    kind: str
    word: str
    pattern: Any
    """Of ``re`` or ``re2``: only ``sub`` is used."""
    hint: str = ""
    """Lower case; a text without it, in whatever case, holds nothing of the kind and is passed over."""
    holds: Callable[[str], bool] = lambda _found: True
    """A closer look at what the pattern found."""


def _luhn(found: str) -> bool:
    """Card numbers carry a check digit; most other long numbers fail it."""
    digits = [int(char) for char in found if char.isdigit()]
    doubled = [
        sum(divmod(2 * digit, 10)) if place % 2 else digit for place, digit in enumerate(reversed(digits))
    ]
    return sum(doubled) % 10 == 0


_RULES: Final[tuple[Rule, ...]] = (
    # Private keys first: their base64 would match the token patterns piecemeal.
    Rule(
        kind=KEYS,
        word="private key",
        hint="-----begin ",
        # Only what a key consists of goes: its first line alone must not hide what is said after it.
        pattern=re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
            r"(?:(?:\\[rn]|[\r\n])+[ \t]{0,8}(?:(?:Proc-Type|DEK-Info):[^\r\n\\]{0,80}"
            r"|[A-Za-z0-9+/=]{1,8000})"
            r"|[ \t]{1,4}[A-Za-z0-9+/=]{16,8000})*"
            r"(?:(?:\\[rn]|\s){0,4}-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
        ),
    ),
    # By RE2: a text of nothing but beginnings of tokens would be walked over from each of them.
    Rule(kind=TOKENS, word="token", pattern=re2.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    Rule(
        kind=KEYS,
        word="key",
        pattern=re2.compile(
            r"\b(?:sk|pk|rk)[-_][\w-]{16,}"  # OpenAI, Anthropic, Stripe
            r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS access key ids
            r"|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{22,}|\bglpat-[\w-]{20,}"  # GitHub, GitLab
            r"|\bxox[abeprs]-[\w-]{10,}|\bxapp-[\w-]{10,}"  # Slack
            r"|\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}"  # Google
            r"|\bhf_[A-Za-z0-9]{20,}|\bgsk_[A-Za-z0-9]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{50,}"
            r"|\bSG\.[\w-]{16,64}\.[\w-]{16,64}"  # SendGrid
        ),
    ),
    Rule(
        kind=TOKENS,
        word="token",
        hint="bearer ",
        pattern=re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{12,}"),
    ),
    Rule(
        kind=TOKENS,
        word="token",
        hint="authorization: basic ",
        pattern=re.compile(r"(?i)(?<=authorization: basic )[\w+/=-]{8,}"),
    ),
    Rule(  # a user and password in a URL
        kind=SECRETS,
        word="password",
        hint="://",
        pattern=re.compile(r"(?<=://)[^\s/:@\[\]]{1,100}:[^\s/@\[\]]{1,200}(?=@)"),
    ),
    Rule(
        kind=SECRETS,
        word="secret",
        pattern=re2.compile(
            r"(?i)\b(?:password|passwd|secret|api[_-]?key|access[_-]?token|private[_-]?token|client[_-]?secret"
            r"|aws_secret_access_key|secret[_-]?access[_-]?key)"
            r"""["']?\s{0,3}[:=]\s{0,3}["']?[^\s"',;&]{6,}"""
        ),
    ),
    Rule(
        kind=EMAILS,
        word="e-mail",
        hint="@",
        pattern=re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}\b"),
    ),
    Rule(kind=CARDS, word="card number", pattern=re2.compile(r"\b\d(?:[ -]?\d){12,18}\b"), holds=_luhn),
)


def _is_hintless(rule: Rule) -> bool:
    return not rule.hint and rule.kind != OWN


_HINTLESS: Final = re2.compile(
    "|".join(f"(?:{rule.pattern.pattern})" for rule in _RULES if _is_hintless(rule))
)
"""All that has no hint, looked for at once: most texts hold nothing, and each look has its price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """The rules that are switched on, in their order, the user's own last."""

    rules: tuple[Rule, ...] = _RULES

    def plainly(self, text: str) -> str:
        """Return ``text`` with what the rules find named, not shown."""
        return _apply(self.rules, text, _word_for)

    def for_run(self) -> RunRedactor:
        """Return what redacts all the texts of one run alike."""
        return RunRedactor(rules=self.rules)


@dataclass(slots=True, kw_only=True)
class RunRedactor:
    """Redacts the texts of one run: equal secrets are called alike, and all are counted."""

    rules: tuple[Rule, ...]
    counts: Counter[str] = field(default_factory=Counter)
    """How often something of each kind was taken out."""
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _words: Counter[str] = field(default_factory=Counter)
    _clean: set[str] = field(default_factory=set)
    """Texts in which nothing was found: an agent's instructions stand at each of its steps."""

    def look_over(self, texts: Iterable[str]) -> bool:
        """Note which of the run's texts hold nothing; say whether none of them holds anything.

        Many at a look: most hold nothing, and each look has its price.
        """
        different = list(dict.fromkeys(texts))
        batches = [different[at : at + _MOST_AT_ONCE] for at in range(0, len(different), _MOST_AT_ONCE)]
        clean = [batch for batch in batches if _holds_nothing(self.rules, "\n".join(batch))]
        for batch in clean:
            self._clean.update(batch)
        return len(clean) == len(batches)

    def __call__(self, text: str) -> str:
        """Return ``text`` with what the rules find called by a word and a number."""
        if not text or text in self._clean:
            return text
        redacted = _apply(self.rules, text, self._replacing)
        if redacted == text:
            self._clean.add(text)
        return redacted

    def _replacing(self, rule: Rule) -> Callable[[Any], str]:
        def replace(match: Any) -> str:
            found: str = match.group()
            if not rule.holds(found):
                return found
            self.counts[rule.kind] += 1
            return self._name(rule.word, found)

        return replace

    def _name(self, word: str, found: str) -> str:
        key = (word, found.casefold())
        if key not in self._names:
            self._words[word] += 1
            self._names[key] = f"[{word} {self._words[word]}]"
        return self._names[key]


def make_redactor(kinds: Iterable[str], patterns: Iterable[str] = ()) -> Redactor:
    """Return a redactor of these kinds and the user's patterns.

    Raises:
        ValueError: a pattern is none.
    """
    wanted = frozenset(kinds)
    own = [Rule(kind=OWN, word=_OWN_WORD, pattern=check_pattern(pattern)) for pattern in patterns]
    return Redactor(rules=(*(rule for rule in _RULES if rule.kind in wanted), *own))


def read_kinds(text: str) -> tuple[str, ...]:
    """Read the names of kinds, with commas between; ``none`` for none of them.

    Raises:
        ValueError: there is no such kind.
    """
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    if names == (_NONE,):
        return ()
    unknown = [name for name in names if name not in ALL_KINDS]
    if unknown or not names:
        raise ValueError(f"expected some of {', '.join(ALL_KINDS)}, or none")
    return names


def check_pattern(pattern: str) -> Any:
    """Compile one of the user's patterns for secrets.

    Raises:
        ValueError: it is none that RE2 takes, is found in empty text, or is far too long.
    """
    compiled = compile_pattern(pattern)
    if compiled.search("") is not None:
        raise ValueError("expected a pattern that is not found in empty text")
    return compiled


def compile_pattern(pattern: str) -> Any:
    """Compile a pattern that is to be looked for in hostile text: by RE2, in time linear in that text.

    Raises:
        ValueError: it is none that RE2 takes, or is far too long.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise ValueError(f"expected a pattern of at most {_LONGEST_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _RE2_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        reason = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise ValueError(f"expected a regular expression as RE2 reads it: {reason}") from None


def describe(counts: Mapping[str, int]) -> str:
    """Say what was taken out of a run; empty for nothing."""
    told = ", ".join(f"{counts[kind]} of {kind}" for kind in (*ALL_KINDS, OWN) if counts.get(kind))
    return f"redacted before the analysis: {told}" if told else ""


_EVERYTHING: Final = Redactor()


def redact(text: str) -> str:
    """Return ``text`` with keys, tokens, secrets, card numbers and e-mail addresses named, not shown."""
    return _EVERYTHING.plainly(text)


def keep(text: str) -> str:
    """Return ``text`` as it is."""
    return text


def omit(_text: str) -> str:
    """Return nothing, whatever stands there."""
    return ""


def _apply(rules: Iterable[Rule], text: str, replacing: Callable[[Rule], Callable[[Any], str]]) -> str:
    before = text = _sound(text)
    lowered = text.lower()
    is_bare = _HINTLESS.search(text) is None
    for rule in rules:
        if rule.hint in lowered and not (is_bare and _is_hintless(rule)):
            text = rule.pattern.sub(replacing(rule), text)
            is_bare = is_bare and text == before  # what stands there now may be more than the parts of it
    return text


def _holds_nothing(rules: Iterable[Rule], text: str) -> bool:
    """Say whether a look at ``text`` is enough to know that no rule finds anything in it."""
    if _sound(text) is not text or _HINTLESS.search(text) is not None:
        return False
    lowered = text.lower()
    return not any(rule.hint in lowered and not _is_hintless(rule) for rule in rules)


def _word_for(rule: Rule) -> Callable[[Any], str]:
    def replace(match: Any) -> str:
        found: str = match.group()
        return f"[{rule.word}]" if rule.holds(found) else found

    return replace


def _sound(text: str) -> str:
    """Half characters, which RE2 cannot be given, become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
