# ruff: noqa: E501, RUF001, S105 - patterns of words in many languages
"""Secrets that a word beside or above them names: passwords, whatever they look like. Pure.

No pattern tells the passphrase ``blue horse`` from any other two words, but the word before it does. So where
a value follows a word that names a secret, in an assignment, a sentence, an option or a column of a table,
the value is taken, unless it says itself that it is none: a placeholder, a look-up in code, a word such as
``required``. Words that also name other things (``token``, ``key``) need a value that does not look like a
word or a count. In a table the name stands above its column; codes in a list stand below their title.

Each public function gets a text and the place of a pattern's match in it, and yields the secrets there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

PASSWORD: Final = (
    r"pass(?:word|wd|phrase|code|wort|key)s?|passwd|pwd|requirepass|masterauth|rootpw|\bpsk\b|_pass\b|(?:\b|_)pw\b"
    r"|(?-i:\b[A-Z0-9_]{1,30}_PASS\b|\bSSHPASS\b)"
    r"|(?:\b|_)(?:kennwort|mot de passe|contrase(?:ñ|n)a|senha|palavra-passe|wachtwoord|has(?:ł|l)o|sifre(?:si)?"
    r"|parola d'ordine|parol(?:ă|a)(?:sı)?|heslo|l(?:ö|o)senord|adgangskode|passord|salasana|jelsz(?:ó|o)|mật khẩu"
    r"|kata sandi|κωδικός πρόσβασης)"
    r"|şifre(?:si)?|пароль|пароля|密码|密碼|口令|パスワード|비밀번호|암호|كلمة (?:المرور|السر)|पासवर्ड|รหัสผ่าน|סיסמה"
)
"""Words for a password, in the languages with most speakers and those around them."""
_OTHERS: Final = (
    r"secret|token|api[ _.-]?key|\bappid|access[ _.-]?key|account[ _.-]?key|private[ _.-]?key|secret[ _.-]?key"
    r"|signing[ _.-]?key|encryption[ _.-]?key|master[ _.-]?key|license[ _.-]?key|auth[ _.-]?key|credentials?"
    r"|mnemonic|seed phrase|recovery (?:phrase|codes?)|backup codes?|cvv|cvc|storepass|keypass"
    r"|subscription[ _.-]?key|secure_?auth_?key|(?:auth|logged_in|nonce)_(?:key|salt)|client_assertion|\bclave|\bmdp|\bpass\b|app[_-]?key"
)
"""Words for other secrets, and words for a password that mean other things too."""
NAMED_PASSWORD: Final = rf"(?i)(?:{PASSWORD})"
NAMED_SECRET: Final = rf"(?i)(?:{_OTHERS})"
PASSWORD_WORDS: Final = (
    *("pass", "pwd", "kennwort", "contrase", "senha", "palavra", "wachtwoord", "hasło", "haslo", "şifre"),
    *("sifre", "parol", "heslo", "lösenord", "losenord", "adgangskode", "passord", "salasana", "jelsz"),
    *("парол", "密码", "密碼", "口令", "パスワード", "비밀번호", "암호", "كلمة", "पासवर्ड", "รหัสผ่าน"),
    *("pw", "masterauth", "psk", "mật khẩu", "kata sandi", "κωδικός", "סיסמה"),
)
"""A text without any of these, in any case, names no password."""
OTHER_WORDS: Final = (
    *("secret", "token", "key", "credential", "mnemonic", "seed phrase", "recovery", "backup code", "cvv"),
    *("cvc", "storepass", "keypass", "client_assertion", "_salt", "auth_", "clave", "mdp", "pass", "appid"),
)

QUOTES: Final = "\"'`“”„«»"
_OF: Final = r"(?:[ \t][\w'’/&«»-]{1,30}){1,7}?"
"""Words between a name and its value: "the password for the VPN is …"."""
_BETWEEN: Final = re.compile(
    r"""(?P<tail>[A-Za-z0-9_.-]{0,40})[*_`]{0,3}(?P<quote>["'”\]]{0,2})(?:\s{0,3}\([^()\n]{1,40}\))?"""
    rf"""(?P<of>{_OF})?(?P<sign>,?[ \t](?:it'?s|it’s|it is|which is|namely)[ \t]|[ \t]{{0,20}}(?::=|=>|->|:|=|：|—)[*_`]{{0,3}}[ \t]{{0,20}}(?P<line>(?:\n[ \t]{{0,20}})?)"""
    r"""|[ \t](?:is|was|are|to|ist|lautet|ist jetzt|est|es|è|é|to jest|это|to be|هي|هو|usa|är|er|je|ise|היא|הוא|este|είναι|là|adalah)(?:[ \t](?:now|still|noch|jetzt|nu"""
    r"""|(?:set|changed|reset|updated|gewijzigd|geändert|changé|cambiad[oa]|cambiata|zmienione)[ \t](?:to|naar|auf|zu|en|à|in|na)))?[ \t:]{1,3}|\s?(?P<cjk>(?:是|为|為|は|は、|는|은|है)[:：]?[ \t]?))"""
    r"""(?P<type>(?:str|string|String|Optional\[str\]|SecretStr)\s{0,3}=\s{0,3}|(?:\[\]byte|bytes|Buffer\.from|SecretStr)\(\s{0,3})?"""
)
"""What stands between a name and its value."""
_IN_CJK: Final = re.compile(r"[!-~]{4}|[^\x00-\x7f]{0,2}[!-~]{3}")
"""Beginning of a value in a language without blanks."""
_QUOTED: Final = re.compile(
    r"""[rbfunRBFUN]?(?:"([^"\n]{1,400})"|'([^'\n]{1,400})'|`([^`\n]{1,200})`|“([^”\n]{1,200})”|«\s?([^»\n]{1,200}?)\s?»)"""
)
_BARE: Final = re.compile(r"""[^\s"'`“”<>]{1,400}""")
_LINE: Final = re.compile(r"[^\n]{1,200}")
_ENDS: Final = ".,;:!?)]}。，、"
_OBJECTS: Final = (
    "os|process|self|cls|this|config|settings|args|request|req|response|res|env|user|account|data|params|options|opts"
    "|credentials|creds|secrets|vault|var|local|module|props|state|form|ctx|context|event|body|payload|db|client|app"
    "|values|inputs?"
)
PLAIN: Final = (
    r"(?:true|false|null|nil|none|undefined|yes|no|n/?a|empty|str|string|text|bool|int|bytes|(?:var)?char(?:\(\d+\))?"
    r"|any|object|optional(?:\[\w+\])?|secretstr|password|passwort|secret|token|redacted|hidden|masked|changed?|reset"
    r"|required|missing|incorrect|wrong|invalid|correct|valid|weak|strong|expired|set|unset|protected|encrypted"
    r"|hashed|visible|not|too|be|must|should|shall|will|may|can|cannot|at|the|a|an|this|that|it|its"
    r"|your|our|my|his|her|their|for|of|in|on|to|from|with|and|or|by|as|if|when|which|what|who|we|you|they|i|is|was"
    r"|are|were|has|have|had|been|never|always|only|also|now|then|here|there|new|old|current|default|same|different"
    r"|stored|sent|needed|given|used|provided|entered|requested|generated|created|updated|verified|accepted|ok"
    r"|der|die|das|ein|eine|nicht|falsch|richtig|erforderlich|obligatoire|obligatori[oa]|incorrect[ao]|incorrecte|incorreta"
    r"|requis|requerid[oa]|inválid[ao]|invalide|erron[ée]e?|errada|onjuist|verplicht|ungültig|case-sensitive|read-only"
    r"|pour|le|la|les|un|une|pas|el|los|una|non|il|het|een|niet|не|и"
    r"|[*_.•…-]{2,}|x{3,}|<.*|\$\{.*|\$\(.*|(?-i:\$[A-Z_][A-Z0-9_]*|\$[a-z_]+)|%[a-z_]\w*%|\{.*|\[.*|\(.*|&\w*;?"
    r"|your[_-].*|my[_-]?(?:password|secret|token)|example|change[_-]?(?:me|it|this)!?|todo|tbd|placeholder"
    rf"|(?:{_OBJECTS})(?:\.[a-z_]+)+(?:\(\))?|[a-z_]\w*\.(?:password|passwd|secret|token|api_key|value)"
    r"|[a-z_]*(?:password|passwd|token|secret|_pass)[a-z_]*|[a-z_][\w.]*\[.*|[a-z_][\w.]*\(|[a-z_][\w.]*\([^()]*\)(?:\.\w+(?:\(\))?)*"
    r"|[a-z_][\w.]*\.[a-z_]\w*\(.*"
    r"|(?-i:/(?:[a-z._][a-z0-9._-]*/)+[\w.-]*)|[a-z]:\\.*|~/.*|\.{1,2}/.*|https?://.*|.*\.{3}|\W{1,40})"
)
NO_VALUE: Final = re.compile(f"(?i){PLAIN}")
"""Values that say that they are none: words of sentences about passwords, types, placeholders, look-ups."""
_NO_QUOTED: Final = re.compile(
    r"(?i)(?:true|false|null|none|undefined|empty|string|str|text|hidden|masked|redacted|required|missing|password|passwort"
    r"|secret|token|[-*_.•x…\s]+|<.*>|(?-i:\$[A-Z_]+|\$[a-z_]+)|\$?\{.*\}|\$\(.*\)|%\w+%|your[_ -].*|enter .*|example.*|change[_-]?me.*|todo|tbd"
    r"|placeholder.*|must .*|should .*|.*\.{3}|\W{1,3})"
)
"""The same in quotation marks, where no code stands."""
_LABEL: Final = re.compile(rf"(?i)[^\W\d]*[\w ]{{0,30}}(?:{PASSWORD}|{_OTHERS})[^\W\d ]{{0,3}}")
"""A label of a field: "Repeat password", "API key"."""
_LONGEST_LABEL: Final = 40


