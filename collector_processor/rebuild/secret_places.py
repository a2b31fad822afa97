# ruff: noqa: E501 - a pattern a line is a table
"""Secrets by their place (an option, an argument, a field, an address), and by their digits or randomness. Pure.

RE2 reads the patterns. The secret is the first group that matched. Keywords of fewer than four letters need
a pattern that begins with ``(?i)`` (``secret_rules``).

Cards, addresses, cookies and random tokens need more than a pattern: each public function gets a text and the
place of a pattern's match in it, and yields the secrets there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_GIVEN: Final = r"""(?:"([^"\n]{1,200})"|'([^'\n]{1,200})'|([^\s"'<>$|&;-][^\s"'<>|;]{0,200}))"""
_NAMES: Final = r"(?:PASS|PWD|SECRET|TOKEN|KEY|CREDENTIAL)"
_VALUE: Final = r"""(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"'<>$|&;-][^\s"'<>|;]*))"""
"""The same, of any length."""
_ON: Final = r"[^\n|;&]*?\s"
"""More of a command's line."""
COMMANDS: Final[tuple[tuple[str, str, str], ...]] = (
    ("redis-cli", r"\bredis-cli\b", rf"{_ON}(?:-a|--pass)\s+{_VALUE}"),
    (
        "login",
        r"\b(?:docker|podman|nerdctl|helm|oc|az|skopeo|buildah|argocd|cf)\b[^\n|;&]*?\blogin\b",
        rf"{_ON}-p\s?{_VALUE}",
    ),
    ("mysql mariadb", r"\b(?:mysql|mariadb)\w*(?:-dump)?\b", rf"{_ON}-p{_VALUE}"),
    (
        "mongo cqlsh sqlplus rabbitmqadmin useradd",
        r"\b(?:mongo\w*|cqlsh|sqlplus|rabbitmqadmin|useradd)\b",
        rf"{_ON}-p\s+{_VALUE}",
    ),
    (
        "sqlcmd bcp~ mosquitto_ ipmitool zip~",
        r"\b(?:sqlcmd|bcp|mosquitto_\w+|ipmitool|zip|unzip)\b",
        rf"{_ON}-P\s?{_VALUE}",
    ),
    ("7z~x 7z~a 7z~e 7za~", r"\b7za?\b", rf"{_ON}-p{_VALUE}"),
    ("openssl", r"\bopenssl\b", rf"{_ON}-(?:k|pass)\s+{_VALUE}"),
    ("ncftp", r"\bncftp\w*\b", rf"{_ON}-p\s+{_VALUE}"),
    ("ftp~", r"\bl?ftp\b", rf"{_ON}-u\s+[^\s,]+,([^\s\"']+)"),
    ("ldap", r"\bldap\w+\b", rf"{_ON}-w\s+{_VALUE}"),
    ("freerdp rdesktop mstsc", r"\b(?:xfreerdp|rdesktop|mstsc)\b", rf"{_ON}/p:{_VALUE}"),
    (
        "smbclient rpcclient smbmap winexe",
        r"\b(?:smbclient|rpcclient|smbmap|winexe)\b",
        rf"{_ON}-U\s?[\"']?[^\s%\"']+%([^\s\"']+)",
    ),
    (
        "curl wget http~",
        r"\b(?:curl|wget|https?|ab|hey)\b",
        rf"{_ON}(?:-u|--user|-a|--auth)[ =]?[\"']?([^\s:\"'/]*:[^\s\"']+)",
    ),
    ("net~use", r"\bnet\s+use\b", rf"(?s:.*?)/user:\S+\s+{_VALUE}"),
    ("net~use", r"\bnet\s+use\s", rf"\s*\S+\s(?s:.+?)\s{_VALUE}\s+/user:"),
    ("tacacs radius", r"\b(?:tacacs|radius)[\w-]*\b", rf"{_ON}key\s+(?:\d\s+)?{_VALUE}"),
)
"""Commands with a password among their arguments: the words of which a text must have one (``~`` for a blank), the
command's name, and what follows it up to the password.

Bounded repeats would be slow: in a text that repeats a name, each set of open counts is a new state for RE2, and a
byte takes microseconds. So the search has no bounds; ``is_near`` checks the distance afterwards.
"""
SETTINGS: Final[tuple[tuple[str, str], ...]] = (
    ("sshpass", rf"\bsshpass\s+-p\s?{_GIVEN}"),
    (
        "sqlplus impdp expdp sqlldr oracle",
        r"(?:\b(?:sqlplus|impdp|expdp|sqlldr)\s+(?:-\w+\s+)*|oracle:thin:)\w{1,40}/(?:\"([^\"\n]+)\"|([^\s@\"]+))@",
    ),
    ("auth~", rf">\s?AUTH\s+(?:\S{{1,40}}\s+)?{_GIVEN}"),
    ("assword", r"(?i)assword[^\n]{0,20}\n\s{0,20}send\s+(?:--\s)?[\"']([^\"'\\\n]{1,200})"),
    ("password={ pwd={", r"(?i)\b(?:password|pwd)=\{([^}\n]{3,100})\}"),
    (":5432: :*: :3306:", r"(?m)^[\w.*-]{1,100}:(?:\d{2,5}|\*):[\w*-]{1,60}:[\w*.-]{1,60}:(\S{3,200})$"),
    ("securestring", r"(?i)convertto-securestring\s+(?:-string\s+)?[\"']([^\"'\n]{1,200})[\"']"),
    (
        "login: credentials: credential: creds: user: username: account:",
        r"(?i)\b(?:login|credentials?|creds|user(?:name)?|account)\s{0,2}:\s{0,2}\S{1,80}\s/\s([^\n/ ]*(?:[A-Za-z][^\n/ ]*[0-9]|[0-9][^\n/ ]*[A-Za-z])[^\n/ ]*)",
    ),
    ("pass:", rf"\bpass:{_GIVEN}"),
    (
        "configure config~set",
        rf"\b(?:configure|config)\s+set\s+[\w.-]{{0,60}}(?i:{_NAMES})[\w.-]{{0,30}}[\s=]+{_GIVEN}",
    ),
    (
        "setx setenv env~ arg~",
        rf"(?m)(?:\bsetx\s+(?:/M\s+)?|^\s{{0,8}}(?:ENV|ARG|setenv)\s+)\w{{0,40}}(?i:{_NAMES})\w{{0,20}}\s+{_GIVEN}",
    ),
    (
        "--password-stdin passwd sudo cryptsetup",
        rf"\becho\s+(?:-n\s+)?{_GIVEN}\s{{0,3}}\|\s{{0,3}}(?:sudo\s+(?:-\w+\s+)*-S|[^|\n]{{0,120}}--password-stdin|passwd|cryptsetup)",
    ),
    ("chpasswd", r"\becho\s+[\"']?[\w.-]{1,40}:([^\s\"']{1,200})[\"']?\s{0,3}\|\s{0,3}(?:sudo\s+)?chpasswd"),
    ("net~user", rf"\bnet\s+user\s+\S{{1,60}}\s+{_GIVEN}\s+/add"),
    (":~eap :~psk :~xauth", r":\s(?:EAP|PSK|XAUTH)\s+[\"']([^\"'\n]{1,200})[\"']"),
    (
        "name=",
        r"(?i)<(?:parameter|param|property|arg|argument|entry|string|value|item|field)\b[^>\n]{0,80}name=[\"'][\w.-]{0,30}(?:password|passwd|secret|token|api_?key)[\"'][^>\n]{0,40}>([^<\n]{3,200})</",
    ),
    (
        "admin~/ root~/",
        r"\b(?:admin|root)\s/\s([^\s,;]*(?:[A-Za-z][^\s,;]*[0-9]|[0-9][^\s,;]*[A-Za-z])[^\s,;]*)",
    ),
    ("rootpw", rf"\brootpw\s+(?:--\w+\s+)*{_GIVEN}"),
    ("@tcp( @unix(", r"[\w.-]{1,60}:([^\s@\"'/]{1,100})@(?:tcp|unix)\("),
    (
        "password",
        r"(?i)password[^\"'\n]{0,20}[\"']\s{0,3},\s{0,3}(?:value|text)\s{0,3}=\s{0,3}[\"']([^\"'\n]{1,200})[\"']",
    ),
    (
        "login creds credentials",
        r"(?i)\b(?:login|creds|credentials)\b[^\n:]{0,40}(?:->|:|=)\s{0,3}[\w.@+-]{1,60}\s?/\s?([^\s/]*(?:[A-Za-z][^\s/]*[0-9]|[0-9][^\s/]*[A-Za-z])[^\s/]*)",
    ),
    ("pass", r"[a-z]Pass[\"']?\s{0,3}[:=]\s{0,3}[\"']([^\"'\n]{3,200})[\"']"),
    ("pin puk cvv cvc cvv2", r"(?i)\b(?:(?-i:PIN|PUK)|cvv2?|cvc)\s([0-9]{3,8})\b"),
    ("vault", rf"\bvault\s+login\s+(?:token=)?{_GIVEN}"),
    ("password secret", rf"(?i)\b(?:password|secret)\s+[0-9]\s+{_GIVEN}"),
    ("snmp-server", r"(?i)\bsnmp-server\s+community\s+(\S{3,100})"),
    (
        "password",
        r"""(?i)password["'][^\n]{0,60}\.(?:fill|type|send_?keys|set_?value|input)\(\s{0,3}["']([^"'\n]{1,200})["']""",
    ),
    ("htpasswd", rf"\bhtpasswd\s+-\w{{0,5}}b\w{{0,5}}\s+\S{{1,100}}\s+\S{{1,60}}\s+{_GIVEN}"),
    ("add_user change_password", rf"\b(?:add_user|change_password)\s+\S{{1,60}}\s+{_GIVEN}"),
    (
        "identified password~'",
        r"(?i)\b(?:identified\s+(?:with\s+\w{1,40}\s+)?by|password)\s+'([^'\n]{1,200})'",
    ),
)
"""Other commands and settings with a password: the words of which a text must have one, and the pattern."""
OPTION: Final = rf"(?i)(?:^|[\s\"'(])--?(?:[\w-]{{0,40}}[-_.])?(?:password|passwd|passphrase|\w{{0,20}}pass|pwd|passcode)[= ]{_GIVEN}"
OTHER_OPTION: Final = (
    r"(?i)(?:^|[\s\"'(])--?(?:[\w-]{0,40}[-_.])?(?:secret|token|api-?key|access-?key|private-?key|secret-?key"
    rf"|storepass|keypass|auth-?key)[= ]{_GIVEN}"
)
PAIR: Final = (
    r"""(?i)\(\s{0,3}["'](?:[\w-]{0,40}(?:api-?key|_key|_salt|token|secret|authorization|password|passwd))["']\s{0,3},"""
    r"""\s{0,20}["'](?:(?:bearer|basic|token|digest|apikey)\s+)?([^"'\n]{3,400})["']"""
)
"""Name and value as arguments or as a tuple."""
LOGIN: Final = (
    r"""(?i)(?:\bauth\s{0,3}=\s{0,3}|basicauth|digestauth|ntlmauth|\.login|\.authenticate|credentials?|set_?credentials"""
    r"""|\.auth)\(\s{0,3}["'][^"'\n]{1,100}["']\s{0,3},\s{0,3}["']([^"'\n]{1,200})["']"""
)
"""User and password as arguments or as a tuple."""
IN_ENV_LIST: Final = (
    rf"""(?i)\bname["']?\s{{0,3}}[:=]\s{{0,3}}["']?\w{{0,40}}(?:password|passwd|secret|token|api_?key)\w{{0,20}}["']?"""
    rf"""\s{{0,3}},?\s{{1,40}}["']?value["']?\s{{0,3}}[:=]\s{{0,3}}{_GIVEN}"""
)
"""An environment variable of a container: name and value in two fields."""
COOKIE: Final = (
    r"""(?i)\b(?:sessionid|phpsessid|jsessionid|asp\.net_sessionid|connect\.sid|csrftoken|csrf_token|xsrf-token"""
    r"""|_csrf|laravel_session|ci_session|sessid|session_cookie|session_token|auth_token|remember_\w{2,20}|\.aspxauth"""
    r"""|__secure-[\w-]{2,40}|__host-[\w-]{2,40}|authjs\.session-token|li_at)["']?\s{0,3}[:=]\s{0,3}["']?([^\s"',;&<>]{8,})"""
)
IN_ADDRESS: Final = (
    r"(?i)(?:[?&#]|\s-(?:d|-data\S{0,12})[ =][\"']?)(?:code|(?:access_|refresh_|id_|auth_)?token|api_?key|apikey|key|auth|passw(?:or)?d|pwd|otp|ticket|assertion"
    r"|client_secret|client_assertion|samlresponse|appid|app_key|signature|sig|hmac|secret|session|jwt)=([^&\s\"'<>)]{6,})"
)
HEX_KEY: Final = r"(?i)private[ _-]?key\W{1,12}(?:is\W{1,3}|0x){0,2}(?:0x)?([0-9a-f]{64})\b"
PHRASE: Final = r"(?i)(?:mnemonic|seed|recovery|backup)[\w ()]{0,40}(?:[:=]\s{0,3}[\"']?|\sis\s)((?:[a-z]{3,8}[ \n,]{1,3}){11,23}[a-z]{3,8})"
DIGEST: Final = r"""\bresponse=["']?([0-9a-f]{32,128})"""
CODE: Final = (
    r"(?i)(?:(?-i:\bPIN\b|\bOTP\b|\bPUK\b)|\bpin ?code|\bcvv2?\b|\bcvc\b|\b(?:one-time|verification|security|2fa|mfa"
    r"|authentication|alarm|door|gate|access|safe|entry|unlock|login|confirmation) (?:code|combination|password|passcode))"
    r"[\"']?(?: code| number)?(?:[ \t][\w'/-]{1,20}){0,6}?(?:[ \t]?[:=][ \t]?[\"']?|[ \t](?:is|was|ist|est|es|è|é)[ \t])"
    r"((?:[A-Z]{1,2}-?)?[0-9][0-9 -]{1,8}[0-9]#?)(?:[^\w%]|$)"
)
CODE_BEFORE: Final = r"(?i)\b(?:g-)?([0-9]{4,8}) is your [\w ]{0,40}code"
HTML_CELL: Final = (
    r"(?i)<(?:[\w.-]{1,20}:)?[\w.-]{0,30}(?:password|passwd|passwort)>\s{0,20}(?:<value>)?([^<\n]{3,200})</"
)
FIELD: Final = (
    r"""(?i)["'](?:element|field|label|selector|name|ref|target)["']\s{0,3}:\s{0,3}["'][^"'\n]{0,60}password[^"'\n]{0,40}["']"""
    r"""[^{}\n]{0,80}["'](?:text|value)["']\s{0,3}:\s{0,3}["']([^"'\n]{3,200})["']"""
)
"""What an agent types into a password's field."""
COOKIE_FIELDS: Final = (
    r"""(?i)"name"\s{0,3}:\s{0,3}"[^"\n]{1,60}"\s{0,3},\s{0,9}"value"\s{0,3}:\s{0,3}"([^"\n]{16,})"\s{0,3},\s{0,9}"""
    r"""(?:"(?:domain|path|expires|httponly|secure|samesite))"""
)
POSITIONAL: Final = (
    r"""(?i)(?:(?:getconnection|mysqli(?:_connect)?|\bpdo|createconnection)\(\s{0,9}["'][^"'\n]{0,200}["']\s{0,3},\s{0,9}"""
    r"""["'][^"'\n]{0,60}["']\s{0,3},\s{0,9}["']([^"'\n]{1,200})["']"""
    r"""|basic_?auth\(?\s{0,3}["'][^"'\n]{1,60}["']\s{0,3},\s{0,3}["']([^"'\n]{1,200})["']"""
    r"""|hmac\.new\(\s{0,3}b?["']([^"'\n]{3,200})["']|(?:wallet|privatekeytoaccount|fromprivatekey)\(\s{0,3}["']((?:0x)?[0-9a-f]{64})["'])"""
)
"""Arguments of well-known functions, by their place."""
TELEGRAM: Final = r"(?:bot|\b)([0-9]{8,10}:AA[\w-]{32,36})"
DISCORD: Final = r"(?:^|[^\w.-])([MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,40})"
_FARTHEST: Final = 220
"""In characters, from a command's name to the password."""
_LONGEST_PHRASE: Final = 200


def is_near(name: str, text: str, line: int, start: int, end: int) -> bool:
    """Return whether a command's name stands closely before its password, and the password is not a long text.

    Args:
        name: the name's pattern.
        text: the text.
        line: where the command begins.
        start: where the password begins.
        end: where the password ends.
    """
    found = re.compile(name, re.ASCII).search(text, max(line, start - _FARTHEST), start)
    return found is not None and (end - start <= _LONGEST_PHRASE or " " not in text[start:end])


def cards_in(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the payment cards in a run of digits with separators.

    A card is one group of digits, or several, as printed on cards; fractions, hashes and long tables of
    numbers hold none.
    """
    groups = [(found.start(), found.end()) for found in re.finditer(r"[0-9]+", text[start:end])]
    last = -1
    for first in range(len(groups)):
        for stop in range(first, first + (5 if len(groups) <= _MOST_GROUPS else 1)):
            if first <= last or stop >= len(groups):
                break
            begin, until = start + groups[first][0], start + groups[stop][1]
            if _is_card(text, begin, until):
                yield begin, until
                last = stop
                break


_MOST_GROUPS: Final = 7
_CARD: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]\d{2}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720))\d{12}"
    r"|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|(?:6011|64[4-9]\d|65\d\d|352[89]|35[3-8]\d|62\d\d|220[0-4])\d{12,15}"
    r"|(?:5018|50[23]8|5893|6304|67(?:59|6[1-3]))\d{8,15}"
)
"""Visa; Mastercard; American Express; Diners; Discover, JCB, UnionPay, Mir; Maestro (ISO/IEC 7812 ranges)."""
_GROUPED: Final = re.compile(r"\d{4}([ ._-])(?:\d{4}\1\d{4}(?:\1?\d{1,4}){1,2}|\d{6}\1\d{4,5})")
"""Printed groups: four digits each, or four, six and the rest."""


def _is_card(text: str, start: int, end: int) -> bool:
    shown = text[start:end]
    digits = re.sub(r"[ ._-]", "", shown)
    if digits != shown and not _GROUPED.fullmatch(shown):
        return False
    return bool(_CARD.fullmatch(digits)) and _luhn(digits) and _stands_alone(text, start, end)


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Return whether digits are part of neither a fraction nor a hash nor an id."""
    around = text[max(0, start - 2) : start], text[end : end + 2]
    if re.fullmatch(r"[0-9][.,]", around[0]) or re.fullmatch(r"[.][0-9]", around[1]):
        return False
    before = re.search(r"[0-9A-Za-z]*$", text[max(0, start - 40) : start])
    after = re.match(r"[0-9A-Za-z]*", text[end : end + 40])
    words = (before.group() if before else "", after.group() if after else "")
    return all(not word or (word.isalpha() and re.search(r"[g-zG-Z]", word)) for word in words)


def _luhn(digits: str) -> bool:
    doubled = [
        sum(divmod(2 * int(digit), 10)) if place % 2 else int(digit)
        for place, digit in enumerate(digits[::-1])
    ]
    return sum(doubled) % 10 == 0


_LOCAL_PART: Final = re.compile(r"""(?:"[^"\n@]{1,64}"|[\w+][\w.+%&'-]{0,63})$""")


def address(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the e-mail address whose ``@`` is at ``start``."""
    begin = max(0, start - 66)
    local = _LOCAL_PART.search(text[begin:start])
    if local:
        yield begin + local.start(), end


_MOST_OF_COOKIES: Final = 1_000
_COOKIE: Final = re.compile(r"=([^\s;,=\"']{16,})")
_REST: Final = re.compile(r"[^\s;,=\"']*")


def cookies(text: str, _start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the long values of a header ``Cookie`` or ``Set-Cookie``, whose name ends at ``end``.

    Its attributes are short.
    """
    until = end + len(re.split(r"[\r\n\"']", text[end : end + _MOST_OF_COOKIES], maxsplit=1)[0])
    for found in _COOKIE.finditer(text, end, until):
        rest = _REST.match(text, found.end())
        yield found.start(1), found.end() if rest is None else rest.end()


def random_token(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a token of mixed characters; lower-case ids, words and names of files are not tokens."""
    found = re.search(r"[A-Za-z][A-Za-z0-9]{1,9}[_-]([\w-]{32,})$", text[start:end])
    longest = max(re.split("[_-]", found[1]), key=len) if found else ""
    in_parts = found is not None and len(found[1]) >= 40 and len(longest) >= 16 and not _is_words(longest)
    is_long = len(longest) >= 32 or in_parts
    if found and is_long and all(re.search(each, longest) for each in ("[a-z]", "[A-Z]", "[0-9]")):
        yield start + found.start(), end


def _is_words(text: str) -> bool:
    """Return whether text looks like ``AnnualSummary2024``: random text changes its kind of character often.

    Of 16 random letters and digits, 1 in 200 looks like words.
    """
    changes = re.findall(r"(?<=[a-z])[^a-z]|(?<=[A-Z])[^A-Z]|(?<=[0-9])[^0-9]", text)
    return 3 * len(changes) < len(text) - 1