def _is_label(value: str) -> bool:
    return len(value) <= _LONGEST_LABEL and _LABEL.fullmatch(value) is not None


_IN_SENTENCE: Final = re.compile(
    r"(?i)not|too|be|must|should|shall|will|may|can|cannot|at|the|a|an|this|that|it|its|your|our|my|his|her|their"
    r"|for|of|in|on|to|from|with|and|or|by|as|if|when|is|are|was|were|has|have|had|been|only|also|then|please|use"
    r"|user|users|required|der|die|das|ein|eine|nicht|und|oder|für|mit|ist|pour|le|la|les|une?|el|los|una|non|il|het"
    r"|een|niet|не|и|в|на"
)
"""Words that make a line after a key a sentence."""
WORD: Final = r"\pL+(?:[-'_.]\pL+)*|[0-9.,:%]{1,12}\w{0,2}"
_WORD: Final = re.compile(WORD.replace(r"\pL", r"[^\W\d_]"))
"""A word or a number; secrets other than passwords look different."""
_MOST_WORDS: Final = 6
_PARTS: Final = re.compile(r"[^\W_]+")


_ABOUT_IT: Final = re.compile(
    r"(?i).*(?:length|polic(?:y|ies)|ur[il]|link|file|path|field|type|hint|id|name|label|input|changed|reset|at|date"
    r"|count|expir\w*|age|required|enabled|match\w*|strength|rules?|page|form|manager|attempts?|regex|pattern|min|max"
    r"|env|var|ref|placeholder|column|limit|usage|budget|s|bucket|size|stdin|prompt|version|format|algorithm)"
)
"""Rest of a name that names something about a secret: ``password_min_length``, ``tokens``."""


def named_password(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the value after a word for a password, which ends at ``end``: whatever it looks like."""
    between = _BETWEEN.match(text, end)
    if between is None:
        yield from _directly(text, start, end)
    elif not _is_about_it(between) and not _is_placeholder(text, start):
        is_line = ":" in between["sign"] and not between["of"] and _is_alone(text, start)
        for begin, stop in _value(text, between.end(), is_line=is_line):
            if _is_password(text, between, begin, stop):
                yield begin, stop


def _is_about_it(between: re.Match[str]) -> bool:
    """Return whether the name goes on as that of something else: ``password_min_length``, or a quoted title."""
    return bool(_ABOUT_IT.fullmatch(between["tail"]) or (between["of"] and between["quote"]))


def _is_placeholder(text: str, start: int) -> bool:
    """Return whether a bracket opens before the name, as in ``[password]``, but not in ``user[password]``."""
    return text[max(0, start - 1) : start] == "[" and not text[max(0, start - 2) : start - 1].isalnum()


def _is_password(text: str, between: re.Match[str], begin: int, stop: int) -> bool:
    """Return whether a value is the password of the name that ``between`` follows."""
    if between["line"] and _is_of_next_line(text, between, begin, stop):
        return False
    if between["cjk"] and not _IN_CJK.match(text, begin, stop):
        return False
    return not between["of"] or _is_odd_in_sentence(text, between, begin, stop)


def _is_of_next_line(text: str, between: re.Match[str], begin: int, stop: int) -> bool:
    """Return whether a value on the line after the name is about something else."""
    return (
        ": " in text[begin:stop]
        or "(" in between.group()
        or "=" in between["sign"]
        or text[stop : stop + 1] not in {"", "\n"}
    )


def _is_odd_in_sentence(text: str, between: re.Match[str], begin: int, stop: int) -> bool:
    """Return whether a value some words after the name is neither a time nor a word of the sentence."""
    is_time = text[between.start("sign") - 1].isdigit() and text[begin].isdigit()
    ends = ":" in between["sign"] or "—" in between["sign"]
    return not is_time and _is_odd(text, begin, stop, ends=ends)


def _directly(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a value without a sign or a verb before it: "log in with password hunter2", or a cell of a list."""
    cell = _CELL.match(text, end)
    if cell is not None and _is_alone(text, start) and not NO_VALUE.fullmatch(cell[1]):
        yield cell.span(1)
    elif text[end : end + 1] == " " and text[end - 1 : end] != "=":
        for begin, stop in _value(text, end + 1, is_line=False):
            is_plain = text[begin - 1] in QUOTES and not _UNLIKE_WORDS.search(text, begin, stop)
            if _is_odd(text, begin, stop, ends=False) and not is_plain:
                yield begin, stop
                return
        ahead = _AHEAD.match(text, end)
        if ahead is not None and _is_very_odd(ahead[1]):
            yield ahead.start(1), ahead.start(1) + len(ahead[1].rstrip(_ENDS))


_CELL: Final = re.compile(r"[ \t]{2,40}(\S{3,200})[ \t]*(?:\n|$)")
_UNLIKE_WORDS: Final = re.compile(r"[\dA-Z]")
_AHEAD: Final = re.compile(
    r"(?i)(?:[ \t][\w'’/-]{1,30}){0,10}?[ \t](?:with|is|to|para|jadi|naar|auf|zu|ist|lautet|es|est|è|é|är|er|je|на|—)[ \t]"
    r"(?=[^\s\d]*\d)([^\s\"'<>()]{8,60})"
)


def _is_very_odd(value: str) -> bool:
    """Return whether a word mixes letters, digits and signs or cases, as nothing but a password does."""
    told = value.rstrip(_ENDS)
    is_mixed = re.search(r"[^\W\d_]", told) and re.search(r"\d", told) and re.search(r"[A-Z]|[^\w.:/-]", told)
    return len(told) >= _LEAST_AHEAD and bool(is_mixed) and not NO_VALUE.fullmatch(told)


_LEAST_AHEAD: Final = 8


def _is_odd(text: str, begin: int, stop: int, *, ends: bool) -> bool:
    """Return whether a value some words after the name is none of the sentence's own words.

    It is odd if it is in quotation marks, mixes letters with digits or signs, or ends the sentence after a colon.
    """
    if text[begin - 1 : begin] in QUOTES:
        return True
    if stop - begin >= LEAST and (
        not _WORD.fullmatch(text, begin, stop) or len(_PARTS.findall(text, begin, stop)) > 2
    ):
        return True
    return ends and text[stop : stop + 2].strip() in {"", ".", ",", "!", ";"} and stop - begin >= LEAST


_ASSIGNED: Final = re.compile(
    r"(?i)secret|(?:api|account|access|private|secret|signing|encryption|master)[ _.-]?key"
)
"""Names whose assigned value is taken whatever it looks like; a token may be a word of a text."""


def named_secret(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the value after a word for another secret, if it looks like neither a word nor a count."""
    between = _BETWEEN.match(text, end)
    if between is None or _is_about_it(between) or between["line"] or _is_pass(text[start:end], between):
        return
    is_assigned = _is_assigned(text, start, end, between)
    for begin, stop in _value(text, between.end(), is_line=False):
        is_taken = is_assigned or _is_phrase(text, between, begin, stop)
        if stop - begin >= LEAST and (is_taken or not _WORD.fullmatch(text, begin, stop)):
            yield begin, stop


def _is_pass(name: str, between: re.Match[str]) -> bool:
    """Return whether ``pass`` is a statement of Python, or a test's result."""
    return name.lower() == "pass" and bool(between["of"] or name.isupper())


def _is_assigned(text: str, start: int, end: int, between: re.Match[str]) -> bool:
    """Return whether a sign assigns the value to a name whose values are secrets whatever they look like."""
    is_direct = not between["of"] and between["sign"].strip() in {":", "="}
    return is_direct and _ASSIGNED.fullmatch(text, start, end) is not None


def _is_phrase(text: str, between: re.Match[str], begin: int, stop: int) -> bool:
    """Return whether a value directly after the name is several words in quotation marks."""
    if between["of"] or text[begin - 1 : begin] not in QUOTES:
        return False
    return " " in text[begin:stop] or len(_PARTS.findall(text, begin, stop)) > 2


LEAST: Final = 6
_KEY: Final = re.compile(r"""(?m)^[ \t>|*-]{0,40}(?:export |set |- )?["']?[\w .-]{0,40}$""")


def _is_alone(text: str, start: int) -> bool:
    """Return whether the name begins its line, as a key in YAML does."""
    line = text.rfind("\n", max(0, start - 80), start) + 1
    return _KEY.fullmatch(text, line, start) is not None


def _value(text: str, at: int, *, is_line: bool) -> Iterator[tuple[int, int]]:
    quoted = _QUOTED.match(text, at)
    if quoted is not None:
        group = quoted.lastindex or 1
        if not _NO_QUOTED.fullmatch(quoted[group].strip()) and not _is_label(quoted[group]):
            yield quoted.span(group)
        return
    bare = _BARE.match(text, at)
    if bare is None or re.match(r"!\w+\s", text[at : at + 40]):  # a tag of YAML
        return
    value = bare.group().rstrip(_ENDS) or bare.group()
    length = _line_length(text, at) if is_line else 0
    if length > len(bare.group()):
        yield at, at + length
    elif not NO_VALUE.fullmatch(value):
        yield at, at + len(value)


def _line_length(text: str, at: int) -> int:
    """Return the length of a passphrase that takes the rest of its line, 0 if that is a sentence."""
    line = _LINE.match(text, at)
    told = "" if line is None else re.split(r"\s+#|[,;]\s", line.group())[0].rstrip()
    words = told.split()
    is_sentence = len(words) > _MOST_WORDS or any(_IN_SENTENCE.fullmatch(word.strip(_ENDS)) for word in words)
    return 0 if is_sentence else len(told)


_MOST_ROWS: Final = 500
_LONGEST_ROW: Final = 1_000
_RULE: Final = re.compile(r"[\s|:=+-]*")


def password_column(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the cells below a column's head in Markdown, CSV, or a table with tabs or blanks.

    Only the first line of a table is its head: a line like it would have all rows read once more.
    """
    line = text.rfind("\n", max(0, start - _LONGEST_ROW), start) + 1
    stop = text.find("\n", end - 1, end + _LONGEST_ROW)
    head = text[max(line, start - _LONGEST_ROW) : max(stop, end)]
    sign = next((sign for sign in "|\t;," if sign in head), "")
    if stop < 0 or _is_in_table(_line_before(text, line), sign) or (sign == "," and ", " in head):
        return
    if not sign:
        indent = len(text[start:end]) - len(text[start:end].lstrip())
        yield from _aligned(text, start + indent, stop) if "  " in head.strip() else ()
        return
    column = text[max(line, start - _LONGEST_ROW) : max(line, end - 1)].count(sign)
    for at, row in _rows(text, stop):
        if _RULE.fullmatch(row):
            continue
        if row.count(sign) < head.count(sign) or (sign == "," and _is_prose(row)):
            return
        yield from _cell(row, at, sign, column)


def _is_in_table(before: str, sign: str) -> bool:
    """Return whether the line before a head is a row itself: of a table, only the first line is its head."""
    if not sign:
        return "  " in before.strip()
    return sign in before and not (sign == "," and _is_prose(before))


def _is_prose(row: str) -> bool:
    return ", " in re.sub(r'"[^"]*"', "", row)


def _line_before(text: str, line: int) -> str:
    begin = text.rfind("\n", max(0, line - _LONGEST_ROW), max(0, line - 1)) + 1
    return text[max(begin, line - _LONGEST_ROW) : max(0, line - 1)]


def _rows(text: str, stop: int) -> Iterator[tuple[int, str]]:
    """Yield the lines behind ``stop``, each with its place; ends at one that is too long."""
    for _ in range(_MOST_ROWS):
        at = stop + 1
        stop = text.find("\n", at, at + _LONGEST_ROW)
        row = text[at : at + _LONGEST_ROW if stop < 0 else stop]
        if row:
            yield at, row
        if stop < 0 or not row:
            return


def _aligned(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the cells that begin below ``start``, in a table whose columns are at least two blanks apart."""
    offset = start - (text.rfind("\n", 0, start) + 1)
    for at, row in _rows(text, stop):
        if len(row) <= offset or row[max(0, offset - 2) : offset].strip():
            return
        value = re.split(r"\s{2}", row[offset:])[0].strip()
        if value and not _RULE.fullmatch(value) and not NO_VALUE.fullmatch(value):
            yield at + offset, at + offset + len(value)


def inserted(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the passwords among the values of an INSERT, whose list of columns the match holds."""
    columns = text[start:end].partition("(")[2].partition(")")[0].split(",")
    places = [place for place, one in enumerate(columns) if re.search(NAMED_PASSWORD, one)]
    for row in re.finditer(r"\(([^()\n]{0,2000})\)", text[end : end + 4_000]):
        cells = list(re.finditer(r"'((?:[^']|'')*)'|[^,'\s][^,]*", row[1]))
        for place in places:
            if place < len(cells) and cells[place][1]:
                at = end + row.start(1)
                yield at + cells[place].start(1), at + cells[place].end(1)


INSERT: Final = rf"(?i)insert\s+into\s+[\w.\"`\[\]]{{1,100}}\s{{0,9}}\([^()]{{0,400}}(?:{PASSWORD})[^()]{{0,400}}\)\s{{0,9}}values\s{{0,9}}"
_CSV: Final = re.compile(r'"(?:[^"]|"")*"|[^,;]*')


def _cell(row: str, at: int, sign: str, column: int) -> Iterator[tuple[int, int]]:
    parts, place = row.split(sign), 0
    if sign in ",;" and '"' in row:
        parts = []
        while place <= len(row):
            found = _CSV.match(row, place)
            parts.append("" if found is None else found.group())
            place += len(parts[-1]) + 1
    if column >= len(parts):
        return
    before = sum(len(part) + 1 for part in parts[:column])
    value = parts[column].strip().strip(QUOTES)
    if value and not NO_VALUE.fullmatch(value):
        begin = at + before + parts[column].index(value)
        yield begin, begin + len(value)


_MOST_OF_TABLE: Final = 20_000
_MOST_COLUMNS: Final = 40
_LONGEST_TAG: Final = 200


def html_column(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the cells below a column's head in HTML; the head's cell ends at ``end``."""
    row = text.rfind("<tr", max(0, start - 2_000), start)
    other = text.rfind("<th", max(0, start - 2_000), start)
    column = text.count("<th", row, end) - 1
    is_first = other < 0 or other > row or "</table" in text[other:start]
    if row < 0 or not is_first or not 0 <= column < _MOST_COLUMNS:
        return
    last = text.find("</table", end, end + _MOST_OF_TABLE)
    last = min(len(text), end + _MOST_OF_TABLE) if last < 0 else last
    at = end
    for _ in range(_MOST_ROWS):
        begin = text.find("<tr", at, last)
        stop = text.find("</tr", begin, last) if begin >= 0 else -1
        if stop < 0:
            return
        yield from _html_cell(text, begin, stop, column)
        at = stop + 1


def _html_cell(text: str, begin: int, stop: int, column: int) -> Iterator[tuple[int, int]]:
    at = begin
    for _ in range(column + 1):
        at = text.find("<td", at + 1, stop)
        if at < 0:
            return
    at = text.find(">", at, min(stop, at + _LONGEST_TAG)) + 1
    while at and text[at : at + 1] == "<" and text[at : at + 2] != "</":  # markup within the cell
        at = text.find(">", at, min(stop, at + _LONGEST_TAG)) + 1
    close = text.find("<", at, min(len(text), at + _LONGEST_TAG + 1)) if at else -1
    value = text[at:close].strip() if close >= 0 else ""
    if value and not NO_VALUE.fullmatch(value):
        place = text.index(value, at)
        yield place, place + len(value)


HTML_COLUMN: Final = rf"(?i)<th\b[^>]{{0,100}}>\s{{0,9}}(?:{PASSWORD})\s{{0,9}}</th>"
_CODE_IN_LIST: Final = re.compile(
    r"[\s,;:>*|`\"'-]{0,9}(?:\d{1,2}[.)]\s{1,3})?([A-Za-z0-9]{3,12}(?:-[A-Za-z0-9]{3,12}){0,4})(?![\w-])"
)


def codes(text: str, _start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the codes listed after "recovery codes", up to the first that has no digit."""
    at = end
    for _ in range(_MOST_CODES):
        found = _CODE_IN_LIST.match(text, at)
        if found is None or not re.search(r"\d", found[1]) or len(found[1]) < LEAST:
            return
        yield found.span(1)
        at = found.end()


_MOST_CODES: Final = 40
CODES: Final = r"(?i)(?:recovery|backup|scratch|rescue) codes?[\"']?[^\n:]{0,80}[:=]?\s{0,6}"
COLUMN: Final = rf"""(?i)(?:(?m:^)|[|,;\t]|  )[ \t"'*]{{0,3}}(?:[\w.-]{{1,30}} )?[\w.-]{{0,30}}(?:{PASSWORD})[ \t"'*]{{0,3}}(?:[|,;\t\n]|  )"""
"""Head of a column of passwords."""
